"""Questions about rows of which some values are missing (NaN): how many are there, and what they add up to."""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from cofed.sites.queries.base import AbstractQuery, Message
from cofed.sites.table import Table, sum_rows


class ObservedAnswer(NamedTuple):
    """Of each feature, over the rows that have a value."""

    n: Float[Array, " p"]  # how many they are
    X: Float[Array, " p"]  # their sum


class ObservedQuery(AbstractQuery[Message]):
    """How many values of each feature are there, and their sum."""

    name: ClassVar[str] = "observed"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = Message

    def answer(self, table: Table, message: Message) -> ObservedAnswer:
        def block(rows: Table) -> ObservedAnswer:
            there = ~jnp.isnan(rows.X)
            return ObservedAnswer(
                rows.weight @ there.astype(rows.weight.dtype), rows.weight @ jnp.where(there, rows.X, 0)
            )

        return sum_rows(block, table, 2 * table.n_features)


observed = ObservedQuery()
