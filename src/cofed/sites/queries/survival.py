"""Questions about times to an event that need no model, or judge one: life tables, the log-rank test, concordance."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from cofed.losses.cox import follow_up
from cofed.losses.risk_sets import ENTRIES
from cofed.sites.host_rows import HostRows, columns_of
from cofed.sites.queries.base import AbstractQuery, Message, Numbers, few_sizes, room
from cofed.sites.table import Table


class GroupsMessage(Message):
    """Groups of rows, which are compared."""

    groups: Numbers  # G - 1 positions of features: 1 for a row of that group; a row with none is of the first


class LifeTableMessage(GroupsMessage):
    """The same, and times to count between."""

    edges: Numbers  # b times, ascending


class LifeTableAnswer(NamedTuple):
    """Counts of rows, by group and by time: at or before the first edge, between edges, after the last."""

    entered: Float[Array, "G bins"]  # whose entry is in [edge, next edge); all in the first bin where rows have none
    events: Float[Array, "G bins"]  # whose time is in (edge, next edge], and ends with an event
    censored: Float[Array, "G bins"]  # the same without one
    fractions: Float[Array, ""]  # with a time or an entry that is no whole number


class LifeTableQuery(AbstractQuery[LifeTableMessage]):
    """How many rows enter, have an event, or leave without one, between times. Rows count alike."""

    name: ClassVar[str] = "life_table"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = LifeTableMessage

    def answer(self, table: Table, message: LifeTableMessage) -> LifeTableAnswer:
        edges, own = jnp.asarray(message.edges), membership(table, message.groups)
        bins = edges.shape[0] + 1
        time, event = table.y[:, -2], table.y[:, -1]
        starts = jnp.full_like(time, -jnp.inf) if table.y.shape[1] == 2 else table.y[:, 0]

        def counted(place: Array, counts: Float[Array, " n"]) -> Array:
            return jnp.zeros((bins, own.shape[1]), own.dtype).at[place].add(own * counts[:, None]).T

        ends = jnp.searchsorted(edges, time, side="left", method="scan_unrolled")
        entry = jnp.searchsorted(edges, starts, side="right", method="scan_unrolled")
        whole = (jnp.round(time) == time) & (jnp.isinf(starts) | (jnp.round(starts) == starts))
        return LifeTableAnswer(
            entered=counted(entry, jnp.ones_like(event)),
            events=counted(ends, event),
            censored=counted(ends, 1 - event),
            fractions=jnp.sum(jnp.where(whole, 0, table.weight)),
        )

    def refuses(self, X: HostRows, y: np.ndarray, message: LifeTableMessage) -> str | None:
        edges = np.asarray(message.edges)
        if len(edges) < 1 or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
            return "the times of a life table must be finite numbers that ascend"
        return strange_groups(X, message)

    def padded(self, message: LifeTableMessage) -> LifeTableMessage:
        edges = np.asarray(message.edges, np.float64)
        more = room(len(edges)) - len(edges)
        beyond = np.full(more, np.inf)  # nobody has such a time
        return eqx.tree_at(lambda m: m.edges, message, np.concatenate([edges, beyond]))

    def trimmed(self, answer: LifeTableAnswer, message: LifeTableMessage) -> LifeTableAnswer:
        bins = len(np.asarray(message.edges)) + 1
        counts = (part[:, :bins] for part in (answer.entered, answer.events, answer.censored))
        return LifeTableAnswer(*counts, fractions=answer.fractions)


class LogRankAnswer(NamedTuple):
    """Sums over the event times of each stratum."""

    observed: Float[Array, " G"]  # events of each group
    expected: Float[Array, " G"]  # the same if the hazards were the same
    covariance: Float[Array, "G G"]  # of observed less expected


class LogRankQuery(AbstractQuery[GroupsMessage]):
    """Observed and expected events of groups, each site a stratum: the log-rank test without a single time."""

    name: ClassVar[str] = "log_rank"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = GroupsMessage

    def answer(self, table: Table, message: GroupsMessage) -> LogRankAnswer:
        order, risk = follow_up(table.y, table.site)
        rows: Table = jax.tree.map(lambda values: values[order], table)
        own = membership(rows, message.groups)
        logs = jnp.where(rows.weight > 0, 0.0, -jnp.inf)[:, None]
        events = jnp.where(rows.weight > 0, rows.y[:, -1], 0)
        at_risk = risk.at_risk(own, logs)[0]
        tied = risk.ranks(events[:, None])[1][:, 0]
        size = at_risk.sum(axis=1)
        share = at_risk / jnp.where(size > 0, size, 1)[:, None]
        # Of d events at a time, each brings a d-th of the hypergeometric variance.
        spread = events * jnp.where(size > 1, (size - tied) / jnp.where(size > 1, size - 1, 1), 0)
        covariance = jnp.diag(spread @ share) - (share * spread[:, None]).T @ share
        return LogRankAnswer(events @ own, events @ share, covariance)

    def refuses(self, X: HostRows, y: np.ndarray, message: GroupsMessage) -> str | None:
        return strange_groups(X, message)


class ConcordanceMessage(Message):
    """M models, of which each gives a row a risk."""

    coef: Numbers  # M x p
    without: Numbers  # M: the fold whose pairs are asked about, which the model has not learnt from; -1 is all rows


class ConcordanceAnswer(NamedTuple):
    """Pairs of rows of one stratum, of which it is known who had the event first; a pair counts as the product of its
    rows' weights."""

    concordant: Float[Array, " M"]  # that row has the larger risk
    tied: Float[Array, " M"]  # both have the same
    pairs: Float[Array, " M"]  # all


