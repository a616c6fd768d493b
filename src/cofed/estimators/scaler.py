"""Standardisation of features across clients."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from cofed.estimators.base import check_flag
from cofed.estimators.communication import Traffic
from cofed.estimators.moments import moments
from cofed.estimators.sites import gather, numbers, refuse_masked


class FederatedStandardScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """scikit-learn's StandardScaler, from sums of the clients: the same numbers as on the pooled rows.

    Fitted: `mean_`, `var_`, `scale_`, `n_samples_seen_`, `n_rounds_` and `bytes_` (both ways, all clients).

    >>> X, sites = np.array([[0.0], [2.0], [4.0], [6.0]]), ["a", "b", "b", "b"]
    >>> scaler = FederatedStandardScaler().fit(X, clients=sites)
    >>> scaler.mean_.tolist(), scaler.n_rounds_
    ([3.0], 2)
    """

    def __init__(self, *, with_mean: Any = True, with_std: Any = True):
        self.with_mean = with_mean
        self.with_std = with_std

    def fit(self, X: Any, y: Any = None, clients: Any = None) -> "FederatedStandardScaler":
        """Learn means and variances. `clients` names the client of each row; X may be a Federation."""
        check_flag(type(self).__name__, "with_mean", self.with_mean)
        check_flag(type(self).__name__, "with_std", self.with_std)
        sites = gather(self, X, None, clients, target=False)
        sites.check_size(type(self).__name__)
        traffic = Traffic(len(sites.names))
        found = moments(sites, traffic)
        self.mean_, self.var_, self.n_samples_seen_ = found.mean, found.var, found.n
        self.scale_ = found.scale if self.with_std else np.ones_like(found.mean)
        self.n_rounds_, self.bytes_ = traffic.rounds, traffic.bytes
        return self

    def transform(self, X: Any) -> np.ndarray:
        """(X - mean) / scale"""
        check_is_fitted(self)
        refuse_masked(type(self).__name__, "X", X)
        X = numbers(self, X, reset=False)
        return (X - self.mean_ if self.with_mean else X) / self.scale_

    def inverse_transform(self, X: Any) -> np.ndarray:
        """X scale + mean"""
        check_is_fitted(self)
        X = np.asarray(X, dtype=np.float64) * self.scale_
        return X + self.mean_ if self.with_mean else X
