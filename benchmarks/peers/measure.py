"""What happens in a contender's own process: the first call, some rounds to compare by, then the rounds that count."""

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.peers import data
from benchmarks.peers.jobs import JOBS, Job
from benchmarks.peers.models import Leaves


class Ran(NamedTuple):
    """Some rounds from the start."""

    model: Leaves
    seconds: float  # of all that the user waits for


Run = Callable[[int], Ran]  # so many rounds, from the start
Prepare = Callable[[Job, np.ndarray, np.ndarray, Leaves], Run]


def measure(run: Run, job: Job, seconds: float) -> tuple[dict, Leaves]:
    """The figures of a contender that is ready, and its model after the rounds that are compared."""
    first, once = run(1), run(1).seconds
    rounds = job.check_rounds
    ran, busy = with_cpu(run, rounds)
    model = ran.model
    while (took := ran.seconds - once) < seconds * 0.7:
        rounds = math.ceil(rounds * min(20.0, max(1.5, seconds / max(took, seconds / 20))))
        ran, busy = with_cpu(run, rounds)
    figures = {
        "rounds_per_second": (rounds - 1) / took,
        "rounds": rounds,
        "seconds": ran.seconds,
        "seconds_of_one_round": once,
        "first_call_seconds": first.seconds,
        "cpu_seconds": busy,
    }
    return figures, model


def with_cpu(run: Run, rounds: int) -> tuple[Ran, float]:
    """So many rounds, and the CPU seconds that they took in this process."""
    before = time.process_time()
    return run(rounds), time.process_time() - before


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Of the packages that matter."""
    return {name: metadata.version(name) for name in packages}


def arguments() -> argparse.Namespace:
    """The command line of a contender's process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", required=True, choices=list(JOBS))
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path, help="a folder")
    parser.add_argument("--seconds", required=True, type=float)
    return parser.parse_args()


def carry_out(given: argparse.Namespace, prepare: Prepare, packages: Iterable[str]) -> None:
    """Read the job's data, measure, write the figures and the model."""
    job = JOBS[given.job]
    run = prepare(job, *data.read(given.data))
    figures, model = measure(run, job, given.seconds)
    save(given.out, figures | {"versions": versions(packages)}, model)


def main(prepare: Prepare, packages: Iterable[str]) -> None:
    """The command of most contenders' processes."""
    carry_out(arguments(), prepare, packages)


def save(folder: Path, figures: dict, model: Leaves) -> None:
    """The model first: where there are figures, there is a model."""
    np.savez(folder / "model.npz", **model)
    part = folder / f".{os.getpid()}.json"
    part.write_text(json.dumps(figures))
    part.replace(folder / "figures.json")
