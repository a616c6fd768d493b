"""Newton's method with a step that is halved until the objective falls."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Parameters = Float[Array, "..."]


class Limits(NamedTuple):
    """When Newton's method stops."""

    steps: int  # at most
    halvings: int  # of one step, at most
    tolerance: float  # the length of the last step, relative to the parameters
    slack: float  # round-off of the objective that must not shorten a step, relative to it


def damped_newton(
    value: Callable[[Parameters], Float[Array, ""]],
    direction: Callable[[Parameters], tuple[Parameters, Float[Array, ""]]],
    start: Parameters,
    limits: Limits,
) -> tuple[Parameters, Bool[Array, ""]]:
    """theta <- theta + t direction(theta), with t halved until the value falls; and whether it has settled.

    `direction` gives a direction and the slope of the value along it.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from cofed.solvers.newton import Limits, damped_newton
    >>> limits = Limits(steps=20, halvings=30, tolerance=1e-6, slack=1e-7)
    >>> bowl = lambda x: jnp.sum((x - 2) ** 2)
    >>> theta, settled = damped_newton(bowl, lambda x: (2 - x, -2 * jnp.sum((x - 2) ** 2)), jnp.zeros(2), limits)
    >>> theta.tolist(), bool(settled)
    ([2.0, 2.0], True)
    """

    def body(state: tuple[Parameters, Float[Array, ""], Int[Array, ""]]):
        theta, _, k = state
        now, (move, slope) = value(theta), direction(theta)

        def too_long(t):
            new = value(theta + t * move)
            return ~(new <= now + 1e-4 * t * slope + limits.slack * jnp.abs(now)) & (t > 2.0**-limits.halvings)

        t = jax.lax.while_loop(too_long, lambda t: t / 2, jnp.ones((), theta.dtype))
        return theta + t * move, jnp.linalg.norm(t * move), k + 1

    def settled(theta, moved):
        return moved <= limits.tolerance * (1 + jnp.linalg.norm(theta))

    first = (start, jnp.asarray(jnp.inf, start.dtype), jnp.zeros((), jnp.int32))
    more = lambda state: ~settled(*state[:2]) & (state[2] < limits.steps)  # noqa: E731
    theta, moved, _ = jax.lax.while_loop(more, body, first)
    return theta, settled(theta, moved)
