"""Questions about values of which some are missing (NaN): how many there are, what they add up to, how they spread."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cofed.sites.host_rows import HostRows
from cofed.sites.queries.base import AbstractQuery, Message, Numbers, room
from cofed.sites.queries.sums import MomentsMessage
from cofed.sites.table import Table, sum_rows


class ObservedAnswer(NamedTuple):
    """Of each feature, sums over the rows that have a value."""

    n: Float[Array, " p"]  # how many they are
    X: Float[Array, " p"]  # of the values less the centre
    squares: Float[Array, " p"]  # of the squares of that
    fractions: Float[Array, " p"]  # how many are not whole numbers


class ObservedQuery(AbstractQuery[MomentsMessage]):
    """How many values of each feature there are, and their sums around a centre."""

    name: ClassVar[str] = "observed"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = MomentsMessage

    def answer(self, table: Table, message: MomentsMessage) -> ObservedAnswer:
        def block(rows: Table) -> ObservedAnswer:
            X = rows.X.dense()
            there = ~jnp.isnan(X)
            moved = jnp.where(there, X - jnp.asarray(message.centre)[None, :], 0)
            whole = jnp.where(there, jnp.round(X) == X, True)
            return ObservedAnswer(
                n=rows.weight @ there.astype(moved.dtype),
                X=rows.weight @ moved,
                squares=rows.weight @ moved**2,
                fractions=rows.weight @ (~whole).astype(moved.dtype),
            )

        return sum_rows(block, table, 4 * table.n_features)


class HistogramMessage(Message):
    """J histograms with b bins each: of which feature, and between which numbers."""

    feature: Numbers  # J: positions of features
    edges: Numbers  # J x (b + 1), ascending


class HistogramQuery(AbstractQuery[HistogramMessage]):
    """How many values lie in (edge, next edge], with two more bins for those at or below all edges and above all."""

    name: ClassVar[str] = "histogram"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = HistogramMessage

    def answer(self, table: Table, message: HistogramMessage) -> Float[Array, "J bins"]:
        features, edges = jnp.asarray(message.feature, jnp.int32), jnp.asarray(message.edges)
        bins = edges.shape[1] + 1

        def one(asked: tuple[Array, Array]) -> Array:
            values = table.X.columns(asked[0][None])[:, 0]
            place = jnp.searchsorted(asked[1], values, side="left", method="scan_unrolled")
            weight = jnp.where(jnp.isnan(values), 0, table.weight)
            return jnp.zeros(bins, weight.dtype).at[place].add(weight)

        return jax.lax.map(one, (features, edges))

    def refuses(self, X: HostRows, y: np.ndarray, message: HistogramMessage) -> str | None:
        feature, edges = np.asarray(message.feature), np.asarray(message.edges)
        if feature.min(initial=0) < 0 or feature.max(initial=0) >= X.shape[1]:
            return f"a histogram is asked of a feature that is not there: there are {X.shape[1]}"
        if not np.isfinite(edges).all() or not (np.diff(edges, axis=1) > 0).all():
            return "the edges of a histogram must be finite numbers that ascend"
        return None

    def padded(self, message: HistogramMessage) -> HistogramMessage:
        more = room(len(message.feature)) - len(message.feature)
        feature = np.pad(np.asarray(message.feature, np.int32), (0, more))
        edges = np.pad(np.asarray(message.edges), ((0, more), (0, 0)), mode="edge")
        return eqx.tree_at(lambda m: (m.feature, m.edges), message, (feature, edges))

    def trimmed(self, answer: np.ndarray, message: HistogramMessage) -> np.ndarray:
        return answer[: len(message.feature)]


observed = ObservedQuery()
histogram = HistogramQuery()
