"""Least squares with coefficients in a set."""

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from cofed._util.types import Given
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.estimators.checks import check_choice, check_number
from cofed.estimators.regressor import FederatedRegressor
from cofed.estimators.scoring import SiteScoreMixin
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.losses import Squared
from cofed.regularizers import AbstractRegularizer, Box, L1Ball, L2Ball, NonNegative, Simplex

SETS = ("nonnegative", "l1_ball", "l2_ball", "simplex", "box")


class FederatedConstrained(SiteScoreMixin, RegressorMixin, FederatedRegressor):
    """Least squares under a constraint on the coefficients, on rows that stay with their clients.

    Minimises ||y - X w - b||^2 / (2 N) over all N rows and over w in a set, where b is free.

    Parameters
    ----------
    constraint : {"nonnegative", "l1_ball", "l2_ball", "simplex", "box"}, default="nonnegative"
        The set: w >= 0; |w|_1 <= radius; ||w||_2 <= radius; w >= 0 and sum w = radius; low <= w <= high.
    radius : float, default=1.0
        Of a ball or the simplex.
    low, high : float or array-like of shape (p,), default=0.0 and 1.0
        Of the box.
    fit_intercept : bool, default=True
        Whether b is free (it is never penalised) or 0.
    standardize : bool, default=False
        False lets the set be about the coefficients of the features as they are given, True about those of the
        standardised ones.
    algorithm : {"auto", "newton", "fista", "decouple"} or AbstractServerAlgorithm, default="auto"
        How to solve: "auto" chooses (see the page "estimators"); or an algorithm of cofed with its numbers.
    tol : float, default=1e-12
        The fit stops where the duality gap is at most tol times the loss of the model without features.
    max_rounds : int, default=20_000
        The most rounds of the algorithm; where they do not suffice, a warning says how far it came.

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        Coefficients for the features as they were given.
    intercept_ : float
        The intercept.
    support_ : ndarray of bool
        True where a feature is used.
    certificate_ : Certificate
        How far from optimal the fit can be.
    n_rounds_, bytes_ : int
        The exchanges between the server and its clients, and their size (both ways, all clients).
    exchanges_ : tuple of ExchangeTotal
        What they were.
    clients_, client_sizes_ : tuple
        The clients' names, and how many rows each has.
    algorithm_ : str
        The algorithm that was used.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedConstrained
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> mix = FederatedConstrained(constraint="simplex").fit(X, X @ [0.7, 0.3, 0.0], clients=np.arange(200) % 4)
    >>> mix.coef_.round(6).tolist()
    [0.7, 0.3, 0.0]
    """

    def __init__(
        self,
        *,
        constraint: Given[str] = "nonnegative",
        radius: Given[float] = 1.0,
        low: Given[npt.ArrayLike] = 0.0,
        high: Given[npt.ArrayLike] = 1.0,
        fit_intercept: Given[bool] = True,
        standardize: Given[bool] = False,
        algorithm: Given[str | AbstractServerAlgorithm] = "auto",
        tol: Given[float] = 1e-12,
        max_rounds: Given[int] = 20_000,
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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        name = type(self).__name__
        check_choice(name, "constraint", self.constraint, SETS)
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

    def _penalty(self, problem: StandardizedProblem, alpha: float) -> AbstractRegularizer:
        unit = problem.units.penalised  # the same for all features but for a box and positive coefficients
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
