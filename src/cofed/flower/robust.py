"""Means of updates that a few bad ones cannot move far; the server must see each update for them, so none is masked."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

ROBUST = ("median", "trimmed")
TRIMMED = 5  # one in so many of the sites is left out at either end, and at least one where there are three


@eqx.filter_jit
def robust_mean(
    kind: str, updates: PyTree, weights: Float[Array, " asked"], heard: Bool[Array, " asked"]
) -> tuple[PyTree, Float[Array, ""]]:
    """The middle of the updates that were heard, number by number, and their share of all clients' weight.

    Parameters
    ----------
    kind : str
        "median"; or "trimmed", the mean without the lowest and the highest fifth of the sites.
    updates : pytree
        The updates, stacked: the first axis is of the sites that were asked.
    weights : array
        The sites' weights, for their share only: in the middle all count alike.
    heard : array of bool
        Whose updates there are.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from cofed.flower.robust import robust_mean
    >>> updates, everybody = jnp.array([1.0, 2.0, 3.0, 1e9]), jnp.ones(4, bool)
    >>> float(robust_mean("median", updates, jnp.full(4, 0.25), everybody)[0])
    2.5
    >>> float(robust_mean("trimmed", updates, jnp.full(4, 0.25), everybody)[0])
    2.5
    """
    count = jnp.sum(heard)
    few = jnp.where(count > 2, jnp.maximum(1, count // TRIMMED), 0)
    cut = (count - 1) // 2 if kind == "median" else few
    place = jnp.arange(len(heard))
    inside = (place >= cut) & (place < count - cut)

    def middle(leaf: Array) -> Array:
        shape = (-1, *(1,) * (leaf.ndim - 1))
        ordered = jnp.sort(jnp.where(heard.reshape(shape), leaf, jnp.inf), axis=0)  # those not heard come last
        kept = jnp.where(inside.reshape(shape), ordered, 0)
        return jnp.sum(kept, axis=0) / jnp.maximum(count - 2 * cut, 1).astype(leaf.dtype)

    return jax.tree.map(middle, updates), jnp.sum(jnp.where(heard, weights, 0))


def check_robust(kind: object, plain: bool, weights: object) -> str | None:
    """The kind of a robust mean, or None; refused where there is none, or it cannot be had.

    Parameters
    ----------
    kind : object
        What was given.
    plain : bool
        Whether the server sees each site's own updates.
    weights : object
        How much sites count.

    Examples
    --------
    >>> from cofed.flower.robust import check_robust
    >>> check_robust("median", True, "uniform")
    'median'
    """
    if kind is None:
        return None
    if not isinstance(kind, str) or kind not in ROBUST:
        raise ValueError(f"robust must be one of {', '.join(ROBUST)}, or None, got {kind!r}")
    if not plain:
        raise ValueError(
            f"robust={kind!r} needs each site's own update, and masks hide it: the two exclude each other; give "
            "plain=True (--plain) where the server may see the updates, or no robust mean"
        )
    if not isinstance(weights, str) or weights != "uniform":
        raise ValueError(f"robust={kind!r} counts all sites alike: weights must be 'uniform', got {weights!r}")
    return kind
