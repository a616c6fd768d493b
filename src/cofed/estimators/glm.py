"""Generalised linear models of any convex loss of a number: a family of cofed's, or one's own."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from cofed._util.types import Given
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.estimators.cross_validation import CrossValidated
from cofed.estimators.dispersion import alternated, first_theta, surveyed_at
from cofed.estimators.feature_blocks import treated_apart
from cofed.estimators.feature_options import Chosen, PerFeature
from cofed.estimators.fold_choice import CV
from cofed.estimators.glm_losses import check_loss, check_site_effects, explained_by_constant
from cofed.estimators.parameters import ratio_of
from cofed.estimators.penalty import WeightedElasticNet, elastic_net
from cofed.estimators.progress import Solve, Solved
from cofed.estimators.scoring import SiteScoreMixin, labels_of_rows, weights_of_rows
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.estimators.survey import Survey
from cofed.estimators.with_feature_options import WithFeatureOptions
from cofed.losses import AbstractLoss, NegativeBinomial, Squared
from cofed.sites import AbstractSites, Folds
from cofed.sites.intake import Clients, Features, FitFeatures, Labels, refuse_other_order
from cofed.sites.queries import SumsAnswer
from cofed.sites.row_options import RowNumbers, RowOptions


class FederatedGLM(SiteScoreMixin, RegressorMixin, WithFeatureOptions):
    """Sparse regression with any convex loss of a number, on rows that stay with their clients, to the pooled answer.

    Minimises mean f(z, y) + alpha (l1_ratio |w|_1 + (1 - l1_ratio) ||w||^2 / 2), z = x w + b, over all N rows. The loss
    f brings its link and its deviance: `cofed.Gamma()`, `cofed.Tweedie(power)`, `cofed.NegativeBinomial()` and
    `cofed.Poisson()` predict exp(z). A loss of one's own is a subclass of `cofed.AbstractLoss` that says its
    `curvature`, and either its `conjugate` or that it `attains_zero`; it serves in process (over a network no code
    travels to a site).

    Parameters
    ----------
    loss : AbstractLoss, optional
        The loss of a row; None is `cofed.Squared()`.
    alpha : float, default=0.1
        The strength of the penalty.
    l1_ratio : float, default=1.0
        The part of the penalty that is the l1 norm.
    fit_intercept : bool, default=True
        Whether b is free (it is never penalised) or 0.
    site_effects : {"none", "fixed"}, default="none"
        "fixed" gives every client an intercept of its own, which is not penalised and is found by the client;
        `intercept_` is then their mean, in which each counts as its rows do. For losses with a link function.
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
    loss_ : AbstractLoss
        The loss with the theta that was estimated, of `cofed.NegativeBinomial()` only.
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
    >>> import cofed
    >>> from cofed.estimators import FederatedGLM
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(200, 3)), np.arange(200) % 4
    >>> cost = rng.gamma(2.0, np.exp(X[:, 0]) / 2)
    >>> model = FederatedGLM(cofed.Gamma(), alpha=0.3).fit(X, cost, clients=site)
    >>> model.support_.tolist(), model.certificate_.converged, bool(0.3 < model.score(X, cost) < 0.6)
    ([True, False, False], True, True)
    """

    def __init__(
        self,
        loss: Given[AbstractLoss | None] = None,
        *,
        alpha: Given[float] = 0.1,
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
        self.loss = loss
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
        """What is expected of new rows.

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
            The loss's inverse link of X coef + intercept + offset: of `Gamma` and `Tweedie` exp of it.
        """
        return np.asarray(self._loss().inverse_link(jnp.asarray(self._linear(X, offset, clients))))

    def score(self, X: FitFeatures, y: Labels = None, sample_weight: Given[npt.ArrayLike | None] = None) -> float:
        """The part of the deviance that is explained, beside the best constant.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or AbstractSites
            Rows; or sites, which carry their targets.
        y : array-like of shape (n,)
            The targets of rows.
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
        loss, z = self._loss(), self._linear(X)
        owner, n = type(self).__name__, len(z)
        labels = labels_of_rows(owner, loss, y, n)
        weight = np.ones(n) if sample_weight is None else weights_of_rows(owner, X, sample_weight, n)
        least = explained_by_constant(loss, labels, weight)
        return 1 - float(weight @ loss.deviance(z[:, None], labels)[:, 0]) / least

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        loss = self.loss
        tags.target_tags.positive_only = isinstance(loss, AbstractLoss) and loss.least_label is not None
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_loss(type(self).__name__, self.loss)
        if self._has_site_effects:
            check_site_effects(type(self).__name__, self.loss)

    def _check_sums(self, found: SumsAnswer) -> None:
        super()._check_sums(found)
        if self._loss().least_label == 0 and not np.sum(found.labels) > 0:
            raise ValueError(f"{type(self).__name__}: y must have a value above 0, but all are 0")

    def _loss(self) -> AbstractLoss:
        """The loss, with the numbers that were estimated."""
        given = Squared() if self.loss is None else self.loss
        return vars(self).get("loss_", given)

    def _sites_of(self, given: RowOptions, y: Labels, clients: Clients) -> AbstractSites:
        self.__dict__.pop("loss_", None)  # of an earlier fit
        return super()._sites_of(given, y, clients)

    def _standardized(self, sites: AbstractSites, folds: Folds | None = None) -> StandardizedProblem:
        """The problem; of a loss whose theta is not known, with that of the model without features."""
        loss = self._loss()
        if not isinstance(loss, NegativeBinomial) or not loss.is_open:
            return super()._standardized(sites, folds)
        self.loss_ = NegativeBinomial(1.0)
        problem = super()._standardized(sites, folds)
        return self._of_theta(surveyed_at(problem, first_theta(problem)))

    def _of_theta(self, found: Survey) -> StandardizedProblem:
        """The problem of a survey with some theta, which is kept."""
        self.loss_ = found.loss.of_rows
        return self._posed(found)

    def _settled(self, problem: StandardizedProblem, solve: Solve, near: float) -> Solved:
        if isinstance(self.loss, NegativeBinomial) and self.loss.is_open:
            return alternated(problem, self._of_theta, solve, near)
        return super()._settled(problem, solve, near)

    def _penalty(self, problem: StandardizedProblem, alpha: float) -> WeightedElasticNet:
        return elastic_net(alpha, ratio_of(self), problem.units, options=self._feature_options())

    def _blocks(self, features: int) -> np.ndarray:
        return treated_apart(features, 1, self.l1_ratio)


class FederatedGLMCV(CrossValidated, FederatedGLM):
    """FederatedGLM with a strength chosen by the federation.

    Parameters
    ----------
    loss : AbstractLoss, optional
        The loss of a row; None is `cofed.Squared()`.
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
        `intercept_` is then their mean, in which each counts as its rows do. For losses with a link function.
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
    loss_ : AbstractLoss
        The loss with the theta that was estimated, of `cofed.NegativeBinomial()` only.
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
    >>> import cofed
    >>> from cofed.estimators import FederatedGLMCV
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(200, 3)), np.arange(200) % 4
    >>> cost = rng.gamma(2.0, np.exp(X[:, 0]) / 2)
    >>> model = FederatedGLMCV(cofed.Gamma(), criterion="bic", n_alphas=10).fit(X, cost, clients=site)
    >>> bool(model.support_[0]), bool(0.8 < model.coef_[0] < 1.2)
    (True, True)
    """

    def __init__(
        self,
        loss: Given[AbstractLoss | None] = None,
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
        self.loss = loss
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
