"""The l1 norm, plain or weighted: the lasso."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Scalar

from cofed._util.scalars import number, require_nonnegative
from cofed._util.types import Hyperparameter
from cofed.regularizers import l1_prox_in_ball
from cofed.regularizers.base import PiecewiseQuadratic
from cofed.regularizers.leaves import cast, checked, concrete, coordinates, each, require_weights, spread, total
from cofed.regularizers.norm import AbstractNorm
from cofed.regularizers.thresholds import soft


class L1(AbstractNorm):
    """psi(w) = strength * sum_j weights_j |w_j|: the lasso.

    Parameters
    ----------
    strength : float
        lambda, >= 0.
    weights : array or pytree, optional
        Numbers >= 0 of the model's shape, or a pytree like the model; None is 1 everywhere. A weight of 0 leaves its
        coordinate unpenalised.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.L1(1.0).prox(jnp.array([3.0, -0.5]), 2.0).tolist()
    [1.0, 0.0]
    >>> float(cofed.L1(0.5, weights=[1.0, 0.0]).value(jnp.array([3.0, -4.0])))
    1.5
    """

    strength: Hyperparameter = eqx.field(converter=number)
    weights: PyTree = eqx.field(converter=coordinates, default=None)

    separable = True
    weighted_l1 = True
    structure = "density"

    def __check_init__(self):
        require_nonnegative("L1", strength=self.strength)
        require_weights("L1", self.weights)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """strength * sum_j weights_j |w_j|"""
        amount = total(lambda x, c: jnp.sum(c * jnp.abs(x)), w, self._weights(w))
        return cast(self.strength, amount) * amount

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """Soft thresholding at step * strength * weights."""
        if self.weights is None:
            return each(lambda x: soft(x, cast(step, x) * cast(self.strength, x)), v)
        return each(lambda x, c: soft(x, cast(step, x) * cast(self.strength, x) * c), v, self._weights(v))

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """strength * weights * sign(w), with sign(0) = 0"""
        return each(lambda x, c: cast(self.strength, x) * c * jnp.sign(x), w, self._weights(w))

    @checked
    def dual_norm(self, z: PyTree) -> Scalar:
        """max_j |z_j| / weights_j; infinite where a weight is 0 and z_j is not"""

        def leaf(x: Array, c: Array) -> Array:
            ratio = jnp.abs(x) / jnp.where(c > 0, c, 1.0)
            return jnp.max(jnp.where((c > 0) | (x == 0), ratio, jnp.inf), initial=0.0)

        return jnp.max(jnp.stack(jax.tree.leaves(each(leaf, z, self._weights(z)))))

    @property
    def coercive(self) -> bool:
        """Whether the strength and all weights are > 0."""
        return super().coercive and all((leaf > 0).all() for leaf in concrete(self.weights))

    def piecewise_quadratic(self) -> PiecewiseQuadratic | None:
        """strength * weights * |w|, for a model that is one array"""
        weights = 1.0 if self.weights is None else self.weights
        if not isinstance(weights, (float, np.ndarray, jax.Array)):
            return None
        return PiecewiseQuadratic(l1=np.asarray(self.strength) * np.asarray(weights))

    @checked
    def prox_in_ball(self, v: PyTree, step: Hyperparameter, anchor: PyTree, radius: Hyperparameter) -> PyTree:
        """argmin ||w - v||^2/2 + step psi(w) subject to R(w - anchor) <= radius, psi = strength R; exactly"""
        return l1_prox_in_ball.prox_in_ball(v, step, self.strength, self._weights(v), anchor, radius)

    def _weights(self, tree: PyTree) -> PyTree:
        return spread("L1", "weights", 1.0 if self.weights is None else self.weights, tree)
