"""The Euclidean ball."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree, Scalar

from cofed._util.scalars import number, require_nonnegative
from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.leaves import cast, checked, indicator, joint, tolerance
from cofed.regularizers.thresholds import safe_norm


class L2Ball(AbstractRegularizer):
    """psi(w) = 0 if ||w||_2 <= radius, else inf; over all leaves together (per leaf through `On`).

    Parameters
    ----------
    radius : float
        A number >= 0. `value` forgives a relative round-off of 64 units in the last place.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.L2Ball(2.5).prox(jnp.array([3.0, -4.0]), 1.0).tolist()
    [1.5, -2.0]
    """

    radius: Hyperparameter = eqx.field(converter=number)

    convex = True
    is_indicator = True

    def __check_init__(self):
        require_nonnegative("L2Ball", radius=self.radius)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """0 in the ball, inf outside"""
        x, _ = joint(w)
        return indicator(safe_norm(x) <= cast(self.radius, x) * (1 + tolerance(x.dtype)), x.dtype)

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """The projection; points inside stay as they are."""
        x, back = joint(v)
        norm, radius = safe_norm(x), cast(self.radius, x)
        outside = norm > radius
        return back(x * jnp.where(outside, radius / jnp.where(outside, norm, 1.0), 1.0))

    @checked
    def conjugate(self, u: PyTree, slack: Hyperparameter = 0.0) -> Scalar:
        """radius * ||u||_2"""
        x, _ = joint(u)
        return cast(self.radius, x) * jnp.sqrt(jnp.sum(x**2))

    @property
    def coercive(self) -> bool:
        """True: the set is bounded."""
        return True
