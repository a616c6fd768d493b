"""Values by their rank among all clients' rows, from histograms that become finer with each exchange.

The server asks how many values lie between numbers that it names, then between finer ones within those bins in which
a wanted value lies, until the bins are narrow enough. A client tells counts, and no value.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from cofed.sites import AbstractSites
from cofed.sites.histogram_edges import around, distinct
from cofed.sites.queries import HistogramMessage, MomentsMessage, histogram, observed

COARSE, FINE = 128, 64  # bins of the first histogram, and of each that is finer
MOST = 12  # finer histograms one after the other: rounding is reached before


@dataclasses.dataclass(frozen=True)
class ColumnSpread:
    """What is known of the columns before their values are looked for."""

    counts: np.ndarray  # values that are there
    mean: np.ndarray
    sd: np.ndarray
    whole: np.ndarray  # whether all values are whole numbers
    places: np.ndarray  # of the columns among the sites' features

    @property
    def n(self) -> int:
        """The rows, of columns without gaps."""
        return int(self.counts[0])

    def of(self, which: Sequence[int]) -> "ColumnSpread":
        """Some of the columns."""
        own = list(which)
        parts = (self.counts, self.mean, self.sd, self.whole, self.places)
        return ColumnSpread(*(part[own] for part in parts))

    @property
    def constant(self) -> np.ndarray:
        """Whether all values are the same, as far as rounding lets their deviations tell."""
        return self.sd <= 1e-14 * np.abs(self.mean)


@dataclasses.dataclass(frozen=True, order=True)
class Bin:
    """Numbers above `low` and up to `high`, and how many values are among them."""

    low: float
    high: float
    count: int

    @property
    def is_point(self) -> bool:
        """Whether there is one number only."""
        return bool(np.nextafter(self.low, np.inf) >= self.high)


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A quantile as a mean of two values by their ranks, the first of which is 1."""

    low: int
    high: int
    share: float  # of the higher


def linear_quantile(n: int, share: float) -> Wanted:
    """NumPy's default.

    >>> from cofed.transformers.order_statistics import linear_quantile
    >>> linear_quantile(5, 0.5), linear_quantile(4, 0.5)
    (Wanted(low=3, high=3, share=0.0), Wanted(low=2, high=3, share=0.5))
    """
    place = share * (n - 1)
    low = math.floor(place)
    return Wanted(low + 1, min(math.ceil(place), n - 1) + 1, place - low)


def averaged_quantile(n: int, share: float) -> Wanted:
    """NumPy's `averaged_inverted_cdf`.

    >>> from cofed.transformers.order_statistics import averaged_quantile
    >>> averaged_quantile(5, 0.5), averaged_quantile(4, 0.5)
    (Wanted(low=3, high=3, share=0.0), Wanted(low=2, high=3, share=0.5))
    """
    place = n * share
    if place == math.floor(place):
        low = min(max(int(place), 1), n)
        return Wanted(low, min(max(int(place) + 1, 1), n), 0.5)
    return Wanted(math.ceil(place), math.ceil(place), 0.0)


def columns_of(sites: AbstractSites) -> ColumnSpread:
    """Counts, means, standard deviations, and whether values are whole: two exchanges."""
    p = sites.n_features
    first = sites.ask(observed, MomentsMessage(np.zeros(p)))
    counts = np.rint(np.asarray(first.n)).astype(int)
    there = np.maximum(counts, 1)
    mean = np.asarray(first.X) / there
    second = sites.ask(observed, MomentsMessage(mean))
    sd = np.sqrt(np.asarray(second.squares) / there)
    return ColumnSpread(counts, mean, sd, np.asarray(first.fractions) == 0, np.arange(p))


