"""Standardisation of features across clients."""

from typing import overload

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from cofed._util.types import Given
from cofed.estimators.checks import check_flag, named_refusals
from cofed.estimators.moments import moments
from cofed.sites import AbstractSites, spent
from cofed.sites.intake import (
    Clients,
    Features,
    FitFeatures,
    Labels,
    encoded,
    gather,
    numbers,
    refuse_masked,
    transformed,
)
from cofed.sites.steps import Scale, as_numbers


class FederatedStandardScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """scikit-learn's StandardScaler, from sums of the clients: the same numbers as on the pooled rows.

    Parameters
    ----------
    with_mean : bool, default=True
        Whether to take off the means.
    with_std : bool, default=True
        Whether to divide by the standard deviations.

    Attributes
    ----------
    mean_, var_, scale_ : ndarray of shape (p,)
        The means and variances, and what features are divided by.
    n_samples_seen_ : int
        The number of rows.
    n_rounds_, bytes_ : int
        The exchanges, and their size (both ways, all clients).

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedStandardScaler
    >>> X, sites = np.array([[0.0], [2.0], [4.0], [6.0]]), ["a", "b", "b", "b"]
    >>> scaler = FederatedStandardScaler().fit(X, clients=sites)
    >>> scaler.mean_.tolist(), scaler.n_rounds_
    ([3.0], 2)
    """

    def __init__(self, *, with_mean: Given[bool] = True, with_std: Given[bool] = True):
        self.with_mean = with_mean
        self.with_std = with_std

    def fit(self, X: FitFeatures, y: Labels = None, clients: Clients = None) -> "FederatedStandardScaler":
        """Learn means and variances.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame, cofed.Federation or AbstractSites
            The features of every row.
        y : ignored
            For pipelines.
        clients : array-like of shape (n,), str or None
            The client's name of every row, or the name of that column of a pandas X; None is one client.

        Returns
        -------
        self
            The fitted scaler.
        """
        check_flag(type(self).__name__, "with_mean", self.with_mean)
        check_flag(type(self).__name__, "with_std", self.with_std)
        sites = gather(self, X, None, clients, target=False)
        before = len(sites.exchanges)
        with named_refusals(type(self).__name__):
            found = moments(sites)
        self.mean_, self.var_, self.n_samples_seen_ = found.mean, found.var, found.n
        self.scale_ = found.scale if self.with_std else np.ones_like(found.mean)
        self.n_rounds_, self.bytes_ = spent(sites.exchanges[before:])
        return self

    @overload
    def transform(self, X: AbstractSites) -> AbstractSites: ...
    @overload
    def transform(self, X: Features) -> np.ndarray: ...
    def transform(self, X: FitFeatures) -> np.ndarray | AbstractSites:
        """(X - mean) / scale

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or AbstractSites
            New rows, with the features of the fit; or sites, which transform theirs themselves.

        Returns
        -------
        ndarray of shape (n, p) or AbstractSites
            The standardised rows; or the sites that have them.
        """
        check_is_fitted(self)
        if isinstance(X, AbstractSites):
            centre = self.mean_ if self.with_mean else np.zeros_like(self.mean_)
            names = tuple(map(str, np.asarray(self.get_feature_names_out())))
            return transformed(self, X, Scale(outputs=names, centre=as_numbers(centre), width=as_numbers(self.scale_)))
        refuse_masked(type(self).__name__, "X", X)
        rows = np.asarray(numbers(self, encoded(self, X), reset=False))
        return (rows - self.mean_ if self.with_mean else rows) / self.scale_

    def inverse_transform(self, X: Features) -> np.ndarray:
        """X scale + mean

        Parameters
        ----------
        X : array-like of shape (n, p) or pandas.DataFrame
            Standardised rows.

        Returns
        -------
        ndarray of shape (n, p)
            The rows as they were.
        """
        check_is_fitted(self)
        rows = np.asarray(X, dtype=np.float64) * self.scale_
        return rows + self.mean_ if self.with_mean else rows
