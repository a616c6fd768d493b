"""Transformers whose numbers are quantiles of all clients' rows: bins, ranks, splines.

Each is scikit-learn's own class, which transforms; what it learns comes from histograms of the clients.
"""

import warnings
from typing import overload

import numpy as np
from sklearn.preprocessing import KBinsDiscretizer, QuantileTransformer, SplineTransformer
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted

from cofed._util import checks
from cofed._util.types import Given
from cofed.estimators.checks import check_choice, check_count, check_flag, named_refusals
from cofed.sites import AbstractSites
from cofed.sites.intake import Clients, Features, FitFeatures, Labels, encoded
from cofed.sites.steps import MOST_DEGREE, Bins, Ranks, Splines, as_numbers
from cofed.transformers.learns_quantiles import TOL, LearnsQuantiles
from cofed.transformers.order_statistics import ColumnSpread, averaged_quantile, columns_of, linear_quantile, quantiles


class FederatedKBinsDiscretizer(LearnsQuantiles, KBinsDiscretizer):
    """scikit-learn's KBinsDiscretizer, from histograms of the clients.

    Edges are those of the pooled rows from below, by at most `tol` standard deviations, and exact of whole numbers: a
    row has another bin only where its value is that close below an edge.

    Parameters
    ----------
    n_bins : int or array-like of shape (p,), default=5
        Bins of each feature, at least 2.
    encode : {"onehot", "onehot-dense", "ordinal"}, default="onehot-dense"
        A column for each bin, sparse or dense, or the bin's number.
    strategy : {"quantile", "uniform"}, default="quantile"
        Bins with as many rows each, or of the same width.
    tol : float, default=1e-6
        How precise edges are, in standard deviations of the feature. A smaller one takes more exchanges.

    Attributes
    ----------
    bin_edges_ : ndarray of shape (p,) of arrays
        The edges of each feature.
    n_bins_ : ndarray of shape (p,)
        Bins of each feature; fewer than asked for where quantiles agree.
    n_rounds_, bytes_ : int
        The exchanges, and their size (both ways, all clients).

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.transformers import FederatedKBinsDiscretizer
    >>> X, sites = np.arange(12.0).reshape(-1, 1), ["a", "b", "b"] * 4
    >>> bins = FederatedKBinsDiscretizer(3, encode="ordinal").fit(X, clients=sites)
    >>> bins.bin_edges_[0].tolist(), bins.transform([[2.0], [9.0]]).ravel().tolist()
    ([0.0, 3.5, 7.5, 11.0], [0.0, 2.0])
    """

    def __init__(
        self,
        n_bins: Given[int | list[int]] = 5,
        *,
        encode: Given[str] = "onehot-dense",
        strategy: Given[str] = "quantile",
        tol: Given[float] = TOL,
    ):
        super().__init__(n_bins, encode=encode, strategy=strategy)  # pyright: ignore
        self.tol = tol

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: FitFeatures, y: Labels = None, clients: Clients = None
    ) -> "FederatedKBinsDiscretizer":
        """Learn the edges.

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
        check_choice(owner, "encode", self.encode, ("onehot", "onehot-dense", "ordinal"))
        check_choice(owner, "strategy", self.strategy, ("quantile", "uniform"))
        sites = self._begin(X, clients)
        bins, columns = bins_of(owner, self.n_bins, sites.n_features), self._columns(sites)
        each = [[0.0, 1.0] if self.strategy == "uniform" else np.linspace(0, 100, k + 1) / 100 for k in bins]
        shares = sorted({float(share) for own in each for share in own})
        found = self._quantiles(sites, columns, [averaged_quantile(columns.n, share) for share in shares])
        edges = np.zeros(len(bins), object)
        for j, own in enumerate(each):
            ends = found[[shares.index(float(share)) for share in own], j]
            edges[j] = np.linspace(ends[0], ends[1], bins[j] + 1) if self.strategy == "uniform" else ends
            edges[j] = edges[j][np.ediff1d(edges[j], to_begin=np.inf) > 1e-8]
            if columns.constant[j]:
                edges[j] = np.array([-np.inf, np.inf])
            if len(edges[j]) - 1 != bins[j]:
                warnings.warn(
                    f"{owner}: feature {j} has {len(edges[j]) - 1} of {bins[j]} bins: others would have no width",
                    stacklevel=2,
                )
        self._learn(edges)
        self._end(sites)
        return self

    def _step(self) -> Bins:
        # The ends count for nothing: what is beyond them is in the first or the last bin.
        edges = tuple(as_numbers(np.nan_to_num(own)) for own in self.bin_edges_)
        return Bins(outputs=self._outputs(), edges=edges, ordinal=self.encode == "ordinal")

    def _learn(self, edges: np.ndarray) -> None:
        """Set the edges and what scikit-learn makes of them."""
        toy = KBinsDiscretizer(2, encode=self.encode, strategy="uniform")
        toy.fit(np.arange(2.0)[:, None])
        self.bin_edges_, self.n_bins_ = edges, np.array([len(own) - 1 for own in edges])
        if self.encode != "ordinal":
            encoder = toy._encoder.set_params(categories=[np.arange(count) for count in self.n_bins_])
            self._encoder = encoder.fit(np.zeros((1, len(edges))))


def bins_of(owner: str, given: object, features: int) -> np.ndarray:
    """How many bins each feature has."""
    if isinstance(given, (list, tuple, np.ndarray)) and np.ndim(given) == 1 and len(given):
        each = np.asarray(given)
        if each.dtype.kind == "i" and each.shape == (features,) and (each >= 2).all():
            return each
        shown = checks.shown(given)
        raise ValueError(
            f"{owner}: n_bins must be an integer >= 2, or one for each of {features} features, got {shown}"
        )
    check_count(owner, "n_bins", given, 2)  # pyright: ignore[reportArgumentType]
    return np.full(features, given, dtype=int)


class FederatedQuantileTransformer(LearnsQuantiles, QuantileTransformer):
    """scikit-learn's QuantileTransformer, from histograms of the clients.

    Quantiles are those of the pooled rows to `tol` standard deviations, of whole numbers exactly.

    Parameters
    ----------
    n_quantiles : int, default=100
        How many quantiles are learned; at most as many as there are rows.
    output_distribution : {"uniform", "normal"}, default="uniform"
        What features are made to follow.
    tol : float, default=1e-6
        How precise quantiles are, in standard deviations of the feature. A smaller one takes more exchanges.

    Attributes
    ----------
    quantiles_ : ndarray of shape (n_quantiles_, p)
        The quantiles.
    references_ : ndarray of shape (n_quantiles_,)
        Of what shares they are.
    n_quantiles_ : int
        How many there are.
    n_rounds_, bytes_ : int
        The exchanges, and their size (both ways, all clients).

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.transformers import FederatedQuantileTransformer
    >>> X, sites = np.arange(11.0).reshape(-1, 1) ** 2, ["a"] * 4 + ["b"] * 7
    >>> ranks = FederatedQuantileTransformer(n_quantiles=11).fit(X, clients=sites)
    >>> ranks.transform([[0.0], [25.0], [100.0]]).ravel().round(6).tolist()
    [0.0, 0.5, 1.0]
    """

    def __init__(
        self, *, n_quantiles: Given[int] = 100, output_distribution: Given[str] = "uniform", tol: Given[float] = TOL
    ):
        how = {"output_distribution": output_distribution, "subsample": None}
        super().__init__(n_quantiles=n_quantiles, **how)  # pyright: ignore
        self.tol = tol

    def fit(self, X: FitFeatures, y: Labels = None, clients: Clients = None) -> "FederatedQuantileTransformer":
        """Learn the quantiles.

        Parameters
        ----------
        X, y, clients
            As for `FederatedKBinsDiscretizer.fit`.

        Returns
        -------
        self
            The fitted transformer.
        """
        owner = type(self).__name__
        check_count(owner, "n_quantiles", self.n_quantiles)
        check_choice(owner, "output_distribution", self.output_distribution, ("uniform", "normal"))
        sites = self._begin(X, clients)
        columns = self._columns(sites)
        self.n_quantiles_ = min(int(self.n_quantiles), columns.n)
        self.references_ = np.linspace(0, 1, self.n_quantiles_, endpoint=True)
        wanted = [linear_quantile(columns.n, float(share)) for share in self.references_]
        self.quantiles_ = self._quantiles(sites, columns, wanted)
        self._end(sites)
        return self

    @overload
    def transform(self, X: AbstractSites) -> AbstractSites: ...
    @overload
    def transform(self, X: Features) -> np.ndarray: ...
    def transform(self, X: FitFeatures) -> np.ndarray | AbstractSites:
        """The ranks of new rows, or the normal numbers that belong to them.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or AbstractSites
            New rows, without missing values; or sites, which transform theirs themselves.

        Returns
        -------
        ndarray of shape (n, p) or AbstractSites
            A number per row and feature; or the sites that have them.
        """
        check_is_fitted(self)
        if not isinstance(X, AbstractSites):
            X = encoded(self, X)
            assert_all_finite(np.asarray(X, dtype=float), input_name="X", estimator_name=type(self).__name__)
        return super().transform(X)  # pyright: ignore[reportArgumentType]

    def _step(self) -> Ranks:
        return Ranks(
            outputs=self._outputs(),
            quantiles=tuple(map(as_numbers, self.quantiles_.T)),
            references=as_numbers(self.references_),
            distribution=self.output_distribution,  # pyright: ignore[reportArgumentType]
        )


class FederatedSplineTransformer(LearnsQuantiles, SplineTransformer):
    """scikit-learn's SplineTransformer, with knots from histograms of the clients.

    Knots are those of the pooled rows to `tol` standard deviations, of whole numbers exactly.

    Parameters
    ----------
    n_knots : int, default=5
        Knots of each feature, at least 2.
    degree : int, default=3
        The degree of the splines.
    knots : {"quantile", "uniform"}, default="quantile"
        Knots with as many rows between two, or at one distance.
    extrapolation : {"error", "constant", "linear", "continue"}, default="constant"
        What is done beyond the knots.
    include_bias : bool, default=True
        Whether the splines of a feature add up to 1; False leaves out the last.
    tol : float, default=1e-6
        How precise knots are, in standard deviations of the feature. A smaller one takes more exchanges.

    Attributes
    ----------
    bsplines_ : list of scipy.interpolate.BSpline
        The splines of each feature.
    knots_ : ndarray of shape (n_knots, p)
        The knots.
    n_rounds_, bytes_ : int
        The exchanges, and their size (both ways, all clients).

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.transformers import FederatedSplineTransformer
    >>> X, sites = np.linspace(0, 10, 41).reshape(-1, 1), np.arange(41) % 3
    >>> splines = FederatedSplineTransformer(n_knots=3).fit(X, clients=sites)
    >>> (splines.knots_.ravel().round(3) + 0.0).tolist(), splines.transform(X).shape
    ([0.0, 5.0, 10.0], (41, 5))
    """

    def __init__(
        self,
        n_knots: Given[int] = 5,
        degree: Given[int] = 3,
        *,
        knots: Given[str] = "quantile",
        extrapolation: Given[str] = "constant",
        include_bias: Given[bool] = True,
        tol: Given[float] = TOL,
    ):
        super().__init__(n_knots, degree, knots=knots, extrapolation=extrapolation, include_bias=include_bias)  # pyright: ignore
        self.tol = tol

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: FitFeatures, y: Labels = None, clients: Clients = None
    ) -> "FederatedSplineTransformer":
        """Learn the knots.

        Parameters
        ----------
        X, y, clients
            As for `FederatedKBinsDiscretizer.fit`.

        Returns
        -------
        self
            The fitted transformer.
        """
        owner = type(self).__name__
        check_count(owner, "n_knots", self.n_knots, 2)
        check_count(owner, "degree", self.degree, 0)
        check_choice(owner, "knots", self.knots, ("quantile", "uniform"))  # pyright: ignore[reportArgumentType]
        check_choice(owner, "extrapolation", self.extrapolation, ("error", "constant", "linear", "continue"))
        check_flag(owner, "include_bias", self.include_bias)
        sites = self._begin(X, clients)
        with named_refusals(owner):
            found = knots_of(owner, sites, columns_of(sites), int(self.n_knots), float(self.tol), str(self.knots))
        kept = {name: value for name, value in vars(self).items() if name in ("n_features_in_", "feature_names_in_")}
        given = self.knots
        self.knots = found  # scikit-learn's own takes knots as they are; it looks at no row then
        try:
            super().fit(found)
        finally:
            self.knots = given
        vars(self).pop("feature_names_in_", None)
        vars(self).update(kept)
        self.knots_ = found
        self._end(sites)
        return self

    def _step(self) -> Splines:
        if self.extrapolation == "error":
            raise ValueError(f"{type(self).__name__}: extrapolation='error' is for rows at hand; sites take 'constant'")
        if int(self.degree) > MOST_DEGREE:
            raise ValueError(f"{type(self).__name__}: at sites, degree is at most {MOST_DEGREE}")
        return Splines(
            outputs=self._outputs(),
            knots=tuple(map(as_numbers, self.knots_.T)),
            degree=int(self.degree),
            extrapolation=self.extrapolation,  # pyright: ignore[reportArgumentType]
            include_bias=bool(self.include_bias),
        )


def knots_of(
    owner: str, sites: AbstractSites, columns: ColumnSpread, count: int, tol: float, placed: str = "quantile"
) -> np.ndarray:
    """Knots of columns, ascending: quantiles of all sites' rows, or numbers at one distance."""
    shares = [0.0, 1.0] if placed == "uniform" else np.linspace(0, 1, count)
    wanted = [linear_quantile(columns.n, float(share)) for share in shares]
    found = np.maximum.accumulate(quantiles(sites, columns, wanted, tol))
    if placed == "uniform":
        found = np.linspace(found[0], found[1], count)
    if columns.n == 1:
        raise ValueError(f"{owner}: splines cannot be laid through 1 sample")
    same = np.flatnonzero((np.diff(found, axis=0) <= 0).any(axis=0))
    if len(same):
        raise ValueError(
            f"{owner}: two knots of feature {columns.places[same[0]]} are the same, as it has few values or one that "
            "is frequent; give a smaller n_knots or knots='uniform'"
        )
    return found
