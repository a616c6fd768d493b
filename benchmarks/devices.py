"""Rounds per second on one device and on two, of the same job in one process: python -m benchmarks.devices

A CPU is split into as many devices as it has cores (or as --devices says). Every line is JSON; `efficiency` is the
speed-up over the number of devices. Both runs read the same data with the same draws; `apart` says how far the two
models are from each other, relative to the largest coefficient. `by_itself` is how many devices a run of 100 times as
many rounds would take unasked.
"""

import argparse
import json
import os
import time

import numpy as np

import cofed
from benchmarks import rounds
from cofed.engine.spec import RunSpec
from cofed.engine.spreading import spread


def jobs() -> dict[str, tuple]:
    """Some jobs with more and less to do between two messages."""
    rng = np.random.default_rng(0)
    truth = np.r_[np.ones(32), np.zeros(480)]
    large = [(X := rng.normal(size=(400, 512)).astype(np.float32), (X @ truth).astype(np.float32)) for _ in range(32)]
    problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(0.1))
    lasso = cofed.Federation.from_arrays(list(zip(*rounds.data(), strict=True)))
    everybody = cofed.Federation.from_arrays(large)
    sampled = {"clients_per_round": rounds.PER_ROUND, "local_epochs": 1, "batch_size": rounds.BATCH}
    ring = {"topology": cofed.topologies.ring(32), "local_steps": 10, "batch_size": 20}
    return {
        "lasso, 10 of 64 clients per round": (problem, lasso, cofed.FedDualAvg(1e-4), sampled, 2000),
        "everybody, 5 full gradients": (problem, everybody, cofed.FedDecouple(1e-3), {"local_steps": 5}, 200),
        "ring of 32, 10 steps": (problem, everybody, cofed.DFedDA(1e-4, gradient_tracking=True), ring, 500),
    }


def speed(mesh, problem, federation, algorithm, settings, count) -> tuple[float, np.ndarray]:
    """Rounds per second of the second call, best of three, and the model."""
    best, where = float("inf"), {"cores": 1} if mesh is None else {"mesh": mesh}
    for attempt in range(4):
        began = time.perf_counter()
        found = cofed.run(problem, federation, algorithm, rounds=count, evaluate_every=count, **where, **settings)
        if attempt:
            best = min(best, time.perf_counter() - began)
    return count / best, found.model.coef


def unasked(problem, federation, algorithm, settings, count) -> int:
    """How many devices a long run takes by itself."""
    asked = RunSpec(problem, federation, algorithm, rounds=100 * count, evaluate_every=count, **settings)
    mesh = spread(asked, None).mesh
    return 1 if mesh is None else mesh.size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=os.cpu_count() or 1)
    devices = parser.parse_args().devices
    mesh = cofed.mesh(devices)
    for name, job in jobs().items():
        one, there = speed(None, *job)
        many, here = speed(mesh, *job)
        apart = float(np.abs(here - there).max() / np.abs(there).max())
        print(
            json.dumps(
                {
                    "job": name,
                    "rounds_per_second": {"1": round(one, 1), str(devices): round(many, 1)},
                    "speed_up": round(many / one, 3),
                    "efficiency": round(many / one / devices, 3),
                    "apart": apart,
                    "by_itself": unasked(*job),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
