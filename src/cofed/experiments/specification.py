"""What an experiment is: a declaration, in data and small functions. The loops are in measure.py.

An experiment has numbers (those of the paper's size, and those that the quick size changes), something to measure
(a `Comparison` of methods over rounds, or a `Sweep` over any other axis), the panels of its figure, and the paper's
claims as functions of what was measured.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd

from cofed.experiments.measurements import Measurements
from cofed.federation import Federation
from cofed.problem import Problem

Numbers = SimpleNamespace  # an experiment's numbers, by name


class Verdict(NamedTuple):
    """What was measured of a claim: whether it holds (None: not judged), a sentence, and the figures in it."""

    holds: bool | None
    measured: str
    figures: Mapping[str, float | None]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and the function that judges it.

    `why` explains a claim that does not hold at the paper's size. With `quick=False` it is measured but not judged at
    the quick size, where it has no reason to hold.
    """

    text: str
    judge: Callable[[Measurements], Verdict]
    why: str = ""
    quick: bool = True


@dataclass(frozen=True)
class Method:
    """An algorithm with the values to try for its hyperparameters; one value each is no grid.

    `paper` has the values that the paper found best; `run` what this method's run has other than the setup's.

    >>> import cofed
    >>> [a.client_lr for a in Method("FedAvg", cofed.FedAvg, {"client_lr": (0.1, 0.3)}).algorithms()]
    [0.1, 0.3]
    """

    label: str
    make: Callable[..., Any]
    grid: Mapping[str, Sequence[Any]]
    paper: Mapping[str, Any] | None = None
    run: Mapping[str, Any] = field(default_factory=dict)

    def choices(self) -> list[dict[str, Any]]:
        """Every combination of values."""
        return [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]

    def algorithms(self) -> list[Any]:
        """The algorithm with each of them."""
        return [self.make(**choice) for choice in self.choices()]


@dataclass(frozen=True)
class Setup:
    """A problem on data, and the arguments of `cofed.run`: what all methods of a panel share.

    `baselines` are models to compare with, by name: functions, so that they are computed once, when they are needed.
    """

    problem: Problem
    federation: Federation
    run: Mapping[str, Any]
    metrics: Mapping[str, Callable] = field(default_factory=dict)
    evaluation: Federation | None = None
    baselines: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    data: str = ""  # what the data are, in words


@dataclass(frozen=True)
class Comparison:
    """Methods compared over rounds. Each is tuned on the first seed, by the mean of a column over its last rounds.

    Configurations whose scores differ from the best by at most `ties` count as equal; of these the one whose column is
    best on the mean over all rounds is taken, which is the fastest.
    """

    setup: Callable[[Numbers, int], Setup]
    methods: Callable[[Numbers], Sequence[Method]]
    score: str = "objective"
    maximise: bool | None = None  # whether more of it is better; None: as the column or the metric says
    ties: float = 0.0
    derive: Mapping[str, Callable[[pd.DataFrame], Any]] = field(default_factory=dict)  # columns made of a run's others


@dataclass(frozen=True)
class Sweep:
    """Something measured at points of an axis: `measure` gives rows with "algorithm", "x" and what was measured, and
    with "data", what the data are, where that is not always the same."""

    x: str  # what the axis is
    points: Callable[[Numbers], Sequence[Any]]
    measure: Callable[[Numbers, Any, int], list[dict[str, Any]]]
    methods: Callable[[Numbers], Sequence[Method]] = lambda numbers: ()


@dataclass(frozen=True)
class View:
    """One panel of the figure: a column against rounds (or against the sweep's axis)."""

    column: str
    title: str = ""
    panel: str = ""  # of the experiment's panels
    label: str = ""  # of the vertical axis, where the column's name does not say it
    log: bool | None = None  # a logarithmic axis; None: where the values span enough
    log_x: bool = False
    dots: bool = False
    limits: tuple[float | None, float | None] | None = None


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One figure or theorem of a paper (see the file's head).

    `panels` names variants of the numbers that are measured one after the other, such as {"K = 1": {"steps": 1}}.
    """

    id: str
    title: str
    measure: Comparison | Sweep
    full: Mapping[str, Any]
    quick: Mapping[str, Any] = field(default_factory=dict)
    panels: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    views: Sequence[View] = ()
    claims: Sequence[Claim] = ()
    note: str = ""  # choices made where the paper leaves one open, and what differs
    reads: Sequence[str] = ()  # datasets that it takes from the data folder, where they are there

    @property
    def paper(self) -> str:
        """The paper that it is of."""
        return self.id.partition("-")[0]

    def numbers(self, size: str, panel: str = "") -> Numbers:
        """The numbers of a size and a panel."""
        chosen = dict(self.full) | (dict(self.quick) if size == "quick" else {})
        return Numbers(**(chosen | dict(self.panels.get(panel, {}))), size=size)
