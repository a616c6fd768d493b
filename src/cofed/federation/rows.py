"""How the samples of all clients lie in memory: as one padded stack or, where that wastes memory, row after row."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import equinox as eqx
import jax
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float, Num

from cofed._util import machine
from cofed._util.scalars import as_array

PADDING = 2.0  # a stack may have at most this many times the rows of the data
SLACK = 1.5  # tiers are merged while, padded, they have at most this many times the rows of the data
ALIGNMENT = 64  # bytes; memory that starts at a multiple of this is used by JAX without a copy

Tiers = tuple[tuple[int, int], ...]  # (width, clients) from narrow to wide


class Rows(eqx.Module):
    """The samples of all clients, in one of two layouts, neither of which takes more than twice the data's memory.

    A stack, if the clients are of similar size: X has shape (clients, width, ...), and each client is padded to the
    largest with its first sample. Rows otherwise: X has shape (samples, ...), one client after another, without
    padding; `tiers` then groups the clients by size, so that work on whole clients pads each to its tier's width only.
    """

    X: Float[Array, "..."] = eqx.field(converter=as_array)
    y: Num[Array, "..."] = eqx.field(converter=as_array)
    tiers: Tiers | None = eqx.field(static=True, default=None)  # None: a stack

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of one x and of one y."""
        leading = 2 if self.tiers is None else 1
        return tuple(self.X.shape[leading:]), tuple(self.y.shape[leading:])


def tiers_of(sizes: np.ndarray) -> Tiers | None:
    """The tiers of clients of these sizes, or None where one stack will do.

    A tier's clients have more than half its width. Tiers that hardly differ are merged, because each is one more
    compiled program.

    >>> import numpy as np
    >>> from cofed.federation.rows import tiers_of
    >>> tiers_of(np.array([5, 6, 4])), tiers_of(np.array([50, 40, 50, 3000]))
    (None, ((50, 3), (3000, 1)))
    """
    ordered = np.sort(np.asarray(sizes))
    total = int(ordered.sum(dtype=np.int64))
    if len(ordered) * int(ordered[-1]) <= PADDING * total:
        return None
    tiers: list[tuple[int, int]] = []
    while len(ordered):
        width = int(ordered[-1])
        narrower = int(np.searchsorted(ordered, width // 2, "right"))
        tiers.insert(0, (width, len(ordered) - narrower))
        ordered = ordered[:narrower]
    return merged(tiers, total)


def merged(tiers: list[tuple[int, int]], total: int) -> Tiers:
    """The tiers after joining neighbours, the cheapest pair first, while there is little padding."""
    padded = sum(width * clients for width, clients in tiers)
    while len(tiers) > 2:
        costs = [(wide - narrow) * few for (narrow, few), (wide, _) in itertools.pairwise(tiers)]
        place = int(np.argmin(costs))
        padded += costs[place]
        if padded > SLACK * total:
            break
        (_, few), (wide, many) = tiers[place : place + 2]
        tiers[place : place + 2] = [(wide, few + many)]
    return tuple(tiers)


def starts_of(sizes: np.ndarray) -> np.ndarray:
    """The row at which each client begins."""
    return np.cumsum(sizes, dtype=np.int64) - sizes


@dataclasses.dataclass(frozen=True)
class SampleKind:
    """The shape and dtype of one x or one y."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclasses.dataclass(frozen=True)
class Room:
    """Memory for the samples of all clients, to be filled client by client and then handed over to JAX."""

    X: np.ndarray
    y: np.ndarray
    tiers: Tiers | None

    def parts(self, sizes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Each client's part of X and y, padding included."""
        if self.tiers is None:
            yield from zip(self.X, self.y, strict=True)
            return
        for start, size in zip(starts_of(sizes), sizes, strict=True):
            yield self.X[start : start + size], self.y[start : start + size]

    def as_rows(self) -> Rows:
        """The filled memory as JAX's arrays, without a copy. Nothing may write into it any more."""
        X, y = jax.device_put((self.X, self.y), may_alias=True)
        return Rows(X, y, self.tiers)


def empty_rows(sizes: np.ndarray, x: SampleKind, y: SampleKind) -> Room:
    """Memory for the samples of clients of these sizes; refused in a sentence where there is not enough of it."""
    tiers = tiers_of(sizes)
    lead = (len(sizes), int(sizes.max())) if tiers is None else (int(sizes.sum(dtype=np.int64)),)
    kinds = [((*lead, *kind.shape), kind.dtype) for kind in (x, y)]
    machine.require(sum(nbytes(shape, dtype) for shape, dtype in kinds), f"the samples of {len(sizes):,} clients")
    if tiers is not None and lead[0] >= 2**31:
        raise ValueError(f"the clients have {lead[0]:,} samples, and at most 2,147,483,647 can be held in memory")
    X, labels = (aligned(shape, dtype) for shape, dtype in kinds)
    return Room(X, labels, tiers)


def fill(part: np.ndarray, samples: np.ndarray) -> None:
    """Put a client's samples into its part, and repeat the first as padding.

    Padding has no weight, but its loss is computed all the same, and a real sample is one that the loss accepts.
    """
    part[: len(samples)] = samples
    part[len(samples) :] = part[0]


def of_clients(
    Xs: Sequence[np.ndarray], ys: Sequence[np.ndarray], x_dtype: npt.DTypeLike, y_dtype: npt.DTypeLike
) -> Rows:
    """The rows of clients whose arrays are known to be valid."""
    sizes = np.array([len(X) for X in Xs])
    kinds = SampleKind(Xs[0].shape[1:], np.dtype(x_dtype)), SampleKind(ys[0].shape[1:], np.dtype(y_dtype))
    room = empty_rows(sizes, *kinds)
    for (X_part, y_part), X_own, y_own in zip(room.parts(sizes), Xs, ys, strict=True):
        fill(X_part, X_own)
        fill(y_part, y_own)
    return room.as_rows()


def nbytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Bytes of an array."""
    count = dtype.itemsize
    for length in shape:
        count *= int(length)
    return count


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array that starts where JAX can use it without a copy."""
    size = nbytes(shape, dtype)
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)
