"""The l1 ball."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree, Scalar

from cofed._util.scalars import number, require_nonnegative
from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.leaves import cast, checked, indicator, joint, tolerance
from cofed.regularizers.thresholds import shrink


class L1Ball(AbstractRegularizer):
    """psi(w) = 0 if |w|_1 <= radius, else inf; over all leaves together (per leaf through `On`).

    Parameters
    ----------
    radius : float
        A number >= 0. `value` forgives a relative round-off of 64 units in the last place.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.L1Ball(2.0).prox(jnp.array([3.0, -2.0, 0.5]), 1.0).tolist()
    [1.5, -0.5, 0.0]
    """

    radius: Hyperparameter = eqx.field(converter=number)

    convex = True
    is_indicator = True
    structure = "density"

    def __check_init__(self):
        require_nonnegative("L1Ball", radius=self.radius)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """0 in the ball, inf outside"""
        x, _ = joint(w)
        return indicator(jnp.sum(jnp.abs(x)) <= cast(self.radius, x) * (1 + tolerance(x.dtype)), x.dtype)

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """The projection, by Newton's method on the threshold; points inside stay as they are."""
        x, back = joint(v)
        return back(jnp.sign(x) * shrink(jnp.abs(x), jnp.ones_like(x), cast(self.radius, x)))

    @checked
    def conjugate(self, u: PyTree, slack: Hyperparameter = 0.0) -> Scalar:
        """radius * max_j |u_j|"""
        x, _ = joint(u)
        return cast(self.radius, x) * jnp.max(jnp.abs(x))

    @property
    def coercive(self) -> bool:
        """True: the set is bounded."""
        return True
