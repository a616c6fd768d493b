"""Regression of counts."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score

from cofed.estimators.base import FederatedLinearModel, treated_apart
from cofed.estimators.penalty import WeightedElasticNet, elastic_net
from cofed.estimators.sites import Sites
from cofed.estimators.standardized_problem import Posed
from cofed.losses import Poisson


class FederatedPoisson(RegressorMixin, FederatedLinearModel):
    """Sparse Poisson regression with a log link, on rows that stay with their clients, to the pooled answer.

    Minimises mean(exp(z) - y z) + alpha (l1_ratio |w|_1 + (1 - l1_ratio) ||w||^2 / 2), z = x w + b, over all N rows;
    l1_ratio = 0 is scikit-learn's PoissonRegressor. The other parameters are those of `FederatedElasticNet`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> model = FederatedPoisson(alpha=0.3).fit(X, rng.poisson(np.exp(X[:, 0])), clients=np.arange(200) % 4)
    >>> model.support_.tolist(), model.n_rounds_ < 20
    ([True, False, False], True)
    """

    def __init__(
        self,
        alpha: Any = 0.1,
        *,
        l1_ratio: Any = 1.0,
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
        """The expected count, exp(X coef + intercept)."""
        return np.exp(self._linear(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The part of the deviance that is explained, as scikit-learn's PoissonRegressor."""
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _intake(self, X: Any, y: Any, clients: Any) -> Sites:
        sites = super()._intake(X, y, clients)
        for name, counts in zip(sites.names, sites.y, strict=True):
            if counts.min() < 0:
                raise ValueError(
                    f"{type(self).__name__}: y must be >= 0, but some value of y is {counts.min():g} (client {name!r})"
                )
        if not any(counts.any() for counts in sites.y):
            raise ValueError(f"{type(self).__name__}: y must have a count above 0, but all are 0")
        return sites

    def _loss(self) -> Poisson:
        return Poisson()

    def _penalty(self, posed: Posed, alpha: Any = None) -> WeightedElasticNet:
        return elastic_net(self.alpha if alpha is None else alpha, self.l1_ratio, posed.units)

    def _blocks(self, features: int) -> np.ndarray:
        return treated_apart(features, 1, self.l1_ratio)
