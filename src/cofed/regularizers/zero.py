"""No regularizer."""

import jax
import jax.numpy as jnp
from jaxtyping import PyTree, Scalar

from cofed._util import trees
from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer, PiecewiseQuadratic
from cofed.regularizers.leaves import checked, each, indicator, total


class Zero(AbstractRegularizer):
    """psi(w) = 0: no regularizer.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.Zero().prox(jnp.array([3.0, -1.0]), 0.5).tolist()
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
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """v"""
        return jax.tree.map(jnp.asarray, v)

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """0"""
        return trees.zeros_like(w)

    @checked
    def conjugate(self, u: PyTree, slack: Hyperparameter = 0.0) -> Scalar:
        """0 at u = 0, else inf"""
        return total(lambda x: indicator(jnp.all(jnp.abs(x) <= slack), x.dtype), u)

    @checked
    def excess(self, w: PyTree, gradient: PyTree) -> PyTree:
        """All of the gradient."""
        return each(jnp.asarray, gradient)

    def piecewise_quadratic(self) -> PiecewiseQuadratic:
        """Neither kinks nor bounds."""
        return PiecewiseQuadratic()
