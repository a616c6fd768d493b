"""The prox of the l1 norm within an l1 ball around a point, which is not the prox and then the projection."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util.types import Hyperparameter
from cofed.regularizers.leaves import cast, joint
from cofed.regularizers.thresholds import soft


def prox_in_ball(
    v: PyTree, step: Hyperparameter, strength: Hyperparameter, weights: PyTree, anchor: PyTree, radius: Hyperparameter
) -> PyTree:
    """argmin ||w - v||^2/2 + step strength sum c|w| subject to sum c|w - anchor| <= radius.

    With a multiplier nu for the ball the problem falls into coordinates, and the distance to the anchor never
    grows with nu: the least feasible nu is found by halving down to neighbouring floats.
    """
    x, back = joint(v)
    a, _ = joint(anchor)
    c, _ = joint(jax.tree.map(lambda weight, leaf: jnp.broadcast_to(weight, jnp.shape(leaf)), weights, v))
    kappa = cast(step, x) * cast(strength, x)
    bound = cast(radius, x)

    def distance(nu: Array, x: Array, a: Array, c: Array, kappa: Array) -> Array:
        return jnp.sum(c * jnp.abs(coordinatewise(x, kappa * c, a, nu * c) - a))

    fixed = jax.lax.stop_gradient((x, a, c, kappa))
    limit = jax.lax.stop_gradient(bound)
    free = soft(x, kappa * c)
    active = jax.lax.stop_gradient(jnp.sum(c * jnp.abs(free - a))) > limit
    nu = jax.lax.stop_gradient(_halve(lambda nu: distance(nu, *fixed) <= limit, *fixed, active))
    # nu depends on the data through distance(nu) = radius: this term is 0 and carries that derivative.
    slope = jax.lax.stop_gradient(_slope(*fixed, nu))
    gap = distance(nu, x, a, c, kappa) - jnp.where(active, bound, 0.0)
    moving = active & (slope > 0)
    nu = nu + jnp.where(moving, (gap - jax.lax.stop_gradient(gap)) / jnp.where(moving, slope, 1.0), 0.0)
    # Without need for the ball, the prox itself: not even its rounding may differ.
    return back(jnp.where(active, coordinatewise(x, kappa * c, a, nu * c), free))


def coordinatewise(
    v: Float[Array, " n"], kappa: Float[Array, " n"], a: Float[Array, " n"], nu: Float[Array, " n"]
) -> Float[Array, " n"]:
    """argmin_w (w - v)^2/2 + kappa |w| + nu |w - a|, for each coordinate."""
    side = jnp.where(a < 0, -1.0, 1.0).astype(v.dtype)  # Mirror, so that 0 <= a.
    v, a = side * v, side * a
    below, between, beyond = v + kappa + nu, v - kappa + nu, v - kappa - nu
    w = jnp.where(beyond > a, beyond, jnp.where(below < 0, below, jnp.clip(between, 0.0, a)))
    return side * w


def _slope(x: Array, a: Array, c: Array, kappa: Array, nu: Array) -> Array:
    """-d distance / d nu: the coordinates at neither kink move towards the anchor with speed c."""
    w = coordinatewise(x, kappa * c, a, nu * c)
    return jnp.sum(jnp.where((w != 0) & (w != a), c**2, 0.0))


def _halve(feasible: Callable[[Array], Array], x: Array, a: Array, c: Array, kappa: Array, active: Array) -> Array:
    """The least feasible nu, from above; 0 when the ball is inactive."""
    ratios = jnp.where(c > 0, jnp.abs(x - a) / jnp.where(c > 0, c, 1.0), 0.0)
    # Here every weighted coordinate sits at the anchor; the factor is for rounding.
    top = (jnp.max(ratios, initial=0.0) + kappa) * (1 + 16 * float(jnp.finfo(x.dtype).eps))

    def middle(low: Array, high: Array) -> Array:
        return low + (high - low) / 2

    def unfinished(state: tuple) -> Array:
        low, high, count = state
        return active & (low < middle(low, high)) & (middle(low, high) < high) & (count < 200)

    def halve(state: tuple) -> tuple:
        low, high, count = state
        nu = middle(low, high)
        fits = feasible(nu)
        return jnp.where(fits, low, nu), jnp.where(fits, nu, high), count + 1

    start = (jnp.zeros_like(top), top, jnp.zeros((), jnp.int32))
    return jnp.where(active, jax.lax.while_loop(unfinished, halve, start)[1], 0.0)
