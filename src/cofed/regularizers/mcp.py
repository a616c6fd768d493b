"""The minimax concave penalty."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Scalar

from cofed._util.scalars import number, require_nonnegative, require_positive
from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.leaves import cast, checked, each, total


class MCP(AbstractRegularizer):
    """psi(w) = sum_j p(|w_j|), p(u) = strength u - u^2/(2 gamma) for u <= gamma strength, constant beyond.

    Large entries are not shrunk (Zhang 2010).

    Parameters
    ----------
    strength : float
        lambda, >= 0.
    gamma : float, default=3.0
        A number > 0: the smaller, the less convex.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.MCP(1.0, gamma=2.0).prox(jnp.array([0.5, 1.5, -4.0]), 1.0).tolist()
    [0.0, 1.0, -4.0]
    """

    strength: Hyperparameter = eqx.field(converter=number)
    gamma: Hyperparameter = eqx.field(converter=number, default=3.0)

    separable = True
    structure = "density"

    def __check_init__(self):
        require_nonnegative("MCP", strength=self.strength)
        require_positive("MCP", gamma=self.gamma)

    @property
    def weak_convexity(self) -> Hyperparameter:
        """1 / gamma"""
        return 1 / self.gamma

    @checked
    def value(self, w: PyTree) -> Scalar:
        """sum_j p(|w_j|)"""

        def leaf(x: Array) -> Array:
            strength, gamma = cast(self.strength, x), cast(self.gamma, x)
            u = jnp.minimum(jnp.abs(x), gamma * strength)
            return jnp.sum(strength * u - u**2 / (2 * gamma))

        return total(leaf, w)

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """Firm thresholding for step < gamma; beyond, the global minimiser is a hard threshold."""

        def leaf(x: Array) -> Array:
            strength, gamma, t = cast(self.strength, x), cast(self.gamma, x), cast(step, x)
            u, firm = jnp.abs(x), t < gamma
            slope = 1 - jnp.where(firm, t, 0.0) / gamma
            # Shrinking never lengthens; rounding could, when the slope is tiny.
            shrunk = jnp.minimum(jnp.maximum(u - t * strength, 0.0) / slope, u)
            firmly = jnp.where(u > gamma * strength, u, shrunk)
            # For step >= gamma the cost is concave up to gamma strength: its minimum is at 0 or at v itself.
            root = jnp.sqrt(jnp.where(firm, 1.0, t * gamma))
            return jnp.sign(x) * jnp.where(firm, firmly, jnp.where(u > strength * root, u, 0.0))

        return each(leaf, v)

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """sign(w) max(strength - |w|/gamma, 0), with sign(0) = 0"""

        def leaf(x: Array) -> Array:
            left = cast(self.strength, x) - jnp.abs(x) / cast(self.gamma, x)
            return jnp.sign(x) * jnp.maximum(left, 0.0)

        return each(leaf, w)
