"""Lassos of several responses: a feature is in use for all of them, or for none."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags

from cofed._util.types import Given
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.estimators.checks import named_refusals
from cofed.estimators.cross_validation import CrossValidated
from cofed.estimators.feature_blocks import treated_apart
from cofed.estimators.feature_options import Chosen, PerFeature
from cofed.estimators.fold_choice import CV
from cofed.estimators.parameters import ratio_of
from cofed.estimators.regressor import FederatedRegressor
from cofed.estimators.row_penalty import RowElasticNet, row_elastic_net
from cofed.estimators.scoring import SiteScoreMixin
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.estimators.with_feature_options import WithFeatureOptions
from cofed.losses import Squared
from cofed.sites import AbstractSites
from cofed.sites.intake import Clients, Features, FitFeatures, Labels
from cofed.sites.response_intake import gather_responses


def refuse_other_responses(owner: str, names: Iterable[object], known: Iterable[object]) -> None:
    """Refuse the responses of the fit in another order, which would be held against each other's predictions."""
    given, fitted = list(map(str, names)), list(map(str, known))
    if given != fitted and set(given) == set(fitted):
        raise ValueError(f"{owner} was fitted to the responses {fitted}, and is given them as {given}: order them so")


class WeightedR2(RegressorMixin):
    """scikit-learn's `score`, in which responses count as their variances do."""

    def score(self, X: Features, y: Labels, sample_weight: Given[npt.ArrayLike | None] = None) -> float:
        """One minus the ratio of the squared errors, over all responses, to those of the responses' means."""
        if isinstance(y, pd.DataFrame):
            refuse_other_responses(type(self).__name__, list(y.columns), vars(self).get("responses_", ()))
        found = self.predict(X)  # pyright: ignore[reportAttributeAccessIssue]
        return float(r2_score(y, found, sample_weight=sample_weight, multioutput="variance_weighted"))


class FederatedMultiTaskLasso(SiteScoreMixin, WeightedR2, WithFeatureOptions, FederatedRegressor):
    """The lasso of several responses on rows that stay with their clients, to the pooled answer.

    Minimises ||Y - X W - b||^2 / (2 N) + alpha (l1_ratio sum_j ||W_j|| + (1 - l1_ratio) ||W||^2 / 2) over all N rows,
    W_j being a feature's coefficients for all responses: scikit-learn's MultiTaskLasso and MultiTaskElasticNet, and
    glmnet's family mgaussian with alpha for its lambda.

    Parameters
    ----------
    alpha : float, default=1.0
        The strength of the penalty.
    l1_ratio : float, default=1.0
        The part of the penalty that is the sum of the rows' lengths; the rest is a ridge.
    fit_intercept : bool, default=True
        Whether b is free (it is never penalised) or 0.
    standardize : bool, default=True
        Let the penalty act on the coefficients of features divided by their standard deviations, as glmnet does;
        `coef_` is for the features as given. False agrees with scikit-learn's alpha. Responses are never
        standardised, as in glmnet: one with a larger variance counts more.
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

    Attributes
    ----------
    coef_ : ndarray of shape (responses, p)
        Coefficients for the features as they were given.
    intercept_ : ndarray of shape (responses,)
        The intercepts.
    responses_ : ndarray of str
        The names of the responses: y's columns, those of the sites' tables, or y0, y1, ...
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
    >>> from cofed.estimators import FederatedMultiTaskLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(90, 4))
    >>> Y = X[:, [0]] * [1.0, -2.0] + X[:, [2]] * [0.0, 1.0]
    >>> model = FederatedMultiTaskLasso(0.1).fit(X, Y, clients=np.arange(90) % 3)
    >>> model.support_.tolist(), model.coef_.round(1).tolist()
    ([True, False, True, False], [[1.0, 0.0, 0.0, 0.0], [-1.9, 0.0, 0.9, 0.0]])
    """

    def __init__(
        self,
        alpha: Given[float] = 1.0,
        *,
        l1_ratio: Given[float] = 1.0,
        fit_intercept: Given[bool] = True,
        standardize: Given[bool] = True,
        algorithm: Given[str | AbstractServerAlgorithm] = "auto",
        tol: Given[float] = 1e-12,
        max_rounds: Given[int] = 20_000,
        penalty_factor: PerFeature = None,
        exclude: Chosen = None,
    ):
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds
        self.penalty_factor = penalty_factor
        self.exclude = exclude

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        return tags

    def _intake(self, X: FitFeatures, y: Labels, clients: Clients) -> AbstractSites:
        self.client_column_ = clients if isinstance(clients, str) else None
        with named_refusals(type(self).__name__):
            sites, names = gather_responses(self, X, y, clients)
        self.responses_ = np.array(names)
        return sites

    def _labelled(self, sites: AbstractSites) -> AbstractSites:
        with named_refusals(type(self).__name__):
            own, names = sites.of_responses()
        if len(names) != len(self.responses_):
            raise ValueError(
                f"{type(self).__name__} was fitted to {len(self.responses_)} responses, but the sites have {len(names)}"
            )
        refuse_other_responses(type(self).__name__, names, self.responses_)
        return own

    def _loss(self) -> Squared:
        return Squared(responses=len(self.responses_) if len(self.responses_) > 1 else None)

    def _penalty(self, problem: StandardizedProblem, alpha: float) -> RowElasticNet:
        return row_elastic_net(alpha, ratio_of(self), problem.units, self._feature_options())

    def _blocks(self, features: int) -> np.ndarray:
        return treated_apart(features, len(self.responses_), self.l1_ratio)

    def _output(self, coef: np.ndarray, intercept: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.atleast_2d(coef.T), np.atleast_1d(intercept)


class FederatedMultiTaskLassoCV(CrossValidated, FederatedMultiTaskLasso):
    """FederatedMultiTaskLasso with a strength chosen by the federation.

    Parameters
    ----------
    l1_ratio : float or list of float, default=1.0
        The part of the penalty that is the sum of the rows' lengths. Of several, each with strengths of its own, the
        best is taken.
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
        What is cross-validated, on the scale of the labels, summed over the responses.
    random_state : int, default=0
        The seed of the folds.
    fit_intercept : bool, default=True
        Whether b is free (it is never penalised) or 0.
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
    coef_ : ndarray of shape (responses, p)
        Coefficients for the features as they were given.
    intercept_ : ndarray of shape (responses,)
        The intercepts.
    responses_ : ndarray of str
        The names of the responses: y's columns, those of the sites' tables, or y0, y1, ...
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
    >>> from cofed.estimators import FederatedMultiTaskLassoCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(120, 6))
    >>> Y = X[:, [0]] * [1.0, -2.0] + X[:, [2]] * [0.0, 1.0] + rng.normal(size=(120, 2))
    >>> model = FederatedMultiTaskLassoCV(criterion="1se", n_alphas=20).fit(X, Y, clients=np.arange(120) % 3)
    >>> np.flatnonzero(model.support_).tolist()
    [0, 2]
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
        standardize: Given[bool] = True,
        algorithm: Given[str | AbstractServerAlgorithm] = "auto",
        tol: Given[float] = 1e-12,
        max_rounds: Given[int] = 20_000,
        penalty_factor: PerFeature = None,
        exclude: Chosen = None,
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
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds
        self.penalty_factor = penalty_factor
        self.exclude = exclude
