"""The parts of an experiment, put together: the table of all curves, the tuning, and what ran."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from cofed._util.pandas_types import Frame
from cofed.experiments.json_values import described
from cofed.experiments.specification import Experiment, Method, Sweep

Done: TypeAlias = Mapping[str, tuple[Frame, dict[str, Any]]]  # finished parts, by name: a table and a record each


class Measured(NamedTuple):
    """All that was measured of an experiment."""

    table: Frame  # the curves, or the points of a sweep
    tuning: Frame | None  # one row per configuration of the grids
    references: dict[str, dict[str, dict[str, float]]]  # by panel, baseline and column
    algorithms: list[dict[str, Any]]  # what ran with which hyperparameters
    setup: dict[str, Any]  # data and problem, in words
    seconds: float = np.nan  # that measuring took


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
        algorithms += [method_record(method, panel) for method in what.methods(numbers)]
    table = pd.concat(curves, ignore_index=True).assign(x_name=what.x)
    return Measured(begin_with(table, "panel", "algorithm", "seed", "x", "x_name"), None, {}, algorithms, first(words))


def gather_comparison(experiment: Experiment, size: str, seeds: list[int], done: Done) -> Measured:
    """Put the runs, the grids and the baselines of a comparison together."""
    curves, tunings, algorithms, references, words = [], [], [], {}, {}
    for panel in experiment.panels:
        baselines, words[panel] = done[f"{panel} setup"]
        references[panel] = {
            row.pop("baseline"): {k: v for k, v in row.items() if pd.notna(v)} for row in baselines.to_dict("records")
        }
        for method in experiment.measure.methods(experiment.numbers(size, panel)):
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
            algorithms.append(entry)
    table = begin_with(pd.concat(curves, ignore_index=True), "panel", "algorithm", "seed", "round")
    tuning = begin_with(pd.concat(tunings, ignore_index=True), "panel", "algorithm") if tunings else None
    return Measured(table, tuning, references, algorithms, first(words))


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
    }
