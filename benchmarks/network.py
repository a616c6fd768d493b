"""What a round over Flower costs: seconds and bytes for models of d numbers, from real processes on loopback.

    python -m benchmarks.network --d 1000 --d 100000 --sites 2 --rounds 3

`work` is cofed's own part of a site's reply as the site measured it (reading its data, compiled programs from disk, the
local steps); what Flower and Python's imports take is the rest.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from cofed.flower.federate import PROJECT
from cofed.flower.processes import LocalNetwork

SAMPLES = 4
MODULE = '''"""The benchmark's app."""

from pathlib import Path

import numpy as np

import cofed
from cofed.flower import client_app, server_app
from cofed.sites.policy import TRIAL

problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(0.01))
algorithm = cofed.FedDualAvg(0.01)


def keep(node):
    return Path(node["data"]).with_suffix(".kept")


def load(node):
    with np.load(node["data"]) as file:
        return file["X"], file["y"]


server = server_app(problem, algorithm, local_steps=10, evaluate_every=None, rounds=1, clients=1, plain=True)
client = client_app(problem, algorithm, load, keep=keep, plain=True, policy=TRIAL)
'''
CONFIG = '[tool.flwr.app.config]\nrounds = 1\nclients = 1\ncheckpoint = ""\ndeadline = 600.0\npatience = 900.0\n'


def measure(d: int, sites: int, rounds: int, folder: Path) -> dict[str, float]:
    """Seconds of a round after the first, and the bytes of a message each way."""
    app = folder / "app"
    (app / "federate").mkdir(parents=True)
    (app / "pyproject.toml").write_text(PROJECT.split("[tool.flwr.app.config]")[0] + CONFIG)
    (app / "federate" / "__init__.py").write_text("")
    (app / "federate" / "apps.py").write_text(MODULE)
    rng = np.random.default_rng(0)
    with LocalNetwork(folder) as network:
        network.superlink()
        for number in range(sites):
            X = (rng.normal(size=(SAMPLES, d)) / np.sqrt(d)).astype(np.float32)  # so that no size diverges
            np.savez(folder / f"{number}.npz", X=X, y=X[:, 0])
            network.supernode(f"site{number}", data=str(folder / f"{number}.npz"))
        out = folder / "result"
        run = network.run(app, rounds=rounds, clients=sites, checkpoint=str(out))
        if run.wait(1800):
            sys.exit(network.tail("run"))
    lines = [json.loads(line) for line in (out / "progress.jsonl").read_text().splitlines()]
    ended = [line for line in lines if line["kind"] == "round"]
    later = [line["seconds"] for line in ended]
    work = [line["work"] for line in lines if line["kind"] == "heard" and line["round"] > 0]
    return {
        "d": d,
        "first round, s": later[0],
        "a later round, s": (later[-1] - later[0]) / max(1, len(later) - 1),
        "work at a site, s": float(np.median(work)) if work else float("nan"),
        "bytes down": ended[-1]["bytes_down"] / len(ended) / sites,
        "bytes up": ended[-1]["bytes_up"] / len(ended) / sites,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What a round over Flower costs.")
    parser.add_argument("--d", type=int, action="append", help="numbers of the model; may be repeated")
    parser.add_argument("--sites", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for size in given.d or [1_000, 100_000]:
        with tempfile.TemporaryDirectory() as where:
            print(json.dumps(measure(size, given.sites, given.rounds, Path(where))), flush=True)
