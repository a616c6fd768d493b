"""The sparse-group lasso: few groups, and few entries within them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Scalar

from cofed._util.scalars import number, require_nonnegative
from cofed._util.types import Hyperparameter
from cofed.regularizers.elastic_net import require_ratio
from cofed.regularizers.groups import (
    expand,
    group_max,
    group_norm,
    group_soft,
    group_sum,
    group_weights,
    labels,
    require_leaf,
)
from cofed.regularizers.leaves import cast, checked, concrete, coordinates, each, require_weights, total
from cofed.regularizers.norm import AbstractNorm
from cofed.regularizers.thresholds import soft


class SparseGroupL1(AbstractNorm):
    """psi(w) = strength * (l1_ratio * |w|_1 + (1 - l1_ratio) * sum_g weights_g ||w_g||_2).

    Parameters
    ----------
    strength : float
        lambda, >= 0.
    l1_ratio : float
        alpha of Simon et al. 2013, in [0, 1].
    groups : sequence of int, optional
        As in `GroupL1`.
    weights : array, optional
        As in `GroupL1`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> penalty = cofed.SparseGroupL1(2.0, 0.5, groups=[0, 0, 1], weights=[2.5, 1.0])
    >>> penalty.prox(jnp.array([4.0, 5.0, 1.5]), 1.0).tolist()
    [1.5, 2.0, 0.0]
    """

    strength: Hyperparameter = eqx.field(converter=number)
    l1_ratio: Hyperparameter = eqx.field(converter=number)
    groups: tuple[int, ...] | None = eqx.field(static=True, converter=labels, default=None)
    weights: PyTree = eqx.field(converter=coordinates, default=None)

    is_norm = False  # It is one, but has no prox_in_ball.
    structure = "density"

    def __check_init__(self):
        require_nonnegative("SparseGroupL1", strength=self.strength)
        require_ratio("SparseGroupL1", self.l1_ratio)
        require_weights("SparseGroupL1", self.weights)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """strength * (l1_ratio * |w|_1 + (1 - l1_ratio) * sum_g weights_g ||w_g||_2)"""

        def leaf(x: Array) -> Array:
            ratio, groups = cast(self.l1_ratio, x), jnp.sum(self._weights(x) * group_norm(x, self.groups))
            return ratio * jnp.sum(jnp.abs(x)) + (1 - ratio) * groups

        amount = total(leaf, w)
        return cast(self.strength, amount) * amount

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """Soft thresholding of the entries, then of the groups: exact in this order."""

        def leaf(x: Array) -> Array:
            amount, ratio = cast(step, x) * cast(self.strength, x), cast(self.l1_ratio, x)
            return group_soft(soft(x, amount * ratio), amount * (1 - ratio) * self._weights(x), self.groups)

        return each(leaf, v)

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """The sum of both parts' subgradients, 0 at kinks"""

        def leaf(x: Array) -> Array:
            require_leaf("SparseGroupL1", self.groups, x)
            ratio, n = cast(self.l1_ratio, x), group_norm(x, self.groups)
            direction = x * expand(self._weights(x) / jnp.where(n > 0, n, 1.0), self.groups, x)
            return cast(self.strength, x) * (ratio * jnp.sign(x) + (1 - ratio) * direction)

        return each(leaf, w)

    @property
    def coercive(self) -> bool:
        """Whether the strength is > 0, and so is the part of the l1 norm or all weights."""
        weighted = all((leaf > 0).all() for leaf in concrete(self.weights))
        return super().coercive and bool(np.all(np.asarray(self.l1_ratio) > 0) or weighted)

    @checked
    def dual_norm(self, z: PyTree) -> Scalar:
        """max_g of the tau with ||soft(z_g, tau l1_ratio)|| = tau (1 - l1_ratio) weights_g (epsilon-norm)"""
        return jnp.max(jnp.stack([jnp.max(self._levels(x)) for x in jax.tree.leaves(z)]))

    def _levels(self, x: Array) -> Array:
        """tau per group: halving down to round-off, then one Newton step, which carries the derivative."""
        ratio, rest = cast(self.l1_ratio, x), (1 - cast(self.l1_ratio, x)) * self._weights(x)

        def gap(tau: Array, x: Array, ratio: Array, rest: Array) -> Array:
            shrunk = jnp.maximum(jnp.abs(x) - expand(tau * ratio, self.groups, x), 0.0)
            return group_norm(shrunk, self.groups) - tau * rest

        fixed = jax.lax.stop_gradient((x, ratio, rest))
        size, largest = group_norm(fixed[0], self.groups), group_max(jnp.abs(fixed[0]), self.groups)
        # gap <= 0 at either end point whose part of the norm is there at all; with neither, tau is infinite.
        by_group = jnp.where(fixed[2] > 0, size / jnp.where(fixed[2] > 0, fixed[2], 1.0), jnp.inf)
        by_entry = jnp.where(fixed[1] > 0, largest / jnp.where(fixed[1] > 0, fixed[1], 1.0), jnp.inf)
        high = jnp.where(size > 0, jnp.minimum(by_group, by_entry), 0.0)
        bounded = jnp.isfinite(high)

        def halve(_: Array, ends: tuple) -> tuple:
            low, high = ends
            tau = low + (high - low) / 2
            above = gap(tau, *fixed) > 0
            return jnp.where(above, tau, low), jnp.where(above, high, tau)

        start = (jnp.zeros_like(high), jnp.where(bounded, high, 0.0))
        low, _ = jax.lax.fori_loop(0, jnp.finfo(x.dtype).nmant + 8, halve, start)
        low = jax.lax.stop_gradient(low)
        shrunk = jnp.maximum(jnp.abs(fixed[0]) - expand(low * fixed[1], self.groups, x), 0.0)
        length = group_norm(shrunk, self.groups)
        slope = fixed[1] * group_sum(shrunk, self.groups) / jnp.where(length > 0, length, 1.0) + fixed[2]
        step = gap(low, x, ratio, rest) / jnp.where(slope > 0, slope, 1.0)
        return jnp.where(bounded, low + jnp.where(slope > 0, step, 0.0), jnp.inf)

    def _weights(self, x: Array) -> Array:
        require_leaf("SparseGroupL1", self.groups, x)
        return group_weights("SparseGroupL1", self.weights, self.groups, x)
