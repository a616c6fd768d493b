"""How the samples of all clients lie in memory: as one padded stack, or, where that would waste room, row after row."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from cofed._util import machine

PADDING = 2.0  # a stack has at most so many times the rows of the data
SLACK = 1.5  # tiers are merged as long as they have at most so many times the rows of the data
ALIGNMENT = 64  # bytes; JAX uses memory that begins at a multiple of this without a copy

Tiers = tuple[tuple[int, int], ...]  # (width, clients) from narrow to wide


class Rows(eqx.Module):
    """The samples of all clients, in one of two layouts that hold at most twice the data.

    A stack, where clients are of similar size: X is (clients, width, ...), and each client is padded to the largest
    with its first sample. Else rows: X is (samples, ...), one client after another and nothing padded; `tiers` then
    sort the clients by size, so that work on whole clients pads each to its tier's width only.
    """

    X: Float[Array, "..."] = eqx.field(converter=jnp.asarray)
    y: Num[Array, "..."] = eqx.field(converter=jnp.asarray)
    tiers: Tiers | None = eqx.field(static=True, default=None)  # None: a stack

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of one x and of one y."""
        leading = 2 if self.tiers is None else 1
        return tuple(self.X.shape[leading:]), tuple(self.y.shape[leading:])


def tiers_of(sizes: np.ndarray) -> Tiers | None:
    """The tiers of clients of these sizes, or None where one stack will do.

    A tier's clients have more than half its width; tiers that hardly differ are merged, because each one is compiled.

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
    """The tiers with neighbours joined, the cheapest pair first, while the padding stays small."""
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
    """Where each client begins, in rows."""
    return np.cumsum(sizes, dtype=np.int64) - sizes


def empty_rows(
    sizes: np.ndarray, X_shape: tuple[int, ...], X_dtype: Any, y_shape: tuple[int, ...], y_dtype: Any
) -> tuple[np.ndarray, np.ndarray, Tiers | None]:
    """Room for the samples of clients of these sizes, refused in a sentence where memory has none."""
    tiers = tiers_of(sizes)
    lead = (len(sizes), int(sizes.max())) if tiers is None else (int(sizes.sum(dtype=np.int64)),)
    kinds = (((*lead, *X_shape), np.dtype(X_dtype)), ((*lead, *y_shape), np.dtype(y_dtype)))
    needed = sum(nbytes(shape, dtype) for shape, dtype in kinds)
    machine.require(needed, f"the samples of {len(sizes):,} clients")
    if tiers is not None and lead[0] >= 2**31:
        raise ValueError(f"the clients have {lead[0]:,} samples, and at most 2,147,483,647 can be held in memory")
    X, y = (aligned(shape, dtype) for shape, dtype in kinds)
    return X, y, tiers


def parts(X: np.ndarray, y: np.ndarray, sizes: np.ndarray, tiers: Tiers | None) -> Iterator[tuple[Any, Any]]:
    """Each client's place in such room, padding included."""
    if tiers is None:
        yield from zip(X, y, strict=True)
        return
    for start, size in zip(starts_of(sizes), sizes, strict=True):
        yield X[start : start + size], y[start : start + size]


def fill(part: np.ndarray, samples: np.ndarray) -> None:
    """Put a client's samples into its place. Padding counts nothing, but its loss is computed, and a real sample's is
    one that the loss accepts."""
    part[: len(samples)] = samples
    part[len(samples) :] = part[0]


def of_clients(Xs: Sequence[np.ndarray], ys: Sequence[np.ndarray], X_dtype: Any, y_dtype: Any) -> Rows:
    """The rows of clients whose arrays were checked before."""
    sizes = np.array([len(X) for X in Xs])
    X, y, tiers = empty_rows(sizes, Xs[0].shape[1:], X_dtype, ys[0].shape[1:], y_dtype)
    for (X_part, y_part), X_own, y_own in zip(parts(X, y, sizes, tiers), Xs, ys, strict=True):
        fill(X_part, X_own)
        fill(y_part, y_own)
    return as_rows(X, y, tiers)


def as_rows(X: np.ndarray, y: np.ndarray, tiers: Tiers | None) -> Rows:
    """Filled room as JAX's arrays, without a copy. Nothing may write into it any more."""
    there = jax.device_put((X, y), may_alias=True)
    return Rows(there[0], there[1], tiers)


def nbytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Bytes of an array."""
    count = dtype.itemsize
    for length in shape:
        count *= int(length)
    return count


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array, not filled, that begins where JAX can use it without a copy."""
    size = nbytes(shape, dtype)
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)
