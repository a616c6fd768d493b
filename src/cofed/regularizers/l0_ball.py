"""At most k non-zero coordinates: hard thresholding by count."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree, Scalar

from cofed._util import checks
from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.leaves import checked, indicator, joint


class L0Ball(AbstractRegularizer):
    """psi(w) = 0 if at most k coordinates are not 0, else inf; over all leaves together (`On`: per leaf).

    Not convex. `value` counts exactly, without a tolerance.

    Parameters
    ----------
    k : int
        The sparsity s, >= 0.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.L0Ball(2).prox(jnp.array([1.0, -3.0, 1.0]), 1.0).tolist()
    [1.0, -3.0, 0.0]
    """

    k: int = eqx.field(static=True)

    is_indicator = True
    structure = "density"

    def __check_init__(self):
        checks.integer("L0Ball: k", self.k, least=0)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """0 if at most k coordinates are not 0, else inf"""
        x, _ = joint(w)
        return indicator(jnp.sum(x != 0) <= self.k, x.dtype)

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """The k largest entries in absolute value, the rest 0; among equals the lowest index stays."""
        x, back = joint(v)
        # top_k returns the lower index first among equals.
        _, kept = jax.lax.top_k(jnp.abs(x), min(self.k, x.size))
        return back(jnp.where(jnp.zeros(x.shape, bool).at[kept].set(True), x, 0.0))
