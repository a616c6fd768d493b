"""The group lasso."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Scalar

from cofed._util import trees
from cofed._util.scalars import number, require_nonnegative
from cofed._util.types import Hyperparameter
from cofed.regularizers.dykstra import prox_of_sum
from cofed.regularizers.groups import expand, group_norm, group_soft, group_weights, labels, require_leaf
from cofed.regularizers.leaves import cast, checked, concrete, coordinates, each, joint, require_weights, total
from cofed.regularizers.norm import AbstractNorm
from cofed.regularizers.thresholds import shrink


class GroupL1(AbstractNorm):
    """psi(w) = strength * sum_g weights_g ||w_g||_2: the group lasso.

    Parameters
    ----------
    strength : float
        lambda, >= 0.
    groups : sequence of int, optional
        The label 0..G-1 of each coordinate of a vector (of each row of a matrix); None takes every row of a matrix
        (every first index of an array) as a group. With several leaves they serve each leaf.
    weights : array, optional
        Numbers >= 0, one per group; None is the square root of the group's number of entries.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.GroupL1(1.0, groups=[0, 0, 1], weights=[1, 1]).prox(jnp.array([3.0, 4.0, 0.5]), 2.5).tolist()
    [1.5, 2.0, 0.0]
    """

    strength: Hyperparameter = eqx.field(converter=number)
    groups: tuple[int, ...] | None = eqx.field(static=True, converter=labels, default=None)
    weights: PyTree = eqx.field(converter=coordinates, default=None)

    structure = "density"

    def __check_init__(self):
        require_nonnegative("GroupL1", strength=self.strength)
        require_weights("GroupL1", self.weights)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """strength * sum_g weights_g ||w_g||_2"""
        amount = self._norm(w)
        return cast(self.strength, amount) * amount

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """Each group shortened by step * strength * weights_g."""

        def leaf(x: Array) -> Array:
            return group_soft(x, cast(step, x) * cast(self.strength, x) * self._weights(x), self.groups)

        return each(leaf, v)

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """strength * weights_g * w_g / ||w_g||, and 0 for a zero group"""

        def leaf(x: Array) -> Array:
            c, n = self._weights(x), group_norm(x, self.groups)
            return x * expand(cast(self.strength, x) * c / jnp.where(n > 0, n, 1.0), self.groups, x)

        return each(leaf, w)

    @checked
    def dual_norm(self, z: PyTree) -> Scalar:
        """max_g ||z_g|| / weights_g; infinite where a weight is 0 and z_g is not"""

        def leaf(x: Array) -> Array:
            c, n = self._weights(x), group_norm(x, self.groups)
            return jnp.max(jnp.where((c > 0) | (n == 0), n / jnp.where(c > 0, c, 1.0), jnp.inf))

        return jnp.max(jnp.stack([leaf(x) for x in jax.tree.leaves(z)]))

    @property
    def coercive(self) -> bool:
        """Whether the strength and all weights are > 0."""
        return super().coercive and all((leaf > 0).all() for leaf in concrete(self.weights))

    @checked
    def prox_in_ball(self, v: PyTree, step: Hyperparameter, anchor: PyTree, radius: Hyperparameter) -> PyTree:
        """argmin ||w - v||^2/2 + step psi(w) s.t. R(w - anchor) <= radius, psi = strength R; by Dykstra"""
        weights, _ = joint(each(self._weights, v))
        bound = cast(radius, weights)

        def project(u: PyTree) -> PyTree:
            offset = trees.sub(u, anchor)
            sizes, back = joint(each(lambda x: group_norm(x, self.groups), offset))
            factors = shrink(sizes, weights, bound) / jnp.where(sizes > 0, sizes, 1.0)
            nearest = each(lambda x, f: x * expand(f, self.groups, x), offset, back(factors))
            return trees.where(jnp.sum(weights * sizes) <= bound, u, trees.add(anchor, nearest))

        return prox_of_sum(lambda x: self.prox(x, step), project, v, trees.norm(v) + trees.norm(anchor))

    def _norm(self, w: PyTree) -> Scalar:
        return total(lambda x: jnp.sum(self._weights(x) * group_norm(x, self.groups)), w)

    def _weights(self, x: Array) -> Array:
        require_leaf("GroupL1", self.groups, x)
        return group_weights("GroupL1", self.weights, self.groups, x)
