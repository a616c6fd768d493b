"""The elastic net with weights, and what a certificate needs of a penalty: its conjugate and where that is finite."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from cofed.estimators.units import Units
from cofed.regularizers import AbstractRegularizer, Box, L1Ball, L2Ball, NonNegative, Simplex
from cofed.regularizers.thresholds import soft

EPS = float(np.finfo(np.float64).eps)


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

    def value(self, w: Any) -> Scalar:
        """sum_j l1_j |w_j| + ridge_j w_j^2 / 2"""
        return jnp.sum(self.l1 * jnp.abs(w) + self.ridge / 2 * w**2)

    def prox(self, v: Any, step: Any) -> Any:
        """Soft thresholding, then shrinking by 1 + step ridge_j."""
        return soft(v, step * self.l1) / (1 + step * self.ridge)

    def subgradient(self, w: Any) -> Any:
        """l1_j sign(w_j) + ridge_j w_j, with sign(0) = 0"""
        return self.l1 * jnp.sign(w) + self.ridge * w


def elastic_net(alpha: Any, ratio: Any, units: Units, ndim: int = 1) -> WeightedElasticNet:
    """alpha (ratio |w|_1 + (1 - ratio) ||w||^2 / 2) of the user's coefficients, for those that are solved for."""
    weight = units.weights(ndim)
    strength = float(alpha) / units.objective
    l1, ridge = strength * float(ratio) * weight, strength * (1 - float(ratio)) * weight**2
    # In these units no gradient is near 1e100: a stronger penalty has the same answer, and might overflow.
    return WeightedElasticNet(jnp.asarray(np.minimum(l1, 1e100)), jnp.asarray(np.minimum(ridge, 1e100)))


def sets_to_zero(psi: Any) -> bool:
    """Whether psi is a sum over coordinates that sets some of them to zero, so that a working set serves."""
    return isinstance(psi, WeightedElasticNet) and bool(np.min(np.asarray(psi.l1)) > 0)


def stronger(psi: Any, times: float) -> Any:
    """The same penalty with so many times the strength."""
    if isinstance(psi, WeightedElasticNet):
        return WeightedElasticNet(psi.l1 * times, psi.ridge * times)
    return eqx.tree_at(lambda norm: norm.strength, psi, psi.strength * times) if psi.is_norm else psi


def is_open(psi: Any) -> bool:
    """Whether psi leaves a direction unbounded at no cost: a minimum need not exist, and no dual value is at hand."""
    match psi:
        case WeightedElasticNet():
            return bool(np.any((np.asarray(psi.l1) == 0) & (np.asarray(psi.ridge) == 0)))
        case Box():
            return not bool(np.isfinite(psi.low).all() and np.isfinite(psi.high).all())
    return isinstance(psi, NonNegative)


def shrinkages(psi: Any, g: Array) -> list[Scalar]:
    """The s to try, such that psi* may be finite at s g: 1, 0, and the largest that fits into a norm's dual ball."""
    one, zero = jnp.ones((), g.dtype), jnp.zeros((), g.dtype)
    return [one, fitting(psi, g), zero]


def fitting(psi: Any, g: Array) -> Scalar:
    """The largest s in [0, 1] with s g inside the domain of psi*, or of its part without a ridge."""
    if isinstance(psi, WeightedElasticNet):
        limit, size = jnp.broadcast_to(psi.l1, g.shape), jnp.abs(g)
    elif psi.is_norm:
        limit, size = jnp.asarray(psi.strength, g.dtype), psi.dual_norm(g)
    else:
        return jnp.ones((), g.dtype)
    return jnp.min(jnp.where(size > limit, limit / jnp.where(size > 0, size, 1), 1), initial=1)


def excess(psi: Any, v: Array, g: Array) -> Array:
    """What to take off the gradient g at v so that what is left fits psi: optimal, or at least where psi* is finite."""
    match psi:
        case WeightedElasticNet():
            there = g + psi.ridge * v + psi.l1 * jnp.sign(v)
            return jnp.where(v != 0, there, soft(g, jnp.broadcast_to(psi.l1, g.shape)))
        case NonNegative():
            return jnp.minimum(g, 0)
        case Box():
            low, high = (jnp.broadcast_to(jnp.asarray(a, g.dtype), g.shape) for a in (psi.low, psi.high))
            return jnp.clip(g, jnp.where(jnp.isposinf(high), -jnp.inf, 0), jnp.where(jnp.isneginf(low), jnp.inf, 0))
    return -psi.prox(-g, 1.0) if psi.is_norm else jnp.zeros_like(g)


def conjugate(psi: Any, u: Array, slack: Any = 0.0) -> Scalar:
    """psi*(u); inf where it is not finite. `slack`: how far outside an open psi's domain u_j may be by rounding."""
    zero, infinite = jnp.zeros((), u.dtype), jnp.full((), jnp.inf, u.dtype)
    rounding = 1 + 4 * EPS
    match psi:
        case WeightedElasticNet():
            free = (psi.l1 == 0) & (psi.ridge == 0)
            over = jnp.maximum(jnp.abs(u) - psi.l1 * rounding - jnp.where(free, slack, 0), 0)
            smooth = over**2 / (2 * jnp.where(psi.ridge > 0, psi.ridge, 1))
            return jnp.sum(jnp.where(psi.ridge > 0, smooth, jnp.where(over > 0, infinite, 0)))
        case L1Ball():
            return jnp.asarray(psi.radius, u.dtype) * jnp.max(jnp.abs(u))
        case L2Ball():
            return jnp.asarray(psi.radius, u.dtype) * jnp.sqrt(jnp.sum(u**2))
        case Simplex():
            return jnp.asarray(psi.radius, u.dtype) * jnp.max(u)
        case NonNegative():
            return jnp.where(jnp.max(u - slack) > 0, infinite, zero)
        case Box():
            low, high = (jnp.broadcast_to(jnp.asarray(a, u.dtype), u.shape) for a in (psi.low, psi.high))
            at = jnp.where(u > 0, high, low)
            inside = (u == 0) | (jnp.isinf(at) & (jnp.abs(u) <= slack))
            return jnp.sum(jnp.where(inside, 0, jnp.where(inside, 1, at) * u))
    if psi.is_norm:
        return jnp.where(psi.dual_norm(u) <= jnp.asarray(psi.strength, u.dtype) * rounding, zero, infinite)
    return infinite