def values_by_rank(
    sites: AbstractSites, columns: ColumnSpread, ranks: np.ndarray | Sequence[int], tol: float
) -> np.ndarray:
    """The values of these ranks of each column, by at most tol standard deviations too small.

    Those of the last rank are too large instead, so that no value is outside of the first and the last. Values of
    columns of whole numbers are exact, and values that several rows have.

    Parameters
    ----------
    sites : AbstractSites
        The sites.
    columns : ColumnSpread
        What is known of their columns.
    ranks : array of shape (ranks,) or (ranks, p)
        Of all columns or of each, from 1, the least value, to the number of its values.
    tol : float
        The precision.

    Returns
    -------
    array of shape (ranks, p)
        The values.
    """
    p = len(columns.places)
    each: list[list[int]] = np.broadcast_to(np.reshape(ranks, (len(ranks), -1)), (len(ranks), p)).tolist()
    edges = np.array([around(int(columns.counts[j]), columns.mean[j], columns.sd[j], COARSE) for j in range(p)])
    counts = np.asarray(sites.ask(histogram, HistogramMessage(columns.places.astype(np.int32), edges)))
    bins: list[list[Bin]] = [[bin_at(edges[j], counts[j], own[j]) for j in range(p)] for own in each]
    for _ in range(MOST):
        every = {(j, one) for own in bins for j, one in enumerate(own)}
        wide = sorted((j, one) for j, one in every if is_wide(columns, j, one, tol))
        if not wide:
            break
        finer = np.array([fine_edges(one.low, one.high, bool(columns.whole[j])) for j, one in wide])
        features = np.array([columns.places[j] for j, _ in wide], np.int32)
        found = np.asarray(sites.ask(histogram, HistogramMessage(features, finer)))
        which = {one: place for place, one in enumerate(wide)}
        for own, rank in zip(bins, each, strict=True):
            for j, one in enumerate(own):
                if (j, one) in which:
                    own[j] = bin_at(finer[which[j, one]], found[which[j, one]], rank[j])
    return np.array(
        [
            [value_in(columns, j, one, rank[j]) for j, one in enumerate(own)]
            for own, rank in zip(bins, each, strict=True)
        ]
    )


def bin_at(edges: np.ndarray, counts: np.ndarray, rank: int) -> Bin:
    """The bin with the value of a rank."""
    place = int(np.searchsorted(np.cumsum(counts), rank, side="left"))
    return Bin(float(edges[place - 1]), float(edges[place]), int(counts[place]))


def is_wide(columns: ColumnSpread, j: int, one: Bin, tol: float) -> bool:
    """Whether a bin does not tell its value yet. Where it has several, they may be one that is frequent."""
    if columns.constant[j]:
        return False
    if columns.whole[j]:
        return math.floor(one.high) - math.floor(one.low) > 1
    return bool(not one.is_point and (one.count > 1 or one.high - one.low > tol * columns.sd[j]))


def value_in(columns: ColumnSpread, j: int, one: Bin, rank: int) -> float:
    """The value of a bin: its lower end, of the last rank its upper, and where no number is between them itself."""
    if columns.constant[j]:
        return float(np.round(columns.mean[j]) if columns.whole[j] else columns.mean[j])
    if columns.whole[j]:
        return float(math.floor(one.high))
    return one.high if one.is_point or rank == columns.counts[j] else one.low


def fine_edges(low: float, high: float, whole: bool) -> np.ndarray:
    """The edges within a bin. Those of whole numbers are a half above them, where they are few enough."""
    if whole and high - low <= FINE - 2:
        return np.floor(low) - 0.5 + np.arange(FINE + 1)
    return distinct(np.linspace(low, high, FINE + 1))


def quantiles(sites: AbstractSites, columns: ColumnSpread, wanted: Sequence[Wanted], tol: float) -> np.ndarray:
    """These quantiles of every column: between two values that are the same, that value to the last bit."""
    ranks = sorted({rank for one in wanted for rank in (one.low, one.high)})
    values = values_by_rank(sites, columns, ranks, tol)
    place = {rank: i for i, rank in enumerate(ranks)}
    return np.array([between(values[place[w.low]], values[place[w.high]], w.share) for w in wanted])


def medians(sites: AbstractSites, columns: ColumnSpread, tol: float) -> np.ndarray:
    """The median of the values of every column that are there."""
    ranks = np.array([(columns.counts + 1) // 2, columns.counts // 2 + 1])
    low, high = values_by_rank(sites, columns, ranks, tol)
    return between(low, high, 0.5)


def between(low: np.ndarray, high: np.ndarray, share: float) -> np.ndarray:
    """A number between two, reckoned from the nearer one, so that rounding leaves it between them.

    >>> import numpy as np
    >>> from cofed.transformers.order_statistics import between
    >>> between(np.array([0.123456]), np.array([0.123456]), 0.7).tolist()
    [0.123456]
    """
    return low + share * (high - low) if share < 0.5 else high - (1 - share) * (high - low)
