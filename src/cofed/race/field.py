"""All pairings of the race, over several processes; each writes a file of its own, and what is finished is kept."""

import concurrent.futures
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cofed.race.entrants import Entrant, entrants, why_not
from cofed.race.knowledge import known, posed
from cofed.race.measure import Pairing, measure
from cofed.race.problems import RaceProblem


def pairings(problems: Iterable[RaceProblem], wanted: Sequence[Entrant] | None = None) -> list[Pairing]:
    """Every algorithm on every problem that it fits.

    >>> from cofed.race.field import pairings
    >>> from cofed.race.problems import small_battery
    >>> ring = [small_battery()["lasso-on-a-ring"]]
    >>> [pairing.entrant.name for pairing in pairings(ring)][:2]
    ['DASM', 'NIDS']
    """
    return [Pairing(problem, entrant) for problem, entrant, reason in matches(problems, wanted) if reason is None]


def matches(
    problems: Iterable[RaceProblem], wanted: Sequence[Entrant] | None = None
) -> Iterator[tuple[RaceProblem, Entrant, str | None]]:
    """Every algorithm with every problem, and why it does not fit, where it does not."""
    for problem in problems:
        for entrant in list(entrants()) if wanted is None else wanted:
            yield problem, entrant, why_not(entrant, posed(problem).problem, problem.graph is not None)


def race(chosen: Sequence[Pairing], folder: Path, jobs: int = 1, progress: bool | None = None) -> int:
    """Run what is not finished, `jobs` processes at a time, and say how many pairings that were.

    Ctrl-C raises `KeyboardInterrupt` once the pairings that have begun are written; the same call goes on from there.
    """
    left = [pairing for pairing in chosen if pairing.read(folder) is None]
    todo = list(dict.fromkeys(pairing.problem for pairing in left))
    with shown(len(chosen) + len(todo), len(chosen) - len(left), progress) as bar:
        if jobs == 1:
            for problem in todo:
                bar.say(problem.name)
                known(problem, folder)
                bar.advance()
            for pairing in left:
                bar.say(f"{pairing.entrant.name} on {pairing.problem.name}")
                measure(pairing, folder)
                bar.advance()
        elif left:
            over_processes(left, todo, folder, jobs, bar)
    return len(left)


def over_processes(
    left: Sequence[Pairing], todo: Sequence[RaceProblem], folder: Path, jobs: int, bar: "RaceBar"
) -> None:
    """The same in processes of one thread each; compiled programs are shared through the user's cache folder."""
    context = multiprocessing.get_context("spawn")
    with (
        one_thread_each(),
        concurrent.futures.ProcessPoolExecutor(jobs, context, initializer=alone) as pool,
    ):
        try:
            wait([pool.submit(prepared, problem, folder) for problem in todo], bar)
            wait([pool.submit(measured, pairing, folder) for pairing in left], bar)
        except KeyboardInterrupt:
            bar.say("finishing what has begun")
            pool.shutdown(cancel_futures=True)
            raise


def wait(futures: "list[concurrent.futures.Future[str]]", bar: "RaceBar") -> None:
    """Wait for all; the first that fails ends the race."""
    for future in concurrent.futures.as_completed(futures):
        bar.say(future.result())
        bar.advance()


def prepared(problem: RaceProblem, folder: Path) -> str:
    """Learn what is known of a problem, in a process of the pool."""
    known(problem, folder)
    return problem.name


def measured(pairing: Pairing, folder: Path) -> str:
    """Run a pairing, in a process of the pool."""
    measure(pairing, folder)
    return f"{pairing.entrant.name} on {pairing.problem.name}"


def alone() -> None:
    """Leave the terminal's process group: Ctrl-C is for the process that waits."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()


class one_thread_each:
    """Within it, processes that are started take one thread for linear algebra and compiled programs."""

    names = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "COFED_CORES")

    def __enter__(self) -> None:
        self.before = {name: os.environ.get(name) for name in self.names}
        os.environ.update(dict.fromkeys(self.names, "1"))

    def __exit__(self, *_: object) -> None:
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class RaceBar:
    """A progress bar on standard error; a context manager."""

    def __init__(self, total: int, done: int, show: bool):
        self.progress = Progress(
            TextColumn("race"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=sys.stderr.isatty(),
            disable=not show,
        )
        self.task = self.progress.add_task("", total=total, completed=done)

    def __enter__(self) -> "RaceBar":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def say(self, what: str) -> None:
        """Show what is being done, or was done last."""
        self.progress.update(self.task, description=what)

    def advance(self) -> None:
        """One more is done."""
        self.progress.advance(self.task)


def shown(total: int, done: int, progress: bool | None) -> RaceBar:
    """A bar: as the user said, or where standard error is a terminal."""
    return RaceBar(total, done, sys.stderr.isatty() if progress is None else progress)
