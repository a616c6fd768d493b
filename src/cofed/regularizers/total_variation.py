"""Total variation in one dimension: the fused lasso."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, PyTree, Scalar

from cofed._util.scalars import number, require_nonnegative
from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.leaves import cast, checked, each, total
from cofed.regularizers.taut_string import denoise


class TotalVariation(AbstractRegularizer):
    """psi(w) = strength * sum_i |w_{i+1} - w_i|, over vector leaves, and over each column of matrix leaves.

    Parameters
    ----------
    strength : float
        lambda, >= 0.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.TotalVariation(1.0).prox(jnp.array([0.0, 2.0, 8.0]), 1.0).tolist()
    [1.0, 2.0, 7.0]
    """

    strength: Hyperparameter = eqx.field(converter=number)

    convex = True

    def __check_init__(self):
        require_nonnegative("TotalVariation", strength=self.strength)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """strength * sum_i |w_{i+1} - w_i|"""
        amount = total(lambda x: jnp.sum(jnp.abs(jnp.diff(_line(x), axis=0))), w)
        return cast(self.strength, amount) * amount

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """Exact, by dynamic programming (Johnson 2013)."""

        def leaf(x: Array) -> Array:
            columns = denoise if np.ndim(x) == 1 else jax.vmap(denoise, in_axes=(1, None), out_axes=1)
            return columns(_line(x), cast(step, x) * cast(self.strength, x))

        return each(leaf, v)

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """strength * D^T sign(D w), with D the differences and sign(0) = 0"""

        def leaf(x: Array) -> Array:
            jumps = jnp.sign(jnp.diff(_line(x), axis=0))
            edge = jnp.zeros((1, *x.shape[1:]), x.dtype)
            return cast(self.strength, x) * (jnp.concatenate([edge, jumps]) - jnp.concatenate([jumps, edge]))

        return each(leaf, w)


def _line(x: ArrayLike) -> Array:
    if np.ndim(x) not in (1, 2):
        raise ValueError(
            f"TotalVariation is for vectors and columns of matrices, the leaf has shape {np.shape(x)}; "
            "restrict it with On(TotalVariation(...), name)"
        )
    return jnp.asarray(x)
