"""How well a model does when some of its features are dealt anew to the rows of a site: permutation importance."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from cofed.sites.host_rows import HostRows
from cofed.sites.queries.base import AbstractQuery, Message, Numbers, is_of_times
from cofed.sites.queries.held_out import HeldOutAnswer, errors_of, strange_errors
from cofed.sites.queries.look import predictions
from cofed.sites.queries.survival import ConcordanceAnswer, in_order
from cofed.sites.table import Table


class PermutedMessage(Message):
    """A model with k outputs, and M times some features that are permuted together."""

    coef: Numbers  # p x k
    intercept: Numbers  # k
    moved: Numbers  # M x w positions of features; -1 is none
    seeds: Numbers  # M: what each permutation is drawn from
    edges: Numbers  # 1 x b, ascending: between b + 1 bins of predictions before the link


class PermutedQuery(AbstractQuery[PermutedMessage]):
    """The errors of a model whose features are permuted among the rows of each site; of times to an event, pairs that
    are in order."""

    name: ClassVar[str] = "permuted"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = PermutedMessage

    def answer(self, table: Table, message: PermutedMessage) -> HeldOutAnswer | ConcordanceAnswer:
        coef = jnp.asarray(message.coef)
        whole = predictions(table, coef, jnp.asarray(message.intercept))

        def one(asked: tuple[Array, Array]) -> HeldOutAnswer | ConcordanceAnswer:
            moved, seed = asked
            # Positions of -1 are the last feature's, which then does not count.
            part = jnp.where(moved >= 0, table.X.columns(moved), 0) @ coef[moved]
            z = whole - part + part[dealt_anew(table, seed)]
            if is_of_times(message.loss):
                return in_order(table, z.T, jnp.full(1, -1, jnp.int32))
            return errors_of(message, message.edges, table, z[:, None, :], jnp.ones((len(z), 1), bool))

        found = jax.lax.map(one, (jnp.asarray(message.moved), jnp.asarray(message.seeds)))
        return jax.tree.map(lambda values: values[:, 0], found)

    def refuses(self, X: HostRows, y: np.ndarray, message: PermutedMessage) -> str | None:
        moved, edges = np.asarray(message.moved), np.asarray(message.edges)
        if moved.min(initial=0) < -1 or moved.max(initial=-1) >= X.shape[1]:
            return f"a feature is to be permuted that is not there: there are {X.shape[1]}"
        return None if is_of_times(message.loss) else strange_errors(message.loss, edges)


def dealt_anew(table: Table, seed: Array) -> Int[Array, " n"]:
    """For each row, a row of its site: each is taken once. The draw depends on the seed and the row's place at its
    site alone, so that it is the same wherever the site is."""
    at = jnp.arange(len(table.weight))
    first = jax.lax.cummax(jnp.where(table.cluster != jnp.roll(table.cluster, 1), at, 0))
    drawn = jax.vmap(lambda place: jax.random.bits(jax.random.fold_in(jax.random.key(seed), place)))(at - first)
    return jnp.lexsort((drawn, table.cluster, table.weight <= 0))  # a site's rows are next to each other; padding last


permuted = PermutedQuery()
