"""The group lasso."""

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from cofed._util.types import Given
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.estimators.cross_validation import CrossValidated
from cofed.estimators.feature_options import Chosen, PerFeature
from cofed.estimators.fold_choice import CV
from cofed.estimators.group_penalty import group_labels, group_penalty
from cofed.estimators.regressor import FederatedRegressor
from cofed.estimators.scoring import SiteScoreMixin
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.estimators.with_feature_options import WithFeatureOptions
from cofed.losses import Squared
from cofed.regularizers import AbstractRegularizer


class FederatedGroupLasso(SiteScoreMixin, RegressorMixin, WithFeatureOptions, FederatedRegressor):
    """The group lasso on rows that stay with their clients, to the pooled answer.

    Minimises ||y - X w - b||^2 / (2 N) + alpha sum_g sqrt(size of g) ||w_g||_2 over all N rows: whole groups of
    features come in or stay out.

    Parameters
    ----------
    alpha : float, default=1.0
        The strength of the penalty.
    groups : array-like of shape (p,), optional
        A label per feature; None makes each feature its own group, which is the lasso.
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
        not penalised. The features of a group have one factor.
    exclude : list of str or int, optional
        Features that are left out: of a group all, or none.

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
    site_effects_ : dict or None
        Every client's intercept, NaN where its labels tell none; None where answers are masked. With site_effects
        "fixed" only.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedGroupLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(90, 4))
    >>> model = FederatedGroupLasso(0.2, groups=["blood", "blood", "urine", "urine"]).fit(X, X[:, 0] + X[:, 1])
    >>> model.support_.tolist()
    [True, True, False, False]
    """

    def __init__(
        self,
        alpha: Given[float] = 1.0,
        *,
        groups: Given[npt.ArrayLike | None] = None,
        fit_intercept: Given[bool] = True,
        site_effects: Given[str] = "none",
        standardize: Given[bool] = True,
        algorithm: Given[str | AbstractServerAlgorithm] = "auto",
        tol: Given[float] = 1e-12,
        max_rounds: Given[int] = 20_000,
        penalty_factor: PerFeature = None,
        exclude: Chosen = None,
    ):
        self.alpha = alpha
        self.groups = groups
        self.fit_intercept = fit_intercept
        self.site_effects = site_effects
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds
        self.penalty_factor = penalty_factor
        self.exclude = exclude

    def _loss(self) -> Squared:
        return Squared()

    def _penalty(self, problem: StandardizedProblem, alpha: float) -> AbstractRegularizer:
        return group_penalty(alpha, self._together(len(problem.units.mean)), problem, self._feature_options())

    def _together(self, features: int) -> np.ndarray:
        return group_labels(type(self).__name__, self.groups, features)

    def _blocks(self, features: int) -> np.ndarray:
        return self._together(features)


class FederatedGroupLassoCV(CrossValidated, FederatedGroupLasso):
    """FederatedGroupLasso with a strength chosen by the federation.

    Parameters
    ----------
    groups : array-like of shape (p,), optional
        A label per feature; None makes each feature its own group, which is the lasso.
    alphas : array-like, optional
        The strengths; None takes `n_alphas` from the federation's own alpha_max down to eps times it.
    n_alphas : int, default=100
        How many strengths.
    eps : float, default=1e-3
        The last strength as a part of the first.
    cv : int, str, (str, int), splitter or splits, default=5
        The number of folds; every client splits its own rows. Or
        "leave-one-site-out"; the name of a column, alone or with a number of folds, whose groups are each in one fold;
        or, of rows that are given, a splitter of scikit-learn or its splits.
    criterion : {"min", "1se", "aic", "bic"}, default="min"
        "min" takes the best cross-validated measure; "1se" the strongest penalty within one standard error of it;
        "aic" and "bic" that criterion of the path, without folds.
    measure : {"deviance", "mse", "mae"}, default="deviance"
        What is cross-validated, on the scale of the labels.
    random_state : int, default=0
        The seed of the folds.
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
        not penalised. The features of a group have one factor.
    exclude : list of str or int, optional
        Features that are left out: of a group all, or none.

    Attributes
    ----------
    alpha_ : float
        The chosen strength.
    alphas_ : ndarray
        The strengths.
    path_ : RegularizationPath
        The models of all of them.
    cv_mean_, cv_se_ : ndarray
        The cross-validated measures with their standard errors; with folds only.
    alpha_min_, alpha_1se_ : float
        The strengths of "min" and of "1se"; with folds only.
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
    >>> from cofed.estimators import FederatedGroupLassoCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(90, 4))
    >>> y = X[:, 0] + X[:, 1] + rng.normal(size=90)
    >>> model = FederatedGroupLassoCV(groups=["blood", "blood", "urine", "urine"], criterion="1se", n_alphas=10)
    >>> model.fit(X, y, clients=np.arange(90) % 3).support_.tolist()
    [True, True, False, False]
    """

    def __init__(
        self,
        *,
        groups: Given[npt.ArrayLike | None] = None,
        alphas: Given[npt.ArrayLike | None] = None,
        n_alphas: Given[int] = 100,
        eps: Given[float] = 1e-3,
        cv: CV = 5,
        criterion: Given[str] = "min",
        measure: Given[str] = "deviance",
        random_state: Given[int] = 0,
        fit_intercept: Given[bool] = True,
        site_effects: Given[str] = "none",
        standardize: Given[bool] = True,
        algorithm: Given[str | AbstractServerAlgorithm] = "auto",
        tol: Given[float] = 1e-12,
        max_rounds: Given[int] = 20_000,
        penalty_factor: PerFeature = None,
        exclude: Chosen = None,
    ):
        self.groups = groups
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv
        self.criterion = criterion
        self.measure = measure
        self.random_state = random_state
        self.fit_intercept = fit_intercept
        self.site_effects = site_effects
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds
        self.penalty_factor = penalty_factor
        self.exclude = exclude
