"""Metrics that are functions of the model's parameters."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Bool, Float, Num, PyTree, Scalar

from cofed._util import checks, trees
from cofed._util.types import Given
from cofed.metrics.on_data import AbstractDataMetric, HigherIsBetter

# Metrics are modules, not closures: their numbers are traced, so another truth or threshold compiles nothing new.
Metric: TypeAlias = Callable[[PyTree], Scalar]
Truth: TypeAlias = npt.ArrayLike | Mapping[str, npt.ArrayLike]  # of one leaf, or of leaves by name


class Declared(HigherIsBetter):
    """A user's own metric, declared to be better the higher it is."""

    metric: Metric

    def __call__(self, w: PyTree) -> Any:  # a user's function may give a Python number too
        return self.metric(w)


class DeclaredOnData(AbstractDataMetric, HigherIsBetter):
    """A user's own metric of data, declared to be better the higher it is."""

    metric: AbstractDataMetric

    def __call__(self, predictions: Float[Array, "n ..."], y: Num[Array, "n ..."], share: Float[Array, " n"]) -> Any:
        return self.metric(predictions, y, share)


def higher_is_better(metric: Given[Metric | AbstractDataMetric]) -> Metric | AbstractDataMetric:
    """Declare that more of a metric of your own is better.

    Parameters
    ----------
    metric : callable
        A function of the model that gives one number, or a metric of data.

    Returns
    -------
    callable
        The same metric, which `cofed.tune` maximises when it is the score.

    Raises
    ------
    TypeError
        Where `metric` is not a function.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> positive = cofed.metrics.higher_is_better(lambda w: jnp.mean(w["coef"] > 0))
    >>> float(positive({"coef": jnp.array([1.0, -1.0])}))
    0.5
    """
    if not callable(metric) or isinstance(metric, type):
        raise TypeError(f"metric must be a function of the model, got {type(metric).__name__}")
    return DeclaredOnData(metric) if isinstance(metric, AbstractDataMetric) else Declared(metric)


class Density(eqx.Module):
    """See `density`."""

    threshold: float
    leaf: str | None = eqx.field(static=True)

    def __call__(self, w: PyTree) -> Scalar:
        entries = flat(w, self.leaf)
        return jnp.mean((jnp.abs(entries) > self.threshold).astype(entries.dtype))


class Rank(eqx.Module):
    """See `rank`."""

    threshold: float
    leaf: str = eqx.field(static=True)

    def __call__(self, w: PyTree) -> Scalar:
        values = jnp.linalg.svd(pick(w, self.leaf), compute_uv=False)
        return jnp.sum((values > self.threshold).astype(values.dtype))


def density(threshold: Given[float] = 0.0, leaf: Given[str | None] = None) -> Metric:
    """The fraction of entries whose absolute value is above a threshold.

    Parameters
    ----------
    threshold : float
        At least 0.
    leaf : str, optional
        The leaf of the model to look at, such as "coef"; None looks at all of them together.

    Returns
    -------
    callable
        The metric, a function of the model.

    Raises
    ------
    TypeError, ValueError
        Where an argument is not as above.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> float(cofed.metrics.density()({"coef": jnp.array([0.0, 2.0, 0.0, 1.0])}))
    0.5
    """
    return Density(checks.nonnegative("density: threshold", threshold), checks.optional_text("density: leaf", leaf))


def rank(threshold: Given[float] = 1e-2, leaf: Given[str] = "coef") -> Metric:
    """The number of singular values above a threshold.

    Parameters
    ----------
    threshold : float
        At least 0.
    leaf : str
        The leaf of the model to look at, a matrix.

    Returns
    -------
    callable
        The metric, a function of the model.

    Raises
    ------
    TypeError, ValueError
        Where an argument is not as above.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> float(cofed.metrics.rank()({"coef": jnp.diag(jnp.array([3.0, 1.0, 0.0]))}))
    2.0
    """
    return Rank(checks.nonnegative("rank: threshold", threshold), checks.text("rank: leaf", leaf))


class Support(eqx.Module):
    """Compares the model's support (its entries above the threshold) with the truth's."""

    true: Bool[Array, "..."] = eqx.field(converter=jnp.asarray)
    threshold: float
    leaf: str = eqx.field(static=True)

    def counts(self, w: PyTree) -> tuple[Scalar, Scalar, Scalar]:
        """How many entries are in both supports, in the model's, and in the truth's."""
        values = pick(w, self.leaf)
        require_shape(self.true, values, self.leaf)
        found = jnp.abs(values) > self.threshold
        both, f, t = (jnp.sum(flags.astype(values.dtype)) for flags in (found & self.true, found, self.true))
        return both, f, t


class Precision(Support, HigherIsBetter):
    """The share of the model's non-zeros that are non-zeros of the truth."""

    def __call__(self, w: PyTree) -> Scalar:
        both, found, _ = self.counts(w)
        return both / jnp.maximum(found, 1)


class Recall(Support, HigherIsBetter):
    """The share of the truth's non-zeros that are non-zeros of the model."""

    def __call__(self, w: PyTree) -> Scalar:
        both, _, true = self.counts(w)
        return both / jnp.maximum(true, 1)


