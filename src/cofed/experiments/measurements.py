"""The measured numbers of an experiment, with the questions that its claims ask of them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from cofed._util.pandas_types import Frame, Series

References: TypeAlias = Mapping[str, Mapping[str, Mapping[str, float]]]  # by panel, baseline and column


class DivergedRuns(NamedTuple):
    """Runs that diverged."""

    words: str
    seeds: Mapping[tuple[str, str], Sequence[int]]  # by label and panel


NOBODY = DivergedRuns("", {})


class Measurements:
    """A long table of curves with ways to read it: values are means over the seeds.

    Parameters
    ----------
    table
        Rows with panel, algorithm, seed, round (or x) and what was measured.
    references
        What was measured of the baselines' models, by panel, label and column.
    source
        What the data are, in words.
    by_seed
        The references of each seed's own data, by seed.
    beside
        The labels of further configurations, each with that of its method; `labels` leaves them out.
    lost
        Which runs diverged, in words, and the seeds by label and panel. Where a run stopped early, means go on with the
        other seeds.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [{"panel": "", "algorithm": "A", "seed": 0, "round": r, "f1": r / 10} for r in range(11)]
    >>> seen = Measurements(pd.DataFrame(rows), {})
    >>> seen.last("A", "f1"), seen.first("A", "f1", at_least=0.7), seen.first("A", "f1", at_least=2.0)
    (1.0, 7, None)
    """

    def __init__(
        self,
        table: Frame,
        references: References,
        source: str = "",
        by_seed: Mapping[int, References] | None = None,
        beside: Mapping[str, str] | None = None,
        lost: DivergedRuns = NOBODY,
    ):
        self.table = table
        self.source = source
        self.references = references
        self.by_seed = by_seed or {}
        self.beside = beside or {}
        self.diverged, self.lost = lost
        self.axis = "x" if "x" in table else "round"

    @property
    def seeds(self) -> list[int]:
        """The seeds that were run."""
        return sorted(int(seed) for seed in self.table["seed"].unique())

    def of_seed(self, seed: int) -> "Measurements":
        """What was measured with one seed, and of the baselines on that seed's data."""
        rows = self.table[self.table["seed"] == seed]
        return Measurements(rows, self.by_seed.get(seed, self.references), self.source, beside=self.beside)

    def labels(self, panel: str = "") -> list[str]:
        """The methods, in the order in which they were measured."""
        there = dict.fromkeys(self.table.loc[self.table["panel"] == panel, "algorithm"])
        return [label for label in there if label not in self.beside]

    def rows(self, label: str, panel: str = "") -> Frame:
        """All rows of a method."""
        found = self.table[(self.table["algorithm"] == label) & (self.table["panel"] == panel)]
        if found.empty:
            raise KeyError(f"nothing was measured of {label!r} in panel {panel!r}")
        return found

    def curve(self, label: str, column: str, panel: str = "") -> Series:
        """A column over rounds (or over the sweep's axis), the mean over the seeds."""
        return together(self.rows(label, panel), self.axis).groupby(self.axis)[column].mean()

    def last(self, label: str, column: str, panel: str = "", rounds: int = 1) -> float:
        """The mean of a column over the last rounds."""
        curve = self.curve(label, column, panel)
        return float(curve[curve.index > curve.index[-1] - rounds].mean())

    def best(self, label: str, column: str, panel: str = "", maximise: bool = False) -> float:
        """The best that was reached."""
        curve = self.curve(label, column, panel)
        return float(curve.max() if maximise else curve.min())

    def first(
        self,
        label: str,
        column: str,
        panel: str = "",
        at_least: float | None = None,
        at_most: float | None = None,
        stays: bool = False,
    ) -> int | None:
        """The first evaluated round in which a column is within these bounds (and stays there); None: never."""
        curve = self.curve(label, column, panel)
        there = np.ones(len(curve), bool)
        if at_least is not None:
            there &= curve.to_numpy() >= at_least
        if at_most is not None:
            there &= curve.to_numpy() <= at_most
        if stays:
            there = np.logical_and.accumulate(there[::-1])[::-1]
        places = np.flatnonzero(there)
        return int(curve.index[places[0]]) if places.size else None

    def reference(self, label: str, column: str, panel: str = "") -> float:
        """A column of a baseline's model."""
        return float(self.references[panel][label][column])

    def slope(self, label: str, column: str, panel: str = "", low: float = -np.inf, high: float = np.inf) -> float:
        """The slope of log(column) against log(x) over low <= x <= high, by least squares; NaN without two points."""
        curve = self.curve(label, column, panel)
        curve = curve[(curve.index >= low) & (curve.index <= high)]
        if len(curve) < 2:
            return float("nan")
        return float(np.polyfit(np.log(curve.index.to_numpy(float)), np.log(curve.to_numpy()), 1)[0])


def together(rows: Frame, axis: str) -> Frame:
    """The rows of a method at the rounds that all runs have which had not stopped before.

    A run that diverges is measured where it stops, in a round in which the others are not: a mean there is its alone.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"seed": [0, 0, 0, 1, 1, 1], "round": [0, 5, 10, 0, 5, 7]})
    >>> list(together(rows, "round")["round"])
    [0, 5, 10, 0, 5]
    """
    if axis != "round" or rows["seed"].nunique() == 1:
        return rows
    last = rows.groupby("seed")[axis].max()
    whole = [at for at, seeds in rows.groupby(axis)["seed"] if seeds.nunique() == int((last >= at).sum())]
    return rows[rows[axis].isin(whole)]


def each(values: Mapping[str, float | int | None], form: str = "{:.3g}") -> str:
    """The figures of several methods, for a sentence.

    >>> each({"FedMiD": 0.91234, "FedDualAvg": None})
    'FedMiD 0.912, FedDualAvg never'
    """
    return ", ".join(f"{name} {'never' if value is None else form.format(value)}" for name, value in values.items())
