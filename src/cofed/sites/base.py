"""The door between whoever fits a model and the rows that nobody may pool: questions go in, sums come out."""

import dataclasses
import time
from abc import ABC, abstractmethod
from typing import TypeVar

import numpy as np
from jaxtyping import PyTree

from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.models import Weights
from cofed.problem import Problem
from cofed.sites.columns import TableInfo
from cofed.sites.design import Design
from cofed.sites.exchanges import Exchange, Exchanges
from cofed.sites.folds import Folds
from cofed.sites.queries.base import AbstractQuery, Message
from cofed.sites.scaling import Scaling
from cofed.sites.steps import Step
from cofed.statistics.survival import BaselineHazard

M = TypeVar("M", bound=Message)


class QuestionRefused(ValueError):
    """A site does not answer a question, for the reason that the sentence says."""


class SiteRefused(QuestionRefused):
    """A site elsewhere does not answer a question, by a rule of its own or because of its rows.

    Parameters
    ----------
    sentence : str
        What the server is told of it.
    site : str
        The site; empty where nobody may know which one it is.
    rule : str
        The rule of its policy; empty where it is none, or is not told.
    """

    def __init__(self, sentence: str, site: str = "", rule: str = ""):
        super().__init__(sentence)
        self.site, self.rule = site, rule


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """An algorithm on the sites' rows.

    Attributes
    ----------
    problem : Problem
        What it minimises.
    algorithm : AbstractServerAlgorithm
        The algorithm.
    scaling : Scaling
        The units of the rows.
    local_steps : int
        Steps of a site in a round, with all of its rows.
    folds, without : Folds or None, int
        Folds of the rows, and the one that is left out; -1 is none.
    """

    problem: Problem
    algorithm: AbstractServerAlgorithm
    scaling: Scaling
    local_steps: int = 1
    folds: Folds | None = None
    without: int = -1


class AbstractTraining(ABC):
    """Rounds of an algorithm over the sites' rows."""

    @abstractmethod
    def advance(self, rounds: int) -> tuple[Weights, bool]:
        """Do so many rounds; the model after them, and whether it has ceased to be finite."""


