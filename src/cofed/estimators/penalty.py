"""The elastic net in the units of the solver: every coefficient has weights of its own."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from cofed._util.rounding import EPS
from cofed._util.types import Hyperparameter
from cofed.estimators.feature_options import FeatureOptions
from cofed.estimators.units import Units
from cofed.regularizers import AbstractRegularizer
from cofed.regularizers.base import PiecewiseQuadratic
from cofed.regularizers.leaves import tolerance
from cofed.regularizers.thresholds import elastic_conjugate, elastic_excess, soft

Coefficients = Float[Array, "..."]
LARGEST = 1e100  # of a weight


class WeightedElasticNet(AbstractRegularizer):
    """psi(w) = sum_j l1_j |w_j| + ridge_j w_j^2 / 2, for one array w that the weights broadcast to.

    It is the elastic net of features in units of their own: dividing a feature by d multiplies its coefficient by d,
    and so its weight by 1/d.

    >>> import jax.numpy as jnp
    >>> from cofed.estimators.penalty import WeightedElasticNet
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

    def reach(self, u: Coefficients) -> Coefficients:
        """1 where a pull u can move a coefficient, and 0 where a limit at 0 holds it."""
        return jnp.ones_like(u)

    def zeroing_factor(self, gradient: Coefficients) -> Scalar:
        """max_j |gradient_j| / l1_j; infinite where a coefficient without an l1 norm is pulled"""
        size = self.reach(-gradient) * jnp.abs(gradient)
        kinked = jnp.broadcast_to(self.l1 > 0, size.shape)
        return jnp.max(jnp.where(kinked, size / jnp.where(kinked, self.l1, 1), jnp.where(size > 0, jnp.inf, 0)))

    def scaled(self, factor: Hyperparameter) -> "WeightedElasticNet":
        """With factor times the weights."""
        return WeightedElasticNet(self.l1 * factor, self.ridge * factor)

    def piecewise_quadratic(self) -> PiecewiseQuadratic:
        """The weights themselves."""
        return PiecewiseQuadratic(np.asarray(self.l1), np.asarray(self.ridge))


