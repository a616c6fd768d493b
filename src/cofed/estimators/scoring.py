"""Scores of fitted estimators, of rows that are given and of rows that stay at their sites."""

import copy

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.validation import check_is_fitted

from cofed._util.types import Given
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.fitted_state import refuse_privacy
from cofed.losses import AbstractLoss
from cofed.sites import AbstractSites, Scaling
from cofed.sites.intake import Features, FitFeatures, Labels, aligned, refuse_other_order
from cofed.sites.queries import Message, ScoreMessage, score, sums
from cofed.sites.queries.sums import strange_labels
from cofed.sites.row_options import numbers_of


class SiteScoreMixin:
    """scikit-learn's `score` of rows, and the same number of sites. It stands left of scikit-learn's own mixin."""

    def score(self, X: FitFeatures, y: Labels = None, sample_weight: Given[npt.ArrayLike | None] = None) -> float:
        """How well the predictions fit: R^2 for numbers, the part of the deviance that is explained for counts, and
        the part of right predictions for classes.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or AbstractSites
            Rows; or sites, which carry their targets and send nothing but sums.
        y : array-like of shape (n,)
            The targets of rows.
        sample_weight : array-like of shape (n,), optional
            Weights of rows.

        Returns
        -------
        float
            1 at best.
        """
        if not isinstance(X, AbstractSites):
            refuse_other_order(type(self).__name__, X, "y", y)
            return float(super().score(X, y, sample_weight))  # pyright: ignore[reportAttributeAccessIssue]
        assert isinstance(self, FederatedLinearModel)
        if y is not None or sample_weight is not None:
            raise ValueError(f"{type(self).__name__}: sites carry their own targets; leave y and sample_weight out")
        return score_of_sites(self, X)


def score_of_sites(model: FederatedLinearModel, sites: AbstractSites) -> float:
    """Accuracy (one exchange), or one minus the ratio of the deviances of the model and of the best constant."""
    check_is_fitted(model)
    refuse_privacy(model, "scores of sites", "their sums would not be noised")
    p = vars(model)["n_features_in_"]
    own, loss = model._labelled(aligned(model, sites)), model._loss()
    if own.has_offsets and not loss.has_accuracy:
        raise ValueError(f"{type(model).__name__}: beside offsets there is no constant to compare with, and no score")
    coef, intercept = np.atleast_2d(model.coef_).T, np.reshape(np.asarray(model.intercept_), -1)
    constant = np.zeros_like(intercept)
    if loss.has_link and not loss.has_accuracy:
        found = own.ask(sums, Message(loss=loss))
        constant = np.reshape(np.asarray(loss.link(jnp.asarray(np.sum(found.labels, axis=0) / found.n.sum()))), -1)
    plain = Scaling(np.zeros(p), np.ones(p))
    found = own.ask(score, ScoreMessage(coef, intercept, constant, loss=loss, scaling=plain))
    if loss.has_accuracy:
        return float(found.correct / found.n)
    if not loss.has_link:  # no sums tell the best constant: it is sought
        problem = copy.copy(model)._standardized(own)
        return 1 - float(found.loss / found.n) / (problem.units.objective * float(problem.null.loss))
    return 1 - float(found.loss / found.constant_loss)


def labels_of_rows(owner: str, loss: AbstractLoss, y: Labels, rows: int) -> np.ndarray:
    """The labels of rows that are judged, each of which the loss is for."""
    if y is None:
        raise ValueError(f"{owner}: score takes the targets of rows, and y is None")
    labels = column_or_1d(np.asarray(y, np.float64))
    if len(labels) != rows:
        raise ValueError(f"{owner}: y must be one number per row: {rows} rows, {len(labels)} numbers")
    assert_all_finite(labels, input_name="y")
    reason = strange_labels(loss, labels)
    if reason is not None:
        raise ValueError(f"{owner}: {reason}")
    return labels


def weights_of_rows(owner: str, X: Features, given: npt.ArrayLike, rows: int) -> np.ndarray:
    """The weights of rows that are judged."""
    weight = numbers_of(owner, "sample_weight", X, given)
    if len(weight) != rows:
        raise ValueError(f"{owner}: sample_weight must be one number per row: {rows} rows, {len(weight)} numbers")
    return weight
