"""The tables of a run: final values, hyperparameters beside the paper's, the tuning."""

import json
import math
from typing import Any

import numpy as np

from cofed.report.curves import axes_of, columns_of, compact, entries_of, labels_of, short, words
from cofed.report.runs import Frame, Run

MOST = 400  # rows of a table on the page
ENDS = {"round": "last round", "megabytes": "megabytes sent", "seconds": "seconds"}

# "columns": names, "rows": cells, "left_out": rows beyond MOST. A cell is text, a number, [mean, low, high] or None.
Table = dict[str, Any]


def final_values(run: Run) -> Table:
    """Where every algorithm ended, as the mean over seeds with its range; of a sweep, every point."""
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
    return tidy(["panel", "algorithm", *map(words, columns), *map(ENDS.get, axes), "seeds", "remark"], rows)


def badly_ended(run: Run, panel: str, label: str) -> str:
    """How many runs of an algorithm did not complete, where the configuration tells."""
    for entry in run.entries:
        outcomes = entry.get("outcomes")
        if isinstance(outcomes, dict) and (entry.get("label"), entry.get("panel", "")) == (label, panel):
            kinds = [str(outcome) for outcome in outcomes.values() if outcome != "completed"]
            counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
            return ", ".join(f"{n} of {len(outcomes)} {kind}" for kind, n in counts.items())
    return ""


def over_seeds(values: Frame) -> Any:
    """A number where there is one, else the mean with the lowest and the highest.

    >>> import pandas as pd
    >>> over_seeds(pd.Series([1.0])), over_seeds(pd.Series([1.0, 4.0])), over_seeds(pd.Series([float("nan")]))
    (1, [2.5, 1.0, 4.0], None)
    """
    if len(values) == 1 or values.isna().all():
        return short(float(values.mean()))
    return compact(np.array([values.mean(), values.min(), values.max()]))


def hyperparameters(run: Run) -> Table:
    """What every algorithm ran with, beside the paper's choice and the grid that was searched."""
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


def tuning(run: Run) -> Table | None:
    """The configurations that were tried."""
    if run.tuning is None or run.tuning.empty:
        return None
    rows = [[plain(cell) for cell in row] for row in run.tuning.itertuples(index=False, name=None)]
    return tidy([str(name) for name in run.tuning.columns], rows)


def plain(value: Any) -> Any:
    """A value as a cell: a number or text.

    >>> plain(0.1), plain([0.1, 1]), plain(None), plain(True), plain(np.float32(0.5)), plain(float("inf"))
    (0.1, '0.1, 1', None, 'yes', 0.5, 'inf')
    """
    value = (
        value.item() if isinstance(value, np.generic) else value.tolist() if isinstance(value, np.ndarray) else value
    )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return short(value) if math.isfinite(value) else str(value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return ", ".join(str(plain(item)) for item in value)
    return json.dumps(value, default=str, ensure_ascii=False)


def tidy(columns: list[Any], rows: list[list[Any]]) -> Table:
    """A table without columns that say nothing, and not longer than a page can bear.

    >>> tidy(["panel", "algorithm"], [["", "FedAvg"], ["", "FedMiD"]])
    {'columns': ['algorithm'], 'rows': [['FedAvg'], ['FedMiD']], 'left_out': 0}
    """
    telling = [place for place in range(len(columns)) if any(row[place] not in ("", None) for row in rows)]
    kept = [[row[place] for place in telling] for row in rows[:MOST]]
    return {"columns": [columns[place] for place in telling], "rows": kept, "left_out": max(0, len(rows) - MOST)}
