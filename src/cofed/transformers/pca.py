"""Principal components of all clients' rows, from the sum of their products."""

from typing import overload

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from cofed._util.types import Given
from cofed.estimators.checks import check_count, check_flag, check_number, named_refusals
from cofed.sites import AbstractSites, Scaling, spent
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
from cofed.sites.queries import ColumnsMessage, Message, columns, sums
from cofed.sites.steps import Project, as_numbers

MOST_FEATURES = 4096  # p x p products are asked for: 134 MB from each client


class FederatedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """scikit-learn's PCA, from sums of the clients: the components of the pooled rows, to round-off.

    Two exchanges: the sums of the rows, then the products of the features around the common mean. These are p x p
    numbers, so that p is at most 4096. Components whose variance is below about 1e-15 of the largest are round-off, as
    products have the squares of the singular values.

    Parameters
    ----------
    n_components : int, float or None, default=None
        How many components are kept; a number between 0 and 1 keeps as many as explain that share of the variance;
        None keeps min(n, p).
    whiten : bool, default=False
        Whether `transform` gives every component a variance of 1.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, p)
        The directions of most variance, one in each row, the largest first; its largest number is above 0.
    explained_variance_, explained_variance_ratio_ : ndarray of shape (n_components_,)
        Their variances (over n - 1), and those as shares of all variance.
    singular_values_ : ndarray of shape (n_components_,)
        Those of the centred rows.
    mean_ : ndarray of shape (p,)
        The means of the features.
    noise_variance_ : float
        The mean variance of the components that are left out.
    n_components_, n_samples_ : int
        The number of components, and of rows.
    n_rounds_, bytes_ : int
        The exchanges, and their size (both ways, all clients).

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.transformers import FederatedPCA
    >>> X, sites = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.1]]), ["a", "b", "b", "a"]
    >>> pca = FederatedPCA(n_components=1).fit(X, clients=sites)
    >>> pca.transform(X).shape, pca.n_rounds_, bool(pca.explained_variance_ratio_[0] > 0.999)
    ((4, 1), 2, True)
    """

    def __init__(self, n_components: Given[int | float | None] = None, *, whiten: Given[bool] = False):
        self.n_components = n_components
        self.whiten = whiten

    def fit(self, X: FitFeatures, y: Labels = None, clients: Clients = None) -> "FederatedPCA":
        """Learn the components.

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
            The fitted transformer.
        """
        owner = type(self).__name__
        check_flag(owner, "whiten", self.whiten)
        check_components(owner, self.n_components)
        sites = gather(self, X, None, clients, target=False)
        n, p = sum(sites.sizes), sites.n_features
        if n < 2:
            raise ValueError(f"{owner}: a variance needs 2 rows, but all clients together have {n} sample")
        if p > MOST_FEATURES:
            raise ValueError(f"{owner}: X has {p} features; the products of at most {MOST_FEATURES} are asked for")
        if isinstance(self.n_components, (int, np.integer)) and self.n_components > min(n, p):
            raise ValueError(
                f"{owner}: n_components must be at most {min(n, p)}, the smaller of {n} rows and {p} features, "
                f"got {self.n_components}"
            )
        before = len(sites.exchanges)
        with named_refusals(owner):
            self.mean_, covariance = mean_and_covariance(sites)
        self.n_samples_ = n
        self.keep(covariance)
        self.n_rounds_, self.bytes_ = spent(sites.exchanges[before:])
        return self

    def keep(self, covariance: np.ndarray) -> None:
        """Keep the leading eigenvectors of a covariance matrix."""
        values, vectors = np.linalg.eigh(covariance)
        most = min(self.n_samples_, len(values))
        variances, directions = np.maximum(values[::-1], 0)[:most], vectors.T[::-1][:most]
        largest = directions[np.arange(most), np.abs(directions).argmax(axis=1)]
        directions = directions * np.where(largest < 0, -1.0, 1.0)[:, None]
        whole = variances.sum()
        shares = variances / whole if whole > 0 else np.zeros(most)
        kept = count_kept(self.n_components, shares)
        self.n_components_, self.components_ = kept, directions[:kept]
        self.explained_variance_, self.explained_variance_ratio_ = variances[:kept], shares[:kept]
        self.singular_values_ = np.sqrt(variances[:kept] * (self.n_samples_ - 1))
        self.noise_variance_ = float(variances[kept:].mean()) if kept < most else 0.0

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    @property
    def widths(self) -> np.ndarray:
        """What components are divided by; 1 for one without variance."""
        if not self.whiten:
            return np.ones(self.n_components_)
        return np.where(self.explained_variance_ > 0, np.sqrt(self.explained_variance_), 1.0)

    @overload
    def transform(self, X: AbstractSites) -> AbstractSites: ...
    @overload
    def transform(self, X: Features) -> np.ndarray: ...
    def transform(self, X: FitFeatures) -> np.ndarray | AbstractSites:
        """(X - mean) components'

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or AbstractSites
            New rows, with the features of the fit; or sites, which transform theirs themselves.

        Returns
        -------
        ndarray of shape (n, n_components_) or AbstractSites
            The rows in the directions of the components; or the sites that have them.
        """
        check_is_fitted(self)
        if isinstance(X, AbstractSites):
            return transformed(self, X, self.step())
        refuse_masked(type(self).__name__, "X", X)
        rows = np.asarray(numbers(self, encoded(self, X), reset=False))
        return (rows - self.mean_) @ self.components_.T / self.widths

    def step(self) -> Project:
        """What sites are told."""
        return Project(
            outputs=tuple(map(str, self.get_feature_names_out())),
            centre=as_numbers(self.mean_),
            directions=tuple(map(as_numbers, self.components_)),
            width=as_numbers(self.widths),
        )

    def inverse_transform(self, X: Features) -> np.ndarray:
        """X components + mean

        Parameters
        ----------
        X : array-like of shape (n, n_components_) or pandas.DataFrame
            Rows in the directions of the components.

        Returns
        -------
        ndarray of shape (n, p)
            The rows with the features of the fit, but for what components that are left out tell of them.
        """
        check_is_fitted(self)
        owner = type(self).__name__
        refuse_masked(owner, "X", X)
        rows = check_array(X, dtype=np.float64, input_name="X", estimator=self)  # pyright: ignore
        if rows.shape[1] != self.n_components_:
            raise ValueError(
                f"{owner}: X must have {self.n_components_} columns, a component each, got {rows.shape[1]}"
            )
        return rows * self.widths @ self.components_ + self.mean_


