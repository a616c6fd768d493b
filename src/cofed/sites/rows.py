"""The rows of one site, or of several in one process, as they are; and as the table that a question is about."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from cofed._util.programs import keep_programs
from cofed.losses import AbstractLoss
from cofed.sites.folds import Folds
from cofed.sites.host_rows import HostRows, joined
from cofed.sites.matrix import AbstractMatrix, matrix_of, padded_size
from cofed.sites.queries.base import AbstractQuery, Message
from cofed.sites.scaling import Scaling
from cofed.sites.table import Table

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class SiteRows:
    """Rows of numbers, each of one of several sites."""

    names: tuple[str, ...]  # of the sites
    X: HostRows  # n x p
    y: np.ndarray  # n labels, or none at all; of the time to an event, rows of (time, event) or (entry, time, event)
    site: np.ndarray  # n positions in `names`, in order
    cluster: np.ndarray | None = None  # n groups of rows, each within a site; None is a group for each site
    weight: np.ndarray | None = None  # n numbers above 0; None is 1 for every row
    offset: np.ndarray | None = None  # n numbers that are added to predictions, or n rows of them; None is 0
    group: np.ndarray | None = None  # n groups of rows, or folds: what rows are dealt to folds by, where by any

    @classmethod
    def of_sites(cls, names: tuple[str, ...], X: list[HostRows], y: list[np.ndarray]) -> "SiteRows":
        """The rows of these sites, one after another."""
        site = np.repeat(np.arange(len(names), dtype=np.int32), [one.shape[0] for one in X])
        if len(names) == 1:
            return cls(names, X[0], y[0], site)
        return cls(names, joined(X), np.concatenate(y), site)

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """The rows of each site."""
        return tuple(np.bincount(self.site, minlength=len(self.names)).tolist())

    @functools.cached_property
    def bounds(self) -> np.ndarray:
        """Where each site's rows begin, and where the last one's end."""
        return np.searchsorted(self.site, np.arange(len(self.names) + 1))

    def of_site(self, m: int) -> tuple[HostRows, np.ndarray]:
        """The features and labels of one site: views, as its rows are in one piece."""
        own = slice(self.bounds[m], self.bounds[m + 1])
        return self.X[own], self.y[own]

    def alone(self, m: int) -> "SiteRows":
        """The rows of one site, without the others'."""
        one = self.some(slice(self.bounds[m], self.bounds[m + 1]))
        return dataclasses.replace(one, names=(self.names[m],), site=np.zeros_like(one.site))

    def some(self, which: slice | np.ndarray) -> "SiteRows":
        """Some of the rows, of the same sites."""
        more = (self.cluster, self.weight, self.offset, self.group)
        y = self.y[which] if len(self.y) else self.y
        kept = (None if values is None else values[which] for values in more)
        return SiteRows(self.names, self.X[which], y, self.site[which], *kept)

    @functools.cached_property
    def each(self) -> tuple["SiteRows", ...]:
        """The rows of every site, apart."""
        return tuple(self.alone(m) for m in range(len(self.names)))

    def with_labels(self, y: np.ndarray) -> "SiteRows":
        """The same rows with other labels."""
        return dataclasses.replace(self, y=y)

    @functools.cached_property
    def tables(self) -> "TableCache":
        """The tables that the rows were last asked about as."""
        return TableCache()

    def folds(self, folds: Folds | None) -> np.ndarray:
        """The fold of each row; -1 where it is left out."""
        if folds is None:
            return np.zeros(len(self.site), np.int32)
        dealt = np.empty(len(self.site), np.int32)
        for m, name in enumerate(self.names):
            own = slice(self.bounds[m], self.bounds[m + 1])
            labels = self.y[own] if len(self.y) else np.zeros(own.stop - own.start)
            dealt[own] = folds.of_rows(name, labels, None if self.group is None else self.group[own])
        return dealt

    def without(self, fold: int, folds: Folds | None) -> "SiteRows":
        """The rows of all folds but one, of the sites that have any; -1 leaves none out."""
        dealt = self.folds(folds)
        keep = (dealt != fold) & (dealt >= 0)
        return self if keep.all() else self.some(keep).of_sites_with_rows()

    def of_sites_with_rows(self) -> "SiteRows":
        """The same rows without the names of sites that have none."""
        some = np.flatnonzero(np.bincount(self.site, minlength=len(self.names)))
        site = np.searchsorted(some, self.site).astype(np.int32)
        return dataclasses.replace(self, names=tuple(self.names[m] for m in some), site=site)

    @functools.cached_property
    def offset_off_labels(self) -> "SiteRows":
        """The same for a loss of prediction - y: y less the offset, in place of predictions with it."""
        return self if self.offset is None else dataclasses.replace(self, y=self.y - self.offset, offset=None)

    def table(self, scaling: Scaling | None, folds: Folds | None, by_cluster: bool = False) -> Table:
        """The rows in the units and folds of a question, with their clusters or with their sites for clusters."""
        jax.config.update("jax_enable_x64", True)
        keep_programs()
        n, cache = len(self.site), self.tables
        most = padded_size(n)

        def filled(values: np.ndarray) -> jax.Array:
            held = np.zeros((most, *values.shape[1:]), values.dtype)
            held[:n] = values
            return jnp.asarray(held)

        def features() -> tuple[AbstractMatrix, jax.Array]:
            labels = self.y if len(self.y) else np.zeros(n)
            y = labels if scaling is None else scaling.labels(labels)
            X, spare = matrix_of(self.X, scaling, most)
            marks = np.empty((most, *y.shape[1:]), y.dtype)
            marks[:n], marks[n:] = y, y[spare]
            return X, jnp.asarray(marks)

        X, y = cache.features.get(mark(scaling), features)
        fold = cache.folds.get(folds, lambda: filled(self.folds(folds)))
        is_whole = folds is None or folds.left_out < 0
        groups = self.cluster if by_cluster and self.cluster is not None else self.site
        weight = np.ones(n) if self.weight is None else self.weight
        offset = np.zeros(n) if self.offset is None else self.offset
        fixed = cache.fixed.get(by_cluster, lambda: tuple(map(filled, (weight, groups, offset, self.site))))
        # Rows that are left out are in no sum, as padding is.
        counts = fixed[0] if is_whole else jnp.where(fold < 0, 0, fixed[0])
        return Table(X, y, counts, fold, *fixed[1:])

    def answer(self, query: AbstractQuery, message: Message, secret: bytes | None = None) -> PyTree:
        """The answer to a question as it may leave, in NumPy arrays; of some with noise, drawn from a secret."""
        return query.released(self.exact(query, message), message, secret)

    def exact(self, query: AbstractQuery, message: Message) -> PyTree:
        """The answer to a question without noise."""
        if not isinstance(message, query.message):
            raise TypeError(f"the query {query.name} takes a {query.message.__name__}, got {type(message).__name__}")
        is_shifted = message.loss is not None and message.loss.of_rows.location
        rows = self.offset_off_labels if is_shifted else self
        table = rows.table(message.scaling, message.folds, query.by_cluster)
        # The table is in these units and folds already: other units and seeds share a program.
        dealt = None if message.folds is None else Folds(message.folds.n)
        bare = dataclasses.replace(message, scaling=None, folds=dealt, loss=as_arrays(message.loss))
        found = []
        for part in query.parts(bare):
            answer = compiled(query, table, query.padded(part))
            found.append(query.trimmed(jax.tree.map(np.asarray, answer), part))
        return found[0] if len(found) == 1 else query.joined(found, message)


