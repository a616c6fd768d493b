"""Means and variances of all clients' rows, from sums alone."""

import dataclasses

import numpy as np

from cofed.estimators.communication import NUMBER, CommunicationLog
from cofed.estimators.sites import Sites


@dataclasses.dataclass(frozen=True)
class Moments:
    """What standardisation needs of the pooled rows."""

    n: int
    mean: np.ndarray
    var: np.ndarray

    @property
    def scale(self) -> np.ndarray:
        """The standard deviations; 1 for a feature that is constant to round-off, as in scikit-learn."""
        eps = np.finfo(np.float64).eps
        constant = self.var <= self.n * eps * self.var + (self.n * self.mean * eps) ** 2
        return np.where(constant, 1.0, np.sqrt(self.var))


def moments(sites: Sites, communication: CommunicationLog) -> Moments:
    """Two exchanges: the sums of the rows, then of the squares around the common mean (exact where one pass is not).

    >>> sites = Sites(("a", "b"), [np.array([[1.0], [2.0]]), np.array([[6.0]])], [np.zeros(2), np.zeros(1)])
    >>> found = moments(sites, CommunicationLog(2))
    >>> found.mean.tolist(), round(float(found.var[0]), 6)
    ([3.0], 4.666667)
    """
    p = sites.n_features
    n = int(sites.sizes.sum())
    mean = sum(X.sum(axis=0) for X in sites.X) / n
    communication.add("moments", 1, 0, NUMBER * (p + 1))
    var = sum(((X - mean) ** 2).sum(axis=0) for X in sites.X) / n
    communication.add("moments", 1, NUMBER * p, NUMBER * p)
    return Moments(n, np.asarray(mean), np.asarray(var))
