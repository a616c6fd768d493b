"""The problem that an estimator solves: rows in suitable units, a model, a loss, and the model without features."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from cofed._util.programs import keep_programs
from cofed.engine import evaluate
from cofed.engine.data import Data, data_of, shares
from cofed.engine.job import traced
from cofed.estimators.certificate import Curvature, Look, Null, inverse_link, look
from cofed.estimators.communication import Traffic
from cofed.estimators.counts import PoissonDeviance
from cofed.estimators.moments import moments
from cofed.estimators.sites import NUMBER, Sites, stacked
from cofed.estimators.units import Units, units
from cofed.losses import Poisson, Softmax
from cofed.models import Linear, Trace, Weights
from cofed.problem import Problem
from cofed.regularizers import On
from cofed.solvers.curvature import mean_hessian


@dataclasses.dataclass(frozen=True)
class Posed:
    """Minimise mean loss of the pooled rows + psi, over what the clients hold; psi is given later.

    Everything is in `units`, which bring coefficients and objective back.
    """

    data: Data
    model: Any
    loss: Any
    null: Null
    start: Weights  # the model without features
    units: Units
    traffic: Traffic
    messages: dict[Any, tuple[int, int]] = dataclasses.field(default_factory=dict)  # bytes each way, by kind

    def problem(self, psi: Any) -> Problem:
        """The problem with this regularizer of the coefficients."""
        return traced(Problem(self.model, self.loss, On(psi, "coef"), 1, True), np.float64)

    @property
    def n(self) -> int:
        """The number of rows of all clients."""
        return int(np.asarray(self.data.sizes).sum())

    @property
    def fingerprint(self) -> np.ndarray:
        """Numbers from sums over all rows that tell them from others; the first is how many rows there are."""
        units, null = self.units, self.null
        numbers = (self.n, units.shift, np.log(units.objective), *np.ravel(null.mean), float(null.loss))
        ratio = units.mean / (np.abs(units.mean) + units.width)
        return np.concatenate([numbers, np.log(units.width), ratio, np.ravel(null.gradient.coef)])

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
        flat = coef.reshape(len(self.units.mean), -1) * self.units.coef[:, None]
        intercept = np.zeros(flat.shape[1])
        if w.intercept is not None:
            own = np.asarray(w.intercept).reshape(-1)
            own = own - own.mean() if len(own) > 1 else own  # the same for all classes changes nothing
            intercept = self.units.shift + self.units.stretch * own - self.units.mean @ flat
        if isinstance(self.model, Trace) or coef.ndim == 1:
            return flat[:, 0], float(intercept[0])
        return flat, intercept

    def solved(self, coef: np.ndarray, intercept: float) -> Weights:
        """What `original` has made of a model with one output."""
        u = jnp.asarray(coef / self.units.coef)
        if self.start.intercept is None:
            return Weights(u, None)
        return Weights(u, jnp.asarray((intercept + self.units.mean @ coef - self.units.shift) / self.units.stretch))


def pose(
    sites: Sites,
    loss: Any,
    *,
    fit_intercept: bool,
    standardize: bool,
    blocks: np.ndarray,
    shape: tuple[int, int] | None = None,
) -> Posed:
    """Choose units, and learn the model without features. `shape` makes the coefficients a matrix; features with the
    same label in `blocks` keep their proportions."""
    keep_programs()
    traffic = Traffic(len(sites.names))
    p = sites.n_features
    found = moments(sites, traffic)
    unit = units(found, sites.y, loss, fit_intercept=fit_intercept, standardize=standardize, blocks=blocks)
    scaled = Sites(sites.names, [unit.rows(X) for X in sites.X], [unit.targets(y) for y in sites.y])
    rows = stacked(scaled)
    data = data_of(rows, "samples")
    model = Linear(fit_intercept) if shape is None else Trace(*shape, fit_intercept)
    loss = PoissonDeviance() if isinstance(loss, Poisson) else loss
    share = mean_target(loss, scaled.y)
    traffic.add("model without features", 1, 0, NUMBER * (share.size + 1))  # sums of y, and of its least loss
    start = model.init(jax.random.key(0), rows.example()[0], None if share.ndim == 0 else share.size)
    if fit_intercept:
        best = inverse_link(loss, jnp.asarray(share))
        start = Weights(start.coef, best if share.ndim == 0 else best - best.mean())
    value, gradient = losses_at(traced(Problem(model, loss, local_steps=1), np.float64), data, start)
    size = NUMBER * (start.coef.size + share.size * fit_intercept)
    traffic.add("model without features", 1, size, size + NUMBER * (1 + p))  # and the columns' means
    tilt = sum(X.sum(axis=0) for X in scaled.X) / found.n
    null = Null(
        gradient,
        jnp.asarray(share),
        value,
        jnp.asarray(tilt),
        jnp.asarray(unit.spread),
        jnp.asarray(float(found.n)),
    )
    return Posed(data, model, loss, null, start, unit, traffic)


def mean_target(loss: Any, y: list[np.ndarray]) -> np.ndarray:
    """The mean of y over all rows; of classes, their shares."""
    n = sum(len(one) for one in y)
    if isinstance(loss, Softmax):
        assert loss.classes is not None
        return np.sum([np.bincount(one, minlength=loss.classes) for one in y], axis=0) / n
    return np.asarray(sum(one.sum() for one in y) / n, np.float64)


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


@eqx.filter_jit
def known(
    problem: Problem, null: Null, w: Weights, loss: Any, gradient: Weights, curved: Curvature | None = None
) -> Look:
    """The certificate of a model whose loss and gradient (and Hessian) are known."""
    return look(problem, null, w, loss, gradient, curved)
