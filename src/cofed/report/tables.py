"""The tables of a run: final values, hyperparameters beside those of the paper, tuning."""

import json
import math
from typing import Any

import numpy as np

from cofed._util.pandas_types import Series
from cofed.report.curves import axes_of, columns_of, compact, entries_of, labels_of, short, words
from cofed.report.runs import ReportedRun

MOST = 400  # the page shows at most this many rows of a table
ENDS = {"round": "last round", "megabytes": "megabytes sent", "seconds": "seconds"}

# "columns": names, "rows": cells, "left_out": rows beyond MOST. A cell is text, a number, [mean, low, high] or None.
Table = dict[str, Any]


def final_values(run: ReportedRun) -> Table:
    """The last row of every algorithm (of a sweep, every point), as the mean and range over seeds."""
    columns, axes, labels = columns_of(run), axes_of(run), labels_of(run)
    rows = []
    for panel, part in run.numbers.groupby("panel", sort=False):
        last = part[axes[0]].max()
        for label, curve in sorted(part.groupby("algorithm"), key=lambda pair: labels.index(str(pair[0]))):
            if run.sweep:
                for x, point in curve.groupby("x", sort=True):
                    rows.append([panel, label, short(float(x)), *(over_seeds(point[name]) for name in columns)])
                continue
            ends = curve.sort_values("round").groupby("seed").tail(1)
            early = int((ends["round"] < last).sum())
            remark = f"{early} of {len(ends)} ended before round {last:g}" if early else ""
            remark = "; ".join(part for part in (badly_ended(run, str(panel), str(label)), remark) if part)
            rows.append([panel, label, *(over_seeds(ends[name]) for name in columns + axes), len(ends), remark])
    if run.sweep:
        names = run.numbers["x_name"].astype(str).unique() if "x_name" in run.numbers else ["x"]
        return tidy(["panel", "algorithm", " or ".join(names), *map(words, columns)], rows)
    return tidy(["panel", "algorithm", *map(words, columns), *(ENDS[axis] for axis in axes), "seeds", "remark"], rows)


def badly_ended(run: ReportedRun, panel: str, label: str) -> str:
    """How many runs of an algorithm did not complete, where the configuration says so."""
    for entry in run.entries:
        outcomes = entry.get("outcomes")
        if isinstance(outcomes, dict) and (entry.get("label"), entry.get("panel", "")) == (label, panel):
            kinds = [str(outcome) for outcome in outcomes.values() if outcome != "completed"]
            counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
            return ", ".join(f"{n} of {len(outcomes)} {kind}" for kind, n in counts.items())
    return ""


def over_seeds(values: Series) -> Any:
    """The value of a single seed, or the mean, lowest and highest of several.

    >>> import pandas as pd
    >>> from cofed.report.tables import over_seeds
    >>> over_seeds(pd.Series([1.0])), over_seeds(pd.Series([1.0, 4.0])), over_seeds(pd.Series([float("nan")]))
    (1, [2.5, 1.0, 4.0], None)
    """
    if len(values) == 1 or values.isna().all():
        return short(float(values.mean()))
    return compact(np.array([values.mean(), values.min(), values.max()]))


def hyperparameters(run: ReportedRun) -> Table:
    """The hyperparameters of every algorithm, beside the paper's and the grid that was searched."""
    rows = []
    for entry in run.entries:
        names = ("hyperparameters", "paper_hyperparameters", "grid")
        used, papers, grid = (entries_of(entry.get(name)) for name in names)
        for name in dict.fromkeys([*used, *papers]):
            origin = "tuned" if entry.get("tuned") and name in grid else "given"
            cells = (plain(used.get(name)), plain(papers.get(name)), plain(grid.get(name)))
            rows.append([plain(entry.get("panel", "")), plain(entry.get("label")), name, *cells, origin])
    columns = ["panel", "algorithm", "hyperparameter", "used", "paper's", "grid", "origin"]
    return tidy(columns, rows)


def tuning(run: ReportedRun) -> Table | None:
    """The configurations that were tried."""
    if run.tuning is None or run.tuning.empty:
        return None
    rows = [[plain(cell) for cell in row] for row in run.tuning.itertuples(index=False, name=None)]
    return tidy([str(name) for name in run.tuning.columns], rows)


def plain(value: object) -> Any:
    """A value as a cell of a table: a number, text or None.

    >>> import numpy as np
    >>> from cofed.report.tables import plain
    >>> plain(0.1), plain([0.1, 1]), plain(None), plain(True), plain(np.float32(0.5)), plain(float("inf"))
    (0.1, '0.1, 1', None, 'yes', 0.5, 'inf')
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return short(value) if math.isfinite(value) else str(value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return ", ".join(str(plain(item)) for item in value)
    return json.dumps(value, default=str, ensure_ascii=False)


def tidy(columns: list[str], rows: list[list[Any]]) -> Table:
    """A table without empty columns, cut after `MOST` rows.

    >>> from cofed.report.tables import tidy
    >>> tidy(["panel", "algorithm"], [["", "FedAvg"], ["", "FedMiD"]])
    {'columns': ['algorithm'], 'rows': [['FedAvg'], ['FedMiD']], 'left_out': 0}
    """
    telling = [place for place in range(len(columns)) if any(row[place] not in ("", None) for row in rows)]
    kept = [[row[place] for place in telling] for row in rows[:MOST]]
    return {"columns": [columns[place] for place in telling], "rows": kept, "left_out": max(0, len(rows) - MOST)}
