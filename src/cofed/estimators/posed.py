"""The problem that an estimator solves: standardised rows, a model, a loss, and the model without features."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from cofed.curvature import mean_hessian
from cofed.engine import evaluate
from cofed.engine.data import Data, data_of, shares
from cofed.engine.job import traced
from cofed.estimators.certificate import Look, Null, inverse_link, look
from cofed.estimators.moments import moments
from cofed.estimators.sites import NUMBER, Sites, stacked
from cofed.estimators.traffic import Traffic
from cofed.losses import Poisson, Softmax
from cofed.models import Linear, Trace, Weights
from cofed.problem import Problem
from cofed.programs import keep_programs
from cofed.regularizers import On


@dataclasses.dataclass(frozen=True)
class Posed:
    """Minimise mean loss of the pooled rows + psi, over what the clients hold; psi is given later.

    Features are centred where there is an intercept (that changes nothing but the intercept) and divided by their
    standard deviations where asked for. `scale` and `mean` bring coefficients back.
    """

    data: Data
    model: Any
    loss: Any
    null: Null
    start: Weights  # the model without features
    mean: np.ndarray
    scale: np.ndarray
    traffic: Traffic
    messages: dict[Any, tuple[int, int]] = dataclasses.field(default_factory=dict)  # bytes each way, by kind

    def problem(self, psi: Any) -> Problem:
        """The problem with this regularizer of the coefficients."""
        return traced(Problem(self.model, self.loss, On(psi, "coef"), 1, True), np.float64)

    @property
    def n(self) -> int:
        """The number of rows of all clients."""
        return int(np.asarray(self.data.sizes).sum())

    def look(self, psi: Any, w: PyTree, what: str = "certificate") -> Look:
        """The loss, the gradient and the certificate of a model, by one exchange."""
        size = NUMBER * sum(np.size(leaf) for leaf in jax.tree.leaves(w))
        self.traffic.add(what, 1, size, size + NUMBER)
        return look_at(self.problem(psi), self.data, self.null, w)

    def second_order(self, w: PyTree) -> tuple[Any, PyTree, Any]:
        """The loss, its gradient and its whole Hessian at a model, by one exchange (of the Hessian's triangle)."""
        size = sum(np.size(leaf) for leaf in jax.tree.leaves(w))
        self.traffic.add("Hessian", 1, NUMBER * size, NUMBER * (1 + size + size * (size + 1) // 2))
        return second_order_at(traced(Problem(self.model, self.loss, local_steps=1), np.float64), self.data, w)

    def original(self, w: Weights) -> tuple[np.ndarray, Any]:
        """Coefficients and intercept for the features as they were given."""
        coef = np.asarray(w.coef, np.float64)
        flat = coef.reshape(len(self.scale), -1) / self.scale[:, None]
        shift = self.mean @ flat
        intercept = np.zeros(flat.shape[1]) if w.intercept is None else np.asarray(w.intercept).reshape(-1) - shift
        if isinstance(self.model, Trace) or coef.ndim == 1:
            return flat[:, 0], float(intercept[0])
        return flat, intercept


def pose(
    sites: Sites, loss: Any, *, fit_intercept: bool, standardize: bool, shape: tuple[int, int] | None = None
) -> Posed:
    """Standardise, and learn the model without features. `shape` makes the coefficients a matrix."""
    keep_programs()
    traffic = Traffic(len(sites.names))
    p = sites.n_features
    mean, scale = np.zeros(p), np.ones(p)
    if fit_intercept or standardize:
        found = moments(sites, traffic)
        mean = found.mean if fit_intercept else mean
        scale = found.scale if standardize else scale
    rows = stacked(Sites(sites.names, [(X - mean) / scale for X in sites.X], sites.y))
    data = data_of(rows, "samples")
    model = Linear(fit_intercept) if shape is None else Trace(*shape, fit_intercept)
    y = np.concatenate(sites.y)
    if isinstance(loss, Softmax):
        assert loss.classes is not None
        share = np.bincount(y, minlength=loss.classes) / len(y)
    else:
        share = np.asarray(y.mean(), np.float64)
    traffic.add("model without features", 1, 0, NUMBER * (share.size + 1))  # sums of y, and of its least loss
    start = model.init(jax.random.key(0), rows.example()[0], None if share.ndim == 0 else share.size)
    if fit_intercept:
        best = inverse_link(loss, jnp.asarray(share))
        start = Weights(start.coef, best if share.ndim == 0 else best - best.mean())
    value, gradient = losses_at(traced(Problem(model, loss, local_steps=1), np.float64), data, start)
    size = NUMBER * (start.coef.size + share.size * fit_intercept)
    traffic.add("model without features", 1, size, size + NUMBER)
    least = np.zeros(())
    if isinstance(loss, Poisson):
        counts = np.where(y > 0, y, 1)
        least = np.mean(y - y * np.log(counts))
    null = Null(gradient.coef, jnp.asarray(share), value, jnp.asarray(least, np.float64))
    return Posed(data, model, loss, null, start, mean, scale, traffic)


@eqx.filter_jit
def losses_at(problem: Problem, data: Data, w: PyTree) -> tuple[Any, PyTree]:
    """The mean loss over all rows, and its gradient."""
    return evaluate.smooth(problem, data, w)


@eqx.filter_jit
def second_order_at(problem: Problem, data: Data, w: PyTree) -> tuple[Any, PyTree, Any]:
    """The mean loss over all rows, its gradient, and its Hessian in the parameters laid out as one vector."""
    everything = jnp.arange(ravel_pytree(w)[0].size, dtype=jnp.int32)

    def add(total, client):
        X, y, share = client
        return total + mean_hessian(problem, w, X, y, share, everything), None

    if data.tiers is None:
        nothing = jnp.zeros((everything.size, everything.size), data.dtype)
        hessian = jax.lax.scan(add, nothing, (data.X, data.y, shares(data) * data.weights[:, None]))[0]
    else:
        hessian = evaluate.by_blocks(lambda X, y, share: mean_hessian(problem, w, X, y, share, everything), data)
    return *evaluate.smooth(problem, data, w), hessian


@eqx.filter_jit
def look_at(problem: Problem, data: Data, null: Null, w: PyTree) -> Look:
    """The certificate of a model."""
    return look(problem, null, w, *evaluate.smooth(problem, data, w))
