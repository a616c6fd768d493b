"""Sparse logistic regression, of two classes and of several."""

from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin

from cofed.estimators.base import FederatedLinearModel, treated_apart
from cofed.estimators.group_lasso import group_labels, group_penalty
from cofed.estimators.penalty import elastic_net
from cofed.estimators.sites import Sites, gather
from cofed.estimators.standardized_problem import Posed
from cofed.losses import Logistic, Softmax

PENALTIES = ("l1", "elasticnet", "group")


class FederatedLogisticRegression(ClassifierMixin, FederatedLinearModel):
    """Logistic regression on rows that stay with their clients, to the pooled answer.

    Minimises mean log-loss + alpha * penalty(w) over all N rows: skglm's SparseLogisticRegression, and scikit-learn's
    LogisticRegression with C = 1 / (N alpha). Several classes have one vector of coefficients each (multinomial).

    penalty: "l1"; "elasticnet", l1_ratio |w|_1 + (1 - l1_ratio) ||w||^2 / 2; "group", the sum over groups of features
        of sqrt(size) ||w_g||, where `groups` gives a label per feature (None: each feature is one, over all classes).
    The other parameters are those of `FederatedElasticNet`.

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
        alpha: Any = 0.01,
        *,
        penalty: Any = "l1",
        l1_ratio: Any = 0.5,
        groups: Any = None,
        fit_intercept: Any = True,
        standardize: Any = True,
        algorithm: Any = "auto",
        tol: Any = 1e-12,
        max_rounds: Any = 20_000,
    ):
        self.alpha = alpha
        self.penalty = penalty
        self.l1_ratio = l1_ratio
        self.groups = groups
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds

    def decision_function(self, X: Any) -> np.ndarray:
        """The log odds of the second class; of several classes, a column of scores for each."""
        scores = self._linear(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return softmax(scores, axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithm of those."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def _check_numbers(self) -> None:
        super()._check_numbers()
        if not isinstance(self.penalty, str) or self.penalty not in PENALTIES:
            raise ValueError(
                f"{type(self).__name__}: penalty must be one of {', '.join(PENALTIES)}, got {self.penalty!r}"
            )

    def _intake(self, X: Any, y: Any, clients: Any) -> Sites:
        self.client_column_ = clients if isinstance(clients, str) else None
        sites = gather(self, X, y, clients, classifies=True)
        self.classes_ = np.unique(np.concatenate(sites.y))
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs rows of at least 2 classes, but the data contains only one class: "
                f"{self.classes_.tolist()[0]!r}"
            )
        return Sites(sites.names, sites.X, [np.searchsorted(self.classes_, y).astype(np.int32) for y in sites.y])

    def _loss(self) -> Any:
        return Logistic() if len(self.classes_) == 2 else Softmax(len(self.classes_))

    def _penalty(self, posed: Posed, alpha: Any = None) -> Any:
        alpha = self.alpha if alpha is None else alpha
        if self.penalty == "group":
            return group_penalty(alpha, self._blocks(len(posed.units.mean)), posed)
        ratio = 1.0 if self.penalty == "l1" else self.l1_ratio
        return elastic_net(alpha, ratio, posed.units, np.ndim(posed.start.coef))

    def _blocks(self, features: int) -> np.ndarray:
        if self.penalty == "elasticnet":
            outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
            return treated_apart(features, outputs, self.l1_ratio)
        return group_labels(type(self).__name__, self.groups if self.penalty == "group" else None, features)

    def _output(self, coef: np.ndarray, intercept: Any) -> tuple[np.ndarray, Any]:
        return np.atleast_2d(coef.T), np.atleast_1d(intercept)
