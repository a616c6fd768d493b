"""Regression on matrices, with few latent directions."""

import math

import numpy as np
from sklearn.base import RegressorMixin

from cofed._util.types import Given
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.estimators.penalty import elastic_net
from cofed.estimators.regressor import FederatedRegressor
from cofed.estimators.scoring import SiteScoreMixin
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.losses import Squared
from cofed.regularizers import AbstractRegularizer, Nuclear
from cofed.sites.intake import Clients, FitFeatures, Labels, is_list
from cofed.sites.row_options import RowNumbers


class FederatedTraceRegression(SiteScoreMixin, RegressorMixin, FederatedRegressor):
    """Low-rank regression on matrices that stay with their clients, to the pooled answer.

    Minimises mean (y_i - <X_i, W> - b)^2 / 2 + alpha ||W||_* over all N rows.

    Parameters
    ----------
    alpha : float, default=1.0
        The strength of the penalty.
    shape : (int, int), optional
        (d1, d2): a row of X is such a matrix, laid out row by row. None is one column, whose nuclear norm is its
        length.
    fit_intercept : bool, default=True
        Whether b is free (it is never penalised) or 0.
    standardize : bool, default=False
        Let the penalty act on the coefficients of features divided by their standard deviations; a scale per entry
        changes the rank.
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
    matrix_ : ndarray of shape (d1, d2)
        The coefficients as a matrix.
    rank_ : int
        Its rank.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedTraceRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 12))
    >>> y = X @ np.outer([1.0, 2.0, 0.0], [1.0, 1.0, -1.0, 0.0]).ravel()
    >>> FederatedTraceRegression(alpha=0.1, shape=(3, 4)).fit(X, y, clients=np.arange(300) % 5).rank_
    1
    """

    def __init__(
        self,
        alpha: Given[float] = 1.0,
        *,
        shape: Given[tuple[int, int] | None] = None,
        fit_intercept: Given[bool] = True,
        standardize: Given[bool] = False,
        algorithm: Given[str | AbstractServerAlgorithm] = "auto",
        tol: Given[float] = 1e-12,
        max_rounds: Given[int] = 20_000,
    ):
        self.alpha = alpha
        self.shape = shape
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds

    def fit(
        self,
        X: FitFeatures,
        y: Labels = None,
        clients: Clients = None,
        sample_weight: RowNumbers = None,
        offset: RowNumbers = None,
    ) -> "FederatedTraceRegression":
        """Fit to the rows of all clients.

        Parameters
        ----------
        X : array-like of shape (n, d1 * d2), pandas.DataFrame or cofed.Federation
            The matrices, laid out row by row.
        y : array-like of shape (n,)
            The targets.
        clients : array-like of shape (n,), str or None
            The client's name of every row, or the name of that column of a pandas X; None is one client.
        sample_weight, offset : array-like of shape (n,), str or None
            How much every row counts, and what is added to its prediction; or the names of such columns.

        Returns
        -------
        self
            The fitted estimator.
        """
        super().fit(X, y, clients, sample_weight, offset)
        self.matrix_ = self.coef_.reshape(self._shape(len(self.coef_)))
        self.rank_ = int(np.linalg.matrix_rank(self.matrix_, tol=1e-9 * max(np.abs(self.matrix_).max(), 1e-300)))
        return self

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

    def _penalty(self, problem: StandardizedProblem, alpha: float) -> AbstractRegularizer:
        if alpha == 0:
            return elastic_net(0.0, 1.0, problem.units).of_shape(np.shape(problem.start.coef))
        return Nuclear(alpha * problem.units.penalised[0] / problem.units.objective)

    def _blocks(self, features: int) -> np.ndarray:
        return np.zeros(features, int)
