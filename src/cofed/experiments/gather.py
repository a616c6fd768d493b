"""The parts of an experiment, put together: the table of all curves, the tuning, and what ran."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from cofed._util.pandas_types import Frame
from cofed.experiments.divergence import gone
from cofed.experiments.json_values import described
from cofed.experiments.measurements import Measurements, References
from cofed.experiments.specification import Comparison, Experiment, Method, Numbers, Sweep

Done: TypeAlias = Mapping[str, tuple[Frame, dict[str, Any]]]  # finished parts, by name: a table and a record each


class Measured(NamedTuple):
    """All that was measured of an experiment."""

    table: Frame  # the curves, or the points of a sweep
    tuning: Frame | None  # one row per configuration of the grids
    references: References  # the means over the seeds
    algorithms: list[dict[str, Any]]  # what ran with which hyperparameters
    setup: dict[str, Any]  # data and problem, in words
    by_seed: Mapping[int, References]  # the references of each seed's own data
    seconds: float = np.nan  # that measuring took
    processor_seconds: float = np.nan  # the same of all cores, which a busy machine does not lengthen


def gather(experiment: Experiment, size: str, seeds: list[int], done: Done) -> Measured:
    """Put the parts together."""
    if isinstance(experiment.measure, Sweep):
        return gather_sweep(experiment, size, seeds, done)
    return gather_comparison(experiment, size, seeds, done)


def gather_sweep(experiment: Experiment, size: str, seeds: list[int], done: Done) -> Measured:
    """Put the points of a sweep together."""
    what, curves, algorithms, words = experiment.measure, [], [], {}
    assert isinstance(what, Sweep)
    for panel in experiment.panels:
        numbers = experiment.numbers(size, panel)
        for point in what.points(numbers):
            found = [done[f"{panel} {what.x} = {point} seed {seed}"] for seed in seeds]
            table, words[panel] = pd.concat([rows for rows, _ in found]), found[0][1]
            curves.append(table if "panel" in table else table.assign(panel=panel))
        algorithms += [swept(method_record(method, panel)) for method in what.methods(numbers)]
    table = pd.concat(curves, ignore_index=True).assign(x_name=what.x)
    table = begin_with(table, "panel", "algorithm", "seed", "x", "x_name")
    return Measured(table, None, {}, algorithms, first(words), {})


def gather_comparison(experiment: Experiment, size: str, seeds: list[int], done: Done) -> Measured:
    """Put the runs, the grids and the baselines of a comparison together."""
    curves, tunings, algorithms, words = [], [], [], {}
    by_seed: dict[int, dict[str, dict[str, dict[str, float]]]] = {seed: {} for seed in seeds}
    what = experiment.measure
    assert isinstance(what, Comparison)
    for panel in experiment.panels:
        numbers = experiment.numbers(size, panel)
        for seed in seeds:
            baselines, said = done[f"{panel} setup" if seed == seeds[0] else f"{panel} baselines seed {seed}"]
            words.setdefault(panel, said)
            by_seed[seed][panel] = references_of(baselines)
        for method in what.methods(numbers):
            entry = method_record(method, panel)
            tuned = done.get(f"{panel} {method.label} tuning")
            if tuned:
                tunings.append(tuned[0].assign(panel=panel, algorithm=method.label))
                entry |= {"tuned": True, "score": tuned[1]["score"]}
            for seed in seeds:
                table, record = done[f"{panel} {method.label} seed {seed}"]
                curves.append(table.assign(panel=panel, algorithm=method.label))
                entry["algorithm"], entry["hyperparameters"] = record["algorithm"], record["hyperparameters"]
                entry.setdefault("outcomes", {})[str(seed)] = record["outcome"]
                for kept in ("settled", "best"):
                    if kept in record:
                        entry.setdefault(kept, {})[str(seed)] = record[kept]
            entry |= {"on_edge": on_edge(entry["grid"], entry["hyperparameters"])}
            entry |= {"reached": reached(pd.concat(curves[-len(seeds) :]), method.score or what.score, numbers, entry)}
            algorithms.append(entry)
    table = begin_with(pd.concat(curves, ignore_index=True), "panel", "algorithm", "seed", "round")
    tuning = begin_with(pd.concat(tunings, ignore_index=True), "panel", "algorithm") if tunings else None
    return Measured(table, tuning, mean_of(by_seed), algorithms, first(words), by_seed)


def references_of(baselines: Frame) -> dict[str, dict[str, float]]:
    """The rows of the baselines' models, by label."""
    rows = baselines.to_dict("records")
    return {str(row.pop("baseline")): {str(k): float(v) for k, v in row.items() if pd.notna(v)} for row in rows}


