"""Seconds until each algorithm has done its first rounds: `python -m benchmarks.compiling`.

For each algorithm the same small federated lasso (16 clients, 128 features; 4 rounds of 5 local steps), in new
processes with a cache folder of its own: the first call with nothing on disk, the first call of the next process, and a
second call in that process. Seconds are those of `cofed.run` alone, without imports and data. CPU seconds are beside
them: on a machine that does other work they are the ones to compare. JSON first, then a table for docs/performance.md.
With --demo also `cofed demo`, twice, from start to end.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

CLIENTS, SAMPLES, FEATURES = 16, 64, 128


def algorithms():
    """Every algorithm, with what it needs beside the schedule."""
    import cofed

    ring = {"topology": cofed.topologies.ring(CLIENTS)}
    server = [
        *(cofed.FedAvg(0.01), cofed.FedMiD(0.01), cofed.FedDualAvg(0.01), cofed.FastFedDA(1.0, 100.0)),
        *(cofed.CFedDA(0.1, 100.0), cofed.MCFedDA(0.1, 100.0, strengths=(0.1, 0.05)), cofed.FedDecouple(0.01)),
        *(cofed.Scaffold(0.01), cofed.FedDR(0.01, eta=0.5), cofed.FedADMM(0.01, eta=0.5)),
        *(cofed.FedFISTA(100.0), cofed.FedNewton(), cofed.FedProx(0.1, client_lr=0.01), cofed.PureLocal(0.01)),
    ]
    gossip = [
        *(cofed.DFedMiD(0.01), cofed.DFedDA(0.01, gradient_tracking=True), cofed.DASM(0.01), cofed.DScaffold(0.01)),
        *(cofed.ReFedDAGT(0.01), cofed.MReFedDAGT(0.01, radius_squared=1.0, sparsity=8)),
    ]
    found = [(one, {}) for one in server] + [(one, ring) for one in gossip]
    return {type(one).__name__: (one, more) for one, more in found}


def job(name):
    """The calls of one process, as seconds of the clock and of the processor."""
    import numpy as np

    import cofed

    algorithm, more = algorithms()[name]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(CLIENTS, SAMPLES, FEATURES)).astype(np.float32)
    y = (X @ np.r_[np.ones(8), np.zeros(FEATURES - 8)]).astype(np.float32)
    federation = cofed.Federation.from_arrays(list(zip(X, y, strict=True)))
    regularizer = cofed.Zero() if "zero" in algorithm.needs else cofed.L1(0.1)
    problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), regularizer)
    calls, run = [], cofed.run  # loaded before the clock starts
    for _ in range(2):
        began = time.perf_counter(), time.process_time()
        run(problem, federation, algorithm, rounds=4, local_steps=schedule(algorithm), progress=False, **more)
        calls.append([time.perf_counter() - began[0], time.process_time() - began[1]])
    print(json.dumps(calls))


def schedule(algorithm):
    """Five local steps, or one where a method takes no more."""
    return 1 if type(algorithm).__name__ == "DASM" else 5


def process(command, cache):
    """What a process prints, and its CPU seconds and seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    env = os.environ | {"COFED_CACHE": cache}
    env.pop("JAX_COMPILATION_CACHE_DIR", None)
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, time.perf_counter() - began, cpu


def measured(name):
    """One algorithm: cold, then from disk, then in process."""
    with tempfile.TemporaryDirectory() as cache:
        (cold, _), (warm, again) = (
            json.loads(process([sys.executable, "-m", "benchmarks.compiling", "--job", name], cache)[0])
            for _ in range(2)
        )
    return {"algorithm": name, "cold": cold, "from_disk": warm, "second_call": again}


def demo():
    """`cofed demo`, twice, with an empty cache folder at first."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "cofed", "demo", "--out", f"{folder}/demo"]
        first, second = (process(command, f"{folder}/cache")[1:] for _ in range(2))
    return {"algorithm": "cofed demo", "cold": first, "from_disk": second}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="*", help="these algorithms; by default all")
    parser.add_argument("--demo", action="store_true", help="also the whole of `cofed demo`, twice")
    options = parser.parse_args()
    if options.job:
        job(options.job)
        return
    rows = []
    names = [*(algorithms() if options.only is None else options.only), *(["cofed demo"] if options.demo else [])]
    for name in names:
        rows.append(demo() if name == "cofed demo" else measured(name))
        parts = {
            k: dict(zip(("seconds", "cpu_seconds"), v, strict=True)) for k, v in rows[-1].items() if k != "algorithm"
        }
        print(json.dumps({"algorithm": name} | parts), flush=True)
    print("\n| seconds (CPU seconds) | first call | first call, programs on disk | second call |")
    print("| --- | --- | --- | --- |")
    for row in rows:
        cells = ("{:.2f} ({:.2f})".format(*row[k]) if k in row else "" for k in ("cold", "from_disk", "second_call"))
        print(f"| {row['algorithm']} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
