"""The features of a table's rows, dense or sparse: what a query multiplies, without knowing which of them it has."""

import itertools
from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from cofed.sites.host_rows import HostRows, SparseRows
from cofed.sites.scaling import Scaling

PAIRS = 1 << 12  # stored numbers that are multiplied at once with others of their rows
CHUNK = 1 << 14  # stored numbers that are multiplied at once, at most
AT_ONCE = 1 << 19  # products that are made at once
FULL = 0.5  # a sparse column with more of its values stored is held as a dense one
CROWDED = 0.1  # of the values; with more of them stored, products of columns are cheaper densely
SHORT = 4  # times as many columns as values in a row, and products of columns are cheaper by pairs of values
PANELS, LARGE = 4, 256  # parts in which the triangle of a large matrix of products is made, and how large that is


T = TypeVar("T", Array, tuple[Array, Array])


def padded_size(rows: int) -> int:
    """The rows of a padded table: at most a quarter more than needed, or the power of two below 256.

    >>> from cofed.sites.matrix import padded_size
    >>> padded_size(3), padded_size(100), padded_size(1000), padded_size(1025)
    (32, 128, 1024, 1280)
    """
    power = max(32, 1 << (rows - 1).bit_length())
    return power if power <= 256 else -(-rows // (power // 8)) * (power // 8)


def products(some: Float[Array, "n s"], weight: Float[Array, " n"]) -> Float[Array, "s s"]:
    """some' diag(weight) some, of which a large one is made above the diagonal, and copied below."""
    weighed, s = some * weight[:, None], some.shape[1]
    if s < LARGE:
        return some.T @ weighed
    cuts = np.linspace(0, s, PANELS + 1).astype(int)
    rows = [some[:, a:b].T @ weighed[:, a:] for a, b in itertools.pairwise(cuts.tolist())]
    upper = jnp.concatenate([jnp.pad(row, ((0, 0), (s - row.shape[1], 0))) for row in rows])
    at = np.arange(s)
    return jnp.where(at[:, None] <= at[None, :], upper, upper.T)


class AbstractMatrix(eqx.Module):
    """n rows of p features in the units of a question."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """n, p"""

    @property
    @abstractmethod
    def row_size(self) -> int:
        """How many numbers a row takes in a block of rows."""

    @abstractmethod
    def __matmul__(self, V: Float[Array, "p m"]) -> Float[Array, "n m"]:
        """X V"""

    @abstractmethod
    def transposed_times(self, U: Float[Array, "n m"]) -> Float[Array, "p m"]:
        """X' U, for U that is 0 where a row counts nothing."""

    @abstractmethod
    def squares(self, weights: Float[Array, "n m"]) -> Float[Array, "p m"]:
        """The sums of the squares of every column, the rows weighed in m ways."""

    @abstractmethod
    def columns(self, where: Int[Array, " s"]) -> Float[Array, "n s"]:
        """Some columns, as an array. It is large unless the columns or the rows are few."""

    @abstractmethod
    def gram(self, weight: Float[Array, " n"], where: Int[Array, " s"]) -> Float[Array, "s s"]:
        """The products of some columns of the design with each other, the rows weighed."""

    @abstractmethod
    def gram_size(self, columns: int) -> int:
        """How many numbers a row takes on the way to the products of so many columns."""

    @abstractmethod
    def less(self, centre: Float[Array, " p"]) -> "AbstractMatrix":
        """The same rows, less a centre."""

    @abstractmethod
    def block(self, first: Int[Array, ""], size: int) -> "AbstractMatrix":
        """Some rows that follow each other."""

    def design(self, where: Int[Array, " s"]) -> Float[Array, "n s"]:
        """What the parameters of some features are multiplied with; p is the intercept, 1 for every row."""
        p = self.shape[1]
        return jnp.where(where[None, :] < p, self.columns(jnp.minimum(where, p - 1)), 1)

    def dense(self) -> Float[Array, "n p"]:
        """All columns, as an array: for blocks of rows."""
        return self.columns(jnp.arange(self.shape[1], dtype=jnp.int32))


class DenseMatrix(AbstractMatrix):
    """Rows as an array."""

    values: Float[Array, "n p"]

    @property
    def shape(self) -> tuple[int, int]:
        n, p = self.values.shape
        return n, p

    @property
    def row_size(self) -> int:
        return self.values.shape[1]

    def __matmul__(self, V: Float[Array, "p m"]) -> Float[Array, "n m"]:
        return self.values @ V

    def transposed_times(self, U: Float[Array, "n m"]) -> Float[Array, "p m"]:
        return self.values.T @ U

    def squares(self, weights: Float[Array, "n m"]) -> Float[Array, "p m"]:
        return (self.values**2).T @ weights

    def columns(self, where: Int[Array, " s"]) -> Float[Array, "n s"]:
        return self.values[:, where]

    def gram(self, weight: Float[Array, " n"], where: Int[Array, " s"]) -> Float[Array, "s s"]:
        return products(self.design(where), weight)

    def gram_size(self, columns: int) -> int:
        return 3 * columns

    def less(self, centre: Float[Array, " p"]) -> "DenseMatrix":
        return DenseMatrix(self.values - centre[None, :])

    def block(self, first: Int[Array, ""], size: int) -> "DenseMatrix":
        return DenseMatrix(jax.lax.dynamic_slice_in_dim(self.values, first, size))

    def dense(self) -> Float[Array, "n p"]:
        return self.values


class SparseMatrix(AbstractMatrix):
    """Rows of which most values are 0: x * scale - shift, of which x alone is stored.

    The mean of a column of which a part r of the values is not 0 has a square of at most r times the mean square. So
    where r is at most a half, a centre that is taken off sums costs a bit of precision, and no more. Columns with
    fewer zeros, such as years, could lose all of it: they are held densely, in the units of the question.
    """

    value: Float[Array, " stored"]  # by row; CHUNK more than there are, as a chunk may end behind the last
    column: Int[Array, " stored"]
    row: Int[Array, " stored"]
    starts: Int[Array, " rows"]  # where every row begins, and where the last one ends
    first: Int[Array, ""]  # the row that this matrix begins with
    scale: Float[Array, " p"]
    shift: Float[Array, " p"]
    full: Float[Array, "n q"]  # the dense columns
    place: Int[Array, " p"]  # of a column among the dense ones; q where it is none

    @property
    def shape(self) -> tuple[int, int]:
        return self.full.shape[0], self.scale.shape[0]

    @property
    def row_size(self) -> int:
        return self.full.shape[1]

    @property
    def is_full(self) -> Bool[Array, " p"]:
        """Which columns are held densely."""
        return self.place < self.full.shape[1]

    def __matmul__(self, V: Float[Array, "p m"]) -> Float[Array, "n m"]:
        scaled, nothing = self.scale[:, None] * V, jnp.zeros((self.shape[0], V.shape[1]), V.dtype)

        def add(total: Array, row: Array, column: Array, x: Array) -> Array:
            return total.at[row].add(x[:, None] * scaled[column])

        found = self.over_stored(add, nothing, V.shape[1]) - (self.shift @ V)[None, :]
        return found + self.full @ self.of_full(V)

    def transposed_times(self, U: Float[Array, "n m"]) -> Float[Array, "p m"]:
        total, _ = self.moments(U, 1)
        found = self.scale[:, None] * total - self.shift[:, None] * U.sum(axis=0)[None, :]
        return self.with_full(found, self.full.T @ U)

    def squares(self, weights: Float[Array, "n m"]) -> Float[Array, "p m"]:
        total, squares = self.moments(weights, 2)
        scale, shift = self.scale[:, None], self.shift[:, None]
        off = 2 * scale * shift * total - shift**2 * weights.sum(axis=0)[None, :]
        return self.with_full(scale**2 * squares - off, (self.full**2).T @ weights)

    def columns(self, where: Int[Array, " s"]) -> Float[Array, "n s"]:
        first, own = self.positions(where)
        nothing = jnp.zeros((self.shape[0], where.shape[0]), self.value.dtype)

        def put(total: Array, row: Array, column: Array, x: Array) -> Array:
            return total.at[row, first[column]].add(x * self.scale[column], mode="drop")

        found = self.over_stored(put, nothing, 1)[:, own] - self.shift[where][None, :]
        if self.full.shape[1] == 0:
            return found
        held = self.full[:, jnp.minimum(self.place[where], self.full.shape[1] - 1)]
        return jnp.where(self.is_full[where][None, :], held, found)

    def gram(self, weight: Float[Array, " n"], where: Int[Array, " s"]) -> Float[Array, "s s"]:
        if self.has_short_rows(where.shape[0]):
            return self.gram_by_pairs(weight, where)
        some = self.design(where)
        if self.stored_per_row > CROWDED * self.shape[1]:
            return products(some, weight)
        weighed, total, p = some * weight[:, None], some.T @ weight, self.shape[1]
        first, own = self.positions(where)
        nothing = jnp.zeros((where.shape[0], where.shape[0]), self.value.dtype)

        def add(total: Array, row: Array, column: Array, x: Array) -> Array:
            return total.at[first[column]].add((x * self.scale[column])[:, None] * weighed[row], mode="drop")

        feature, one = jnp.minimum(where, p - 1), (where == p)[:, None]
        found = self.over_stored(add, nothing, where.shape[0])[own] - self.shift[feature][:, None] * total[None, :]
        if self.full.shape[1] > 0:
            held = (self.full.T @ weighed)[jnp.minimum(self.place[feature], self.full.shape[1] - 1)]
            found = jnp.where(self.is_full[feature][:, None], held, found)
        return jnp.where(one, total[None, :], found)

    def gram_size(self, columns: int) -> int:
        return self.row_size + 2 if self.has_short_rows(columns) else 3 * columns

    @property
    def stored_per_row(self) -> float:
        """How many values a row has, on average."""
        return (self.value.shape[0] - CHUNK) / (self.starts.shape[0] - 1)

    def has_short_rows(self, columns: int) -> bool:
        """Whether the products of so many columns are cheaper by pairs of values."""
        return SHORT * self.stored_per_row <= columns

    def gram_by_pairs(self, weight: Float[Array, " n"], where: Int[Array, " s"]) -> Float[Array, "s s"]:
        """The products of columns, from those of every two values of a row."""
        p, q = self.shape[1], self.full.shape[1]
        feature, first = jnp.minimum(where, p - 1), self.positions(where)
        upper = self.pairs(weight, first[0], where.shape[0])[first[1]][:, first[1]]
        count, shift = weight.sum(), self.shift[feature]
        beside = self.transposed_times(jnp.concatenate([weight[:, None], self.full * weight[:, None]], axis=1))[feature]
        total = beside[:, 0]
        # Of x scale - shift, where the sums of x scale are total + shift count.
        off = shift[:, None] * total[None, :]
        found = upper - off - off.T - count * shift[:, None] * shift[None, :]
        if q > 0:
            held, is_full = beside[:, 1 + jnp.minimum(self.place[feature], q - 1)], self.is_full[feature]
            found = jnp.where(is_full[:, None], held.T, jnp.where(is_full[None, :], held, found))
        one = where == p
        edge = jnp.where(one, count, total)
        return jnp.where(one[:, None], edge[None, :], jnp.where(one[None, :], edge[:, None], found))

    def pairs(self, weight: Float[Array, " n"], place: Int[Array, " p"], size: int) -> Float[Array, "s s"]:
        """The products of the stored values of features that have a place below `size`."""
        end, wide = self.starts[self.first + self.shape[0]], size + 1

        def add(total: Array, at: Array, row: Array, column: Array, x: Array) -> Array:
            weighed, line = x * self.scale[column] * weight[row], place[column] * wide
            within = at + jnp.arange(x.shape[0], dtype=at.dtype)

            def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                off, total, _ = state
                others = (
                    jax.lax.dynamic_slice_in_dim(a, at + off, x.shape[0]) for a in (self.row, self.column, self.value)
                )
                beside, other, value = others
                same = (beside - self.first == row) & (within + off < end)
                each = jnp.where(same, weighed * value * self.scale[other], 0)
                return off + 1, total.at[line + place[other]].add(each), jnp.any(same)

            begin = jnp.zeros_like(at), total, jnp.ones((), bool)
            return jax.lax.while_loop(lambda state: state[2], step, begin)[1]

        found = self.over_chunks(add, jnp.zeros(wide * wide, self.value.dtype), PAIRS).reshape(wide, wide)[:size, :size]
        return found + found.T - jnp.diag(jnp.diag(found))

    def less(self, centre: Float[Array, " p"]) -> "SparseMatrix":
        moved = self.full - self.of_full(centre[:, None])[:, 0][None, :]
        shift = jnp.where(self.is_full, 0, self.shift + centre)
        return eqx.tree_at(lambda X: (X.full, X.shift), self, (moved, shift))

    def block(self, first: Int[Array, ""], size: int) -> "SparseMatrix":
        some = jax.lax.dynamic_slice_in_dim(self.full, first, size)
        return eqx.tree_at(lambda X: (X.full, X.first), self, (some, self.first + first))

    def moments(self, weights: Float[Array, "n m"], power: int) -> tuple[Array, Array]:
        """The sums of the stored values of every column, and with the power 2 of their squares, p x m each."""
        nothing = jnp.zeros((self.shape[1], weights.shape[1]), self.value.dtype)

        def add(total: tuple[Array, Array], row: Array, column: Array, x: Array) -> tuple[Array, Array]:
            each = x[:, None] * weights[row]
            more = total[1] if power == 1 else total[1].at[column].add(x[:, None] * each)
            return total[0].at[column].add(each), more

        return self.over_stored(add, (nothing, nothing[: nothing.shape[0] * (power - 1)]), weights.shape[1])

    def over_stored(self, add: Callable[[T, Array, Array, Array], T], total: T, width: int) -> T:
        """Go through the stored values of the rows: `add(total, row, column, x)` takes in some, each for `width`
        products."""
        size = int(np.clip(AT_ONCE // max(width, 1), 64, CHUNK))
        return self.over_chunks(lambda total, at, row, column, x: add(total, row, column, x), total, size)

    def over_chunks(self, add: Callable[[T, Array, Array, Array, Array], T], total: T, size: int) -> T:
        """Go through the stored values of the rows, so many at once: `add(total, at, row, column, x)` takes in those
        from the position `at`; behind the last, x is 0."""
        begin, end = self.starts[self.first], self.starts[self.first + self.shape[0]]
        within = jnp.arange(size, dtype=begin.dtype)

        def step(k: Array, total: T) -> T:
            at = begin + k * size
            row, column, x = (jax.lax.dynamic_slice_in_dim(a, at, size) for a in (self.row, self.column, self.value))
            live = at + within < end
            return add(total, at, jnp.where(live, row - self.first, 0), column, jnp.where(live, x, 0))

        return jax.lax.fori_loop(0, (end - begin + size - 1) // size, step, total)

    def positions(self, where: Int[Array, " s"]) -> tuple[Array, Array]:
        """The first position of every feature in `where`, s where it has none; and that of each in `where`."""
        s = where.shape[0]
        first = jnp.full(self.shape[1], s, where.dtype).at[where].min(jnp.arange(s, dtype=where.dtype), mode="drop")
        return first, first[where]

    def of_full(self, V: Float[Array, "p m"]) -> Float[Array, "q m"]:
        """What of V belongs to the dense columns."""
        q = self.full.shape[1]
        return jnp.zeros((q, V.shape[1]), V.dtype).at[self.place].add(V, mode="drop")

    def with_full(self, found: Float[Array, "p m"], held: Float[Array, "q m"]) -> Float[Array, "p m"]:
        """What was found of the sparse columns, and of the dense ones."""
        q = self.full.shape[1]
        return found if q == 0 else jnp.where(self.is_full[:, None], held[jnp.minimum(self.place, q - 1)], found)


def matrix_of(X: HostRows, scaling: Scaling | None, size: int) -> tuple[AbstractMatrix, int]:
    """Rows in the units of a question, padded to so many, and the position of the row that padding repeats.

    Padding repeats a row, so that no loss of it is infinite: the first one, or of sparse rows the shortest.
    """
    n, p = X.shape
    if isinstance(X, np.ndarray):
        held = np.empty((size, p))
        held[:n] = X if scaling is None else scaling.rows(X)
        held[n:] = held[0]
        return DenseMatrix(jnp.asarray(held)), 0
    return sparse_matrix(X, Scaling(np.zeros(p), np.ones(p)) if scaling is None else scaling, size)


def sparse_matrix(X: SparseRows, scaling: Scaling, size: int) -> tuple[SparseMatrix, int]:
    """Rows that are held sparsely."""
    n, p = X.shape
    is_full = np.bincount(X.indices, minlength=p) > FULL * n
    full = np.flatnonzero(is_full)
    kept = X.without(is_full) if len(full) else X
    spare = int(np.argmin(np.diff(kept.indptr)))
    again = np.full(size - n, spare)
    padded = kept.with_rows(again)
    columns = Scaling(scaling.centre[full], scaling.width[full]).rows(X.columns(full))
    row, more = np.repeat(np.arange(size), np.diff(padded.indptr)), padded_size(len(padded.data)) + CHUNK
    value, column, row = (np.pad(a, (0, more - len(a))) for a in (padded.data, padded.indices, row))
    fixed = np.isinf(scaling.width) | is_full
    width, place = np.where(fixed, 1.0, scaling.width), np.full(p, len(full), np.int32)
    place[full] = np.arange(len(full))
    arrays = (
        *(value, column.astype(np.int32), row.astype(np.int32), padded.indptr.astype(np.int64), np.zeros((), np.int32)),
        *(np.where(fixed, 0.0, 1 / width), np.where(fixed, 0.0, scaling.centre / width)),
        *(np.concatenate([columns, columns[again]]), place),
    )
    return SparseMatrix(*map(jnp.asarray, arrays)), spare
