"""The group lasso."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import RegressorMixin

from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.penalty import elastic_net
from cofed.estimators.sites import is_list
from cofed.estimators.standardized_problem import Posed
from cofed.losses import Squared
from cofed.regularizers import GroupL1


class FederatedGroupLasso(RegressorMixin, FederatedLinearModel):
    """The group lasso on rows that stay with their clients, to the pooled answer.

    Minimises ||y - X w - b||^2 / (2 N) + alpha sum_g sqrt(size of g) ||w_g||_2 over all N rows: whole groups of
    features come in or stay out. `groups` gives a label per feature; None makes each feature its own group, which is
    the lasso. The other parameters are those of `FederatedElasticNet`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(90, 4))
    >>> model = FederatedGroupLasso(0.2, groups=["blood", "blood", "urine", "urine"]).fit(X, X[:, 0] + X[:, 1])
    >>> model.support_.tolist()
    [True, True, False, False]
    """

    def __init__(
        self,
        alpha: Any = 1.0,
        *,
        groups: Any = None,
        fit_intercept: Any = True,
        standardize: Any = True,
        algorithm: Any = "auto",
        tol: Any = 1e-12,
        max_rounds: Any = 20_000,
    ):
        self.alpha = alpha
        self.groups = groups
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds

    def predict(self, X: Any) -> np.ndarray:
        """X coef + intercept"""
        return self._linear(X)

    def _loss(self) -> Squared:
        return Squared()

    def _penalty(self, posed: Posed, alpha: Any = None) -> Any:
        return group_penalty(self.alpha if alpha is None else alpha, self._blocks(len(posed.units.mean)), posed)

    def _blocks(self, features: int) -> np.ndarray:
        return group_labels(type(self).__name__, self.groups, features)


def group_labels(owner: str, groups: Any, features: int) -> np.ndarray:
    """The group 0, 1, ... of each feature; the user's labels may be anything."""
    if groups is None:
        return np.arange(features)
    if not is_list(groups) or len(groups) != features or pd.isna(pd.Series(groups)).any():
        raise ValueError(f"{owner}: groups must be one label per feature ({features}), got {groups!r}")
    return pd.factorize(pd.Series(groups))[0]


def group_penalty(alpha: Any, labels: np.ndarray, posed: Posed) -> Any:
    """alpha sum_g sqrt(size of g) ||w_g|| of the user's coefficients; the features of a group share a unit."""
    if float(alpha) == 0:
        return elastic_net(0.0, 1.0, posed.units, np.ndim(posed.start.coef))
    sizes = np.bincount(labels)
    unit = np.bincount(labels, posed.units.penalised) / sizes
    outputs = np.size(posed.start.coef) // len(labels)
    return GroupL1(float(alpha) / posed.units.objective, tuple(labels.tolist()), np.sqrt(sizes * outputs) * unit)
