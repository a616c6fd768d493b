"""The elastic net and the lasso."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from cofed.estimators.base import FederatedLinearModel, treated_apart
from cofed.estimators.penalty import WeightedElasticNet, elastic_net
from cofed.estimators.standardized_problem import Posed
from cofed.losses import Squared


class FederatedElasticNet(RegressorMixin, FederatedLinearModel):
    """scikit-learn's ElasticNet on rows that stay with their clients, to the pooled answer.

    Minimises ||y - X w - b||^2 / (2 N) + alpha (l1_ratio |w|_1 + (1 - l1_ratio) ||w||^2 / 2) over all N rows.

    alpha, l1_ratio: the strength of the penalty, and the part of it that is the l1 norm.
    fit_intercept: whether b is free (it is never penalised) or 0.
    standardize: let the penalty act on the coefficients of features divided by their standard deviations, as glmnet
        does; `coef_` is for the features as given. False agrees with scikit-learn's alpha.
    algorithm: "auto" (see `cofed.estimators.solver`), "newton", "fista", "decouple", or an algorithm of cofed.
    tol: the fit stops where the duality gap is at most tol times the loss of the model without features.
    max_rounds: the most rounds of the algorithm; where they do not suffice, a warning says how far it came.

    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(90, 4)), np.repeat(["Oslo", "Rome", "Bern"], 30)
    >>> model = FederatedElasticNet(alpha=0.1, l1_ratio=0.9).fit(X, X[:, 0] - X[:, 2], clients=sites)
    >>> model.support_.tolist(), model.certificate_.converged
    ([True, False, True, False], True)
    """

    def __init__(
        self,
        alpha: Any = 1.0,
        *,
        l1_ratio: Any = 0.5,
        fit_intercept: Any = True,
        standardize: Any = True,
        algorithm: Any = "auto",
        tol: Any = 1e-12,
        max_rounds: Any = 20_000,
    ):
        self.alpha = alpha
        self.l1_ratio = l1_ratio
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

    def _penalty(self, posed: Posed, alpha: Any = None) -> WeightedElasticNet:
        return elastic_net(self.alpha if alpha is None else alpha, self.l1_ratio, posed.units)

    def _blocks(self, features: int) -> np.ndarray:
        return treated_apart(features, 1, self.l1_ratio)


class FederatedLasso(FederatedElasticNet):
    """scikit-learn's Lasso on rows that stay with their clients, to the pooled answer.

    Minimises ||y - X w - b||^2 / (2 N) + alpha |w|_1 over all N rows. The parameters are those of
    `FederatedElasticNet`, without `l1_ratio`.

    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(90, 4)), np.repeat(["Oslo", "Rome", "Bern"], 30)
    >>> model = FederatedLasso(alpha=0.1).fit(X, X[:, 0] - X[:, 2], clients=sites)
    >>> model.coef_.round(1).tolist(), model.clients_
    ([0.9, 0.0, -0.9, 0.0], ('Bern', 'Oslo', 'Rome'))
    """

    def __init__(
        self,
        alpha: Any = 1.0,
        *,
        fit_intercept: Any = True,
        standardize: Any = True,
        algorithm: Any = "auto",
        tol: Any = 1e-12,
        max_rounds: Any = 20_000,
    ):
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds

    def _penalty(self, posed: Posed, alpha: Any = None) -> WeightedElasticNet:
        return elastic_net(self.alpha if alpha is None else alpha, 1.0, posed.units)

    def _blocks(self, features: int) -> np.ndarray:
        return treated_apart(features, 1, 1.0)
