"""The exact prox of total variation in one dimension, in linear time."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def denoise(y: Float[Array, " n"], t: Float[Array, ""]) -> Float[Array, " n"]:
    """argmin_w ||w - y||^2/2 + t sum_i |w_{i+1} - w_i|.

    Given where w is constant and where it jumps up or down, w is the mean of y + t (sign of the jump on the right
    - sign of the jump on the left) over each constant piece. Computing w so is more exact than the dynamic
    program's running sums, and it has the right derivative in y and t: tangents are averaged over the pieces.
    """
    n = y.size
    if n < 2:
        return y
    jumps = _jumps(y, t)
    edge = jnp.zeros((1,), y.dtype)
    pulled = y + t * (jnp.concatenate([jumps, edge]) - jnp.concatenate([edge, jumps]))
    piece = jnp.concatenate([jnp.zeros((1,), jnp.int32), jnp.cumsum(jumps != 0, dtype=jnp.int32)])
    sums = jax.ops.segment_sum(pulled, piece, n, indices_are_sorted=True)
    counts = jax.ops.segment_sum(jnp.ones_like(y), piece, n, indices_are_sorted=True)
    return (sums / jnp.maximum(counts, 1.0))[piece]


@jax.custom_jvp
def _jumps(y: Float[Array, " n"], t: Float[Array, ""]) -> Float[Array, " m"]:
    """The signs of w_{i+1} - w_i."""
    return jnp.sign(jnp.diff(_dynamic_program(y, t)))


@_jumps.defjvp
def _jumps_jvp(primals: tuple, tangents: tuple) -> tuple:
    """Signs are constant around almost every y."""
    jumps = _jumps(*primals)
    return jumps, jnp.zeros_like(jumps)


# Many signals one after another: side by side, every loop would last as long as the slowest signal's.
@jax.custom_batching.sequential_vmap
def _dynamic_program(y: Float[Array, " n"], t: Float[Array, ""]) -> Float[Array, " n"]:
    """Johnson (2013): the derivative of the best cost so far, in the last value, is piecewise linear.

    Its knots sit in an array from place `left` to place `right`, each with the change of slope and of intercept
    there. Every step cuts it at -t and +t (the knots beyond fall away, so the work is linear in all) and adds one
    line. The cuts are the bounds between which the next value, on the way back, is copied.
    """
    n = y.size
    one = jnp.ones((), y.dtype)
    ends = jnp.stack([jnp.stack([y[0] - t, one, t - y[0]]), jnp.stack([y[0] + t, -one, t + y[0]])])
    knots = jnp.zeros((2 * n, 3), y.dtype).at[n - 1 : n + 1].set(ends)

    def from_left(knots, left, right, value, level):
        """Walk to the first knot above the level; the line there."""

        def below(state):
            place, slope, intercept = state
            return (place <= right) & (slope * _read(knots, place)[0] + intercept <= level)

        def walk(state):
            place, slope, intercept = state
            _, bend, rise = _read(knots, place)
            return place + 1, slope + bend, intercept + rise

        return jax.lax.while_loop(below, walk, (left, one, -t - value))

    def from_right(knots, left, right, value):
        """Walk back to the first knot below +t; the line there, with its sign turned."""

        def above(state):
            place, slope, intercept = state
            return (place >= left) & (-slope * _read(knots, place)[0] - intercept >= t)

        def walk(state):
            place, slope, intercept = state
            _, bend, rise = _read(knots, place)
            return place - 1, slope + bend, intercept + rise

        return jax.lax.while_loop(above, walk, (right, -one, -t + value))

    def step(state, value):
        knots, left, right = state
        left, slope, intercept = from_left(knots, left, right, value, -t)
        low = (-t - intercept) / slope
        # Written before the second walk, not after it: XLA would fuse both writes into a copy of all knots.
        knots = _write(knots, left - 1, low, slope, intercept + t)
        right, slope, intercept = from_right(knots, left, right, value)
        high = -(t + intercept) / slope
        knots = _write(knots, right + 1, high, slope, intercept + t)
        return (knots, left - 1, right + 1), (low, high)

    start = (knots, jnp.asarray(n - 1, jnp.int32), jnp.asarray(n, jnp.int32))
    (knots, left, right), (lows, highs) = jax.lax.scan(step, start, y[1:-1])
    lows, highs = jnp.concatenate([ends[:1, 0], lows]), jnp.concatenate([ends[1:, 0], highs])
    _, slope, intercept = from_left(knots, left, right, y[-1], jnp.zeros_like(t))
    last = -intercept / slope

    def back(value, bounds):
        value = jnp.clip(value, *bounds)
        return value, value

    _, earlier = jax.lax.scan(back, last, (lows, highs), reverse=True)
    return jnp.concatenate([earlier, last[None]])


def _read(knots: Float[Array, "m 3"], place: Int[Array, ""]) -> Float[Array, " 3"]:
    """The knot at a place."""
    return jax.lax.dynamic_slice(knots, (place, jnp.zeros((), jnp.int32)), (1, 3))[0]


def _write(knots: Float[Array, "m 3"], place: Int[Array, ""], *knot: Float[Array, ""]) -> Float[Array, "m 3"]:
    """The knots with another one at a place."""
    return jax.lax.dynamic_update_slice(knots, jnp.stack(knot)[None], (place, jnp.zeros((), jnp.int32)))
