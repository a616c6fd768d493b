"""Logistic and Poisson models that choose their strength themselves."""

from collections.abc import Mapping, Sequence

import numpy.typing as npt

from cofed._util.types import Given
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.estimators.class_weight import Label
from cofed.estimators.cross_validation import CrossValidated
from cofed.estimators.feature_options import Chosen, PerFeature
from cofed.estimators.fold_choice import CV
from cofed.estimators.logistic import FederatedLogisticRegression
from cofed.estimators.poisson import FederatedPoisson


class FederatedLogisticRegressionCV(CrossValidated, FederatedLogisticRegression):
    """FederatedLogisticRegression with a strength chosen by the federation.

    Parameters
    ----------
    penalty : {"l1", "elasticnet", "group"}, default="l1"
        As in FederatedLogisticRegression.
    l1_ratio : float or list of float, default=0.5
        The part of "elasticnet" that is the l1 norm. Of several, each with strengths of its own, the best is taken.
    groups : array-like of shape (p,), optional
        A label per feature, of "group".
    class_weight : {"balanced"} or dict, optional
        What the rows of each class count: by the labels of classes, 1 for those that are left out; "balanced" lets
        all classes count the same, all together, as scikit-learn's.
    alphas : array-like, optional
        The strengths; None takes `n_alphas` from the federation's own alpha_max down to eps times it.
    n_alphas : int, default=100
        How many strengths.
    eps : float, default=1e-3
        The last strength as a part of the first.
    cv : int, str, (str, int), splitter or splits, default=5
        The number of folds; every client splits its own rows, of each class evenly. Or
        "leave-one-site-out"; the name of a column, alone or with a number of folds, whose groups are each in one fold;
        or, of rows that are given, a splitter of scikit-learn or its splits.
    criterion : {"min", "1se", "aic", "bic"}, default="min"
        "min" takes the best cross-validated measure; "1se" the strongest penalty within one standard error of it;
        "aic" and "bic" that criterion of the path, without folds.
    measure : {"deviance", "mse", "mae", "misclassification", "auc"}, default="deviance"
        What is cross-validated: the mse of two classes is Brier's score; the auc is from counts of predictions in bins,
        and may be off by `cv_bound_`.
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
    cv_bound_ : ndarray
        By how much the measures may be off, of "auc" only.
    alpha_min_, alpha_1se_ : float
        The strengths of "min" and of "1se"; with folds only.
    l1_ratio_, l1_ratios_, ratio_scores_
        Of several l1_ratio: the chosen one, all of them, and the best measure (or information criterion) of each.
    coef_ : ndarray of shape (1, p) or (classes, p)
        Coefficients for the features as they were given.
    intercept_ : ndarray of shape (1,) or (classes,)
        The intercept.
    site_effects_ : dict or None
        Every client's intercept (of several classes, an array), NaN where its labels tell none; None where answers are
        masked. With site_effects "fixed" only.
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
    classes_ : ndarray
        The labels of the classes.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedLogisticRegressionCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 4))
    >>> y = (X[:, 0] + rng.logistic(size=200) > 0).astype(int)
    >>> model = FederatedLogisticRegressionCV(criterion="bic", n_alphas=10).fit(X, y, clients=np.arange(200) % 4)
    >>> model.support_.tolist()
    [True, False, False, False]
    """

    def __init__(
        self,
        *,
        penalty: Given[str] = "l1",
        l1_ratio: Given[float | Sequence[float]] = 0.5,
        groups: Given[npt.ArrayLike | None] = None,
        class_weight: Given[Mapping[Label, float] | str | None] = None,
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
    ):
        self.penalty = penalty
        self.l1_ratio = l1_ratio
        self.groups = groups
        self.class_weight = class_weight
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


class FederatedPoissonCV(CrossValidated, FederatedPoisson):
    """FederatedPoisson with a strength chosen by the federation.

    Parameters
    ----------
    l1_ratio : float or list of float, default=1.0
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
    >>> from cofed.estimators import FederatedPoissonCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> y = rng.poisson(np.exp(X[:, 0] / 2))
    >>> model = FederatedPoissonCV(criterion="bic", n_alphas=10).fit(X, y, clients=np.arange(200) % 4)
    >>> bool(model.support_[0]), bool(0.4 < model.coef_[0] < 0.6)
    (True, True)
    """

    def __init__(
        self,
        *,
        l1_ratio: Given[float | Sequence[float]] = 1.0,
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