class BoundedElasticNet(WeightedElasticNet):
    """The same with limits: infinite unless low_j <= w_j <= high_j, where low_j <= 0 <= high_j.

    >>> import jax.numpy as jnp
    >>> from cofed.estimators.penalty import BoundedElasticNet
    >>> net = BoundedElasticNet(jnp.ones(2), jnp.zeros(2), jnp.zeros(2), jnp.array([1.5, jnp.inf]))
    >>> net.prox(jnp.array([3.0, -4.0]), 1.0).tolist(), round(float(net.conjugate(jnp.array([3.0, -4.0]))), 6)
    ([1.5, 0.0], 3.0)
    """

    low: Float[Array, "..."]
    high: Float[Array, "..."]

    def of_shape(self, shape: tuple[int, ...]) -> "BoundedElasticNet":
        """The same weights for coefficients laid out as a matrix."""
        return BoundedElasticNet(*(one.reshape(shape) for one in (self.l1, self.ridge, self.low, self.high)))

    def value(self, w: Coefficients) -> Scalar:
        """The elastic net's, or infinite outside the limits, of which a round-off is forgiven"""
        room = tolerance(w.dtype) * jnp.maximum(jnp.abs(w), 1e-100)
        inside = jnp.all((w >= self.low - room) & (w <= self.high + room))
        return jnp.where(inside, super().value(w), jnp.inf)

    def prox(self, v: Coefficients, step: Hyperparameter) -> Coefficients:
        """The elastic net's, brought within the limits."""
        return jnp.clip(super().prox(v, step), self.low, self.high)

    def conjugate(self, u: Coefficients, slack: Hyperparameter = 0.0) -> Scalar:
        """sum_j max over 0 <= t <= |limit_j| of (|u_j| - l1_j) t - ridge_j t^2 / 2, on the side that u_j pulls to"""
        l1, ridge = (jnp.broadcast_to(one, u.shape) for one in (self.l1, self.ridge))
        most = jnp.where(u > 0, self.high, -self.low)
        free = (l1 == 0) & (ridge == 0) & jnp.isinf(most)
        over = jnp.maximum(jnp.abs(u) - l1 * (1 + 4 * EPS) - jnp.where(free, slack, 0), 0)
        t = jnp.minimum(jnp.where(ridge > 0, over / jnp.where(ridge > 0, ridge, 1), jnp.inf), most)
        ends = jnp.isfinite(t)
        within = over * jnp.where(ends, t, 0) - ridge / 2 * jnp.where(ends, t, 0) ** 2
        return jnp.sum(jnp.where(over > 0, jnp.where(ends, within, jnp.inf), 0))

    def dual_scaling(self, u: Coefficients) -> Scalar:
        """min_j l1_j / |u_j|, at most 1, over the coefficients that u pulls to no limit"""
        return super().dual_scaling(jnp.where(jnp.isinf(jnp.where(u > 0, self.high, -self.low)), u, 0))

    def reach(self, u: Coefficients) -> Coefficients:
        """1 where a pull u can move a coefficient, and 0 where a limit at 0 holds it."""
        return (jnp.where(u > 0, self.high, -self.low) > 0).astype(u.dtype)

    def excess(self, w: Coefficients, gradient: Coefficients) -> Coefficients:
        """What violates optimality, coordinate by coordinate: a limit may hold what is pulled against it."""
        off = super().excess(w, gradient)
        off = jnp.where(w >= self.high, jnp.maximum(off, 0), off)
        return jnp.where(w <= self.low, jnp.minimum(off, 0), off)

    @property
    def coercive(self) -> bool:
        """Whether every coordinate is penalised, or has two limits."""
        held = np.isfinite(np.asarray(self.low)) & np.isfinite(np.asarray(self.high))
        return bool(np.all(held | (np.asarray(self.l1) > 0) | (np.asarray(self.ridge) > 0)))

    @property
    def sparsifying(self) -> bool:
        """False: working sets are of penalties without limits."""
        return False

    def scaled(self, factor: Hyperparameter) -> "BoundedElasticNet":
        """With factor times the weights, and the same limits."""
        return BoundedElasticNet(self.l1 * factor, self.ridge * factor, self.low, self.high)

    def piecewise_quadratic(self) -> PiecewiseQuadratic:
        """The weights and limits themselves."""
        return PiecewiseQuadratic(*(np.asarray(one) for one in (self.l1, self.ridge, self.low, self.high)))


def elastic_net(
    alpha: float, ratio: float, units: Units, ndim: int = 1, options: FeatureOptions | None = None
) -> WeightedElasticNet:
    """alpha (ratio |w|_1 + (1 - ratio) ||w||^2 / 2) of the user's coefficients, for those that are solved for.

    `options` has factors of the penalty by feature, an infinite one of features that are left out, and limits.
    """
    weight, strength = units.weights(ndim), alpha / units.objective
    l1, ridge = strength * ratio * weight, strength * (1 - ratio) * weight**2
    if options is not None:
        factor = options.factor.reshape(weight.shape)
        out = np.isinf(factor)
        l1, ridge = (one * np.where(out, 1.0, factor) for one in (l1, ridge))
        l1 = np.where(out, LARGEST, l1)
    # In these units no gradient is near that: a stronger penalty has the same answer, and might overflow.
    l1, ridge = (jnp.asarray(np.minimum(one, LARGEST)) for one in (l1, ridge))
    if options is None or not options.is_bounded:
        return WeightedElasticNet(l1, ridge)
    limits = (jnp.asarray((one / units.coef).reshape(weight.shape)) for one in (options.low, options.high))
    return BoundedElasticNet(l1, ridge, *limits)
