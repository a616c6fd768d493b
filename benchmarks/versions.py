"""A job of `benchmarks.peers` by two versions of cofed: `python -m benchmarks.versions --before OTHER/src`.

Each version runs in a process of its own, without a cache of programs; they take turns, so that what else the machine
does meets both. Printed as JSON: the processor seconds of the first call, the processor milliseconds of a round (those
of a run of one round taken off), the median over the turns of their ratio, and the largest difference of the models.
Jobs on MNIST's images take random pixels and labels here: the work is the same.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.peers.jobs import JOBS, Job

HERE = Path(__file__).parents[1]


def numbers(job: Job):
    """The job's data."""
    rng = np.random.default_rng(0)
    if job.key in ("multinomial", "cnn"):
        X = rng.uniform(size=(job.clients, job.samples, *job.model.shape)).astype(np.float32)
        return X, rng.integers(0, job.model.classes, size=X.shape[:2])
    return job.source(job.clients, job.samples, job.model.shape, rng)


def work(key: str, rounds: int, out: str) -> None:
    """One version's process: a line for the first call, then one for each line that it is sent."""
    from benchmarks.peers.contenders import with_cofed

    job = JOBS[key]
    run = with_cofed.prepare(job, *numbers(job), job.model.start())
    began = time.process_time()
    run(1)
    print(time.process_time() - began, flush=True)
    run(2)
    for _ in sys.stdin:
        began = time.process_time()
        run(1)
        once = time.process_time()
        ran = run(rounds)
        print((time.process_time() - once - (once - began)) / (rounds - 1), flush=True)
        np.savez(out, **ran.model)


def begin(source: Path, job: str, rounds: int, out: Path) -> subprocess.Popen:
    """The process of a version."""
    env = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{HERE}", "COFED_CACHE": "off"}
    command = [
        sys.executable,
        "-m",
        "benchmarks.versions",
        "--work",
        "--job",
        job,
        "--rounds",
        str(rounds),
        "--out",
        out,
    ]
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def turn(process: subprocess.Popen) -> float:
    """What a version's process says when it is its turn."""
    process.stdin.write("go\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def compared(before: Path, job: str, rounds: int, turns: int) -> dict:
    """The figures of both versions."""
    with tempfile.TemporaryDirectory() as folder:
        models = [Path(folder) / f"{name}.npz" for name in ("before", "now")]
        both = [begin(source, job, rounds, out) for source, out in zip((before, HERE / "src"), models, strict=True)]
        firsts = [float(process.stdout.readline()) for process in both]
        took = [[turn(process) for process in both] for _ in range(turns)]
        for process in both:
            process.communicate()
        old, new = (np.load(path) for path in models)
        apart = max(float(np.abs(old[name] - new[name]).max()) for name in old.files)
    return {
        "job": job,
        "first_call_cpu_seconds": firsts,
        "cpu_ms_per_round": [1000 * statistics.median(values) for values in zip(*took, strict=True)],
        "times_faster": statistics.median(one[0] / one[1] for one in took),
        "largest_difference": apart,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="the src folder of the other version")
    parser.add_argument("--job", choices=list(JOBS), default="multinomial")
    parser.add_argument("--rounds", type=int, default=30, help="of a turn, 2 or more")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rounds < 2 or given.turns < 1:
        parser.error("--rounds must be 2 or more, and --turns 1 or more")
    if given.work:
        return work(given.job, given.rounds, given.out)
    if given.before is None or not (given.before / "cofed").is_dir():
        parser.error("--before must be the src folder of another version of cofed")
    print(json.dumps(compared(given.before.resolve(), given.job, given.rounds, given.turns)))


if __name__ == "__main__":
    main()
