"""A site's rows as the numbers that a question is answered from, in blocks."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num, PyTree

from cofed.sites.matrix import AbstractMatrix

ENTRIES = 1 << 22  # numbers that a block of rows may make on its way to a sum


class Table(eqx.Module):
    """Rows, padded so that tables of similar size share a compiled program.

    Attributes
    ----------
    X : AbstractMatrix of shape (n, p)
        The features, dense or sparse.
    y : array of shape (n,), (n, 2) or (n, 3)
        The labels: numbers, or the positions of classes; of the time to an event, rows of (time, event) or (entry,
        time, event).
    weight : array of shape (n,)
        The row's weight, above 0; 0 for padding.
    fold : array of shape (n,)
        The row's fold; 0 where there are none.
    cluster : array of shape (n,)
        The row's cluster: a site, or a group of rows within one.
    offset : array of shape (n,)
        What is added to the row's prediction; 0 where there is none.
    site : array of shape (n,)
        The row's site: its stratum, of the time to an event.
    """

    X: AbstractMatrix
    y: Num[Array, "n ..."]
    weight: Float[Array, " n"]
    fold: Int[Array, " n"]
    cluster: Int[Array, " n"]
    offset: Float[Array, " n"]
    site: Int[Array, " n"]

    @property
    def n_features(self) -> int:
        """p"""
        return self.X.shape[1]

    def beside(self, X: AbstractMatrix, take: Callable[[Array], Array]) -> "Table":
        """These features, and beside them what `take` leaves of everything else."""
        return Table(X, *map(take, (self.y, self.weight, self.fold, self.cluster, self.offset, self.site)))


def sum_rows(answer: Callable[[Table], PyTree], table: Table, per_row: int) -> PyTree:
    """The sum of `answer` over blocks of rows, of which each row makes `per_row` numbers on the way."""
    n = table.weight.shape[0]
    most = max(32, ENTRIES // max(per_row, 1))
    size = n
    while size > most and size % 2 == 0:
        size //= 2
    if size == n:
        return answer(table)

    def block(first: Array) -> PyTree:
        some = table.X.block(first, size)
        return answer(table.beside(some, lambda values: jax.lax.dynamic_slice_in_dim(values, first, size)))

    starts = jnp.arange(0, n, size, dtype=jnp.int32)
    nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(block, starts[0]))

    def add(total: PyTree, first: Array) -> tuple[PyTree, None]:
        return jax.tree.map(jnp.add, total, block(first)), None

    return jax.lax.scan(add, nothing, starts)[0]
