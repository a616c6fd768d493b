"""No regularizer."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree, Scalar

from cofed import trees
from cofed.regularizers.leaves import checked


class Zero(eqx.Module):
    """psi(w) = 0.

    >>> import jax.numpy as jnp
    >>> Zero().prox(jnp.array([3.0, -1.0]), 0.5).tolist()
    [3.0, -1.0]
    """

    convex = True
    separable = True
    is_indicator = False
    weak_convexity = 0.0
    weighted_l1 = True
    is_zero = True
    is_norm = False
    structure = None

    @checked
    def value(self, w: PyTree) -> Scalar:
        """0"""
        return jnp.zeros((), trees.dtype(w))

    @checked
    def prox(self, v: PyTree, step: Any) -> PyTree:
        """v"""
        return jax.tree.map(jnp.asarray, v)

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """0"""
        return trees.zeros_like(w)
