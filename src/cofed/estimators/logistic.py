"""Sparse logistic regression, of two classes and of several."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin

from cofed._util import naming
from cofed._util.types import Given
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.estimators.checks import check_choice, named_refusals
from cofed.estimators.class_weight import Label, check_class_weight, check_counts, class_counts
from cofed.estimators.feature_blocks import treated_apart
from cofed.estimators.feature_options import LIMITS, Chosen, PerFeature
from cofed.estimators.fitted_state import refuse_privacy
from cofed.estimators.group_penalty import group_labels, group_penalty
from cofed.estimators.parameters import ratio_of
from cofed.estimators.penalty import elastic_net
from cofed.estimators.scoring import SiteScoreMixin
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.estimators.with_feature_options import WithFeatureOptions
from cofed.losses import AbstractLoss, Logistic, SiteClassIntercepts, Softmax
from cofed.privacy import Privacy
from cofed.regularizers import AbstractRegularizer
from cofed.sites import AbstractSites
from cofed.sites.intake import Clients, Features, FitFeatures, Labels, gather
from cofed.sites.queries import Message, SumsAnswer, sums
from cofed.sites.row_options import RowNumbers

PENALTIES = ("l1", "elasticnet", "group")


class FederatedLogisticRegression(SiteScoreMixin, ClassifierMixin, WithFeatureOptions):
    """Logistic regression on rows that stay with their clients, to the pooled answer.

    Minimises mean log-loss + alpha * penalty(w) over all N rows: skglm's SparseLogisticRegression, and scikit-learn's
    LogisticRegression with C = 1 / (N alpha). Several classes have one vector of coefficients each (multinomial).

    Parameters
    ----------
    alpha : float, default=0.01
        The strength of the penalty.
    penalty : {"l1", "elasticnet", "group"}, default="l1"
        "l1" is |w|_1; "elasticnet" is l1_ratio |w|_1 + (1 - l1_ratio) ||w||^2 / 2; "group" is the sum over groups of
        features of sqrt(size) ||w_g||.
    l1_ratio : float, default=0.5
        The part of "elasticnet" that is the l1 norm.
    groups : array-like of shape (p,), optional
        A label per feature, of "group"; None makes each feature a group, over all classes.
    class_weight : {"balanced"} or dict, optional
        What the rows of each class count: by the labels of classes, 1 for those that are left out; "balanced" lets
        all classes count the same, all together, as scikit-learn's.
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
    coef_ : ndarray of shape (1, p) or (classes, p)
        Coefficients for the features as they were given.
    intercept_ : ndarray of shape (1,) or (classes,)
        The intercept.
    site_effects_ : dict or None
        Every client's intercept (of several classes, an array), NaN where its labels tell none; None where answers are
        masked. With site_effects "fixed" only.
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
    classes_ : ndarray
        The labels of the classes.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(120, 4)), np.repeat(["Oslo", "Rome", "Bern"], 40)
    >>> y = np.where(X[:, 1] + rng.normal(size=120) > 0, "ill", "well")
    >>> model = FederatedLogisticRegression(alpha=0.05).fit(X, y, clients=sites)
    >>> model.classes_.tolist(), model.support_.tolist()
    (['ill', 'well'], [False, True, False, False])
    """

    _classifies = True

    def __init__(
        self,
        alpha: Given[float] = 0.01,
        *,
        penalty: Given[str] = "l1",
        l1_ratio: Given[float] = 0.5,
        groups: Given[npt.ArrayLike | None] = None,
        class_weight: Given[Mapping[Label, float] | str | None] = None,
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
        self.penalty = penalty
        self.l1_ratio = l1_ratio
        self.groups = groups
        self.class_weight = class_weight
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

    def decision_function(self, X: Features, offset: RowNumbers = None, clients: Clients = None) -> np.ndarray:
        """The scores of the classes.

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
        ndarray of shape (n,) or (n, classes)
            The log odds of the second class; of several classes, a column for each.
        """
        scores = self._linear(X, offset, clients)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Features, offset: RowNumbers = None, clients: Clients = None) -> np.ndarray:
        """The probability of each class.

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
        ndarray of shape (n, classes)
            Probabilities, in the order of `classes_`.
        """
        scores = self.decision_function(X, offset, clients)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return softmax(scores, axis=1)

    def predict_log_proba(self, X: Features, offset: RowNumbers = None, clients: Clients = None) -> np.ndarray:
        """The logarithm of the probability of each class.

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
        ndarray of shape (n, classes)
            Logarithms, in the order of `classes_`.
        """
        return np.log(self.predict_proba(X, offset, clients))

    def predict(self, X: Features, offset: RowNumbers = None, clients: Clients = None) -> np.ndarray:
        """The most probable class.

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
            Labels.
        """
        scores = self.decision_function(X, offset, clients)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(type(self).__name__, "penalty", self.penalty, PENALTIES)
        check_class_weight(type(self).__name__, self.class_weight)
        limits = [name for name in self._given_options() if name in LIMITS]
        if limits and self.penalty == "group":
            raise ValueError(
                f"{type(self).__name__}: {limits[0]} is for the penalties l1 and elasticnet: coefficients that are in "
                "one norm, those of a group, have no limits of their own"
            )
        if self.class_weight is not None:
            refuse_privacy(self, "weights of classes", "the noise is for rows that count alike")

    def _intake(self, X: FitFeatures, y: Labels, clients: Clients) -> AbstractSites:
        self.client_column_ = clients if isinstance(clients, str) else None
        with named_refusals(type(self).__name__):
            sites, self.classes_ = gather(self, X, y, clients, classifies=True).of_classes()
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs rows of at least 2 classes, but the data contains only one class: "
                f"{self.classes_.tolist()[0]!r}"
            )
        return sites

    def _by_class(self, sites: AbstractSites) -> AbstractSites:
        if self.class_weight is None:
            return sites
        classes = self.classes_.tolist()
        if isinstance(self.class_weight, str):
            counts = class_counts(sites.ask(sums, Message(loss=self._loss())))
            check_counts(type(self).__name__, counts, classes)
            return sites.with_class_weight(tuple((counts.sum() / (len(counts) * counts)).tolist()))
        strange = [label for label in self.class_weight if label not in classes]
        if strange:
            raise ValueError(
                f"{type(self).__name__}: class_weight has {naming.listed(map(str, strange))}, but the classes are "
                f"{naming.listed(map(str, classes))}"
            )
        return sites.with_class_weight(tuple(float(self.class_weight.get(label, 1.0)) for label in classes))

    def _check_sums(self, found: SumsAnswer) -> None:
        super()._check_sums(found)
        check_counts(type(self).__name__, class_counts(found), self.classes_.tolist())

    def _labelled(self, sites: AbstractSites) -> AbstractSites:
        own, classes = sites.of_classes()
        if not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"{type(self).__name__} was fitted to the classes {self.classes_.tolist()}, but the sites have "
                f"{classes.tolist()}"
            )
        return own

    def _posed_loss(self) -> AbstractLoss:
        if self._has_site_effects and len(self.classes_) > 2:
            return SiteClassIntercepts(self._loss())
        return super()._posed_loss()

    def _loss(self) -> Logistic | Softmax:
        return Logistic() if len(self.classes_) == 2 else Softmax(len(self.classes_))

    def _penalty(self, problem: StandardizedProblem, alpha: float) -> AbstractRegularizer:
        if self.penalty == "group":
            return group_penalty(alpha, self._together(len(problem.units.mean)), problem, self._feature_options())
        ratio = 1.0 if self.penalty == "l1" else ratio_of(self)
        return elastic_net(alpha, ratio, problem.units, np.ndim(problem.start.coef), self._feature_options())

    def _blocks(self, features: int) -> np.ndarray:
        if self.penalty == "elasticnet":
            outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
            return treated_apart(features, outputs, self.l1_ratio)
        return self._together(features)

    def _together(self, features: int) -> np.ndarray:
        return group_labels(type(self).__name__, self.groups if self.penalty == "group" else None, features)

    def _output(self, coef: np.ndarray, intercept: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.atleast_2d(coef.T), np.atleast_1d(intercept)
