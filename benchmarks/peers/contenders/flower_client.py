"""The ClientApp of Flower's contender: a module of its own, so that Ray's processes import it, data and all, once."""

import functools

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.peers import data
from benchmarks.peers.in_torch import ProxSGD, module_of, prox_of
from benchmarks.peers.jobs import JOBS

app = ClientApp()


@functools.cache
def loaded(key: str, path: str):
    """The job, its data as tensors, and its model."""
    torch.set_num_threads(1)  # a process per core
    job, (X, y, w0) = JOBS[key], data.read(path)
    labels = y.astype(np.int64) if y.dtype.kind == "i" else y
    return job, torch.from_numpy(X), torch.from_numpy(labels), module_of(job, w0), np.random.default_rng()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Local proximal SGD on this client's own data."""
    config = message.content["config"]
    job, X, y, module, rng = loaded(config["job"], config["data"])
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = ProxSGD(module.parameters(), job.lr, prox_of(job))
    m, order = context.node_config["partition-id"], torch.from_numpy(rng.permutation(job.samples))
    for k in range(job.steps):
        rows = order[k * job.batch : (k + 1) * job.batch]
        optimizer.zero_grad()
        module.loss(X[m][rows], y[m][rows]).backward()
        optimizer.step()
    content = {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": job.samples})}
    return Message(RecordDict(content), reply_to=message)
