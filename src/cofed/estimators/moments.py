"""Means and variances of all clients' rows, from sums alone."""

import dataclasses
from typing import Any

import numpy as np

from cofed.estimators.communication import Traffic
from cofed.estimators.sites import NUMBER, Sites


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


def constant(n: int, mean: np.ndarray | float, var: np.ndarray | float) -> Any:
    """Whether n values with this mean and variance differ by no more than the rounding of their mean. (The rule of
    `Moments.scale`, scikit-learn's, also takes values that differ in their last few digits for constant.)"""
    return np.sqrt(var) <= (16 + np.sqrt(n)) * np.finfo(np.float64).eps * np.abs(mean)


def moments(sites: Sites, traffic: Traffic) -> Moments:
    """Two exchanges: the sums of the rows, then of the squares around the common mean (exact where one pass is not).

    >>> sites = Sites(("a", "b"), [np.array([[1.0], [2.0]]), np.array([[6.0]])], [np.zeros(2), np.zeros(1)])
    >>> found = moments(sites, Traffic(2))
    >>> found.mean.tolist(), round(float(found.var[0]), 6)
    ([3.0], 4.666667)
    """
    p = sites.n_features
    n = int(sites.sizes.sum())
    mean = sum(X.sum(axis=0) for X in sites.X) / n
    traffic.add("moments", 1, 0, NUMBER * (p + 1))
    var = sum(((X - mean) ** 2).sum(axis=0) for X in sites.X) / n
    traffic.add("moments", 1, NUMBER * p, NUMBER * p)
    return Moments(n, np.asarray(mean), np.asarray(var))
