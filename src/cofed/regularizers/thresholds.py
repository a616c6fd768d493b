"""The elementary maps that several regularizers are made of."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float


def soft(v: Float[Array, "*n"], threshold: Float[Array, "*#n"]) -> Float[Array, "*n"]:
    """sign(v) max(|v| - threshold, 0), in a form that one fused loop computes, passing inf and NaN."""
    return v - jnp.clip(v, -threshold, threshold)


def elastic_conjugate(
    u: Float[Array, "*n"], l1: Float[Array, "*#n"], ridge: Float[Array, "*#n"], slack: ArrayLike
) -> Float[Array, ""]:
    """psi*(u) of psi(w) = sum_j l1_j |w_j| + ridge_j w_j^2 / 2; `slack` forgives rounding where both are 0."""
    infinite, rounding = jnp.full((), jnp.inf, u.dtype), 1 + 4 * float(jnp.finfo(u.dtype).eps)
    free = (l1 == 0) & (ridge == 0)
    over = jnp.maximum(jnp.abs(u) - l1 * rounding - jnp.where(free, slack, 0), 0)
    smooth = over**2 / (2 * jnp.where(ridge > 0, ridge, 1))
    return jnp.sum(jnp.where(ridge > 0, smooth, jnp.where(over > 0, infinite, 0)))


def elastic_excess(
    w: Float[Array, "*n"], g: Float[Array, "*n"], l1: Float[Array, "*#n"], ridge: Float[Array, "*#n"]
) -> Float[Array, "*n"]:
    """The part of a gradient g at w that violates optimality under l1_j |w_j| + ridge_j w_j^2 / 2."""
    there = g + ridge * w + l1 * jnp.sign(w)
    return jnp.where(w != 0, there, soft(g, jnp.broadcast_to(l1, g.shape)))


def safe_norm(x: Float[Array, "*n"]) -> Float[Array, ""]:
    """||x||_2 over all entries, without overflow, and with derivative 0 (not NaN) at 0."""
    # The value does not depend on the scale, so its derivative is rightly left out.
    top = jax.lax.stop_gradient(jnp.max(jnp.abs(x), initial=0.0))
    top = jnp.where(top > 0, top, jnp.ones_like(top))
    squares = jnp.sum((x / top) ** 2)
    positive = squares > 0
    return jnp.where(positive, top * jnp.sqrt(jnp.where(positive, squares, 1.0)), jnp.zeros_like(squares))


def raised(
    active: Bool[Array, " n"], excess: Float[Array, " n"], weights: Float[Array, " n"], radius: Float[Array, ""]
) -> Float[Array, ""]:
    """The delta for which the sum of weights * (excess + weights * delta) over these entries is the radius."""
    slope = jnp.sum(jnp.where(active, weights**2, 0.0))
    return (radius - jnp.sum(jnp.where(active, weights * excess, 0.0))) / jnp.where(slope > 0, slope, 1.0)


def fill(excess: Float[Array, " n"], weights: Float[Array, " n"], radius: Float[Array, ""]) -> Float[Array, " n"]:
    """m = max(excess + weights * delta, 0) with the delta for which sum(weights * m) = radius, by Newton's method.

    `excess` is <= 0 with a 0 in it: measured from the top, so that nothing large cancels when the point is
    far away.
    """
    positive = weights > 0
    divisor = jnp.where(positive, weights, 1.0)
    fixed = jax.lax.stop_gradient((excess, weights, radius))
    breakpoints = jax.lax.stop_gradient(jnp.where(positive, -excess / divisor, jnp.inf))
    top = breakpoints <= jnp.min(breakpoints)

    # The sum is convex and piecewise linear in delta, so Newton's steps come from above and the support only shrinks:
    # it is found exactly, in a few passes where sorting would take many.
    def narrower(state):
        active, _ = state
        kept = active & ((breakpoints < raised(active, *fixed)) | top)
        return kept, jnp.any(kept != active)

    active, _ = jax.lax.while_loop(lambda state: state[1], narrower, (positive, jnp.any(positive)))
    # The sums over the support carry the derivative.
    filled = jnp.maximum(excess + weights * raised(active, excess, weights, radius), 0.0)
    total = jax.lax.stop_gradient(jnp.sum(weights * filled))
    # Rounding alone is left; without this the sum of many small roundings would leave the set.
    return filled * jnp.where(total > 0, jax.lax.stop_gradient(radius) / jnp.where(total > 0, total, 1.0), 1.0)


def shrink(sizes: Float[Array, " n"], weights: Float[Array, " n"], radius: Float[Array, ""]) -> Float[Array, " n"]:
    """Projects sizes >= 0 onto {m >= 0: sum(weights * m) <= radius}; points inside stay as they are."""
    inside = jnp.sum(weights * sizes) <= radius
    positive = weights > 0
    # Inside, the other branch still runs: give it numbers for which it (and its derivative) is finite.
    safe_radius = jnp.where(inside, 1.0, radius)
    divisor = jnp.where(positive, weights, 1.0)
    top = jnp.max(jnp.where(positive, sizes / divisor, 0.0), initial=0.0)
    outside = fill(jnp.where(positive, sizes - weights * top, 0.0), weights, safe_radius)
    return jnp.where(inside | ~positive, sizes, outside)
