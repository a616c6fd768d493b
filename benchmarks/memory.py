"""Peak memory and rounds per second where clients are of very different sizes, as JSON lines.

    python -m benchmarks.memory [--before FOLDER] [--data FOLDER] [--rounds N]

The jobs: 1,000 clients of 50 samples and one of 50,000 (d = 100, 64 bits, 80 MB; sparse regression), and, where --data
has its files, MNIST handed to 1,000 pseudo-writers by a Dirichlet draw of labels, and in equal parts (multinomial
regression). Each job runs in a process of its own, so that its peak is its own. --before is the `src` folder of another
version of cofed, whose jobs run first, in turn with this one's; jobs that would pad to more memory than there is are
shown as refused.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SCHEDULES = {
    "full gradients, everybody": {"local_steps": 1},
    "full gradients, 100 clients": {"local_steps": 5, "clients_per_round": 100},
    "epochs of batch 10, 100 clients": {"local_epochs": 1, "batch_size": 10, "clients_per_round": 100},
}
JOBS = ("1,000 x 50 and 50,000", "MNIST, 1,000 by label", "MNIST, 1,000 alike")


def federation(job, folder):
    """The data and the problem of a job."""
    import cofed

    if job == JOBS[0]:
        rng = np.random.default_rng(0)
        clients = [(rng.normal(size=(n, 100)), rng.normal(size=n)) for n in [50] * 1000 + [50_000]]
        return cofed.Federation.from_arrays(clients), cofed.Problem(regularizer=cofed.L1(1e-3))
    images = cofed.datasets.mnist(folder)
    problem = cofed.Problem(cofed.Linear(), cofed.Softmax(10), cofed.L1(1e-4))
    if job == JOBS[1]:
        return cofed.datasets.mnist_by_writer(images, 1000, alpha=0.1, min_size=1), problem
    return cofed.partition.iid(images.train_X.reshape(60_000, -1), images.train_y, 1000), problem


def measure(job, folder, rounds):
    """One job's lines, of the version that is imported."""
    import cofed

    clients, problem = federation(job, folder)
    for name, schedule in SCHEDULES.items():
        given = {"evaluate_every": 10**9, "progress": False, **schedule}
        first = cofed.run(problem, clients, cofed.FedDualAvg(0.01), rounds=1, **given)
        began = time.process_time()
        last = cofed.run(problem, clients, cofed.FedDualAvg(0.01), rounds=rounds, **given)
        found = {
            "rounds_per_second": round(rounds / last.history["seconds"][-1], 2),
            "cpu_seconds_per_round": round((time.process_time() - began) / rounds, 4),
            "compile_seconds": round(first.history.compile_seconds, 1),
            "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "objective": float(last.history["objective"][-1]),
        }
        print(json.dumps({"schedule": name} | found), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", help="the src folder of another version")
    parser.add_argument("--data", help="a folder with MNIST")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each run")
    parser.add_argument("--job", help="run this job alone, here")
    given = parser.parse_args()
    if given.job:
        return measure(given.job, given.data, given.rounds)
    versions = ({"before": given.before} if given.before else {}) | {"now": str(Path(__file__).parents[1] / "src")}
    for job in JOBS if given.data else JOBS[:1]:
        for version, source in versions.items():
            command = [sys.executable, __file__, "--job", job, "--rounds", str(given.rounds)]
            command += ["--data", given.data] if given.data else []
            there = os.environ | {"PYTHONPATH": source, "COFED_CACHE": "off"}
            done = subprocess.run(command, capture_output=True, text=True, env=there)
            for line in done.stdout.splitlines():
                print(json.dumps({"job": job, "version": version} | json.loads(line)), flush=True)
            if done.returncode:
                said = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
                print(json.dumps({"job": job, "version": version, "refused": said}), flush=True)


if __name__ == "__main__":
    main()
