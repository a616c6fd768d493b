"""The elastic net and the lasso."""

import numpy as np
from sklearn.base import RegressorMixin

from cofed._util.types import Given
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.estimators.feature_blocks import treated_apart
from cofed.estimators.feature_options import Chosen, PerFeature
from cofed.estimators.parameters import ratio_of
from cofed.estimators.penalty import WeightedElasticNet, elastic_net
from cofed.estimators.regressor import FederatedRegressor
from cofed.estimators.scoring import SiteScoreMixin
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.estimators.with_feature_options import WithFeatureOptions
from cofed.losses import Squared
from cofed.privacy import Privacy


class FederatedElasticNet(SiteScoreMixin, RegressorMixin, WithFeatureOptions, FederatedRegressor):
    """scikit-learn's ElasticNet on rows that stay with their clients, to the pooled answer.

    Minimises ||y - X w - b||^2 / (2 N) + alpha (l1_ratio |w|_1 + (1 - l1_ratio) ||w||^2 / 2) over all N rows.

    Parameters
    ----------
    alpha : float, default=1.0
        The strength of the penalty.
    l1_ratio : float, default=0.5
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
    privacy : Privacy, optional
        Differential privacy of the rows (`cofed.Privacy`): the sites noise what they send, and the model comes from
        that alone. There is no certificate then, and there are no intervals.

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
    certificate_ : Certificate or None
        How far from optimal the fit can be; None with privacy.
    n_rounds_, bytes_ : int
        The exchanges between the server and its clients, and their size (both ways, all clients).
    exchanges_ : tuple of ExchangeTotal
        What they were.
    clients_, client_sizes_ : tuple
        The clients' names, and how many rows each has.
    algorithm_ : str
        The algorithm that was used.
    privacy_ : PrivacyReport
        What the fit has cost; with privacy only.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedElasticNet
    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(90, 4)), np.repeat(["Oslo", "Rome", "Bern"], 30)
    >>> model = FederatedElasticNet(alpha=0.1, l1_ratio=0.9).fit(X, X[:, 0] - X[:, 2], clients=sites)
    >>> model.support_.tolist(), model.certificate_.converged
    ([True, False, True, False], True)
    """

    def __init__(
        self,
        alpha: Given[float] = 1.0,
        *,
        l1_ratio: Given[float] = 0.5,
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
        privacy: Given[Privacy | None] = None,
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
        self.privacy = privacy

    def _loss(self) -> Squared:
        return Squared()

    def _penalty(self, problem: StandardizedProblem, alpha: float) -> WeightedElasticNet:
        return elastic_net(alpha, ratio_of(self), problem.units, options=self._feature_options())

    def _blocks(self, features: int) -> np.ndarray:
        return treated_apart(features, 1, self.l1_ratio)


class FederatedLasso(FederatedElasticNet):
    """scikit-learn's Lasso on rows that stay with their clients, to the pooled answer.

    Minimises ||y - X w - b||^2 / (2 N) + alpha |w|_1 over all N rows.

    Parameters
    ----------
    alpha : float, default=1.0
        The strength of the penalty.
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
    privacy : Privacy, optional
        Differential privacy of the rows (`cofed.Privacy`): the sites noise what they send, and the model comes from
        that alone. There is no certificate then, and there are no intervals.

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
    certificate_ : Certificate or None
        How far from optimal the fit can be; None with privacy.
    n_rounds_, bytes_ : int
        The exchanges between the server and its clients, and their size (both ways, all clients).
    exchanges_ : tuple of ExchangeTotal
        What they were.
    clients_, client_sizes_ : tuple
        The clients' names, and how many rows each has.
    algorithm_ : str
        The algorithm that was used.
    privacy_ : PrivacyReport
        What the fit has cost; with privacy only.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedLasso
    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(90, 4)), np.repeat(["Oslo", "Rome", "Bern"], 30)
    >>> model = FederatedLasso(alpha=0.1).fit(X, X[:, 0] - X[:, 2], clients=sites)
    >>> model.coef_.round(1).tolist(), model.clients_
    ([0.9, 0.0, -0.9, 0.0], ('Bern', 'Oslo', 'Rome'))
    """

    def __init__(
        self,
        alpha: Given[float] = 1.0,
        *,
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
        privacy: Given[Privacy | None] = None,
    ):
        self.alpha = alpha
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
        self.privacy = privacy

    def _penalty(self, problem: StandardizedProblem, alpha: float) -> WeightedElasticNet:
        return elastic_net(alpha, 1.0, problem.units, options=self._feature_options())

    def _blocks(self, features: int) -> np.ndarray:
        return treated_apart(features, 1, 1.0)