class F1(Support, HigherIsBetter):
    """The harmonic mean of precision and recall."""

    def __call__(self, w: PyTree) -> Scalar:
        both, found, true = self.counts(w)
        return 2 * both / jnp.maximum(found + true, 1)


def support(truth: Given[Truth], threshold: Given[float] = 1e-2, leaf: Given[str] = "coef") -> dict[str, Metric]:
    """Precision, recall and F1 of the model's support against the truth's non-zeros.

    Parameters
    ----------
    truth : array_like or mapping
        The true value of the leaf, or a mapping that has it under the leaf's name.
    threshold : float
        An entry belongs to the model's support where its absolute value is above this.
    leaf : str
        The leaf of the model to look at.

    Returns
    -------
    dict
        The metrics by name: "precision", "recall" and "f1", for `cofed.run(..., metrics=)`.

    Raises
    ------
    TypeError, ValueError
        Where an argument is not as above.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> metrics = cofed.metrics.support(jnp.array([1.0, 1.0, 0.0, 0.0]))
    >>> {name: round(float(m({"coef": jnp.array([1.0, 0.0, 1.0, 0.0])})), 2) for name, m in metrics.items()}
    {'precision': 0.5, 'recall': 0.5, 'f1': 0.5}
    """
    threshold, leaf = checks.nonnegative("support: threshold", threshold), checks.text("support: leaf", leaf)
    true = jnp.asarray(leaf_of(truth, leaf)) != 0
    kinds = {"precision": Precision, "recall": Recall, "f1": F1}
    return {name: kind(true, threshold, leaf) for name, kind in kinds.items()}


def f1(truth: Given[Truth], threshold: Given[float] = 1e-2, leaf: Given[str] = "coef") -> Metric:
    """The F1 score of the model's support against the truth's non-zeros.

    Parameters
    ----------
    truth : array_like or mapping
        The true value of the leaf, or a mapping that has it under the leaf's name.
    threshold : float
        An entry belongs to the model's support where its absolute value is above this.
    leaf : str
        The leaf of the model to look at.

    Returns
    -------
    callable
        The metric, a function of the model.

    Raises
    ------
    TypeError, ValueError
        Where an argument is not as above.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> float(cofed.metrics.f1(jnp.array([1.0, 0.0]))({"coef": jnp.array([0.9, 0.001])}))
    1.0
    """
    return support(truth, threshold, leaf)["f1"]


class Distance(eqx.Module):
    """See `distance`."""

    target: Array = eqx.field(converter=jnp.asarray)
    order: int = eqx.field(static=True)
    leaf: str = eqx.field(static=True)

    def __call__(self, w: PyTree) -> Scalar:
        entries = pick(w, self.leaf)
        require_shape(self.target, entries, self.leaf)
        return jnp.linalg.norm(jnp.ravel(entries - self.target.astype(entries.dtype)), ord=self.order)


def distance(truth: Given[Truth], order: Given[int] = 2, leaf: Given[str] = "coef") -> Metric:
    """The distance to the truth in the l1 or l2 norm of the entries.

    Parameters
    ----------
    truth : array_like or mapping
        The true value of the leaf, or a mapping that has it under the leaf's name.
    order : {1, 2}
        Which norm.
    leaf : str
        The leaf of the model to look at.

    Returns
    -------
    callable
        The metric, a function of the model.

    Raises
    ------
    TypeError, ValueError
        Where an argument is not as above.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> float(cofed.metrics.distance(jnp.array([3.0, 0.0]))({"coef": jnp.array([0.0, 4.0])}))
    5.0
    """
    if checks.integer("distance: order", order) > 2:
        raise ValueError(f"distance: order must be 1 or 2, got {order}")
    leaf = checks.text("distance: leaf", leaf)
    return Distance(jnp.asarray(leaf_of(truth, leaf)), order, leaf)


def leaf_of(truth: object, leaf: str) -> np.ndarray:
    """The true value of one leaf, given as an array or in a mapping of leaves."""
    if isinstance(truth, Mapping):
        if leaf not in truth:
            raise ValueError(f"truth has no leaf {leaf!r}; it has {sorted(map(str, truth))}")
        truth = truth[leaf]
    try:
        found = np.asarray(truth)
    except ValueError:  # a ragged list
        found = np.empty(0)
    if np.ma.is_masked(truth) or found.dtype.kind not in "fiub" or not found.size or not np.isfinite(found).all():
        raise TypeError(f"truth must be an array of finite numbers, got {checks.shown(truth)}")
    return found


def require_shape(truth: Array, values: Array, leaf: str) -> None:
    """Refuse a truth of another shape than the model's leaf, which would be broadcast."""
    if truth.shape != values.shape:
        raise ValueError(f"truth has shape {truth.shape}, but the model's leaf {leaf!r} has shape {values.shape}")


def pick(w: PyTree, leaf: str) -> Array:
    """The model's leaf of this name."""
    for name, value in zip(trees.names(w), jax.tree.leaves(w), strict=True):
        if name == leaf:
            return value
    raise ValueError(f"the model has no leaf {leaf!r}; it has {trees.names(w)}")


def flat(w: PyTree, leaf: str | None = None) -> Array:
    """All entries of the model, or of one leaf, as a vector."""
    if leaf is not None:
        return jnp.ravel(pick(w, leaf))
    return jnp.concatenate([jnp.ravel(value) for value in jax.tree.leaves(w)])
