"""Flower's simulation: its own FedAvg strategy, with a prox after the mean, a ClientApp on PyTorch, Ray underneath.

One simulation serves all calls, so Ray's start counts for none of them.
"""

import logging
import os
import time

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.contenders.flower_client import app as client_app
from benchmarks.peers.in_torch import module_of, prox_of
from benchmarks.peers.jobs import JOBS, Job
from benchmarks.peers.measure import Ran, arguments, carry_out
from benchmarks.peers.models import Leaves


class ProxFedAvg(FedAvg):
    """FedAvg, and a prox of the mean."""

    def __init__(self, job: Job):
        fraction = job.per_round / job.clients
        super().__init__(fraction_train=fraction, fraction_evaluate=0.0, min_train_nodes=job.per_round)
        self.prox, self.span = prox_of(job), job.lr * job.steps

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is None:
            raise RuntimeError(f"no client answered in round {server_round}")
        with torch.no_grad():
            mean = arrays.to_torch_state_dict()
            return ArrayRecord({name: self.prox(leaf, self.span) for name, leaf in mean.items()}), metrics


def prepare(job: Job, X: np.ndarray, y: np.ndarray, w0: Leaves, grid: Grid, path: str):
    """A function that runs so many rounds from the start."""
    module = module_of(job, w0)
    start = {name: leaf.clone() for name, leaf in module.state_dict().items()}

    def run(rounds: int) -> Ran:
        config = ConfigRecord({"job": job.key, "data": path})
        began = time.perf_counter()
        result = ProxFedAvg(job).start(grid, ArrayRecord(start), num_rounds=rounds, train_config=config)
        seconds = time.perf_counter() - began
        module.load_state_dict(result.arrays.to_torch_state_dict())
        return Ran(module.leaves(), seconds)

    return run


if __name__ == "__main__":
    logging.getLogger("flwr").setLevel(logging.WARNING)
    given, server_app = arguments(), ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        def ready(job, X, y, w0):
            return prepare(job, X, y, w0, grid, str(given.data.resolve()))

        carry_out(given, ready, packages=("flwr", "ray", "torch", "numpy"))

    run_simulation(
        server_app,
        client_app,
        num_supernodes=JOBS[given.job].clients,
        backend_config={
            "init_args": {"num_cpus": os.cpu_count(), "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
