"""The prox of a sum of two functions whose own proxes are known."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Scalar

from cofed._util import trees


def prox_of_sum(
    prox: Callable[[PyTree], PyTree],
    project: Callable[[PyTree], PyTree],
    v: PyTree,
    scale: Scalar,
    cap: int = 2000,
) -> PyTree:
    """argmin_w ||w - v||^2/2 + f(w) subject to w in C, from prox = prox_f and project = P_C.

    Dykstra's algorithm (Bauschke and Combettes 2008): y = prox(v - q), x = project(y + q), q <- y + q - x.
    That is a proximal gradient step with step 1 on the dual variable q, so Nesterov's momentum with restarts
    applies and costs nothing. It stops when ||x - y|| <= 1e-12 scale (2e-6 scale in float32), or after `cap`
    steps, and returns x, which is in C. If prox(v) is in C already, that very point comes back. Forward-mode
    derivatives only.
    """
    dtype = trees.dtype(v)
    tolerance = jnp.asarray(1e-12 if dtype == jnp.float64 else 2e-6, dtype) * scale

    def step(state: tuple) -> tuple:
        q, ahead, momentum, _, _, count = state
        y = prox(trees.sub(v, ahead))
        u = trees.add(y, ahead)
        x = project(u)
        q_new = trees.sub(u, x)
        move = trees.sub(q_new, q)
        # Restart when the momentum points uphill (O'Donoghue and Candes 2015).
        uphill = trees.dot(trees.sub(ahead, q_new), move) > 0
        grown = (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2
        grown, weight = jnp.where(uphill, 1.0, grown), jnp.where(uphill, 0.0, (momentum - 1) / grown)
        return q_new, trees.axpy(weight, move, q_new), grown, x, trees.norm(trees.sub(x, y)), count + 1

    def unfinished(state: tuple) -> Array:
        return (state[4] > tolerance) & (state[5] < cap)

    zero = trees.zeros_like(v)
    start = (zero, zero, jnp.ones((), dtype), v, jnp.full((), jnp.inf, dtype), jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(unfinished, step, start)[3]
