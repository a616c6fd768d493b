"""The simplex: mixtures and portfolios."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree, Scalar

from cofed._util.scalars import number, require_positive
from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.leaves import cast, checked, indicator, joint, tolerance
from cofed.regularizers.thresholds import fill


class Simplex(AbstractRegularizer):
    """psi(w) = 0 if w >= 0 and sum(w) = radius, else inf; over all leaves together (per leaf through `On`).

    Parameters
    ----------
    radius : float, default=1.0
        A number > 0. `value` forgives a round-off of 64 units in its last place.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.Simplex().prox(jnp.array([1.0, 0.5, -3.0]), 1.0).tolist()
    [0.75, 0.25, 0.0]
    """

    radius: Hyperparameter = eqx.field(converter=number, default=1.0)

    convex = True
    is_indicator = True
    structure = "density"

    def __check_init__(self):
        require_positive("Simplex", radius=self.radius)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """0 on the simplex, inf outside"""
        x, _ = joint(w)
        radius = cast(self.radius, x)
        room = radius * tolerance(x.dtype)
        return indicator(jnp.all(x >= -room) & (jnp.abs(jnp.sum(x) - radius) <= room), x.dtype)

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """The projection: Newton's method on the threshold, as Michelot (1986)."""
        x, back = joint(v)
        # The projection does not change when a constant is added; measured from the top, no digits cancel.
        return back(fill(x - jnp.max(x), jnp.ones_like(x), cast(self.radius, x)))

    @checked
    def conjugate(self, u: PyTree, slack: Hyperparameter = 0.0) -> Scalar:
        """radius * max_j u_j"""
        x, _ = joint(u)
        return cast(self.radius, x) * jnp.max(x)

    @property
    def coercive(self) -> bool:
        """True: the set is bounded."""
        return True
