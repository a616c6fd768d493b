"""Forecasts beside what is then measured, on three jobs: `python -m benchmarks.forecast`.

    lasso    64 clients x 128 samples, d = 1024, 10 per round, one local epoch of batch 10: FedDualAvg
    softmax  1,000 clients x 60 samples of 784 pixels, 10 classes, 100 per round, 5 steps of batch 20: FedDecouple
    nuclear  an experiment file: a 32 x 32 matrix of low rank, two algorithms, one with a grid, two seeds

Each job is forecast in one new process and then run in another. Printed are JSON lines with both and predicted /
measured, for seconds per round (evaluations included), all seconds after the data, peak memory, its growth since the
imports, and bytes on the wire. On a machine that does other work, --cpu counts the processor's seconds in both.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOW_RANK = """
title = "low rank"
seeds = 2
[data]
source = "yuan_low_rank"
clients = 64
samples = 128
d = 32
rank = 16
[problem]
model = { name = "Trace", d1 = 32, d2 = 32 }
loss = { name = "Squared" }
regularizer = { name = "Nuclear", strength = 0.1, on = "coef" }
[run]
rounds = 200
local_epochs = 1
batch_size = 10
clients_per_round = 10
evaluate_every = 10
[[algorithms]]
name = "FedDualAvg"
client_lr = [0.001, 0.003]
[[algorithms]]
name = "FedMiD"
client_lr = 0.001
"""


def lasso(rounds):
    """The job of benchmarks/rounds.py."""
    import cofed
    from benchmarks.rounds import BATCH, LAM, LR, PER_ROUND, data

    X, y = data()
    federation = cofed.Federation.from_arrays(list(zip(X, y, strict=True)))
    problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(LAM))
    schedule = {"local_epochs": 1, "batch_size": BATCH, "clients_per_round": PER_ROUND, "evaluate_every": 20}
    return (problem, federation, cofed.FedDualAvg(LR)), schedule | {"rounds": rounds or 4000}


def softmax(rounds):
    """As large as MNIST, and as simple: what a round costs does not depend on the pixels."""
    import numpy as np

    import cofed

    rng = np.random.default_rng(0)
    X = rng.random((1000, 60, 784), np.float32)
    y = rng.integers(0, 10, (1000, 60))
    federation = cofed.Federation.from_arrays(list(zip(X, y, strict=True)))
    problem = cofed.Problem(cofed.Linear(), cofed.Softmax(10), cofed.On(cofed.L1(1e-4), "coef"))
    schedule = {"local_steps": 5, "batch_size": 20, "clients_per_round": 100, "evaluate_every": 20}
    return (problem, federation, cofed.FedDecouple(0.01)), schedule | {"rounds": rounds or 200}


def predict(name, rounds, seconds):
    """A forecast, in this process."""
    import cofed
    from cofed._util import machine

    before = cofed.run and machine.resident()
    if name == "nuclear":
        from cofed.experiments import plan

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "experiment.toml"
            path.write_text(LOW_RANK if rounds is None else LOW_RANK.replace("rounds = 200", f"rounds = {rounds}"))
            outlook = plan.look_ahead(path, None, seconds)
        runs = [line.run for line in outlook.lines]
        per_round = sum(run.running_seconds / run.rounds for run in runs) / len(runs)
        return found(per_round, outlook.seconds, outlook.peak_bytes, before, outlook.bytes_on_wire)
    job, given = {"lasso": lasso, "softmax": softmax}[name](rounds)
    made = cofed.forecast(*job, seconds=seconds, **given)
    return found(made.running_seconds / made.rounds, made.running_seconds, made.peak_bytes, before, made.bytes_on_wire)


def measure(name, rounds, seconds):
    """The job itself, in this process."""
    import cofed
    from cofed._util import machine

    before = cofed.run and machine.resident()
    if name == "nuclear":
        import pandas as pd

        from cofed.experiments import experiment_file

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "experiment.toml"
            path.write_text(LOW_RANK if rounds is None else LOW_RANK.replace("rounds = 200", f"rounds = {rounds}"))
            began = time.perf_counter()
            target = experiment_file.run_file(path, Path(folder))
            took = time.perf_counter() - began
            numbers = pd.read_parquet(target / "numbers.parquet")
        ends = numbers.loc[numbers.groupby(["algorithm", "seed"])["round"].idxmax()]
        sent = int((ends["bytes_down"] + ends["bytes_up"]).sum())
        return found(float((ends["seconds"] / ends["round"]).mean()), took, machine.peak(), before, sent)
    job, given = {"lasso": lasso, "softmax": softmax}[name](rounds)
    result = cofed.run(*job, progress=False, **given)
    took = float(result.history["seconds"][-1])
    return found(took / given["rounds"], took, machine.peak(), before, result.communication.total)


def found(per_round, seconds, peak, before, sent):
    """What is compared."""
    return {
        "seconds_per_round": per_round,
        "seconds": seconds,
        "peak_bytes": peak,
        "growth_bytes": peak - before,
        "bytes_on_wire": sent,
    }


def in_process(what, name, options, cache):
    """A part in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.forecast", "--part", what, "--jobs", name]
    command += ["--seconds", str(options.seconds)] + (["--cpu"] if options.cpu else [])
    command += [] if options.rounds is None else ["--rounds", str(options.rounds)]
    done = subprocess.run(command, env=os.environ | {"COFED_CACHE": cache}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="*", default=["lasso", "softmax", "nuclear"])
    parser.add_argument("--repeat", type=int, default=1, help="how often each job is forecast and run")
    parser.add_argument("--seconds", type=float, default=2.0, help="to calibrate in")
    parser.add_argument("--rounds", type=int, help="of each job; by default its own number")
    parser.add_argument("--cpu", action="store_true", help="count the processor's seconds, not the clock's")
    parser.add_argument("--part", choices=["predict", "measure"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        if options.cpu:
            time.perf_counter = time.process_time
        part = {"predict": predict, "measure": measure}[options.part]
        print(json.dumps(part(options.jobs[0], options.rounds, options.seconds)))
        return
    for name in options.jobs:
        for _ in range(options.repeat):
            with tempfile.TemporaryDirectory() as cache:
                predicted, measured = (in_process(what, name, options, cache) for what in ("predict", "measure"))
            ratios = {key: round(predicted[key] / measured[key], 3) for key in measured}
            print(json.dumps({"job": name, "ratio": ratios, "predicted": predicted, "measured": measured}), flush=True)


if __name__ == "__main__":
    main()
