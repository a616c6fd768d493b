"""What all norms have in common: the duality of a norm is that of its dual ball."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree, Scalar

from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.leaves import checked


class AbstractNorm(AbstractRegularizer):
    """psi = strength * R with a norm R, whose `dual_norm` is given: that is all of psi's duality.

    Parameters
    ----------
    strength : float
        lambda, >= 0.

    Examples
    --------
    >>> import cofed
    >>> from cofed.regularizers import AbstractNorm
    >>> isinstance(cofed.L1(0.1), AbstractNorm), isinstance(cofed.L1Ball(1.0), AbstractNorm)
    (True, False)
    """

    strength: eqx.AbstractVar[Hyperparameter]

    convex = True
    is_norm = True

    @property
    def norm_strength(self) -> Hyperparameter:
        """lambda"""
        return self.strength

    @abstractmethod
    def dual_norm(self, z: PyTree) -> Scalar:
        """max <z, w> subject to R(w) <= 1"""

    @checked
    def conjugate(self, u: PyTree, slack: Hyperparameter = 0.0) -> Scalar:
        """0 where the dual norm of u is at most the strength (to rounding), else inf"""
        size = self.dual_norm(u)
        zero, infinite = jnp.zeros((), size.dtype), jnp.full((), jnp.inf, size.dtype)
        rounding = 1 + 4 * float(jnp.finfo(size.dtype).eps)
        return jnp.where(size <= jnp.asarray(self.strength, size.dtype) * rounding, zero, infinite)

    @checked
    def dual_scaling(self, u: PyTree) -> Scalar:
        """strength / dual norm, at most 1"""
        size = self.dual_norm(u)
        limit = jnp.asarray(self.strength, size.dtype)
        return jnp.minimum(jnp.where(size > limit, limit / jnp.where(size > 0, size, 1), 1), 1)

    @checked
    def excess(self, w: PyTree, gradient: PyTree) -> PyTree:
        """What is outside the dual ball: by Moreau, minus the prox of minus the gradient."""
        return jax.tree.map(jnp.negative, self.prox(jax.tree.map(jnp.negative, gradient), 1.0))

    @property
    def coercive(self) -> bool:
        """Whether the strength is > 0."""
        return bool(np.all(np.asarray(self.strength) > 0))

    @checked
    def zeroing_factor(self, gradient: PyTree) -> Scalar:
        """dual norm / strength"""
        size = self.dual_norm(gradient)
        return size / jnp.asarray(self.strength, size.dtype)

    def scaled(self, factor: Hyperparameter) -> "AbstractNorm":
        """With factor times the strength."""
        return eqx.tree_at(lambda norm: norm.strength, self, self.strength * factor)
