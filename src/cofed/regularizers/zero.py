"""No regularizer."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree, Scalar

from cofed._util import trees
from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.leaves import checked


class Zero(AbstractRegularizer):
    """psi(w) = 0.

    >>> import jax.numpy as jnp
    >>> Zero().prox(jnp.array([3.0, -1.0]), 0.5).tolist()
    [3.0, -1.0]
    """

    convex = True
    separable = True
    weighted_l1 = True
    is_zero = True

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
