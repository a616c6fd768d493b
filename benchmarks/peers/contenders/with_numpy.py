"""A plain NumPy loop over rounds, clients and batches."""

import time

import numpy as np

from benchmarks.peers.in_numpy import gradient_of, prox_of
from benchmarks.peers.jobs import Job
from benchmarks.peers.measure import Ran, main
from benchmarks.peers.models import Leaves


def prepare(job: Job, X: np.ndarray, y: np.ndarray, w0: Leaves):
    """A function that runs so many rounds from the start."""
    rounds_of = on_ring if job.ring else through_server

    def run(rounds: int) -> Ran:
        began = time.perf_counter()
        model = rounds_of(job, X, y, w0, rounds)
        return Ran(model, time.perf_counter() - began)

    return run


def batches(job: Job, rng: np.random.Generator):
    """The rows of each local step of a client."""
    if job.local_steps is None:
        order = rng.permutation(job.samples)
        return [order[k * job.batch : (k + 1) * job.batch] for k in range(job.steps)]
    return [rng.choice(job.samples, job.batch, replace=False, shuffle=False) for _ in range(job.steps)]


def through_server(job: Job, X: np.ndarray, y: np.ndarray, w0: Leaves, rounds: int) -> Leaves:
    """FedMiD."""
    rng, gradient, prox, lr = np.random.default_rng(0), gradient_of(job), prox_of(job), np.float32(job.lr)
    w, part = w0, np.float32(1 / job.per_round)
    for _ in range(rounds):
        total = {name: np.zeros_like(leaf) for name, leaf in w.items()}
        for m in rng.choice(job.clients, job.per_round, replace=False):
            x, own, labels = w, X[m], y[m]
            for rows in batches(job, rng):
                g = gradient(x, own[rows], labels[rows])
                x = prox({name: leaf - lr * g[name] for name, leaf in x.items()}, job.lr)
            for name, leaf in x.items():
                total[name] += leaf
        w = prox({name: part * leaf for name, leaf in total.items()}, job.lr * job.steps)
    return w


def on_ring(job: Job, X: np.ndarray, y: np.ndarray, w0: Leaves, rounds: int) -> Leaves:
    """DFedDA with gradient tracking; the models are linear, so there is one leaf."""
    rng, gradient, prox, lr = np.random.default_rng(0), gradient_of(job), prox_of(job), np.float32(job.lr)
    span = np.float32(job.steps * job.lr)
    shrunk = lambda z, t: prox({"coef": z}, t)  # noqa: E731
    z = np.stack([w0["coef"]] * job.clients)
    first = [gradient(w0, X[m, rows], y[m, rows])["coef"] for m in range(job.clients) for rows in batches(job, rng)[:1]]
    g = np.stack(first)
    c, elapsed = mixed(g) - g, 0.0
    for _ in range(rounds):
        end = np.empty_like(z)
        for m in range(job.clients):
            x, own, labels, correction = z[m], X[m], y[m], c[m]
            for k, rows in enumerate(batches(job, rng)):
                g = gradient(shrunk(x, elapsed + job.lr * k), own[rows], labels[rows])["coef"]
                x = x - lr * (g + correction)
            end[m] = x
        delta = (end - z) / span
        c = c + delta - mixed(delta)
        z, elapsed = mixed(end), elapsed + float(span)
    return shrunk(z.mean(axis=0), elapsed)


def mixed(values: np.ndarray) -> np.ndarray:
    """The gossip matrix of a ring with Metropolis weights: a third of each neighbour and of oneself."""
    return (values + np.roll(values, 1, axis=0) + np.roll(values, -1, axis=0)) / np.float32(3)


if __name__ == "__main__":
    main(prepare, packages=("numpy",))
