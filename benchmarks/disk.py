"""Clients on disk against clients in memory: rounds per second, peak memory, seconds to build the index, as JSON.

    python -m benchmarks.disk [--folder DIR] [--clients N] [--samples S] [--rounds R] [--keep]

The job: sparse linear regression, clients of S = 20 samples x 50 features (float32), 100 clients per round, one local
epoch of batch 10, FedDualAvg. It runs on N = 1,000,000 clients on disk, on 10,000 on disk and on the same 10,000 in
memory, each in a process of its own (so that the peak memory is its own), and Scaffold, which keeps a vector per
client, on disk too. The files (about 4 GB of parquet, as much of index) are written into a temporary folder (in DIR)
and removed.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

D, PER_ROUND, BATCH, SMALL = 50, 100, 10, 10_000
GROUP = 5_000  # clients that are written at a time
COLUMNS = [f"x{j}" for j in range(D)]


def write(path, clients, samples):
    """The table of so many clients, a few at a time; the same numbers for the same client however many there are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    truth = np.r_[np.ones(10), np.zeros(D - 10)].astype(np.float32)
    schema = pa.schema([("client", pa.int32())] + [(name, pa.float32()) for name in [*COLUMNS, "y"]])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=["client"]) as writer:
        for first in range(0, clients, GROUP):
            rng = np.random.default_rng([0, first])
            count = min(GROUP, clients - first)
            centre = 0.3 * rng.standard_normal((count, 1, D), np.float32)
            X = (centre + rng.standard_normal((count, samples, D), np.float32)).reshape(-1, D)
            y = X @ truth + rng.standard_normal(len(X), np.float32)
            who = np.repeat(np.arange(first, first + count, dtype=np.int32), samples)
            writer.write_table(pa.table([who, *np.ascontiguousarray(X.T), y], schema=schema))


def child(task, path, rounds):
    """One measurement, in this process."""
    import cofed

    found = {"task": task, "file": Path(path).stem}
    began = time.perf_counter()
    asked = {"target": "y", "client": "client", "features": COLUMNS}
    if task == "memory":
        federation = cofed.Federation.from_parquet(path, **asked)
    else:
        federation = cofed.Federation.from_parquet(path, on_disk=True, **asked)
    found["open_seconds"] = round(time.perf_counter() - began, 2)
    if task != "index":
        found |= rounds_per_second(cofed, task, federation, rounds)
    found["peak_memory_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)
    print(json.dumps(found))


def rounds_per_second(cofed, task, federation, rounds):
    """The job, three times: the machine may be shared, so the best counts. A full measurement is timed apart."""
    if task == "disk with state":
        problem, algorithm = cofed.Problem(cofed.Linear(intercept=False)), cofed.Scaffold(0.02)
    else:
        problem = cofed.Problem(cofed.Linear(intercept=False), regularizer=cofed.L1(0.01))
        algorithm = cofed.FedDualAvg(0.02)
    schedule = {"local_epochs": 1, "batch_size": BATCH, "clients_per_round": PER_ROUND}
    some = federation if task == "memory" else federation.measured_on(100)
    first = cofed.run(problem, some, algorithm, rounds=1, **schedule)
    times = []
    for seed in range(3):
        result = cofed.run(problem, some, algorithm, rounds=rounds, seed=seed, evaluate_every=rounds, **schedule)
        times.append(result.history["seconds"][-1])
    whole = cofed.run(problem, federation, algorithm, rounds=1, **schedule)
    return {
        "clients": federation.n_clients,
        "rounds_per_second": round(rounds / min(times), 1),
        "all_rounds_per_second": [round(rounds / t, 1) for t in times],
        "objective": [float(result.history["objective"][i]) for i in (0, -1)],
        "compile_seconds": round(first.history.compile_seconds, 2),
        "round_and_full_measurement_seconds": round(float(whole.history["seconds"][-1]), 2),
    }


def in_a_process(task, path, rounds):
    """A measurement in a process of its own."""
    arguments = ["--child", task, "--folder", str(path), "--rounds", str(rounds)]
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks.disk", *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    print(told.stdout.strip(), flush=True)
    return json.loads(told.stdout)


def compare(folder, clients, samples, rounds):
    """All measurements, and the figures that they are for."""
    large, small = (folder / f"clients-{count}-{samples}.parquet" for count in (clients, SMALL))
    for path, count in ((large, clients), (small, SMALL)):
        if not path.exists():
            write(path, count, samples)
    index = in_a_process("index", large, rounds)
    in_a_process("index", small, rounds)
    memory = in_a_process("memory", small, rounds)
    few, many, state = (
        in_a_process(task, path, rounds)
        for task, path in (("disk", small), ("disk", large), ("disk with state", large))
    )
    rate = lambda found: found["rounds_per_second"]  # noqa: E731
    return {
        "job": f"{clients} clients of {samples} x {D}, {PER_ROUND} per round, an epoch of batch {BATCH}, float32",
        "peak_memory_gb": many["peak_memory_gb"],
        "peak_memory_gb_with_state": state["peak_memory_gb"],
        "slower_than_10000_in_memory": round(rate(memory) / rate(many), 2),
        "slower_than_10000_on_disk": round(rate(few) / rate(many), 2),
        "index_seconds": index["open_seconds"],
        "index_peak_memory_gb": index["peak_memory_gb"],
        "parquet_gb": round(large.stat().st_size / 2**30, 2),
        "cores": os.cpu_count(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where the files go (default: a temporary folder)")
    parser.add_argument("--clients", type=int, default=1_000_000, help="clients of the large federation")
    parser.add_argument("--samples", type=int, default=20, help="samples of each client")
    parser.add_argument("--rounds", type=int, default=2000, help="rounds of each run")
    parser.add_argument("--keep", action="store_true", help="keep the files in DIR, and use those that are there")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child, asked.folder, asked.rounds)
        return
    folder = Path(tempfile.mkdtemp(prefix="cofed-disk-", dir=asked.folder)) if not asked.keep else Path(asked.folder)
    try:
        print(json.dumps(compare(folder, asked.clients, asked.samples, asked.rounds)), flush=True)
    finally:
        if not asked.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
