"""A user's own experiment file, carried out by the same machinery as the papers' experiments."""

import time
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console
from rich.table import Table

from cofed._util.files import atomically, plain_names
from cofed._util.pandas_types import Frame
from cofed.engine.ranking import maximised
from cofed.experiments import build, measure, results, schema
from cofed.experiments.reproduce import progress_bar, set_aside_others
from cofed.experiments.specification import Comparison, Experiment


def opened(path: Path) -> tuple[schema.ExperimentFile, Experiment]:
    """An experiment file, checked: also that every algorithm and the problem can be made."""
    file = schema.load(path)
    plain_names([path.stem], "an experiment")  # a folder is called like the file
    return file, build.as_experiment(path, file)


def run_file(path: Path, out: Path, seeds: int | None = None, again: bool = False) -> Path:
    """Run an experiment file, unless its results are there already.

    Parameters
    ----------
    path
        The experiment file.
    out
        Where the folder of results is made, which is called like the file.
    seeds
        Repetitions; None is the file's number.
    again
        Whether to run it also where it is finished.

    Returns
    -------
    Path
        The folder of results.
    """
    file, experiment = opened(path)
    folder, wanted = out / experiment.id, list(range(seeds or file.seeds))
    definition = results.definition(experiment, "user", wanted)
    if again or not results.finished(folder, definition):
        screen = Console(stderr=True)
        set_aside_others(folder, definition, screen)
        with progress_bar(experiment.id, screen) as tick:
            results.carry_out(experiment, folder, "user", wanted, tick, time.perf_counter)
    return folder


class Grids(NamedTuple):
    """The tuned grids of a file, and whether Ctrl-C stopped the tuning before all were done."""

    table: Frame
    stopped: bool


def tune_file(path: Path) -> Grids:
    """Every configuration of an experiment file's grids, best first for each algorithm."""
    _, experiment = opened(path)
    what, numbers = experiment.measure, experiment.numbers("user")
    assert isinstance(what, Comparison)
    setup, tables, stopped = measure.check_methods(what, what.setup(numbers, 0), numbers), [], False
    up = maximised(what.score, setup.metrics, what.maximise)
    methods = [one for one in what.methods(numbers) if not measure.settles_itself(one.algorithms()[0], setup.problem)]
    if not methods:
        raise schema.FileError(f'{path} has nothing to tune: its algorithms choose by themselves, or are "auto"')
    with progress_bar(experiment.id, Console(stderr=True)) as tick:
        for i, method in enumerate(methods):
            tick(float(i), float(len(methods)), method.label)
            try:
                table, record = measure.tune(what, setup, method, numbers, 0)
            except KeyboardInterrupt:
                stopped = True
                break
            order = table.sort_values(["diverged", "score"], ascending=[True, not up])
            best = (order.index == record["best"]) & ~order["diverged"]
            tables.append(order.assign(algorithm=method.label, best=best))
    if not tables:
        raise KeyboardInterrupt("stopped before a grid was done")
    whole: Frame = pd.concat(tables, ignore_index=True)
    shown = whole[["algorithm", *(c for c in whole if c not in ("algorithm", "score", "diverged", "best")), *LAST]]
    return Grids(shown, stopped)


def all_diverged(table: Frame) -> list[str]:
    """The algorithms without a configuration that ended well."""
    whole: Frame = table.groupby("algorithm", sort=False)["diverged"].all()
    return [str(label) for label in whole.index[whole]]


LAST = ["score", "diverged", "best"]


def ranking(table: Frame) -> Table:
    """The configurations, for a terminal: the first few of each algorithm."""
    shown = Table()
    for column in table.columns:
        shown.add_column(column, justify="left" if column == "algorithm" else "right")
    for _, rows in table.groupby("algorithm", sort=False):
        for _, row in rows.head(5).iterrows():
            cells = [text(row[column]) for column in table.columns]
            shown.add_row(*cells, style="bold" if row["best"] else "")
        shown.add_section()
    return shown


def text(value: object) -> str:
    """A value in a cell; a column that an algorithm does not have is empty."""
    if isinstance(value, float):
        return "" if value != value else f"{value:.6g}"
    return str(value)


def summary(folder: Path) -> Table:
    """How each algorithm of a finished experiment ended, the mean over its seeds."""
    config = results.read(folder / "config.json")
    numbers = pd.read_parquet(folder / "numbers.parquet")
    last = numbers.loc[numbers.groupby(["algorithm", "seed"])["round"].idxmax()]
    asked = config["numbers"]["file"]
    metrics = [name.rpartition(":")[2] for name in asked["metrics"]]  # one's own go by import path
    columns = [c for c in (*asked["columns"], *metrics, "seconds") if c in numbers]
    shown = Table(title=config["title"])
    for name in ("algorithm", "hyperparameters", *columns, "outcome"):
        shown.add_column(name, justify="right" if name in columns else "left")
    for entry in config["algorithms"]:
        rows = last[last["algorithm"] == entry["label"]]
        values = ", ".join(f"{name} {value}" for name, value in entry["hyperparameters"].items())
        cells = [text(float(rows[c].mean())) for c in columns]
        shown.add_row(entry["label"], values, *cells, ended(entry["outcomes"]), style="red" if bad(entry) else "")
    return shown


def bad(entry: Mapping[str, Any]) -> bool:
    """Whether a run of this algorithm came to a bad end."""
    return any(outcome not in ("completed", "stopped") for outcome in entry["outcomes"].values())


def ended(outcomes: Mapping[str, str]) -> str:
    """The outcomes of all seeds in words; a run is stopped where one of its callbacks ended it.

    >>> ended({"0": "completed", "1": "completed"}), ended({"0": "diverged", "1": "completed"})
    ('completed', 'diverged in 1 of 2 seeds')
    """
    counts = {kind: list(outcomes.values()).count(kind) for kind in dict.fromkeys(outcomes.values())}
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{kind} in {n} of {len(outcomes)} seeds" for kind, n in counts.items() if kind != "completed")


def bad_ends(folder: Path) -> list[str]:
    """Which algorithms of a finished experiment came to a bad end, in words."""
    entries = results.read(folder / "config.json")["algorithms"]
    return [f"{entry['label']} {ended(entry['outcomes'])}" for entry in entries if bad(entry)]


def write_example(path: Path) -> None:
    """Write the commented example of an experiment file."""
    example = resources.files("cofed.experiments").joinpath("example.toml").read_text()
    atomically(path, lambda name: Path(name).write_text(example), shown=True)
