"""The fixed list of questions that a site answers: named, versioned, pure functions whose answers are summed."""

from cofed.sites.queries.base import AbstractQuery, Message
from cofed.sites.queries.look import LookAnswer, LookMessage, ProductAnswer, ProductMessage, look, product
from cofed.sites.queries.meat import MeatAnswer, MeatMessage, meat
from cofed.sites.queries.observed import HistogramMessage, ObservedAnswer, histogram, observed
from cofed.sites.queries.score import ScoreAnswer, ScoreMessage, score
from cofed.sites.queries.sums import (
    ColumnsMessage,
    GramAnswer,
    GramMessage,
    MomentsMessage,
    SumsAnswer,
    columns,
    gram,
    moments,
    sums,
)

# Everything that a site can be asked, by name.
QUERIES: dict[str, AbstractQuery] = {
    query.name: query for query in (sums, moments, gram, columns, look, product, score, meat, observed, histogram)
}

__all__ = [
    "QUERIES",
    "AbstractQuery",
    "ColumnsMessage",
    "GramAnswer",
    "GramMessage",
    "HistogramMessage",
    "LookAnswer",
    "LookMessage",
    "MeatAnswer",
    "MeatMessage",
    "Message",
    "MomentsMessage",
    "ObservedAnswer",
    "ProductAnswer",
    "ProductMessage",
    "ScoreAnswer",
    "ScoreMessage",
    "SumsAnswer",
    "columns",
    "gram",
    "histogram",
    "look",
    "meat",
    "moments",
    "observed",
    "product",
    "score",
    "sums",
]
