"""Least squares with coefficients in a set."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from cofed.estimators.base import FederatedLinearModel, check_number
from cofed.estimators.standardized_problem import Posed
from cofed.losses import Squared
from cofed.regularizers import Box, L1Ball, L2Ball, NonNegative, Simplex

SETS = ("nonnegative", "l1_ball", "l2_ball", "simplex", "box")


class FederatedConstrained(RegressorMixin, FederatedLinearModel):
    """Least squares under a constraint on the coefficients, on rows that stay with their clients.

    Minimises ||y - X w - b||^2 / (2 N) over all N rows and over w in a set, where b is free:

    constraint: "nonnegative"; "l1_ball" or "l2_ball" (|w| <= radius); "simplex" (w >= 0, sum w = radius); "box" (low <=
        w <= high, each a number or one per feature).
    standardize is False by default, so that the set is about the coefficients of the features as they are given; True
    makes it about those of the standardised ones. The other parameters are those of `FederatedElasticNet`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> mix = FederatedConstrained(constraint="simplex").fit(X, X @ [0.7, 0.3, 0.0], clients=np.arange(200) % 4)
    >>> mix.coef_.round(6).tolist()
    [0.7, 0.3, 0.0]
    """

    def __init__(
        self,
        *,
        constraint: Any = "nonnegative",
        radius: Any = 1.0,
        low: Any = 0.0,
        high: Any = 1.0,
        fit_intercept: Any = True,
        standardize: Any = False,
        algorithm: Any = "auto",
        tol: Any = 1e-12,
        max_rounds: Any = 20_000,
    ):
        self.constraint = constraint
        self.radius = radius
        self.low = low
        self.high = high
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds

    def predict(self, X: Any) -> np.ndarray:
        """X coef + intercept"""
        return self._linear(X)

    def _check_numbers(self) -> None:
        super()._check_numbers()
        name = type(self).__name__
        if not isinstance(self.constraint, str) or self.constraint not in SETS:
            raise ValueError(f"{name}: constraint must be one of {', '.join(SETS)}, got {self.constraint!r}")
        if self.constraint in ("l1_ball", "l2_ball", "simplex"):
            check_number(name, "radius", self.radius, low=0, strict=True)

    def _bounds(self, features: int) -> list[np.ndarray]:
        """low and high of each feature."""
        bounds = []
        for field, value in (("low", self.low), ("high", self.high)):
            try:
                bounds.append(np.broadcast_to(np.asarray(value, float), (features,)))
            except (TypeError, ValueError):
                bounds.append(np.full(features, np.nan))
            if np.isnan(bounds[-1]).any() or isinstance(value, bool):
                raise ValueError(
                    f"{type(self).__name__}: {field} must be a number or one per feature ({features}), got {value!r}"
                )
        if (bounds[0] > bounds[1]).any() or np.isposinf(bounds[0]).any() or np.isneginf(bounds[1]).any():
            raise ValueError(
                f"{type(self).__name__}: low must not exceed high, got low={self.low!r} and high={self.high!r}"
            )
        return bounds

    def _loss(self) -> Squared:
        return Squared()

    def _penalty(self, posed: Posed, alpha: Any = None) -> Any:
        unit = posed.units.penalised  # the same for all features but for a box and positive coefficients
        match self.constraint:
            case "l1_ball":
                return L1Ball(self.radius / unit[0])
            case "l2_ball":
                return L2Ball(self.radius / unit[0])
            case "simplex":
                return Simplex(self.radius / unit[0])
            case "box":
                return Box(*(bound / unit for bound in self._bounds(len(unit))))
        return NonNegative()

    def _blocks(self, features: int) -> np.ndarray:
        if self.constraint == "box":
            self._bounds(features)  # refuses what does not fit, before anything is computed
        return np.arange(features) if self.constraint in ("box", "nonnegative") else np.zeros(features, int)
