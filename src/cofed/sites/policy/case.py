"""A question at the door, with what the rules ask about it."""

import dataclasses
import functools

import numpy as np

from cofed.sites.folds import SiteFolds
from cofed.sites.guard import Asked
from cofed.sites.policy.ledger import Ledger, TargetRecord
from cofed.sites.policy.points import multipliers
from cofed.sites.policy.schema import Policy
from cofed.sites.queries.base import Message


@dataclasses.dataclass(frozen=True)
class Case:
    """A question, the site's policy, and the ledger as it will be if the question is answered.

    Attributes
    ----------
    asked : Asked
        The question.
    policy : Policy
        The site's rules.
    ledger : Ledger
        A draft, which the rules write to.
    places : array of shape (n,)
        Where the table's rows stand in the ledger.
    site, day : str
        The site's name, and the day.
    """

    asked: Asked
    policy: Policy
    ledger: Ledger
    places: np.ndarray
    site: str
    day: str

    @property
    def message(self) -> Message:
        """What the question says."""
        return self.asked.question.message

    @functools.cached_property
    def is_known(self) -> bool:
        """Whether the same question was answered before."""
        return self.asked.digest in self.ledger.digests

    @functools.cached_property
    def X(self) -> np.ndarray:
        """The site's rows in the question's units."""
        scaling = self.message.scaling
        X = self.asked.rows.X
        assert isinstance(X, np.ndarray)  # of a table
        return X if scaling is None else scaling.rows(X)

    @functools.cached_property
    def y(self) -> np.ndarray:
        """The site's labels in the question's units."""
        rows, scaling = self.asked.rows, self.message.scaling
        labels = rows.y if len(rows.y) else np.zeros(len(rows.X))
        return labels if scaling is None else scaling.labels(labels)

    @functools.cached_property
    def fold(self) -> np.ndarray:
        """The fold of each of these rows; -1 where it is left out."""
        return self.asked.rows.folds(self.message.folds)

    def multipliers(self, which: slice = slice(None)) -> np.ndarray:
        """What the question multiplies some of the site's rows with, a column for each point."""
        rows = self.asked.rows
        offset, weight = (None if one is None else one[which] for one in (rows.offset, rows.weight))
        found = multipliers(self.message, self.X[which], self.y[which], self.fold[which], offset, weight)
        if self.message.folds is not None and self.message.folds.left_out >= 0:
            found = np.where(self.fold[which][:, None] >= 0, found, 0)
        return found

    @property
    def rows(self) -> int:
        """How many rows of this site the question is about."""
        return len(self.asked.rows.X)

    @property
    def honest_rows(self) -> int:
        """Rows of the sum that the server does not know: without those of the largest sites that may work with it."""
        over = self.asked.over
        if over is None:
            return self.rows
        others = sorted((rows for site, rows in over.rows.items() if site != self.site), reverse=True)
        return self.rows + sum(others[self.policy.sums.colluding :])

    @property
    def fold_rows(self) -> float:
        """Rows that the sums of a fold are over, of the smallest where sites are the folds."""
        over, folds = self.asked.over, self.message.folds
        if isinstance(folds, SiteFolds) and over is not None:
            return float(min(over.rows.values(), default=0))
        return self.honest_rows / self.message.n_folds

    @property
    def study(self) -> str:
        """The hash of the study; empty where there is none."""
        return "" if self.asked.over is None else self.asked.over.study

    @property
    def record(self) -> TargetRecord:
        """What was told so far about the target."""
        target = self.asked.design.target
        return self.ledger.analysis("" if target is None else target.name)
