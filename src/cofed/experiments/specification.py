"""What an experiment is: a specification, in data and small functions. The loops are in measure.py.

An experiment has numbers (those of the full setup, and those that the quick size changes), something to measure
(a `Comparison` of methods over rounds, or a `Sweep` over any other axis), the panels of its figure, and the paper's
claims as functions of what was measured.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

from jaxtyping import PyTree

from cofed._util.pandas_types import Frame
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.callbacks import AbstractCallback
from cofed.experiments.measurements import Measurements
from cofed.federation import Federation
from cofed.problem import Problem
from cofed.regularizers import AbstractRegularizer

Numbers = SimpleNamespace  # an experiment's numbers, by name


class Verdict(NamedTuple):
    """What was measured of a claim.

    Parameters
    ----------
    holds
        Whether the claim holds; None where it is not judged.
    measured
        What was measured, in a sentence.
    figures
        The figures in that sentence, by name.
    """

    holds: bool | None
    measured: str
    figures: Mapping[str, float | None]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and the function that judges it.

    Parameters
    ----------
    text
        What the paper claims.
    judge
        Gives the verdict on what was measured.
    why
        Explains why the claim does not hold in the full setup, or is undecided there, where that is so.
    quick
        Whether it is judged at the quick size too. Where it has no reason to hold there, it is only measured.
    quote
        The paper's own words, a short passage.
    criterion
        What is compared with what, and the reason for the threshold. It is fixed before the run that it judges.

    Notes
    -----
    `judge` sees the means over the seeds, and then every seed alone: a verdict that fewer than four in five of the
    seeds share is undecided.
    """

    text: str
    judge: Callable[[Measurements], Verdict]
    why: str = ""
    quick: bool = True
    quote: str = ""
    criterion: str = ""


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of one value for each name.

    >>> combinations({"a": (1, 2), "b": (3,)})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


@dataclass(frozen=True)
class Method:
    """An algorithm with the values to try for its hyperparameters; one value each is no grid.

    Parameters
    ----------
    label
        What the method is called in the figure and the tables.
    make
        Makes the algorithm of one value for each hyperparameter.
    grid
        The values to try, by hyperparameter.
    paper
        The values that the paper found best.
    run
        Arguments of `cofed.run` in which this method differs from the setup's.
    where
        Where a user's own file names it, such as "experiment.toml, line 22".
    beside
        The label of the method whose further configuration this is: one that the method's grid does not have and that
        is worth showing, for instance because it contradicts a claim. It runs with every seed and is a row of the
        page's table of hyperparameters and a line of the figure, but `Measurements.labels` leaves it out, so no claim
        compares it by accident. Give it a label of its own, and one value for each hyperparameter:
        `Method("FedMiD at (3e-4, 3)", fedmid, {"client_lr": (3e-4,), "server_lr": (3.0,)}, beside="FedMiD")`.
    regularizer
        Makes this method's own regularizer of the grid's key "strength", where it does not share the setup's.
    score
        The column by which its grid is ranked, where it is not the comparison's.

    Examples
    --------
    >>> import cofed
    >>> [a.client_lr for a in Method("FedAvg", cofed.FedAvg, {"client_lr": (0.1, 0.3)}).algorithms()]
    [0.1, 0.3]
    >>> lasso = Method("FedMiD", cofed.FedMiD, {"client_lr": (0.1,), "strength": (0.5, 1.0)}, regularizer=cofed.L1)
    >>> [lasso.posed(cofed.Problem(), choice).regularizer for choice in lasso.choices()]
    [L1(strength=0.5), L1(strength=1.0)]
    """

    label: str
    make: Callable[..., AbstractAlgorithm]
    grid: Mapping[str, Sequence[Any]]
    paper: Mapping[str, Any] | None = None
    run: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    beside: str = ""
    regularizer: Callable[[float], AbstractRegularizer] | None = None
    score: str = ""

    def choices(self) -> list[dict[str, Any]]:
        """Every combination of values."""
        return combinations(self.grid)

    def algorithms(self) -> list[AbstractAlgorithm]:
        """The algorithm with each combination of values."""
        posing = () if self.regularizer is None else ("strength",)
        return [self.make(**{k: v for k, v in choice.items() if k not in posing}) for choice in self.choices()]

    def posed(self, problem: Problem, choice: Mapping[str, Any]) -> Problem:
        """The problem with the method's own regularizer, where it has one."""
        if self.regularizer is None:
            return problem
        return replace(problem, regularizer=self.regularizer(choice["strength"]))


@dataclass(frozen=True)
class Setup:
    """A problem on data, and the arguments of `cofed.run`: what all methods of a panel share.

    Parameters
    ----------
    problem, federation, metrics, evaluation
        As in `cofed.run`.
    run
        The other arguments of `cofed.run`, by name.
    baselines
        Models to compare with, by name: functions, so that each is computed when it is needed.
    data
        What the data are, in words.
    callbacks
        Gives the callbacks of a run, new ones for each; tuning has none.
    """

    problem: Problem
    federation: Federation
    run: Mapping[str, Any]
    metrics: Mapping[str, Callable] = field(default_factory=dict)
    evaluation: Federation | None = None
    baselines: Mapping[str, Callable[[], PyTree]] = field(default_factory=dict)
    data: str = ""
    callbacks: Callable[[], list[AbstractCallback]] = list


