"""Groups of rows: their sizes, their norms, and a number per group back on every entry."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree

from cofed._util.checks import shown
from cofed._util.types import Given
from cofed.regularizers.leaves import cast


def labels(groups: Given[Sequence[int] | np.ndarray | None]) -> tuple[int, ...] | None:
    """A field converter: a label per row as a tuple, so that it is static and hashable."""
    if groups is None:
        return None
    given = array(groups)
    if given is None or given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
        raise ValueError(f"groups: expected one integer label per coordinate, got {shown(groups)}")
    present = np.unique(given)
    if present[0] != 0 or present[-1] != present.size - 1:
        raise ValueError(f"groups: the labels must be 0, 1, ..., G-1 without gaps, got {present.tolist()}")
    return tuple(given.tolist())


def array(groups: object) -> np.ndarray | None:
    """What NumPy makes of it; None where it cannot, or would drop a mask."""
    try:
        return None if np.ma.isMaskedArray(groups) else np.asarray(groups)
    except ValueError:
        return None


def require_leaf(owner: str, groups: tuple[int, ...] | None, leaf: ArrayLike) -> None:
    """Refuse a leaf that the groups do not fit."""
    shape = np.shape(leaf)
    if groups is None and len(shape) < 2:
        raise ValueError(
            f"{owner} without groups takes the rows of a matrix as groups; the leaf has shape {shape}, "
            "so give groups=[label per coordinate]"
        )
    if groups is not None and (not shape or shape[0] != len(groups)):
        raise ValueError(f"{owner}: groups has {len(groups)} labels, the leaf has shape {shape}")


def group_weights(
    owner: str, weights: PyTree, groups: tuple[int, ...] | None, x: Float[Array, "..."]
) -> Float[Array, " g"]:
    """The weight of each group of a leaf: as given, or the square root of the group's number of entries."""
    rows = np.ones(x.shape[0], int) if groups is None else np.bincount(groups)
    if weights is None:
        return cast(np.sqrt(rows * math.prod(x.shape[1:])), x)
    if np.shape(weights) not in ((), rows.shape):
        raise ValueError(f"{owner}: weights has shape {np.shape(weights)}, there are {rows.size} groups")
    return jnp.broadcast_to(cast(weights, x), rows.shape)


def expand(values: Float[Array, " g"], groups: tuple[int, ...] | None, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The group's number on every entry of the leaf."""
    rows = values if groups is None else values[np.asarray(groups)]
    return jnp.broadcast_to(rows.reshape((-1,) + (1,) * (x.ndim - 1)), x.shape)


def group_sum(x: Float[Array, "..."], groups: tuple[int, ...] | None) -> Float[Array, " g"]:
    """The sum over each group."""
    rows = jnp.sum(x.reshape(x.shape[0], -1), axis=1)
    return rows if groups is None else jax.ops.segment_sum(rows, np.asarray(groups), max(groups) + 1)


def group_max(x: Float[Array, "..."], groups: tuple[int, ...] | None) -> Float[Array, " g"]:
    """The largest entry of each group."""
    rows = jnp.max(x.reshape(x.shape[0], -1), axis=1)
    return rows if groups is None else jax.ops.segment_max(rows, np.asarray(groups), max(groups) + 1)


def group_norm(x: Float[Array, "..."], groups: tuple[int, ...] | None) -> Float[Array, " g"]:
    """||x_g||_2 of each group, without overflow, and with derivative 0 (not NaN) at 0."""
    # The norm does not depend on the scale, so its derivative is rightly left out.
    top = jax.lax.stop_gradient(group_max(jnp.abs(x), groups))
    top = jnp.where(top > 0, top, 1.0)
    squares = group_sum((x / expand(top, groups, x)) ** 2, groups)
    positive = squares > 0
    return jnp.where(positive, top * jnp.sqrt(jnp.where(positive, squares, 1.0)), 0.0)


def group_soft(
    x: Float[Array, "..."], thresholds: Float[Array, " g"], groups: tuple[int, ...] | None
) -> Float[Array, "..."]:
    """Each group shortened by its threshold: x_g max(1 - threshold_g / ||x_g||, 0)."""
    norms = group_norm(x, groups)
    longer = norms > thresholds
    return x * expand(jnp.where(longer, 1 - thresholds / jnp.where(longer, norms, 1.0), 0.0), groups, x)
