"""Quantiles of values that nobody may see, from histograms: a coarse one, then a finer one where a quantile lies."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from cofed.sites.histogram_edges import around, distinct
from cofed.sites.queries import HistogramMessage

COARSE, FINE, DRAWN = 128, 64, 24  # bins: of the first question, within one of its bins, of a picture
SHARE_DRAWN = 0.005  # a picture leaves so much out at either end
QUANTILES = (0.25, 0.5, 0.75)
Counts = Mapping[str, np.ndarray]  # by site (and "" for all of them), the counts of each histogram


@dataclasses.dataclass(frozen=True)
class NumberColumn:
    """What is known of a column of numbers before its histogram is asked for."""

    place: int  # among the features
    n: int  # values
    mean: float
    sd: float
    whole: bool  # whether all values are whole numbers


@dataclasses.dataclass(frozen=True)
class Quantile:
    """A quantile, and how wide the bin is in whose middle it was put: 0 where it is exact."""

    value: float
    width: float


def coarse_edges(column: NumberColumn) -> np.ndarray:
    """Edges that hold all values between them.

    >>> from cofed.table_one.quantiles import NumberColumn, coarse_edges
    >>> len(coarse_edges(NumberColumn(0, 100, 5.0, 2.0, False)))
    129
    """
    return around(column.n, column.mean, column.sd, COARSE)


def bin_of(counts: np.ndarray, share: float) -> int:
    """The bin in which the smallest value lies that at least this share of all values does not exceed.

    >>> import numpy as np
    >>> from cofed.table_one.quantiles import bin_of
    >>> bin_of(np.array([0.0, 2.0, 2.0, 0.0]), 0.5), bin_of(np.array([0.0, 2.0, 2.0, 0.0]), 0.51)
    (1, 2)
    """
    reached = np.cumsum(counts)
    return int(np.searchsorted(reached, rank(share, reached[-1]), side="left"))


def rank(share: float, n: float) -> float:
    """How many values a quantile is not below; the tolerance undoes the rounding of share * n."""
    return max(np.ceil(share * n - 1e-9), 1.0)


@dataclasses.dataclass(frozen=True)
class Refinement:
    """The second question: finer bins within some bins of the first, and the bins of the pictures."""

    columns: tuple[NumberColumn, ...]
    coarse: np.ndarray  # the edges of the first question, a row for each column
    asked: dict[tuple[int, int], int]  # a column and a bin of it -> which histogram of the message refines it
    edges: np.ndarray  # of the message, a row for each histogram

    @classmethod
    def of(cls, columns: Sequence[NumberColumn], coarse: np.ndarray, counts: Counts) -> "Refinement":
        """What to ask next, so that every quantile of every site can be told."""
        asked: dict[tuple[int, int], int] = {}
        edges: list[np.ndarray] = []
        for j, column in enumerate(columns):
            wanted = {bin_of(own[j], q) for own in counts.values() if own[j].sum() > 0 for q in QUANTILES}
            for one in sorted(wanted):
                asked[j, one] = len(edges)
                edges.append(fine_edges(coarse[j], one, column.whole))
            edges.append(drawn_edges(coarse[j], counts[""][j], column.whole))
        return cls(tuple(columns), coarse, asked, np.array(edges))

    def message(self) -> HistogramMessage:
        """The question."""
        places = [0] * len(self.edges)
        for (j, _), histogram in self.asked.items():
            places[histogram] = self.columns[j].place
        for j, histogram in enumerate(self.drawn):
            places[histogram] = self.columns[j].place
        return HistogramMessage(np.array(places, np.int32), self.edges)

    @property
    def drawn(self) -> list[int]:
        """For each column, which histogram of the message is its picture."""
        taken = set(self.asked.values())
        return [place for place in range(len(self.edges)) if place not in taken]

    def quantiles(self, j: int, first: np.ndarray, second: np.ndarray) -> list[Quantile]:
        """The quantiles of a column, from the counts of both questions."""
        return [self.quantile(j, q, first, second) for q in QUANTILES]

    def quantile(self, j: int, share: float, first: np.ndarray, second: np.ndarray) -> Quantile:
        """One quantile of a column."""
        n = first[j].sum()
        if n == 0:
            return Quantile(np.nan, np.nan)
        place = bin_of(first[j], share)
        histogram = self.asked[j, place]
        # Values at or below the lower edge of the coarse bin are counted by both questions.
        within = int(np.searchsorted(np.cumsum(second[histogram]), rank(share, n), side="left"))
        low, high = self.edges[histogram][within - 1 : within + 1]
        if self.columns[j].whole and np.floor(high) == np.ceil(low):
            return Quantile(float(np.floor(high)), 0.0)
        return Quantile(float(low + (high - low) / 2), float(high - low))


def fine_edges(edges: np.ndarray, place: int, whole: bool) -> np.ndarray:
    """The edges within a bin. Those of whole numbers lie halfway between them, where they are few enough."""
    low, high = edges[place - 1], edges[place]
    if whole and high - low <= FINE - 1:
        return np.floor(low) + 0.5 - 1 + np.arange(FINE + 1)
    return distinct(np.linspace(low, high, FINE + 1))


def drawn_edges(edges: np.ndarray, counts: np.ndarray, whole: bool) -> np.ndarray:
    """The edges of a picture: of one width, over nearly all values."""
    low, high = edges[bin_of(counts, SHARE_DRAWN) - 1], edges[bin_of(counts, 1 - SHARE_DRAWN)]
    if whole:
        low, high = np.floor(low) + 0.5, np.ceil(high) + 0.5
        step = max(np.ceil((high - low) / DRAWN), 1.0)
        high = low + step * DRAWN
    even = distinct(np.linspace(low, high, DRAWN + 1))
    # Every histogram of one message has as many edges: the others lie beyond the last.
    step = max(even[-1] - even[-2], np.spacing(abs(even[-1])))
    return distinct(np.concatenate([even, even[-1] + step * np.arange(1, FINE - DRAWN + 1)]))


def picture(edges: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The edges and the counts of the bins of a picture."""
    return edges[: DRAWN + 1], counts[1 : DRAWN + 1]