def mean_of(by_seed: Mapping[int, References]) -> References:
    """The means of references over the seeds.

    >>> mean_of({0: {"": {"pooled": {"f1": 0.5}}}, 1: {"": {"pooled": {"f1": 1.0}}}})
    {'': {'pooled': {'f1': 0.75}}}
    """
    every, one = list(by_seed.values()), next(iter(by_seed.values()))
    return {
        panel: {
            label: {
                column: float(np.mean([values[panel][label].get(column, np.nan) for values in every]))
                for column in columns
            }
            for label, columns in labels.items()
        }
        for panel, labels in one.items()
    }


def swept(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a method of a sweep: several values are all measured, and none is chosen for all points."""
    return record | {"tuned": False, "swept": record["tuned"]}


def reached(curves: Frame, column: str, numbers: Numbers, entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a method has in the end of the column by which it was tuned: the mean over seeds, and their deviation.

    Runs that diverged are left out, as they are in a claim's means over the last rounds; `over` is how many there are
    without them.
    """
    if column not in curves:
        return None
    over = vars(numbers).get("tuned_over", 1)
    label, panel = curves["algorithm"].iloc[0], curves["panel"].iloc[0]
    seen, left = Measurements(curves, {}), set(gone(entry))
    ends = [seen.of_seed(seed).last(label, column, panel, over) for seed in seen.seeds if seed not in left]
    mean, deviation = (float(np.mean(ends)), float(np.std(ends))) if ends else (np.nan, np.nan)
    return {"column": column, "mean": mean, "deviation": deviation, "over": len(ends)}


def with_ends(experiment: Experiment, config: Mapping[str, Any], table: Frame) -> list[dict[str, Any]]:
    """The methods of config.json, each with what it has in the end by the numbers in this table."""
    what, entries = experiment.measure, [dict(entry) for entry in config["algorithms"]]
    if isinstance(what, Sweep):
        return entries
    for entry in entries:
        numbers = experiment.numbers(config["size"], entry["panel"])
        scores = {method.label: method.score or what.score for method in what.methods(numbers)}
        curves = table[(table["algorithm"] == entry["label"]) & (table["panel"] == entry["panel"])]
        if entry["label"] in scores and len(curves):
            entry["reached"] = reached(curves, scores[entry["label"]], numbers, entry)
    return entries


def on_edge(grid: Mapping[str, list[Any]] | None, chosen: Mapping[str, Any]) -> list[str]:
    """The hyperparameters whose chosen value is the smallest or the largest of those that were tried.

    >>> on_edge({"client_lr": [0.1, 0.3, 1.0], "server_lr": [1, 3, 10]}, {"client_lr": 0.3, "server_lr": 10})
    ['server_lr']
    """
    numeric = {
        name: values
        for name, values in (grid or {}).items()
        if len(values) > 1 and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    }
    return [name for name, values in numeric.items() if chosen[name] in (min(values), max(values))]


def begin_with(table: Frame, *columns: str) -> Frame:
    """The table with these columns first."""
    return table[[*columns, *(column for column in table if column not in columns)]]


def first(words: dict[str, Any]) -> dict[str, Any]:
    """The first panel's setup in words and, where there are several, those of all panels."""
    setup = next(iter(words.values()), {})
    return setup | {"panels": words} if len(words) > 1 else setup


def method_record(method: Method, panel: str) -> dict[str, Any]:
    """A method, for the configuration and the definition of an experiment."""
    several = {name: [described(v) for v in values] for name, values in method.grid.items()}
    own = {"score": method.score, "regularizer": described(method.regularizer), "beside": method.beside}
    tuned = any(len(values) > 1 for values in several.values())
    return {
        "label": method.label,
        "panel": panel,
        "algorithm": type(method.algorithms()[0]).__name__,
        "hyperparameters": {name: values[0] for name, values in several.items()},
        "tuned": tuned,
        "paper_hyperparameters": None if method.paper is None else {k: described(v) for k, v in method.paper.items()},
        "grid": several if tuned else None,
        "run": {name: described(value) for name, value in method.run.items()},
    } | {name: value for name, value in own.items() if value}