class ConcordanceQuery(AbstractQuery[ConcordanceMessage]):
    """How often models give the row with the earlier event the larger risk, of pairs within a site: Harrell's C."""

    name: ClassVar[str] = "concordance"
    version: ClassVar[int] = 2
    message: ClassVar[type[Message]] = ConcordanceMessage

    def answer(self, table: Table, message: ConcordanceMessage) -> ConcordanceAnswer:
        risks = (table.X @ jnp.asarray(message.coef).T).T + table.offset[None, :]
        return in_order(table, risks, jnp.asarray(message.without))

    def padded(self, message: ConcordanceMessage) -> ConcordanceMessage:
        coef, without = np.asarray(message.coef), np.asarray(message.without, np.int32)
        more = few_sizes(len(coef)) - len(coef)
        padded = np.pad(coef, ((0, more), (0, 0))), np.pad(without, (0, more), constant_values=-1)
        return eqx.tree_at(lambda m: (m.coef, m.without), message, padded)

    def trimmed(self, answer: ConcordanceAnswer, message: ConcordanceMessage) -> ConcordanceAnswer:
        return jax.tree.map(lambda counts: counts[: len(np.asarray(message.coef))], answer)


def in_order(table: Table, risks: Float[Array, "M n"], without: Array) -> ConcordanceAnswer:
    """How many pairs each of M risks has in the right order, by weights, of the rows of a fold; -1 is all rows."""
    n = table.weight.shape[0]
    size = n
    while size % 2 == 0 and size * n > ENTRIES:
        size //= 2

    def block(some: Array) -> ConcordanceAnswer:
        known = known_order(table, some)
        counts = jnp.where(known, table.weight[some][:, None] * table.weight[None, :], 0)

        def one(asked: tuple[Float[Array, " n"], Array]) -> tuple[Array, Array, Array]:
            risk, left_out = asked
            mine, other = risk[some][:, None], risk[None, :]
            held = (table.fold == left_out) | (left_out < 0)
            pairs = jnp.where(held[some][:, None] & held[None, :], counts, 0)
            right, even = jnp.where(mine > other, pairs, 0), jnp.where(mine == other, pairs, 0)
            return jnp.sum(right), jnp.sum(even), jnp.sum(pairs)

        return ConcordanceAnswer(*jax.lax.map(one, (risks, without)))

    parts = jax.lax.map(block, jnp.arange(n).reshape(-1, size))
    return jax.tree.map(lambda part: part.sum(axis=0), parts)


def known_order(table: Table, some: Array) -> Bool[Array, "s n"]:
    """Whether some rows had an event while others of the stratum were at risk, and longer than that.

    Of two rows with one time, an event comes before a row that leaves without one.
    """
    time, event = table.y[:, -2], table.y[:, -1] > 0
    mine, other = time[some][:, None], time[None, :]
    later = (mine < other) | ((mine == other) & ~event[None, :])
    there = event[some][:, None] & (table.weight[some] > 0)[:, None] & (table.weight > 0)[None, :]
    known = later & there & (table.site[some][:, None] == table.site[None, :])
    return known if table.y.shape[1] == 2 else known & (table.y[:, 0][None, :] < mine)


def membership(table: Table, groups: Numbers) -> Float[Array, "n G"]:
    """The rows' weights, in the column of their group."""
    others = table.X.columns(jnp.asarray(groups, jnp.int32))
    return jnp.concatenate([1 - others.sum(axis=1, keepdims=True), others], axis=1) * table.weight[:, None]


def strange_groups(X: HostRows, message: GroupsMessage) -> str | None:
    """Why features are no indicators of groups."""
    groups = np.asarray(message.groups)
    if groups.min(initial=0) < 0 or groups.max(initial=-1) >= X.shape[1]:
        return f"groups are asked of a feature that is not there: there are {X.shape[1]}"
    own = columns_of(X, groups.astype(int))
    if not np.isin(own, (0.0, 1.0)).all() or (own.sum(axis=1) > 1).any():
        return "the features that tell groups apart must be 0 or 1, and one of them 1 at most"
    return None


life_table = LifeTableQuery()
log_rank = LogRankQuery()
concordance = ConcordanceQuery()
