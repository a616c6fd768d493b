"""The nuclear norm: low-rank matrices."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, PyTree, Scalar

from cofed._util import trees
from cofed._util.scalars import number, require_nonnegative
from cofed._util.types import Hyperparameter
from cofed.regularizers.dykstra import prox_of_sum
from cofed.regularizers.leaves import cast, checked, each, joint, total
from cofed.regularizers.norm import AbstractNorm
from cofed.regularizers.singular import threshold_singular_values
from cofed.regularizers.thresholds import shrink


class Nuclear(AbstractNorm):
    """psi(W) = strength * (the sum of W's singular values), summed over the leaves, each a matrix.

    Parameters
    ----------
    strength : float
        lambda, >= 0.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.Nuclear(1.0).prox(jnp.diag(jnp.array([3.0, 0.5])), 1.0).round(12).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """

    strength: Hyperparameter = eqx.field(converter=number)

    structure = "rank"

    def __check_init__(self):
        require_nonnegative("Nuclear", strength=self.strength)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """strength * the sum of singular values"""
        amount = total(lambda x: jnp.sum(_singular_values(x)), w)
        return cast(self.strength, amount) * amount

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """The singular values soft-thresholded at step * strength."""

        def leaf(x: Array) -> Array:
            return threshold_singular_values(_matrix(x), cast(step, x) * cast(self.strength, x))

        return each(leaf, v)

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """strength * U V^T over the singular values above round-off"""

        def leaf(x: Array) -> Array:
            u, s, vt = jnp.linalg.svd(_matrix(x), full_matrices=False)
            present = s > jnp.max(s, initial=0.0) * (max(x.shape) * float(jnp.finfo(s.dtype).eps))
            return cast(self.strength, x) * (u * jnp.broadcast_to(present.astype(s.dtype), u.shape)) @ vt

        return each(leaf, w)

    @checked
    def dual_norm(self, z: PyTree) -> Scalar:
        """The largest singular value of any leaf"""
        return jnp.max(jnp.stack([jnp.max(_singular_values(x)) for x in jax.tree.leaves(z)]))

    @checked
    def prox_in_ball(self, v: PyTree, step: Hyperparameter, anchor: PyTree, radius: Hyperparameter) -> PyTree:
        """argmin ||W - V||^2/2 + step psi(W) subject to ||W - anchor||_* <= radius, by Dykstra"""
        bound = jnp.asarray(radius, trees.dtype(v))

        def project(u: PyTree) -> PyTree:
            leaves, treedef = jax.tree.flatten(trees.sub(u, anchor))
            parts = [jnp.linalg.svd(_matrix(x), full_matrices=False) for x in leaves]
            sizes, back = joint([s for _, s, _ in parts])
            shrunk = back(shrink(sizes, jnp.ones_like(sizes), bound))
            near = [(a * jnp.broadcast_to(s, a.shape)) @ bt for (a, _, bt), s in zip(parts, shrunk, strict=True)]
            nearest = trees.add(anchor, jax.tree.unflatten(treedef, near))
            return trees.where(jnp.sum(sizes) <= bound, u, nearest)

        return prox_of_sum(lambda x: self.prox(x, step), project, v, trees.norm(v) + trees.norm(anchor))


def _matrix(x: ArrayLike) -> Array:
    if np.ndim(x) != 2:
        raise ValueError(f"Nuclear is for matrices, the leaf has shape {np.shape(x)}; restrict it with On(..., name)")
    return jnp.asarray(x)


def _singular_values(x: ArrayLike) -> Array:
    return jnp.linalg.svd(_matrix(x), compute_uv=False)
