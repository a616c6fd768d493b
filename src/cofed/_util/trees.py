"""Arithmetic on pytrees, so that an algorithm reads like its paper whatever the shape of the model."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree, Scalar

from cofed._util.types import Hyperparameter


def add(x: PyTree, y: PyTree) -> PyTree:
    """x + y"""
    return jax.tree.map(jnp.add, x, y)


def sub(x: PyTree, y: PyTree) -> PyTree:
    """x - y"""
    return jax.tree.map(jnp.subtract, x, y)


def scale(a: Hyperparameter, x: PyTree) -> PyTree:
    """a x"""
    return jax.tree.map(lambda xi: a * xi, x)


def axpy(a: Hyperparameter, x: PyTree, y: PyTree) -> PyTree:
    """a x + y"""
    return jax.tree.map(lambda xi, yi: a * xi + yi, x, y)


def zeros_like(x: PyTree) -> PyTree:
    """0, in the shape of x"""
    return jax.tree.map(jnp.zeros_like, x)


def dot(x: PyTree, y: PyTree) -> Scalar:
    """<x, y>"""
    return sum_leaves(jnp.vdot, x, y)


def norm(x: PyTree) -> Scalar:
    """||x||_2"""
    return jnp.sqrt(dot(x, x))


def sum_leaves(f: Callable[..., Scalar], *trees: PyTree) -> Scalar:
    """The sum of f over corresponding leaves."""
    values = jax.tree.leaves(jax.tree.map(f, *trees))
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def where(condition: Bool[Array, ""], x: PyTree, y: PyTree) -> PyTree:
    """x if the condition holds, else y"""
    return jax.tree.map(lambda xi, yi: jnp.where(condition, xi, yi), x, y)


def all_finite(x: PyTree) -> Bool[Array, ""]:
    """Whether no entry is NaN or infinite."""
    return jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(x)]).all()


def are_finite(x: PyTree) -> bool:
    """The same, of arrays that are there: looked at without a program, where they are small and all here.

    >>> import jax.numpy as jnp
    >>> from cofed._util.trees import are_finite
    >>> are_finite(jnp.ones(3)), are_finite({"coef": jnp.array([1.0, jnp.nan])})
    (True, False)
    """
    if nbytes(x) > 2**24 or jax.process_count() > 1:
        return bool(jax.jit(all_finite)(x))
    return all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(x))


def dtype(x: PyTree) -> np.dtype:
    """The floating dtype of a model: that of its first floating leaf."""
    dtypes = [jnp.result_type(leaf) for leaf in jax.tree.leaves(x)]
    return next(dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating))


def nbytes(x: PyTree) -> int:
    """Bytes of a tree's arrays, or of those that its shapes stand for.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from cofed._util.trees import nbytes
    >>> nbytes({"coef": jnp.zeros(3, "float32"), "intercept": jax.ShapeDtypeStruct((), "float32")})
    16
    """
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(x))


def names(x: PyTree) -> list[str]:
    """The leaves' names in order: field names and indices joined by dots ("coef", "layers.0.weight")."""
    return [".".join(part(key) for key in path) for path, _ in jax.tree_util.tree_leaves_with_path(x)]


def part(key: object) -> str:
    """One step of a leaf's path, in words."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