@dataclass(frozen=True)
class Comparison:
    """Methods compared over rounds. Each is tuned on the first seed, by the mean of a column over its last rounds.

    Parameters
    ----------
    setup
        Gives problem and data for an experiment's numbers and a seed.
    methods
        Gives the methods for an experiment's numbers.
    score
        The column of the history by which grids are ranked.
    maximise
        Whether more of it is better; None: as the column or the metric says.
    ties
        Scores that differ from the best by at most this count as equal. Of equal configurations the one is taken whose
        column is best on the mean over all rounds, which is the fastest.
    derive
        Further columns, by name, computed from the table of a run.
    """

    setup: Callable[[Numbers, int], Setup]
    methods: Callable[[Numbers], Sequence[Method]]
    score: str = "objective"
    maximise: bool | None = None
    ties: float = 0.0
    derive: Mapping[str, Callable[[Frame], Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Sweep:
    """Something measured at points of an axis other than rounds.

    Parameters
    ----------
    x
        What the axis is.
    points
        Gives the points for an experiment's numbers.
    measure
        Measures at one point with one seed: rows with "algorithm", "x" and what was measured, and with "data", what
        the data are in words, where that is not always the same.
    methods
        Gives the methods that are measured, for the configuration.
    """

    x: str
    points: Callable[[Numbers], Sequence[Any]]
    measure: Callable[[Numbers, Any, int], list[dict[str, Any]]]
    methods: Callable[[Numbers], Sequence[Method]] = lambda numbers: ()


@dataclass(frozen=True)
class View:
    """One panel of the figure: a column against rounds (or against the sweep's axis).

    Parameters
    ----------
    column
        What is drawn.
    title
        What stands above the panel.
    panel
        Which of the experiment's panels is drawn.
    label
        What stands at the vertical axis, where the column's name does not say it.
    log, log_x
        Whether the vertical and the horizontal axis are logarithmic. None: where the values span enough decades.
    dots
        Whether there is a dot for each row, rather than a line.
    limits
        Of the vertical axis.
    over
        Makes the rows to draw of the whole table, where they are not those of one panel; they have the columns of the
        table, and the axis (round or x) is what this panel is drawn against.
    x
        What stands at the horizontal axis, where it is not what stands there in the other panels.
    corner
        The corner of a panel of dots that a claim is about: left, right, bottom and top.
    """

    column: str
    title: str = ""
    panel: str = ""
    label: str = ""
    log: bool | None = None
    log_x: bool = False
    dots: bool = False
    limits: tuple[float | None, float | None] | None = None
    over: Callable[[Frame], Frame] | None = None
    x: str = ""
    corner: Callable[[Measurements], tuple[float, float, float, float]] | None = None


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One figure or theorem of a paper, or a user's own comparison (see the head of this file).

    Parameters
    ----------
    id
        Its name, such as "yuan2021-fig3"; the folder of its results is called so.
    title
        What it shows.
    measure
        What is measured.
    full, quick
        The experiment's numbers in the full setup, and those that the quick size changes.
    panels
        Variants of the numbers that are measured one after the other, such as {"K = 1": {"steps": 1}}.
    views
        The panels of the figure.
    claims
        What the paper claims.
    note
        Choices that were made where the paper leaves one open, and what differs from it.
    reads
        Datasets that are taken from the data folder if they are there; results belong to the content of their files.
    released_form_of
        The id of the experiment that has the same figure with the settings that the paper prints, where this one has
        those of the authors' public code. Its claims are those of the other, word for word where they are the same; the
        page shows both verdicts side by side.
    form
        What the settings of such an experiment are called on the page, where they are not those of released code but
        are found in another way, such as "features scaled".
    smaller
        In what the full setup is smaller than the paper's, in a few words.
    in_a_seed
        What one seed has in it, in a few words, where that is so much that verdicts of one seed are not preliminary,
        such as "100 data sets at every point".

    Notes
    -----
    Results belong to the id, numbers, methods, score and data: note, words of claims, views and the last two of these
    parameters may change without a new run.
    """

    id: str
    title: str
    measure: Comparison | Sweep
    full: Mapping[str, Any]
    quick: Mapping[str, Any] = field(default_factory=dict)
    panels: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    views: Sequence[View] = ()
    claims: Sequence[Claim] = ()
    note: str = ""
    reads: Sequence[str] = ()
    released_form_of: str = ""
    form: str = "as released"
    smaller: str = ""
    in_a_seed: str = ""

    @property
    def paper(self) -> str:
        """The paper, by the key in its id."""
        return self.id.partition("-")[0]

    def numbers(self, size: str, panel: str = "") -> Numbers:
        """The numbers of a size and a panel."""
        chosen = dict(self.full) | (dict(self.quick) if size == "quick" else {})
        return Numbers(**(chosen | dict(self.panels.get(panel, {}))), size=size)
