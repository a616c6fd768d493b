"""The smoothly clipped absolute deviation penalty."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Scalar

from cofed._util.scalars import number, require_above, require_nonnegative
from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.leaves import cast, checked, each, total
from cofed.regularizers.thresholds import soft


class SCAD(AbstractRegularizer):
    """The smoothly clipped absolute deviation, psi(w) = sum_j p(|w_j|).

    p'(u) = strength to u = strength, (a strength - u)/(a - 1) to a strength, then 0 (Fan and Li 2001).

    Parameters
    ----------
    strength : float
        lambda, >= 0.
    a : float, default=3.7
        A number > 2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.SCAD(1.0, a=3.0).prox(jnp.array([0.5, 1.5, 2.5, -4.0]), 1.0).tolist()
    [0.0, 0.5, 2.0, -4.0]
    """

    strength: Hyperparameter = eqx.field(converter=number)
    a: Hyperparameter = eqx.field(converter=number, default=3.7)

    separable = True
    structure = "density"

    def __check_init__(self):
        require_nonnegative("SCAD", strength=self.strength)
        require_above("SCAD", 2.0, a=self.a)

    @property
    def weak_convexity(self) -> Hyperparameter:
        """1 / (a - 1)"""
        return 1 / (self.a - 1)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """sum_j p(|w_j|)"""

        def leaf(x: Array) -> Array:
            strength, a = cast(self.strength, x), cast(self.a, x)
            u = jnp.minimum(jnp.abs(x), a * strength)
            bent = (2 * a * strength * u - u**2 - strength**2) / (2 * (a - 1))
            return jnp.sum(jnp.where(u <= strength, strength * u, bent))

        return total(leaf, w)

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """The global minimiser: three pieces for step < a - 1; beyond, a jump from soft thresholding to v."""

        def leaf(x: Array) -> Array:
            strength, a, t = cast(self.strength, x), cast(self.a, x), cast(step, x)
            u, firm = jnp.abs(x), t < a - 1
            slope = 1 - jnp.where(firm, t, 0.0) / (a - 1)
            bent = jnp.sign(x) * jnp.minimum((u - a * t * strength / (a - 1)) / slope, u)
            # Where the middle piece is concave, compare the costs of soft(v) and of v: equal at this |v| /
            # strength.
            root = jnp.sqrt(t * (a + 1) + jnp.where(firm, 1.0, 0.0))
            jump = jnp.where(t < a + 1, (a + 1 + t) / 2, root)
            shrunk = u <= strength * jnp.where(firm, 1 + t, jump)
            kept = jnp.where(firm & (u <= a * strength), bent, x)
            return jnp.where(shrunk, soft(x, t * strength), kept)

        return each(leaf, v)

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """sign(w) p'(|w|), with sign(0) = 0"""

        def leaf(x: Array) -> Array:
            strength, a, u = cast(self.strength, x), cast(self.a, x), jnp.abs(x)
            bent = jnp.maximum(a * strength - u, 0.0) / (a - 1)
            return jnp.sign(x) * jnp.where(u <= strength, strength, bent)

        return each(leaf, w)
