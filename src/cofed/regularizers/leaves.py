"""What the regularizers share: hyperparameters against leaves, and the model as one vector."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, PyTree, Scalar

from cofed._util import trees
from cofed._util.checks import as_float, is_real, shown
from cofed._util.scalars import is_numbers, number
from cofed._util.types import Given

Method = TypeVar("Method", bound=Callable)


def checked(method: Method) -> Method:
    """Decorates a method of a regularizer or a mirror: its arguments are checked before it is called.

    Models must be pytrees of floating arrays, and a step or radius a number >= 0. A compiled program pays
    nothing for it: the checks run when it is traced.
    """
    names = list(inspect.signature(method).parameters)[1:]

    @functools.wraps(method)
    def checking(self: object, *given: PyTree, **named: PyTree) -> object:
        for name, value in [*zip(names, given, strict=False), *named.items()]:
            where = f"{type(self).__name__}.{method.__name__}: {name}"
            if name == "slack":  # internal: a number or an array
                continue
            if name in ("step", "radius"):
                require_amount(where, value)
            else:
                require_model(where, value)
                if name == "anchor":
                    require_alike(where, value, given[0] if given else named["v"])
        return method(self, *given, **named)

    return checking  # type: ignore[return-value]


def require_amount(where: str, value: Given[ArrayLike]) -> None:
    """Refuse a step or radius that is not a number >= 0; tracers and JAX's arrays are not waited for."""
    if not is_numbers(value) or np.ndim(value):
        raise TypeError(f"{where} must be a number >= 0, got {shown(value)}")
    if is_real(value) and not 0 <= as_float(value) < math.inf:
        raise ValueError(f"{where} must be a finite number >= 0, got {shown(value)}")


def require_model(where: str, tree: PyTree) -> None:
    """Refuse what is not a pytree of floating arrays: the strength of a penalty would be rounded to a whole number."""
    leaves = jax.tree.leaves(tree)
    floating = [is_numbers(leaf) and jnp.issubdtype(jnp.result_type(leaf), jnp.floating) for leaf in leaves]
    if not leaves or not all(floating):
        raise TypeError(f"{where} must be a model, that is a pytree of floating arrays, got {shown(tree)}")


def require_alike(where: str, anchor: PyTree, v: PyTree) -> None:
    """Refuse an anchor that is another model than v."""
    here, there = (jax.tree.map(np.shape, tree) for tree in (v, anchor))
    if jax.tree.structure(v) != jax.tree.structure(anchor) or here != there:
        raise ValueError(f"{where} must have the leaves and shapes of v, {shown(here)}, got {shown(there)}")


def cast(value: ArrayLike, like: ArrayLike) -> Array:
    """The hyperparameter in the dtype of an array: float32 models stay float32 also in 64-bit mode."""
    return jnp.asarray(value, dtype=jnp.asarray(like).dtype)


def each(f: Callable[..., Array], tree: PyTree, *rest: PyTree) -> PyTree:
    """f on corresponding leaves, as JAX arrays also where the model is given in NumPy's."""
    return jax.tree.map(lambda *leaves: f(*map(jnp.asarray, leaves)), tree, *rest)


def total(f: Callable[..., Scalar], tree: PyTree, *rest: PyTree) -> Scalar:
    """The sum of f over corresponding leaves."""
    return trees.sum_leaves(lambda *leaves: f(*map(jnp.asarray, leaves)), tree, *rest)


def tolerance(dtype: DTypeLike) -> float:
    """The relative round-off that the indicators forgive: 64 units in the last place."""
    return 64 * float(jnp.finfo(dtype).eps)


def indicator(inside: Bool[Array, ""], dtype: DTypeLike) -> Scalar:
    """0 inside, inf outside."""
    return jnp.where(inside, jnp.zeros((), dtype), jnp.full((), jnp.inf, dtype))


def joint(tree: PyTree) -> tuple[Float[Array, " n"], Callable[[Array], PyTree]]:
    """All leaves as one vector, and the way back."""
    leaves, treedef = jax.tree.flatten(tree)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    dtype = trees.dtype(leaves)
    vector = jnp.concatenate([leaf.ravel().astype(dtype) for leaf in leaves])
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1].tolist()

    def back(flat: Array) -> PyTree:
        parts = zip(jnp.split(flat, ends), leaves, strict=True)
        return jax.tree.unflatten(treedef, [part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in parts])

    return vector, back


def coordinates(value: Given[PyTree]) -> PyTree:
    """A converter for a number, an array, or a pytree like the model; lists of numbers become arrays."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)) and value and all(is_real(item) for item in value):
        return np.asarray(value, float)
    return jax.tree.map(lambda leaf: leaf.astype(float) if _integers(leaf) else number(leaf), value)


def _integers(leaf: object) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iu" and not np.ma.isMaskedArray(leaf)


def concrete(value: PyTree) -> list[np.ndarray]:
    """The numbers of a field that can be looked at now (not tracers, not placeholders)."""
    leaves = [leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, (float, int, np.ndarray, jax.Array))]
    return [np.asarray(leaf) for leaf in leaves if not isinstance(leaf, Tracer)]


def require_numbers(owner: str, field: str, value: PyTree) -> None:
    """Refuse what is not a number, an array of numbers, or a pytree of these."""
    leaves = jax.tree.leaves(value)
    if not leaves or not all(is_numbers(leaf) for leaf in leaves):
        raise TypeError(f"{owner}: {field} must be a number or numbers, got {shown(value)}")


def require_weights(owner: str, weights: PyTree) -> None:
    """Refuse weights that are negative or not finite; None stands for those that a regularizer has by itself."""
    if weights is None:
        return
    require_numbers(owner, "weights", weights)
    for leaf in concrete(weights):
        if not (np.isfinite(leaf) & (leaf >= 0)).all():
            raise ValueError(f"{owner}: weights must be finite and >= 0, got {shown(leaf)}")


def spread(owner: str, field: str, value: PyTree, tree: PyTree) -> PyTree:
    """One entry of `value` per leaf of the tree, in the leaf's dtype and (but for numbers) shape.

    A number or a single array serves every leaf; a pytree is matched by its structure, or else by its leaves'
    names.
    """
    leaves, treedef = jax.tree.flatten(tree)
    given = jax.tree.leaves(value)
    if jax.tree.structure(value) != treedef:
        here, there = trees.names(tree), trees.names(value)
        if there == [""]:
            given = given * len(leaves)
        elif sorted(here) == sorted(there):
            given = [given[there.index(name)] for name in here]
        else:
            raise ValueError(f"{owner}: {field} has the leaves {there}, the model has {here}")
    for name, entry, leaf in zip(trees.names(tree), given, leaves, strict=True):
        if np.shape(entry) not in ((), np.shape(leaf)):
            place = f"the leaf {name!r}" if name else "the model"
            raise ValueError(f"{owner}: {field} has shape {np.shape(entry)}, {place} has shape {np.shape(leaf)}")
    return jax.tree.unflatten(treedef, [cast(entry, leaf) for entry, leaf in zip(given, leaves, strict=True)])


def size(tree: PyTree) -> int:
    """The number of entries in all leaves together."""
    return sum(math.prod(np.shape(leaf)) for leaf in jax.tree.leaves(tree))
