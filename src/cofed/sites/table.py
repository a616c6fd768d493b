"""A site's rows as the numbers that a question is answered from, and how they come to be: units, folds, blocks."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num, PyTree

ENTRIES = 1 << 22  # numbers that a block of rows may make on its way to a sum


class Scaling(eqx.Module):
    """The units in which a question is about the rows: (X - centre) / width and (y - label_centre) / label_size.

    Attributes
    ----------
    centre, width : array of shape (p,)
        Of the features. An infinite width makes a feature exactly 0.
    label_centre, label_size : float
        Of numeric labels; labels of classes stay as they are.
    """

    centre: np.ndarray
    width: np.ndarray
    label_centre: float = eqx.field(static=True, default=0.0)
    label_size: float = eqx.field(static=True, default=1.0)

    def rows(self, X: np.ndarray) -> np.ndarray:
        """The features in these units."""
        fixed = np.isinf(self.width)
        return np.where(fixed, 0.0, (X - self.centre) / np.where(fixed, 1.0, self.width))

    def labels(self, y: np.ndarray) -> np.ndarray:
        """The labels in these units."""
        if (self.label_centre, self.label_size) == (0.0, 1.0):
            return y
        return (y - self.label_centre) / self.label_size


class Table(eqx.Module):
    """Rows, padded so that tables of similar size share a compiled program.

    Attributes
    ----------
    X : array of shape (n, p)
        The features.
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
    """

    X: Float[Array, "n p"]
    y: Num[Array, "n ..."]
    weight: Float[Array, " n"]
    fold: Int[Array, " n"]
    cluster: Int[Array, " n"]
    offset: Float[Array, " n"]

    @property
    def n_features(self) -> int:
        """p"""
        return self.X.shape[1]


def padded_size(rows: int) -> int:
    """The rows of a padded table: at most a quarter more than needed, or the power of two below 256.

    >>> padded_size(3), padded_size(100), padded_size(1000), padded_size(1025)
    (32, 128, 1024, 1280)
    """
    power = max(32, 1 << (rows - 1).bit_length())
    return power if power <= 256 else -(-rows // (power // 8)) * (power // 8)


def sum_rows(answer: Callable[[Table], PyTree], table: Table, per_row: int) -> PyTree:
    """The sum of `answer` over blocks of rows, of which each row makes `per_row` numbers on the way."""
    n = table.weight.shape[0]
    most = max(32, ENTRIES // max(per_row, 1))
    size = n
    while size > most and size % 2 == 0:
        size //= 2
    if size == n:
        return answer(table)
    blocks = jax.tree.map(lambda a: a.reshape(n // size, size, *a.shape[1:]), table)
    nothing = jax.tree.map(
        lambda s: jnp.zeros(s.shape, s.dtype),
        jax.eval_shape(answer, jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), blocks)),
    )

    def add(total: PyTree, block: Table) -> tuple[PyTree, None]:
        return jax.tree.map(jnp.add, total, answer(block)), None

    return jax.lax.scan(add, nothing, blocks)[0]
