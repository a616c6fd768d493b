"""The group lasso."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.posed import Posed
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

    def _penalty(self, posed: Posed, alpha: Any = None) -> GroupL1:
        alpha = self.alpha if alpha is None else alpha
        return group_penalty(type(self).__name__, alpha, self.groups, np.shape(posed.start.coef))


def group_penalty(owner: str, alpha: Any, groups: Any, shape: tuple[int, ...]) -> GroupL1:
    """The penalty of groups of features, whose labels may be anything."""
    labels = np.arange(shape[0]) if groups is None else np.asarray(groups)
    if labels.shape != shape[:1]:
        raise ValueError(f"{owner}: groups must be one label per feature ({shape[0]}), got shape {labels.shape}")
    return GroupL1(alpha, tuple(np.unique(labels, return_inverse=True)[1].tolist()))
