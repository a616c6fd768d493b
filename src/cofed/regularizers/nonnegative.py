"""The nonnegative orthant."""

import jax.numpy as jnp
from jaxtyping import Array, PyTree, Scalar

from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer, PiecewiseQuadratic
from cofed.regularizers.leaves import checked, each, indicator, joint, tolerance, total


class NonNegative(AbstractRegularizer):
    """psi(w) = 0 if w >= 0 in every coordinate, else inf.

    `value` forgives a round-off of 64 units in the last place of the largest entry (or of 1, if that is more).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.NonNegative().prox(jnp.array([3.0, -4.0]), 1.0).tolist()
    [3.0, 0.0]
    """

    convex = True
    separable = True
    is_indicator = True

    @checked
    def value(self, w: PyTree) -> Scalar:
        """0 in the orthant, inf outside"""
        x, _ = joint(w)
        room = tolerance(x.dtype) * jnp.max(jnp.abs(x), initial=1.0)
        return indicator(jnp.all(x >= -room), x.dtype)

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """max(v, 0)"""
        return each(lambda x: jnp.maximum(x, 0.0), v)

    @checked
    def conjugate(self, u: PyTree, slack: Hyperparameter = 0.0) -> Scalar:
        """0 where u <= 0, else inf"""

        def leaf(x: Array) -> Array:
            return jnp.where(jnp.max(x - slack) > 0, jnp.full((), jnp.inf, x.dtype), jnp.zeros((), x.dtype))

        return total(leaf, u)

    @checked
    def excess(self, w: PyTree, gradient: PyTree) -> PyTree:
        """min(gradient, 0)"""
        return each(lambda g: jnp.minimum(g, 0), gradient)

    def piecewise_quadratic(self) -> PiecewiseQuadratic:
        """Bounded below by 0."""
        return PiecewiseQuadratic(low=0.0)
