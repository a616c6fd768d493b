"""The fixed list of questions that a site answers: named, versioned, pure functions whose answers are summed."""

from cofed.sites.queries.base import AbstractQuery, Message
from cofed.sites.queries.dispersion import DispersionAnswer, DispersionMessage, dispersion
from cofed.sites.queries.held_out import HeldOutAnswer, HeldOutMessage, held_out
from cofed.sites.queries.intercepts import InterceptsAnswer, InterceptsMessage, intercepts
from cofed.sites.queries.look import LookAnswer, LookMessage, ProductAnswer, ProductMessage, look, product
from cofed.sites.queries.meat import MeatAnswer, MeatMessage, meat
from cofed.sites.queries.observed import HistogramMessage, ObservedAnswer, histogram, observed
from cofed.sites.queries.permuted import PermutedMessage, permuted
from cofed.sites.queries.private import (
    AbstractPrivateQuery,
    PrivateGradientMessage,
    PrivateMessage,
    PrivateMomentsMessage,
    moments_of,
    private_gradient,
    private_moments,
)
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
from cofed.sites.queries.survival import (
    ConcordanceAnswer,
    ConcordanceMessage,
    GroupsMessage,
    LifeTableAnswer,
    LifeTableMessage,
    LogRankAnswer,
    concordance,
    life_table,
    log_rank,
)

# Everything that a site can be asked, by name.
QUERIES: dict[str, AbstractQuery] = {
    query.name: query
    for query in (
        *(sums, moments, gram, columns, look, product, score, meat, observed, histogram, intercepts, held_out),
        *(life_table, log_rank, concordance, dispersion, permuted),
        *(private_moments, private_gradient),
    )
}

__all__ = [
    "QUERIES",
    "AbstractPrivateQuery",
    "AbstractQuery",
    "ColumnsMessage",
    "ConcordanceAnswer",
    "ConcordanceMessage",
    "DispersionAnswer",
    "DispersionMessage",
    "GramAnswer",
    "GramMessage",
    "HeldOutAnswer",
    "HeldOutMessage",
    "HistogramMessage",
    "InterceptsAnswer",
    "InterceptsMessage",
    "LifeTableAnswer",
    "LifeTableMessage",
    "LogRankAnswer",
    "LookAnswer",
    "LookMessage",
    "MeatAnswer",
    "MeatMessage",
    "Message",
    "MomentsMessage",
    "ObservedAnswer",
    "PermutedMessage",
    "PrivateGradientMessage",
    "PrivateMessage",
    "PrivateMomentsMessage",
    "ProductAnswer",
    "ProductMessage",
    "ScoreAnswer",
    "ScoreMessage",
    "SumsAnswer",
    "columns",
    "concordance",
    "dispersion",
    "gram",
    "held_out",
    "histogram",
    "intercepts",
    "life_table",
    "log_rank",
    "look",
    "meat",
    "moments",
    "moments_of",
    "observed",
    "permuted",
    "private_gradient",
    "private_moments",
    "product",
    "score",
    "sums",
]
