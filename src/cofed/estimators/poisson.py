"""Regression of counts."""

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils import Tags

from cofed._util.types import Given
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.estimators.feature_blocks import treated_apart
from cofed.estimators.feature_options import Chosen, PerFeature
from cofed.estimators.parameters import ratio_of
from cofed.estimators.penalty import WeightedElasticNet, elastic_net
from cofed.estimators.scoring import SiteScoreMixin
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.estimators.with_feature_options import WithFeatureOptions
from cofed.losses import Poisson
from cofed.sites import AbstractSites
from cofed.sites.intake import Clients, Features, FitFeatures, Labels, refuse_other_order
from cofed.sites.queries import SumsAnswer
from cofed.sites.row_options import RowNumbers


class FederatedPoisson(SiteScoreMixin, RegressorMixin, WithFeatureOptions):
    """Sparse Poisson regression with a log link, on rows that stay with their clients, to the pooled answer.

    Minimises mean(exp(z) - y z) + alpha (l1_ratio |w|_1 + (1 - l1_ratio) ||w||^2 / 2), z = x w + b, over all N rows;
    l1_ratio = 0 is scikit-learn's PoissonRegressor.

    Parameters
    ----------
    alpha : float, default=0.1
        The strength of the penalty.
    l1_ratio : float, default=1.0
        The part of the penalty that is the l1 norm.
    fit_intercept : bool, default=True
        Whether b is free (it is never penalised) or 0.
    site_effects : {"none", "fixed"}, default="none"
        "fixed" gives every client an intercept of its own, which is not penalised and is found by the client;
        `intercept_` is then their mean, in which each counts as its rows do.
    standardize : bool, default=True
        Let the penalty act on the coefficients of features divided by their standard deviations, as glmnet does;
        `coef_` is for the features as given. False agrees with scikit-learn's alpha.
    algorithm : {"auto", "newton", "fista", "decouple"} or AbstractServerAlgorithm, default="auto"
        How to solve: "auto" chooses (see the page "estimators"); or an algorithm of cofed with its numbers.
    tol : float, default=1e-12
        The fit stops where the duality gap is at most tol times the loss of the model without features.
    max_rounds : int, default=20_000
        The most rounds of the algorithm; where they do not suffice, a warning says how far it came.
    penalty_factor : float, array-like of shape (p,) or dict, optional
        What the penalty of each feature is multiplied with, by position or name (1 for those that are left out): 0 is
        not penalised.
    exclude : list of str or int, optional
        Features that are left out.
    low, high : float, array-like of shape (p,) or dict, optional
        Limits of the coefficients of features as given, low <= 0 <= high, by position or name.

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        Coefficients for the features as they were given.
    intercept_ : float
        The intercept.
    site_effects_ : dict or None
        Every client's intercept, NaN where its labels tell none; None where answers are masked. With site_effects
        "fixed" only.
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
    >>> from cofed.estimators import FederatedPoisson
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> model = FederatedPoisson(alpha=0.3).fit(X, rng.poisson(np.exp(X[:, 0])), clients=np.arange(200) % 4)
    >>> model.support_.tolist(), model.n_rounds_ < 20
    ([True, False, False], True)
    """

    def __init__(
        self,
        alpha: Given[float] = 0.1,
        *,
        l1_ratio: Given[float] = 1.0,
        fit_intercept: Given[bool] = True,
        site_effects: Given[str] = "none",
        standardize: Given[bool] = True,
        algorithm: Given[str | AbstractServerAlgorithm] = "auto",
        tol: Given[float] = 1e-12,
        max_rounds: Given[int] = 20_000,
        penalty_factor: PerFeature = None,
        exclude: Chosen = None,
        low: PerFeature = None,
        high: PerFeature = None,
    ):
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.site_effects = site_effects
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds
        self.penalty_factor = penalty_factor
        self.exclude = exclude
        self.low = low
        self.high = high

    def predict(self, X: Features, offset: RowNumbers = None, clients: Clients = None) -> np.ndarray:
        """The expected counts of new rows.

        Parameters
        ----------
        X : array-like of shape (n, p) or pandas.DataFrame
            New rows, with the features of the fit.
        offset : array-like of shape (n,) or str, optional
            The rows' offsets, or the name of that column of a pandas X, of a model that was fitted with one.
        clients : array-like of shape (n,) or str, optional
            The rows' clients, of a model with an intercept for each (`site_effects`); None is the column of the fit,
            where X has it, else their mean.

        Returns
        -------
        ndarray of shape (n,)
            exp(X coef + intercept + offset).
        """
        return np.exp(self._linear(X, offset, clients))

    def score(self, X: FitFeatures, y: Labels = None, sample_weight: Given[npt.ArrayLike | None] = None) -> float:
        """The part of the deviance that is explained, as scikit-learn's PoissonRegressor.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or AbstractSites
            Rows; or sites, which carry their counts.
        y : array-like of shape (n,)
            The counts of rows.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows.

        Returns
        -------
        float
            D^2, 1 at best.
        """
        if isinstance(X, AbstractSites):
            return super().score(X, y, sample_weight)
        refuse_other_order(type(self).__name__, X, "y", y)
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _check_sums(self, found: SumsAnswer) -> None:
        super()._check_sums(found)
        if not np.sum(found.labels) > 0:
            raise ValueError(f"{type(self).__name__}: y must have a count above 0, but all are 0")

    def _loss(self) -> Poisson:
        return Poisson()

    def _penalty(self, problem: StandardizedProblem, alpha: float) -> WeightedElasticNet:
        return elastic_net(alpha, ratio_of(self), problem.units, options=self._feature_options())

    def _blocks(self, features: int) -> np.ndarray:
        return treated_apart(features, 1, self.l1_ratio)