def as_arrays(loss: AbstractLoss | None) -> AbstractLoss | None:
    """The loss with its numbers as arrays, so that another number shares a program."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float) else leaf, loss)


@eqx.filter_jit
def compiled(query: AbstractQuery, table: Table, message: Message) -> PyTree:
    """The query as a compiled program; the table is an argument, so that no program holds rows."""
    return query.answer(table, message)


def mark(scaling: Scaling | None) -> object:
    """What tells units apart."""
    if scaling is None:
        return None
    return scaling.centre.tobytes(), scaling.width.tobytes(), scaling.label_centre, scaling.label_size


class Latest(Generic[T]):
    """The latest of something that is made from a key."""

    def __init__(self):
        self.held: tuple[object, T] | None = None

    def get(self, key: object, make: Callable[[], T]) -> T:
        """What belongs to the key: the kept one, or a new one, which is kept instead."""
        if self.held is None or self.held[0] != key:
            self.held = None  # the old one may go before the new one is made
            self.held = key, make()
        return self.held[1]


class TableCache:
    """The latest parts of a table."""

    def __init__(self):
        self.features: Latest[tuple[AbstractMatrix, jax.Array]] = Latest()
        self.folds: Latest[jax.Array] = Latest()
        self.fixed: Latest[tuple[jax.Array, ...]] = Latest()
