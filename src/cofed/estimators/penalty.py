"""The elastic net in the units of the solver: every coefficient has weights of its own."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from cofed._util.types import Hyperparameter
from cofed.estimators.units import Units
from cofed.regularizers import AbstractRegularizer
from cofed.regularizers.base import PiecewiseQuadratic
from cofed.regularizers.thresholds import elastic_conjugate, elastic_excess, soft

Coefficients = Float[Array, "..."]


class WeightedElasticNet(AbstractRegularizer):
    """psi(w) = sum_j l1_j |w_j| + ridge_j w_j^2 / 2, for one array w that the weights broadcast to.

    It is the elastic net of features in units of their own: dividing a feature by d multiplies its coefficient by d,
    and so its weight by 1/d.

    >>> net = WeightedElasticNet(jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0]))
    >>> net.prox(jnp.array([3.0, -4.0]), 1.0).tolist()
    [2.0, -1.0]
    """

    l1: Float[Array, "..."]
    ridge: Float[Array, "..."]

    convex = True
    separable = True
    structure = "density"

    def of_shape(self, shape: tuple[int, ...]) -> "WeightedElasticNet":
        """The same weights for coefficients laid out as a matrix."""
        return WeightedElasticNet(self.l1.reshape(shape), self.ridge.reshape(shape))

    def value(self, w: Coefficients) -> Scalar:
        """sum_j l1_j |w_j| + ridge_j w_j^2 / 2"""
        return jnp.sum(self.l1 * jnp.abs(w) + self.ridge / 2 * w**2)

    def prox(self, v: Coefficients, step: Hyperparameter) -> Coefficients:
        """Soft thresholding, then shrinking by 1 + step ridge_j."""
        return soft(v, step * self.l1) / (1 + step * self.ridge)

    def subgradient(self, w: Coefficients) -> Coefficients:
        """l1_j sign(w_j) + ridge_j w_j, with sign(0) = 0"""
        return self.l1 * jnp.sign(w) + self.ridge * w

    def conjugate(self, u: Coefficients, slack: Hyperparameter = 0.0) -> Scalar:
        """sum_j max(|u_j| - l1_j, 0)^2 / (2 ridge_j); without a ridge, 0 or inf"""
        return elastic_conjugate(u, self.l1, self.ridge, slack)

    def dual_scaling(self, u: Coefficients) -> Scalar:
        """min_j l1_j / |u_j|, at most 1"""
        limit, size = jnp.broadcast_to(self.l1, u.shape), jnp.abs(u)
        return jnp.min(jnp.where(size > limit, limit / jnp.where(size > 0, size, 1), 1), initial=1)

    def excess(self, w: Coefficients, gradient: Coefficients) -> Coefficients:
        """What violates optimality, coordinate by coordinate."""
        return elastic_excess(w, gradient, self.l1, self.ridge)

    @property
    def coercive(self) -> bool:
        """Whether every coordinate is penalised."""
        return not bool(np.any((np.asarray(self.l1) == 0) & (np.asarray(self.ridge) == 0)))

    @property
    def sparsifying(self) -> bool:
        """Whether every coordinate has an l1 norm."""
        return bool(np.min(np.asarray(self.l1)) > 0)

    def zeroing_factor(self, gradient: Coefficients) -> Scalar:
        """max_j |gradient_j| / l1_j"""
        return jnp.max(jnp.abs(gradient) / self.l1)

    def scaled(self, factor: Hyperparameter) -> "WeightedElasticNet":
        """With factor times the weights."""
        return WeightedElasticNet(self.l1 * factor, self.ridge * factor)

    def piecewise_quadratic(self) -> PiecewiseQuadratic:
        """The weights themselves."""
        return PiecewiseQuadratic(np.asarray(self.l1), np.asarray(self.ridge))


def elastic_net(alpha: float, ratio: float, units: Units, ndim: int = 1) -> WeightedElasticNet:
    """alpha (ratio |w|_1 + (1 - ratio) ||w||^2 / 2) of the user's coefficients, for those that are solved for."""
    weight = units.weights(ndim)
    strength = alpha / units.objective
    l1, ridge = strength * ratio * weight, strength * (1 - ratio) * weight**2
    # In these units no gradient is near 1e100: a stronger penalty has the same answer, and might overflow.
    return WeightedElasticNet(jnp.asarray(np.minimum(l1, 1e100)), jnp.asarray(np.minimum(ridge, 1e100)))
