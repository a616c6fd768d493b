"""Excess risk where the truth is known: what the theory bounds, measured on fresh samples."""

import dataclasses
from collections.abc import Mapping

import equinox as eqx
import jax
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float, Num, PyTree

from cofed._util import trees
from cofed._util.checks import shown
from cofed._util.programs import keep_programs
from cofed._util.types import Given
from cofed.federation import Federation
from cofed.problem import Problem, numeric


@dataclasses.dataclass(frozen=True)
class ExcessRisk:
    """How much worse models are than the best ones, as `excess_risk` returns it.

    Parameters
    ----------
    individual : array of shape (clients,)
        IER_i of every client.
    average : float
        AER = sum_i p_i IER_i.
    standard_error : float
        That of the average, which is measured on finitely many samples.
    """

    individual: np.ndarray
    average: float
    standard_error: float


def excess_risk(
    problem: Given[Problem],
    fresh: Given[Federation],
    models: Given[PyTree | Mapping[str, npt.ArrayLike]],
    truth: Given[PyTree | Mapping[str, npt.ArrayLike]],
    weights: Given[str | npt.ArrayLike] = "samples",
) -> ExcessRisk:
    """IER_i = E[loss of client i's model - loss of its best model] on fresh samples of client i, and their mean AER.

    Parameters
    ----------
    problem : Problem
        Model and loss; the regularizer plays no part.
    fresh : Federation
        Many new samples of every client, in the clients' order.
    models : PyTree or mapping
        One model for all (`result.model`), or a stack of one for each client (`result.personal_models`), as a pytree or
        a mapping such as {"coef": array}.
    truth : PyTree or mapping
        The best models, likewise.
    weights : str or array_like, default "samples"
        p_i: "uniform", one number per client (such as the n_i of the training data), or "samples", which counts those
        of `fresh`.

    Returns
    -------
    ExcessRisk
        For every client, and their weighted mean.

    Examples
    --------
    >>> import cofed
    >>> data = cofed.datasets.chen_logistic(clients=3, samples=20, heterogeneity=2.0, test_samples=1000)
    >>> problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Logistic())
    >>> cofed.excess_risk(problem, data.test, data.local, data.local).average
    0.0
    >>> cofed.excess_risk(problem, data.test, data.truth, data.local).average > 0.05
    True
    """
    if not isinstance(problem, Problem) or not isinstance(fresh, Federation):
        raise TypeError(
            "excess_risk expects a cofed.Problem and a cofed.Federation of fresh samples, got "
            f"problem={shown(problem)} and fresh={shown(fresh)}"
        )
    keep_programs()
    start = problem.start(fresh)
    ours, best = (for_each_client(name, given, start, fresh) for name, given in (("models", models), ("truth", truth)))
    mean, variance = np.empty((2, fresh.n_clients))
    for places, part in fresh.by_size():
        own = [jax.tree.map(lambda leaf, places=places: leaf[places], stacked) for stacked in (ours, best)]
        gaps = np.asarray(loss_gaps(problem, part.X, part.y, *own), np.float64)
        real = np.asarray(part.mask())
        n = real.sum(axis=1)
        mean[places] = centre = np.where(real, gaps, 0).sum(axis=1) / n
        spread = np.where(real, (gaps - centre[:, None]) ** 2, 0).sum(axis=1)
        variance[places] = spread / np.where(n > 1, n - 1, np.nan) / n
    p = np.asarray(fresh.weights(weights), np.float64)
    return ExcessRisk(mean, float(p @ mean), float(np.sqrt(p**2 @ variance)))


@eqx.filter_jit
def loss_gaps(
    problem: Problem, X: Float[Array, "m n ..."], y: Num[Array, "m n ..."], ours: PyTree, best: PyTree
) -> Float[Array, "m n"]:
    """The difference of the two models' losses at every sample, one client after another."""
    return jax.lax.map(
        lambda one: problem.losses(one[2], *one[:2]) - problem.losses(one[3], *one[:2]), (X, y, ours, best)
    )


def for_each_client(what: str, given: object, start: PyTree, fresh: Federation) -> PyTree:
    """A model for each client, stacked, checked against the model's own parameters."""
    names, leaves = trees.names(start), jax.tree.leaves(start)
    if isinstance(given, dict):
        missing = [name for name in names if name not in given]
        if missing:
            raise ValueError(f"excess_risk: {what} lacks {missing}; the model's parameters are {names}")
        values = [given[name] for name in names]
    else:
        values = jax.tree.leaves(given, is_leaf=lambda node: isinstance(node, list) and numeric(node) is not None)
    if len(values) != len(leaves):
        raise ValueError(f"excess_risk: {what} has {len(values)} arrays, but the model's parameters are {names}")
    stacked = []
    for name, leaf, found in zip(names, leaves, values, strict=True):
        value = numeric(found)
        if value is None or not np.isfinite(value).all():
            raise ValueError(f"excess_risk: {what} must be finite numbers, but {name!r} is {shown(found)}")
        if value.shape not in (leaf.shape, (fresh.n_clients, *leaf.shape)):
            raise ValueError(
                f"excess_risk: {what} has {name!r} of shape {value.shape}, expected {leaf.shape}, or "
                f"{(fresh.n_clients, *leaf.shape)} for a model per client"
            )
        one_each = np.broadcast_to(value, (fresh.n_clients, *leaf.shape))
        stacked.append(np.asarray(one_each, leaf.dtype))
    return jax.tree.unflatten(jax.tree.structure(start), stacked)
