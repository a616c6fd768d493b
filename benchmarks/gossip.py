"""Rounds per second without a server, beside the same job as a NumPy loop in the same run, as JSON lines.

    python -m benchmarks.gossip [--rounds N]

First job: DFedDA with gradient tracking, 16 nodes on a chain, d = 1024, 10 local steps of batch 10, float32, on fixed
data (256 samples per node) and on a stream (1.6 million fresh normals per round). Second: the cost per round on rings
of 10 to 10,000 nodes (d = 32, 5 local steps of batch 10), which should grow like the number of nodes.
"""

import argparse
import json
import time

import numpy as np

NODES, D, K, BATCH, SAMPLES, LR = 16, 1024, 10, 10, 256, 0.0005


def truths():
    """Dense local truths whose mean is sparse, as in liang2023."""
    rng = np.random.default_rng(0)
    shifts = rng.normal(size=(NODES, D))
    return (np.r_[np.ones(16), np.zeros(D - 16)] + shifts - shifts.mean(axis=0)).astype(np.float32)


def numpy_rounds(rounds, local, U, data):
    """The same recursion as a loop over nodes and steps; `data` is None on a stream."""
    rng = np.random.default_rng(0)
    lr = np.float32(LR)

    def batch(m):
        if data is None:
            X = rng.standard_normal((BATCH, D), dtype=np.float32)
            return X, X @ local[m] + rng.standard_normal(BATCH, dtype=np.float32)
        rows = rng.choice(SAMPLES, BATCH, replace=False)
        return data[0][m, rows], data[1][m, rows]

    def gradient(m, x):
        X, y = batch(m)
        return X.T @ (X @ x - y) / np.float32(BATCH)

    z = np.zeros((NODES, D), np.float32)
    g = np.stack([gradient(m, z[m]) for m in range(NODES)])
    c = U @ g - g
    began = time.perf_counter()
    for _ in range(rounds):
        end = np.empty_like(z)
        for m in range(NODES):
            x = z[m]
            for _ in range(K):
                x = x - lr * (gradient(m, x) + c[m])
            end[m] = x
        delta = (end - z) / (K * lr)
        c = c + delta - U @ delta
        z = U @ (z + K * lr * delta)
    return rounds / (time.perf_counter() - began), z


def federation(streaming, local):
    """The federation, and the arrays of the NumPy loop (None on a stream)."""
    import jax
    import jax.numpy as jnp

    import cofed

    rng = np.random.default_rng(1)
    if not streaming:
        X = rng.standard_normal((NODES, SAMPLES, D), dtype=np.float32)
        y = np.einsum("mnd,md->mn", X, local) + rng.standard_normal((NODES, SAMPLES), dtype=np.float32)
        return cofed.Federation.from_arrays(list(zip(X, y, strict=True))), (X, y)
    known = jnp.asarray(local)

    def draw(key, client, size):
        sample = jax.random.normal(key, (size, D + 1), jnp.float32)
        X = sample[:, :D]
        return X, X @ known[client] + sample[:, D]

    return cofed.Federation.from_stream(draw, NODES, samples=16), None


def chain(rounds):
    """The first job."""
    import cofed

    local = truths()
    topology = cofed.topologies.chain(NODES)
    U = topology.matrix().astype(np.float32)
    problem = cofed.Problem(cofed.Linear(intercept=False))
    method = cofed.DFedDA(LR, gradient_tracking=True)
    for streaming in (False, True):
        fed, data = federation(streaming, local)
        options = {"topology": topology, "local_steps": K, "batch_size": BATCH, "evaluate_every": 10**9}
        first = cofed.run(problem, fed, method, rounds=1, **options)
        count = rounds // 10 if streaming else rounds
        runs = [cofed.run(problem, fed, method, rounds=count, seed=s, **options) for s in range(3)]
        rate = max(count / run.history["seconds"][-1] for run in runs)
        slow = max(numpy_rounds(max(3, count // 5), local, U, data)[0] for _ in range(3))
        say(
            job=f"DFedDA-GT, chain of {NODES}, d={D}, K={K}, batch {BATCH}, float32",
            data="stream" if streaming else "fixed",
            rounds_per_second=round(rate, 1),
            numpy_rounds_per_second=round(slow, 1),
            ratio=round(rate / slow, 2),
            compile_seconds=round(first.history.compile_seconds, 2),
        )


def rings():
    """The second job."""
    import cofed

    problem = cofed.Problem(cofed.Linear(intercept=False))
    rng = np.random.default_rng(0)
    for nodes in (10, 100, 1000, 10000):
        X = rng.standard_normal((nodes, 20, 32), dtype=np.float32)
        y = X.sum(axis=2) + rng.standard_normal((nodes, 20), dtype=np.float32)
        fed = cofed.Federation.from_arrays(list(zip(X, y, strict=True)))
        topology = cofed.topologies.ring(nodes)
        options = {"topology": topology, "local_steps": 5, "batch_size": 10, "evaluate_every": 10**9}
        method = cofed.DFedDA(0.01, gradient_tracking=True)
        rounds = max(20, 20000 // nodes)
        runs = [cofed.run(problem, fed, method, rounds=rounds, **options) for _ in range(3)]
        seconds = min(run.history["seconds"][-1] for run in runs) / rounds
        say(
            job="DFedDA-GT on a ring, d=32, K=5, batch 10",
            nodes=nodes,
            microseconds_per_round=round(seconds * 1e6, 1),
            microseconds_per_round_and_node=round(seconds * 1e6 / nodes, 2),
        )


def say(**fields):
    print(json.dumps(fields), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500, help="rounds on fixed data; a stream runs a tenth of them")
    chain(parser.parse_args().rounds)
    rings()


if __name__ == "__main__":
    main()
