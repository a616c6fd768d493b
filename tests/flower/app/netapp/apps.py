"""The network tests' app: six methods on small data, and sites that go wrong on demand."""

import os
import signal
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

import cofed
from cofed.flower import client_app, server_app
from cofed.sites.policy import TRIAL

RELEASE = "release"  # a file in the data's folder: a slow site works on when it is there
SETTINGS = {"local_steps": 4, "batch_size": 5, "seed": 3, "weights": "samples"}
METHODS = {
    "FedDualAvg": cofed.FedDualAvg(0.02, 1.2),
    "FastFedDA": cofed.FastFedDA(mu=0.1, L=20.0),
    "FedDecouple": cofed.FedDecouple(0.02, 1.2),
    "Scaffold": cofed.Scaffold(0.02, 1.2),
    "FedProx": cofed.FedProx(strength=0.5, client_lr=0.02),
    "Compressed": cofed.Compressed(cofed.FedDecouple(0.02, 1.2), cofed.TopK(0.3)),
}


def problem(config):
    psi = cofed.Zero() if config["method"] == "Scaffold" else cofed.L1(0.05)
    return cofed.Problem(cofed.Linear(intercept=True), cofed.Squared(), psi)


def algorithm(config):
    return METHODS[config["method"]]


def load(node):
    with np.load(Path(node["data"]) / f"{node['site']}.npz") as file:
        return file["X"], file["y"]


def keep(node):
    return Path(node["data"]) / "kept" / node["site"]


server = server_app(problem, algorithm, clients=3, plain=True, **SETTINGS)


def faulty(message, context, call_next):
    """Sites go wrong in the ways and rounds that the run's configuration says: "nan@0:cork shape@1:cork"."""
    head = message.content.config_records["cofed"]
    if message.metadata.message_type != "train":
        return call_next(message, context)
    here = f"@{head['round']}:{context.node_config['site']}"
    kind = next((one.removesuffix(here) for one in context.run_config["fault"].split() if one.endswith(here)), None)
    if kind is None:
        return call_next(message, context)
    while kind == "slow" and not (Path(context.node_config["data"]) / RELEASE).exists():
        time.sleep(0.2)
    if kind == "killed":
        once = Path(context.node_config["data"]) / "killed-once"
        if not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    reply = call_next(message, context)
    if kind == "nan":
        change = {name: np.full(array.shape, np.nan, array.dtype) for name, array in arrays(reply).items()}
    elif kind == "shape":
        change = {name: np.zeros(3, array.dtype) for name, array in arrays(reply).items()}
    elif kind in ("round", "algorithm"):
        reply.content.config_records["cofed"][kind] = 99 if kind == "round" else "FedSecret"
        return reply
    elif kind == "garbage":
        return Message(RecordDict({"cofed": ConfigRecord({"x": b"\x80\x04garbage"})}), reply_to=message)
    else:
        return reply
    reply.content["up"] = ArrayRecord({name: Array(array) for name, array in change.items()})
    return reply


def arrays(reply):
    return {name: array.numpy() for name, array in reply.content["up"].items()}


client = client_app(problem, algorithm, load, keep=keep, plain=True, policy=TRIAL, mods=[faulty])
