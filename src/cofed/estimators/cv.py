"""Lassos and elastic nets that choose their strength themselves."""

from collections.abc import Sequence

import numpy.typing as npt

from cofed._util.types import Given
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.estimators.cross_validation import CrossValidated
from cofed.estimators.elastic_net import FederatedElasticNet, FederatedLasso
from cofed.estimators.feature_options import Chosen, PerFeature
from cofed.estimators.fold_choice import CV
from cofed.privacy import Privacy


class FederatedLassoCV(CrossValidated, FederatedLasso):
    """FederatedLasso with a strength chosen by the federation.

    Parameters
    ----------
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
    >>> from cofed.estimators import FederatedLassoCV
    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(120, 6)), np.arange(120) % 3
    >>> y = X[:, 0] - X[:, 1] + rng.normal(size=120)
    >>> model = FederatedLassoCV(criterion="1se", n_alphas=20).fit(X, y, clients=sites)
    >>> np.flatnonzero(model.support_).tolist(), bool(model.alpha_ == model.alpha_1se_)
    ([0, 1], True)
    """

    def __init__(
        self,
        *,
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
        low: PerFeature = None,
        high: PerFeature = None,
        privacy: Given[Privacy | None] = None,
    ):
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
        self.low = low
        self.high = high
        self.privacy = privacy


class FederatedElasticNetCV(CrossValidated, FederatedElasticNet):
    """FederatedElasticNet with a strength chosen by the federation.

    Parameters
    ----------
    l1_ratio : float or list of float, default=0.5
        The part of the penalty that is the l1 norm. Of several, each with strengths of its own, the best is taken.
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
    l1_ratio_, l1_ratios_, ratio_scores_
        Of several l1_ratio: the chosen one, all of them, and the best measure (or information criterion) of each.
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
    >>> from cofed.estimators import FederatedElasticNetCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(120, 6))
    >>> model = FederatedElasticNetCV(l1_ratio=0.9, criterion="bic", n_alphas=20)
    >>> np.flatnonzero(model.fit(X, X[:, 0] - X[:, 1] + rng.normal(size=120)).support_).tolist()
    [0, 1]
    """

    def __init__(
        self,
        *,
        l1_ratio: Given[float | Sequence[float]] = 0.5,
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
        low: PerFeature = None,
        high: PerFeature = None,
        privacy: Given[Privacy | None] = None,
    ):
        self.l1_ratio = l1_ratio
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
        self.low = low
        self.high = high
        self.privacy = privacy
