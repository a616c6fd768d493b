"""Metrics of a model, as functions of its parameters: for `cofed.run(..., metrics={"f1": cofed.metrics.f1(truth)})`."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Scalar

from cofed import trees

Metric = Callable[[PyTree], Any]


def density(threshold: float = 0.0, leaf: str | None = None) -> Metric:
    """The fraction of entries whose absolute value is above the threshold.

    >>> import jax.numpy as jnp
    >>> float(density()({"coef": jnp.array([0.0, 2.0, 0.0, 1.0])}))
    0.5
    """

    def metric(w: PyTree) -> Scalar:
        entries = flat(w, leaf)
        return jnp.mean((jnp.abs(entries) > threshold).astype(entries.dtype))

    return metric


def rank(threshold: float = 1e-2, leaf: str = "coef") -> Metric:
    """The number of singular values above the threshold.

    >>> import jax.numpy as jnp
    >>> float(rank()({"coef": jnp.diag(jnp.array([3.0, 1.0, 0.0]))}))
    2.0
    """

    def metric(w: PyTree) -> Scalar:
        values = jnp.linalg.svd(pick(w, leaf), compute_uv=False)
        return jnp.sum((values > threshold).astype(values.dtype))

    return metric


def support(truth: Any, threshold: float = 1e-2, leaf: str = "coef") -> dict[str, Metric]:
    """Precision, recall and F1 of the support (entries above the threshold) against the truth's non-zeros.

    >>> import jax.numpy as jnp
    >>> metrics = support(jnp.array([1.0, 1.0, 0.0, 0.0]))
    >>> {name: round(float(m({"coef": jnp.array([1.0, 0.0, 1.0, 0.0])})), 2) for name, m in metrics.items()}
    {'precision': 0.5, 'recall': 0.5, 'f1': 0.5}
    """
    true = jnp.asarray(truth if not isinstance(truth, Mapping) else truth[leaf]) != 0

    def counts(w: PyTree) -> tuple[Scalar, Scalar, Scalar]:
        values = pick(w, leaf)
        found = jnp.abs(values) > threshold
        both, f, t = (jnp.sum(flags.astype(values.dtype)) for flags in (found & true, found, true))
        return both, f, t

    def precision(w: PyTree) -> Scalar:
        both, found, _ = counts(w)
        return both / jnp.maximum(found, 1)

    def recall(w: PyTree) -> Scalar:
        both, _, actual = counts(w)
        return both / jnp.maximum(actual, 1)

    def score(w: PyTree) -> Scalar:
        both, found, actual = counts(w)
        return 2 * both / jnp.maximum(found + actual, 1)

    return {"precision": precision, "recall": recall, "f1": score}


def f1(truth: Any, threshold: float = 1e-2, leaf: str = "coef") -> Metric:
    """The F1 score of the support against the truth's non-zeros.

    >>> import jax.numpy as jnp
    >>> float(f1(jnp.array([1.0, 0.0]))({"coef": jnp.array([0.9, 0.001])}))
    1.0
    """
    return support(truth, threshold, leaf)["f1"]


def distance(truth: Any, order: int = 2, leaf: str = "coef") -> Metric:
    """The distance to the truth in the l1 or l2 norm of the entries.

    >>> import jax.numpy as jnp
    >>> float(distance(jnp.array([3.0, 0.0]))({"coef": jnp.array([0.0, 4.0])}))
    5.0
    """
    target = jnp.asarray(truth if not isinstance(truth, Mapping) else truth[leaf])

    def metric(w: PyTree) -> Scalar:
        entries = pick(w, leaf)
        return jnp.linalg.norm(jnp.ravel(entries - target.astype(entries.dtype)), ord=order)

    return metric


def pick(w: PyTree, leaf: str) -> Array:
    """The leaf of that name."""
    for name, value in zip(trees.names(w), jax.tree.leaves(w), strict=True):
        if name == leaf:
            return value
    raise ValueError(f"the model has no leaf {leaf!r}; it has {trees.names(w)}")


def flat(w: PyTree, leaf: str | None = None) -> Array:
    """All entries of the model, or of one leaf, as a vector."""
    if leaf is not None:
        return jnp.ravel(pick(w, leaf))
    return jnp.concatenate([jnp.ravel(value) for value in jax.tree.leaves(w)])
