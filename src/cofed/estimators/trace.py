"""Regression on matrices, with few latent directions."""

import math
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.penalty import elastic_net
from cofed.estimators.sites import is_list
from cofed.estimators.standardized_problem import Posed
from cofed.losses import Squared
from cofed.regularizers import Nuclear


class FederatedTraceRegression(RegressorMixin, FederatedLinearModel):
    """Low-rank regression on matrices that stay with their clients, to the pooled answer.

    Minimises mean (y_i - <X_i, W> - b)^2 / 2 + alpha ||W||_* over all N rows; a row of X is a matrix of `shape` (d1,
    d2), laid out row by row. shape=None is one column, whose nuclear norm is its length. Fitted also: `matrix_`,
    `rank_`. standardize is False by default: a scale per entry would change the rank.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 12))
    >>> y = X @ np.outer([1.0, 2.0, 0.0], [1.0, 1.0, -1.0, 0.0]).ravel()
    >>> FederatedTraceRegression(alpha=0.1, shape=(3, 4)).fit(X, y, clients=np.arange(300) % 5).rank_
    1
    """

    def __init__(
        self,
        alpha: Any = 1.0,
        *,
        shape: Any = None,
        fit_intercept: Any = True,
        standardize: Any = False,
        algorithm: Any = "auto",
        tol: Any = 1e-12,
        max_rounds: Any = 20_000,
    ):
        self.alpha = alpha
        self.shape = shape
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds

    def fit(self, X: Any, y: Any = None, clients: Any = None) -> "FederatedTraceRegression":
        """Fit to the rows of all clients, as the other estimators do."""
        super().fit(X, y, clients)
        self.matrix_ = self.coef_.reshape(self._shape(len(self.coef_)))
        self.rank_ = int(np.linalg.matrix_rank(self.matrix_, tol=1e-9 * max(np.abs(self.matrix_).max(), 1e-300)))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """<X_i, W> + intercept"""
        return self._linear(X)

    def _shape(self, features: int) -> tuple[int, int]:
        if self.shape is None:
            return features, 1
        pair = self.shape if is_list(self.shape) and len(self.shape) == 2 else (0, 0)
        whole = all(isinstance(d, (int, np.integer)) and not isinstance(d, bool) and d > 0 for d in pair)
        if not whole or math.prod(pair) != features:
            raise ValueError(
                f"{type(self).__name__}: shape must be (d1, d2) with d1 * d2 = {features} features, got {self.shape!r}"
            )
        return int(self.shape[0]), int(self.shape[1])

    def _loss(self) -> Squared:
        return Squared()

    def _penalty(self, posed: Posed, alpha: Any = None) -> Any:
        alpha = float(self.alpha if alpha is None else alpha)
        if alpha == 0:
            return elastic_net(0.0, 1.0, posed.units).of_shape(np.shape(posed.start.coef))
        return Nuclear(alpha * posed.units.penalised[0] / posed.units.objective)

    def _blocks(self, features: int) -> np.ndarray:
        return np.zeros(features, int)
