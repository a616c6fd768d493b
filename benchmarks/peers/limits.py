"""What this machine allows: rounds per second if reading the data, or the products of the gradients, were all."""

import math

import numpy as np

from benchmarks.peers.jobs import Job
from benchmarks.rounds import timed

SIDE, TIMES = 1024, 10


def memory_limit(job: Job, X: np.ndarray) -> float:
    """Rounds per second if only the samples of a round were read, once, at the speed of a sum over all data."""
    best = min(timed(lambda: X.sum()) for _ in range(TIMES))
    return X.nbytes / best / (job.samples_per_round * math.prod(job.model.shape) * X.itemsize)


def arithmetic_limit(job: Job) -> float:
    """Rounds per second if the gradients' products ran as fast as one large matrix product on all cores."""
    a = np.ones((SIDE, SIDE), np.float32)
    best = min(timed(lambda: a @ a) for _ in range(TIMES))
    return 2 * SIDE**3 / best / (job.samples_per_round * job.model.flops())
