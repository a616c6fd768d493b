"""Means and variances of all clients' rows, from sums alone."""

import dataclasses

import numpy as np

from cofed._util.rounding import EPS
from cofed.sites import AbstractSites
from cofed.sites.queries import Message, MomentsMessage
from cofed.sites.queries import moments as moments_query
from cofed.sites.queries import sums as sums_query


@dataclasses.dataclass(frozen=True)
class Moments:
    """What standardisation needs of the pooled rows."""

    n: int
    mean: np.ndarray
    var: np.ndarray

    @property
    def scale(self) -> np.ndarray:
        """The standard deviations; 1 for a feature that is constant to round-off, as in scikit-learn."""
        constant = self.var <= self.n * EPS * self.var + (self.n * self.mean * EPS) ** 2
        return np.where(constant, 1.0, np.sqrt(self.var))


def moments(sites: AbstractSites) -> Moments:
    """Two exchanges: the sums of the rows, then of the squares around the common mean (exact where one pass is not).

    >>> import numpy as np
    >>> from cofed.estimators.moments import moments
    >>> from cofed.sites import MemorySites, SiteRows
    >>> rows = SiteRows.of_sites(("a", "b"), [np.array([[1.0], [2.0]]), np.array([[6.0]])], [np.zeros(0)] * 2)
    >>> found = moments(MemorySites(rows))
    >>> found.mean.tolist(), round(float(found.var[0]), 6)
    ([3.0], 4.666667)
    """
    sums = sites.ask(sums_query, Message())
    n = round(float(sums.n[0]))
    mean = sums.X[0] / n
    return Moments(n, mean, sites.ask(moments_query, MomentsMessage(mean)) / n)
