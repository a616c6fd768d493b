"""Elastic nets whose norm is of whole rows of coefficients: a feature is of use to all responses, or to none."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from cofed._util.types import Hyperparameter
from cofed.estimators.feature_options import FeatureOptions
from cofed.estimators.penalty import elastic_net
from cofed.estimators.units import Units
from cofed.regularizers import AbstractRegularizer
from cofed.regularizers.base import RowQuadratic
from cofed.regularizers.thresholds import elastic_conjugate

Coefficients = Float[Array, "p ..."]


class RowElasticNet(AbstractRegularizer):
    """psi(w) = sum_j l1_j ||w_j|| + ridge_j ||w_j||^2 / 2, for an array w whose rows are the features.

    >>> import jax.numpy as jnp
    >>> from cofed.estimators.row_penalty import RowElasticNet
    >>> net = RowElasticNet(jnp.array([2.5, 2.5]), jnp.array([1.0, 0.0]))
    >>> net.prox(jnp.array([[3.0, 4.0], [2.0, 1.0]]), 1.0).tolist()
    [[0.75, 1.0], [0.0, 0.0]]
    """

    l1: Float[Array, " p"]
    ridge: Float[Array, " p"]

    convex = True
    structure = "density"

    def value(self, w: Coefficients) -> Scalar:
        """sum_j l1_j ||w_j|| + ridge_j ||w_j||^2 / 2"""
        size = lengths(w)
        return jnp.sum(self.l1 * size + self.ridge / 2 * size**2)

    def prox(self, v: Coefficients, step: Hyperparameter) -> Coefficients:
        """Every row shortened by step l1_j, then shrunk by 1 + step ridge_j."""
        return times_rows(shortened(lengths(v), step * self.l1) / (1 + step * self.ridge), v)

    def subgradient(self, w: Coefficients) -> Coefficients:
        """l1_j w_j / ||w_j|| + ridge_j w_j, and 0 for a row of zeros"""
        size = lengths(w)
        return times_rows(jnp.where(size > 0, self.l1 / jnp.where(size > 0, size, 1), 0) + self.ridge, w)

    def conjugate(self, u: Coefficients, slack: Hyperparameter = 0.0) -> Scalar:
        """sum_j max(||u_j|| - l1_j, 0)^2 / (2 ridge_j); without a ridge, 0 or inf"""
        room = lengths(jnp.broadcast_to(jnp.asarray(slack, u.dtype), u.shape))
        return elastic_conjugate(lengths(u), self.l1, self.ridge, room)

    def dual_scaling(self, u: Coefficients) -> Scalar:
        """min_j l1_j / ||u_j||, at most 1"""
        size = lengths(u)
        return jnp.min(jnp.where(size > self.l1, self.l1 / jnp.where(size > 0, size, 1), 1), initial=1)

    def excess(self, w: Coefficients, gradient: Coefficients) -> Coefficients:
        """What violates optimality: of rows in use, all of it; of others, what is longer than l1_j."""
        used = (lengths(w) > 0).astype(w.dtype)
        outside = shortened(lengths(gradient), self.l1)
        return times_rows(used, gradient + self.subgradient(w)) + times_rows((1 - used) * outside, gradient)

    @property
    def coercive(self) -> bool:
        """Whether every row is penalised."""
        return not bool(np.any((np.asarray(self.l1) == 0) & (np.asarray(self.ridge) == 0)))

    def zeroing_factor(self, gradient: Coefficients) -> Scalar:
        """max_j ||gradient_j|| / l1_j; infinite where a row without a norm is pulled"""
        size, kinked = lengths(gradient), self.l1 > 0
        return jnp.max(jnp.where(kinked, size / jnp.where(kinked, self.l1, 1), jnp.where(size > 0, jnp.inf, 0)))

    def scaled(self, factor: Hyperparameter) -> "RowElasticNet":
        """With factor times the weights."""
        return RowElasticNet(self.l1 * factor, self.ridge * factor)

    def row_quadratic(self) -> RowQuadratic:
        """Its weights."""
        return RowQuadratic(np.asarray(self.l1), np.asarray(self.ridge))


def lengths(w: Coefficients) -> Float[Array, " p"]:
    """The length of every row, with the derivative 0 (not NaN) at 0."""
    squares = jnp.sum(w.reshape(w.shape[0], -1) ** 2, axis=1)
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)


def shortened(size: Float[Array, " p"], by: Float[Array, " p"]) -> Float[Array, " p"]:
    """What part of its length a row keeps that is shortened by so much."""
    return jnp.where(size > by, 1 - by / jnp.where(size > 0, size, 1), 0)


def times_rows(factor: Float[Array, " p"], w: Coefficients) -> Coefficients:
    """Each row times its factor."""
    return factor.reshape((-1,) + (1,) * (w.ndim - 1)) * w


def row_elastic_net(alpha: float, ratio: float, units: Units, options: FeatureOptions | None) -> RowElasticNet:
    """alpha (ratio sum_j ||w_j|| + (1 - ratio) ||w||^2 / 2) of the user's coefficients, for those that are solved for;
    a row has the weights that a single coefficient of its feature would have."""
    single = elastic_net(alpha, ratio, units, options=options)
    return RowElasticNet(single.l1, single.ridge)