class AbstractSites(ABC):
    """The sites of a fit, wherever their rows are.

    Attributes
    ----------
    names : tuple of str
        The sites' names.
    sizes : tuple of int
        How many rows each has.
    n_features : int
        How many features a row has.
    feature_names : tuple of str or None
        Their names; None where they have none.
    design : Design or None
        How the sites' tables became numbers, where they have tables.
    is_masked : bool or None
        Whether a server elsewhere learns sums over all sites only; None where all is in this process.
    exchanges : Exchanges
        What has been asked so far, counted by whatever carries the messages.
    sums_only : bool
        Whether nobody sees a single site's answer, but the sum over all sites only: the sites then share the noise of
        questions that have some.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    n_features: int
    feature_names: tuple[str, ...] | None
    design: Design | None = None
    is_masked: bool | None = None
    exchanges: Exchanges
    sums_only: bool = False

    def ask(self, query: AbstractQuery[M], message: M) -> PyTree:
        """Ask all sites one question.

        Parameters
        ----------
        query : AbstractQuery
            One of `cofed.sites.queries.QUERIES`.
        message : Message
            What the question says.

        Returns
        -------
        NamedTuple of arrays
            The sum of the sites' answers.

        Raises
        ------
        QuestionRefused
            Where a site does not answer, with its reason.
        """
        began = time.perf_counter()
        answer, down, up = self.exchange(query, message)
        self.exchanges.append(Exchange(query.name, 1, down, up, time.perf_counter() - began))
        return answer

    def ask_each(self, query: AbstractQuery[M], message: M) -> dict[str, PyTree]:
        """Ask all sites one question, and learn what each answers, where they allow it.

        Parameters
        ----------
        query, message
            As for `ask`.

        Returns
        -------
        dict of str to NamedTuple of arrays
            The sites' own answers, by their names.

        Raises
        ------
        QuestionRefused
            Where the sites give their sum only.
        """
        raise QuestionRefused("these sites answer with the sum over all of them only")

    def alone(self, site: str) -> "AbstractSites":
        """One of the sites by itself, whose sums are its own answers, where it shows them.

        Parameters
        ----------
        site : str
            Its name.

        Returns
        -------
        AbstractSites
            That site. What was asked counts on.

        Raises
        ------
        QuestionRefused
            Where the sites give their sum only.
        """
        raise QuestionRefused("these sites answer with the sum over all of them only")

    @property
    def has_weights(self) -> bool:
        """Whether rows count by weights of their own."""
        return self.design is not None and (self.design.weight is not None or self.design.class_weight is not None)

    @property
    def offset_columns(self) -> int:
        """How many numbers are added to a row's predictions, where there are offsets: one for each response."""
        return 1

    @property
    def has_offsets(self) -> bool:
        """Whether rows have a number that is added to their predictions."""
        return self.design is not None and self.design.offset is not None

    @property
    def infos(self) -> dict[str, TableInfo]:
        """What the sites told of their tables, such as the missing values of every column; nothing without tables."""
        return {}

    def with_design(self, design: Design) -> "AbstractSites":
        """The same sites, whose tables become numbers by another design, such as that of a study's analysis.

        Parameters
        ----------
        design : Design
            How; what stands for missing values, they agree on. What was asked counts on.
        """
        raise ValueError("these sites have no tables, which could become numbers by another design")

    def with_step(self, step: Step) -> "AbstractSites":
        """The same sites, whose numbers are transformed before anything is asked of them.

        Parameters
        ----------
        step : Step
            What a transformer has learnt; the sites apply it themselves.

        Returns
        -------
        AbstractSites
            The sites. What was asked counts on.
        """
        if self.design is None:
            raise QuestionRefused("these sites have no tables, whose numbers could be transformed there")
        return self.with_design(self.design.with_step(step))

    def with_columns(
        self,
        weight: str | None = None,
        offset: str | None = None,
        group: str | None = None,
        cluster: str | None = None,
    ) -> "AbstractSites":
        """The same sites, some of whose columns are no features: they say how much rows count, what is added to
        their predictions, which rows are in one fold, and which are related.

        Parameters
        ----------
        weight, offset, group, cluster : str, optional
            The columns; None leaves it as it is.

        Returns
        -------
        AbstractSites
            The sites. What was asked counts on.
        """
        columns = (weight, offset, group, cluster)
        if all(name is None for name in columns):
            return self
        if self.design is None:
            raise ValueError("these sites have no tables, whose columns could be weights, offsets, groups or clusters")
        return self.with_design(self.design.with_columns(*columns))

    @abstractmethod
    def with_class_weight(self, weights: tuple[float, ...]) -> "AbstractSites":
        """The same sites, with labels that are classes, whose rows count by their class, too: one weight for each."""

    @abstractmethod
    def exchange(self, query: AbstractQuery[M], message: M) -> tuple[PyTree, int, int]:
        """The sum of the sites' answers, with the bytes that went to the sites and came from them."""

    @abstractmethod
    def of_numbers(self) -> "AbstractSites":
        """The same sites, with labels that are numbers; refused where some are not."""

    @abstractmethod
    def of_classes(self) -> tuple["AbstractSites", np.ndarray]:
        """The same sites, with the positions of the labels among all labels, and all labels in order."""

    def of_responses(self) -> tuple["AbstractSites", tuple[str, ...]]:
        """The same sites, with labels that are one number or several for each row, and the names of those."""
        raise QuestionRefused("these sites have no responses")

    def of_times(self) -> "AbstractSites":
        """The same sites, with labels that are times to an event; refused where they are not."""
        raise QuestionRefused("these sites have no times to an event")

    def with_groups(self, group: np.ndarray) -> "AbstractSites":
        """The same rows in groups, each of which is in one fold, where they are in this process.

        Parameters
        ----------
        group : array of shape (n,)
            The group of every row, in the order of the sites.

        Returns
        -------
        AbstractSites
            The sites.
        """
        raise QuestionRefused("these sites keep their rows: name the column of the groups instead")

    def with_given_folds(self, fold: np.ndarray) -> "AbstractSites":
        """The same rows with folds that were given, where they are in this process.

        Parameters
        ----------
        fold : array of shape (n,)
            The fold of every row, in the order of the sites.

        Returns
        -------
        AbstractSites
            The sites.
        """
        raise QuestionRefused("these sites keep their rows: give a number of folds instead")

    def baseline_hazards(self, coef: np.ndarray, efron: bool) -> dict[str, BaselineHazard]:
        """The baseline hazards of those sites whose rows are in this process, by name; no other site is asked.

        Parameters
        ----------
        coef : array of shape (p,)
            The log hazard ratios of the features.
        efron : bool
            Whether ties are Efron's, else Breslow's.

        Returns
        -------
        dict of str to BaselineHazard
            Those that are finite.
        """
        return {}

    @abstractmethod
    def train(self, plan: TrainingPlan, w: Weights) -> AbstractTraining:
        """Begin rounds of an algorithm from w."""