def mean_and_covariance(sites: AbstractSites) -> tuple[np.ndarray, np.ndarray]:
    """Two exchanges: the sums of the rows, then the products of the features around the common mean."""
    found = sites.ask(sums, Message())
    n, p = float(found.n[0]), sites.n_features
    mean = np.asarray(found.X[0]) / n
    where = np.arange(p, dtype=np.int32)
    products = np.asarray(sites.ask(columns, ColumnsMessage(where, scaling=Scaling(mean, np.ones(p)))))[0]
    return mean, (products + products.T) / (2 * (n - 1))


def check_components(owner: str, value: Given[int | float | None]) -> None:
    """Refuse what is neither a number of components nor a share of the variance."""
    if value is None:
        return
    if isinstance(value, (float, np.floating)):
        check_number(owner, "n_components", value, 0, 1, strict=True)
        if value == 1:
            raise ValueError(f"{owner}: n_components must be an integer, None, or a share below 1, got {value!r}")
    else:
        check_count(owner, "n_components", value)


def count_kept(asked: Given[int | float | None], shares: np.ndarray) -> int:
    """How many components are kept."""
    if asked is None:
        return len(shares)
    if isinstance(asked, (int, np.integer)):
        return int(asked)
    # The first number of components that explains more than the share asked for, as in scikit-learn.
    return min(int(np.searchsorted(np.cumsum(shares), asked, side="right")) + 1, len(shares))
