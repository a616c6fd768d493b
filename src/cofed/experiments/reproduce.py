"""Experiments carried out one after the other, with progress on the screen. What is finished is not run again."""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from cofed.experiments import results
from cofed.experiments.specification import Experiment
from cofed.experiments.verdicts import FAILS, HOLDS, UNDECIDED, UNJUDGED, word_of

SEEDS = {"full": 5, "quick": 1}  # repetitions, by size
MARKS = {HOLDS: "green", FAILS: "red", UNDECIDED: "yellow", UNJUDGED: "dim"}


def reproduce(
    experiments: Sequence[Experiment],
    out: Path,
    size: str,
    seeds: int,
    again: bool = False,
    screen: Console | None = None,
) -> dict[str, str]:
    """Carry experiments out, each into a folder below `out`.

    Parameters
    ----------
    experiments
        What to carry out.
    out
        Where the folders are made.
    size
        "full" or "quick".
    seeds
        Repetitions.
    again
        Whether to run also what is finished.
    screen
        Where progress is shown; by default stderr.

    Returns
    -------
    dict
        What became of each experiment: "done", "kept", or why it was left out.
    """
    screen, became = screen or Console(stderr=True), {}
    for number, experiment in enumerate(experiments, 1):
        folder, wanted = out / experiment.id, list(range(seeds))
        if not again and results.finished(folder, results.definition(experiment, size, wanted)):
            became[experiment.id] = "kept"
            continue
        set_aside_others(folder, results.definition(experiment, size, wanted), screen)
        count = f"{number}/{len(experiments)} " if len(experiments) > 1 else ""
        with progress_bar(f"{count}{experiment.id}", screen) as tick:
            try:
                results.carry_out(experiment, folder, size, wanted, tick, time.perf_counter)
            except FileNotFoundError as error:
                became[experiment.id] = str(error)
                tidy(folder)
                continue
        became[experiment.id] = "done"
        limit_programs()
    return became


def set_aside_others(folder: Path, definition: str, screen: Console) -> None:
    """Set aside results of another definition, and say so before anything runs."""
    aside = results.make_room(folder, definition)
    if aside is not None:
        screen.print(aside, highlight=False, markup=False, soft_wrap=True)


def judge_again(experiments: Sequence[Experiment], out: Path) -> dict[str, str]:
    """Judge and draw what is finished, without running anything."""
    became = {}
    for experiment in experiments:
        folder = out / experiment.id
        if not (folder / "config.json").exists():
            became[experiment.id] = "not run yet"
        elif results.numbers_of(folder) is None:
            became[experiment.id] = "its numbers are not here: neither numbers.parquet nor numbers.csv"
        else:
            results.judge_again(experiment, folder)
            became[experiment.id] = "kept"
    return became


def limit_programs() -> None:
    """Forget compiled programs before there are too many.

    Each takes memory maps, of which a process may have a limited number (65,530 on Linux).
    """
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
        gc.collect()


def tidy(folder: Path) -> None:
    """Remove the folder of an experiment that had just begun and has nothing to keep."""
    with contextlib.suppress(OSError):
        (folder / "parts" / "definition.json").unlink(missing_ok=True)
        (folder / "parts").rmdir()
        folder.rmdir()


@contextlib.contextmanager
def progress_bar(title: str, screen: Console) -> Iterator[Callable[[float, float, str], None]]:
    """Show a bar with the time that is left and what is being done; where there is no terminal, one line at the end."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[what]}[/]"),
        console=screen,
        transient=screen.is_terminal,
        disable=not screen.is_terminal,
        speed_estimate_period=600,
    )
    began = time.perf_counter()
    with bar:
        task = bar.add_task(title, total=None, what="")

        def tick(done: float, total: float, what: str) -> None:
            bar.update(task, total=total, completed=done, what=what.strip())

        yield tick
    screen.print(f"{title}: {time.perf_counter() - began:.0f} s", style="dim", highlight=False)


def claims_table(experiments: Sequence[Experiment], out: Path, became: dict[str, str]) -> Table:
    """The claims of all experiments, with what was measured."""
    table = Table(title=None, show_lines=True)
    table.add_column("experiment", style="bold", no_wrap=True)
    table.add_column("the paper's claim", ratio=4)
    table.add_column("measured", ratio=5)
    table.add_column("verdict", no_wrap=True)
    for experiment in experiments:
        if became.get(experiment.id) not in ("done", "kept"):
            table.add_row(experiment.id, "", became.get(experiment.id, "not run"), "[yellow]left out[/]")
            continue
        for claim in results.read(out / experiment.id / "claims.json"):
            measured = claim["measured"] + (f"\n[dim]Why: {claim['why']}[/]" if claim["why"] else "")
            table.add_row(experiment.id, claim["claim"], measured, f"[{MARKS[word_of(claim)]}]{word_of(claim)}[/]")
    return table


def listing(experiments: Sequence[Experiment]) -> Table:
    """All experiments, for `--list`."""
    table = Table(show_lines=False)
    table.add_column("experiment", style="bold", no_wrap=True)
    table.add_column("what it shows")
    table.add_column("claims", justify="right")
    table.add_column("data", no_wrap=True)
    for experiment in experiments:
        data = "data folder" if experiment.reads else "generated"
        table.add_row(experiment.id, experiment.title, str(len(experiment.claims)), data)
    return table
