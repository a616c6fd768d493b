"""The benchmark's jobs at tiny size, with no randomness left: everybody in every round, batches of all samples."""

import dataclasses

import numpy as np
from benchmarks.peers.jobs import JOBS
from benchmarks.peers.models import L1, Multinomial, Network, Nuclear, Squares


def tiny(key, local_steps=3):
    """The job, small."""
    model = {
        Squares: lambda m: Squares((6,) * len(m.shape)),
        Multinomial: lambda m: Multinomial((6,), 3),
        Network: lambda m: Network((8, 8), 3, maps=(4, 5), hidden=(6,)),
    }[type(JOBS[key].model)](JOBS[key].model)
    shrink = {L1: L1(0.02), Nuclear: Nuclear(0.02)}[type(JOBS[key].regularizer)]
    sizes = {"clients": 5, "per_round": 5, "samples": 7, "batch": 7, "local_steps": local_steps, "lr": 0.05}
    return dataclasses.replace(JOBS[key], model=model, regularizer=shrink, **sizes)


def numbers(job):
    """Data of the job's shapes, and its start moved off zero."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(job.clients, job.samples, *job.model.shape)).astype(np.float32)
    if isinstance(job.model, Squares):
        y = rng.normal(size=X.shape[:2]).astype(np.float32)
    else:
        y = rng.integers(0, job.model.classes, X.shape[:2]).astype(np.int32)
    w0 = {k: v + 0.1 * rng.normal(size=v.shape).astype(np.float32) for k, v in job.model.start().items()}
    return X, y, w0
