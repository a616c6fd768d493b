"""The elastic net of scikit-learn and glmnet."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Scalar

from cofed._util.scalars import number, require_between, require_nonnegative
from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer, PiecewiseQuadratic
from cofed.regularizers.leaves import cast, checked, each, joint, total
from cofed.regularizers.thresholds import elastic_conjugate, elastic_excess, soft


class ElasticNet(AbstractRegularizer):
    """psi(w) = strength * (l1_ratio * |w|_1 + (1 - l1_ratio)/2 * ||w||^2), as in scikit-learn.

    Parameters
    ----------
    strength : float
        lambda (scikit-learn's alpha), >= 0.
    l1_ratio : float
        In [0, 1]: 1 is the lasso, 0 is ridge.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.ElasticNet(2.0, 0.5).prox(jnp.array([3.0, -0.5]), 1.0).tolist()
    [1.0, 0.0]
    """

    strength: Hyperparameter = eqx.field(converter=number)
    l1_ratio: Hyperparameter = eqx.field(converter=number)

    convex = True
    separable = True
    structure = "density"

    def __check_init__(self):
        require_nonnegative("ElasticNet", strength=self.strength)
        require_ratio("ElasticNet", self.l1_ratio)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """strength * (l1_ratio * |w|_1 + (1 - l1_ratio)/2 * ||w||^2)"""

        def leaf(x: Array) -> Array:
            ratio = cast(self.l1_ratio, x)
            return jnp.sum(ratio * jnp.abs(x) + (1 - ratio) / 2 * x**2)

        amount = total(leaf, w)
        return cast(self.strength, amount) * amount

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """Soft thresholding, then shrinking by 1 + step * strength * (1 - l1_ratio)."""

        def leaf(x: Array) -> Array:
            amount, ratio = cast(step, x) * cast(self.strength, x), cast(self.l1_ratio, x)
            return soft(x, amount * ratio) / (1 + amount * (1 - ratio))

        return each(leaf, v)

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """strength * (l1_ratio * sign(w) + (1 - l1_ratio) * w), with sign(0) = 0"""

        def leaf(x: Array) -> Array:
            ratio = cast(self.l1_ratio, x)
            return cast(self.strength, x) * (ratio * jnp.sign(x) + (1 - ratio) * x)

        return each(leaf, w)

    @checked
    def conjugate(self, u: PyTree, slack: Hyperparameter = 0.0) -> Scalar:
        """sum_j max(|u_j| - strength l1_ratio, 0)^2 / (2 strength (1 - l1_ratio)); without a ridge, 0 or inf"""
        return total(lambda x: elastic_conjugate(x, *self._parts(x), slack), u)

    @checked
    def dual_scaling(self, u: PyTree) -> Scalar:
        """strength l1_ratio / max_j |u_j|, at most 1"""
        x, _ = joint(u)
        limit, size = self._parts(x)[0], jnp.max(jnp.abs(x))
        return jnp.where(size > limit, limit / jnp.where(size > 0, size, 1), 1)

    @checked
    def excess(self, w: PyTree, gradient: PyTree) -> PyTree:
        """What violates optimality, coordinate by coordinate."""
        return each(lambda x, g: elastic_excess(x, g, *self._parts(x)), w, gradient)

    @property
    def coercive(self) -> bool:
        """Whether the strength is > 0."""
        return bool(np.all(np.asarray(self.strength) > 0))

    @property
    def sparsifying(self) -> bool:
        """Whether the strength and l1_ratio are > 0."""
        return self.coercive and bool(np.all(np.asarray(self.l1_ratio) > 0))

    @checked
    def zeroing_factor(self, gradient: PyTree) -> Scalar:
        """max_j |gradient_j| / (strength l1_ratio)"""
        x, _ = joint(gradient)
        return jnp.max(jnp.abs(x)) / self._parts(x)[0]

    def scaled(self, factor: Hyperparameter) -> "ElasticNet":
        """With factor times the strength."""
        return ElasticNet(self.strength * factor, self.l1_ratio)

    def piecewise_quadratic(self) -> PiecewiseQuadratic:
        """Both parts, the same for all coordinates."""
        strength, ratio = np.asarray(self.strength), np.asarray(self.l1_ratio)
        return PiecewiseQuadratic(strength * ratio, strength * (1 - ratio))

    def _parts(self, x: Array) -> tuple[Array, Array]:
        """The weights of |w| and of w^2 / 2."""
        strength, ratio = cast(self.strength, x), cast(self.l1_ratio, x)
        return strength * ratio, strength * (1 - ratio)


def require_ratio(owner: str, ratio: Hyperparameter) -> None:
    """Refuse a mixing ratio outside [0, 1]."""
    require_between(owner, 0.0, 1.0, l1_ratio=ratio)
