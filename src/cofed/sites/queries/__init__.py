"""The fixed list of questions that a site answers: named, versioned, pure functions whose answers are summed."""

from cofed.sites.queries.base import AbstractQuery, Message
from cofed.sites.queries.look import LookAnswer, LookMessage, ProductAnswer, ProductMessage, look, product
from cofed.sites.queries.observed import ObservedAnswer, observed
from cofed.sites.queries.sums import (
    GramAnswer,
    GramMessage,
    MomentsMessage,
    SumsAnswer,
    gram,
    moments,
    sums,
)

# Everything that a site can be asked, by name.
QUERIES: dict[str, AbstractQuery] = {query.name: query for query in (sums, moments, gram, look, product, observed)}

__all__ = [
    "QUERIES",
    "AbstractQuery",
    "GramAnswer",
    "GramMessage",
    "LookAnswer",
    "LookMessage",
    "Message",
    "MomentsMessage",
    "ObservedAnswer",
    "ProductAnswer",
    "ProductMessage",
    "SumsAnswer",
    "gram",
    "look",
    "moments",
    "observed",
    "product",
    "sums",
]
