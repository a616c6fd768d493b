"""The nonnegative orthant."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree, Scalar

from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.leaves import checked, each, indicator, joint, tolerance


class NonNegative(AbstractRegularizer):
    """psi(w) = 0 if w >= 0 in every coordinate, else inf.

    `value` forgives a round-off of 64 units in the last place of the largest entry (or of 1, if that is
    more).

    >>> import jax.numpy as jnp
    >>> NonNegative().prox(jnp.array([3.0, -4.0]), 1.0).tolist()
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
    def prox(self, v: PyTree, step: Any) -> PyTree:
        """max(v, 0)"""
        return each(lambda x: jnp.maximum(x, 0.0), v)
