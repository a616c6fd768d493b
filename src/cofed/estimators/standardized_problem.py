"""The problem that an estimator solves: rows in suitable units, a model, a loss, and the model without features."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from scipy.optimize import brentq

from cofed._util.programs import keep_programs
from cofed.engine import evaluate
from cofed.engine.data import Data, data_of, shares
from cofed.engine.job import traced
from cofed.estimators.certificate import Assessment, FactoredHessian, FirstOrder, NullModel, assess
from cofed.estimators.communication import NUMBER, CommunicationLog
from cofed.estimators.moments import moments
from cofed.estimators.sites import Sites, stacked
from cofed.estimators.units import Units, units
from cofed.losses import AbstractLoss
from cofed.models import Linear, Trace, Weights
from cofed.problem import PosedProblem, Problem
from cofed.regularizers import AbstractRegularizer, On
from cofed.solvers.curvature import mean_hessian

Hessian = Float[Array, "d d"]


@dataclasses.dataclass(frozen=True)
class StandardizedProblem:
    """Minimise mean loss of the pooled rows + psi, over what the clients hold; psi is given later.

    Everything is in `units`, which bring coefficients and objective back.
    """

    data: Data
    model: Linear | Trace
    loss: AbstractLoss
    null: NullModel
    start: Weights  # the model without features
    units: Units
    communication: CommunicationLog
    # The bytes of an algorithm's messages, each way, by its name and the size of its working set.
    message_sizes: dict[tuple[str, int | None], tuple[int, int]] = dataclasses.field(default_factory=dict)

    def problem(self, psi: AbstractRegularizer) -> Problem:
        """The problem with this regularizer of the coefficients."""
        return traced(PosedProblem(self.model, self.loss, On(psi, "coef"), local_steps=1), np.float64)

    @property
    def n(self) -> int:
        """The number of rows of all clients."""
        return int(np.asarray(self.data.sizes).sum())

    @property
    def fingerprint(self) -> np.ndarray:
        """Numbers from sums over all rows that tell them from others; the first is how many rows there are."""
        units, null = self.units, self.null
        numbers = (self.n, units.labels.shift, np.log(units.objective), *np.ravel(null.mean), float(null.loss))
        ratio = units.mean / (np.abs(units.mean) + units.width)
        return np.concatenate([numbers, np.log(units.width), ratio, np.ravel(null.gradient.coef)])

    def assess(self, psi: AbstractRegularizer, w: Weights) -> Assessment:
        """The loss, the gradient and the certificate of a model, by one exchange."""
        size = NUMBER * n_parameters(w)
        self.communication.add("certificate", 1, size, size + NUMBER)
        return assess_on(self.problem(psi), self.data, self.null, w)

    def second_order(self, w: Weights) -> tuple[FirstOrder, Hessian]:
        """The loss, its gradient and its whole Hessian at a model, by one exchange (of the Hessian's triangle)."""
        size = n_parameters(w)
        self.communication.add("Hessian", 1, NUMBER * size, NUMBER * (1 + size + size * (size + 1) // 2))
        return second_order_at(traced(PosedProblem(self.model, self.loss, local_steps=1), np.float64), self.data, w)

    def original(self, w: Weights) -> tuple[np.ndarray, float | np.ndarray]:
        """Coefficients and intercept for the features as they were given."""
        labels = self.units.labels
        coef = np.asarray(w.coef, np.float64)
        flat = coef.reshape(len(self.units.mean), -1) * self.units.coef[:, None]
        intercept = np.zeros(flat.shape[1])
        if w.intercept is not None:
            own = np.asarray(w.intercept).reshape(-1)
            own = own - own.mean() if len(own) > 1 else own  # the same for all classes changes nothing
            intercept = labels.shift + labels.stretch * own - self.units.mean @ flat
        if isinstance(self.model, Trace) or coef.ndim == 1:
            return flat[:, 0], float(intercept[0])
        return flat, intercept

    def solved(self, coef: np.ndarray, intercept: float) -> Weights:
        """What `original` has made of a model with one output."""
        labels = self.units.labels
        u = jnp.asarray(coef / self.units.coef)
        if self.start.intercept is None:
            return Weights(u, None)
        return Weights(u, jnp.asarray((intercept + self.units.mean @ coef - labels.shift) / labels.stretch))


def n_parameters(w: Weights) -> int:
    """The numbers of a model."""
    return sum(np.size(leaf) for leaf in jax.tree.leaves(w))


def standardized(
    sites: Sites,
    loss: AbstractLoss,
    *,
    fit_intercept: bool,
    standardize: bool,
    blocks: np.ndarray,
    shape: tuple[int, int] | None = None,
) -> StandardizedProblem:
    """Choose units, and learn the model without features.

    `shape` makes the coefficients a matrix; features with the same label in `blocks` keep their proportions.
    """
    require_duality(loss)
    keep_programs()
    jax.config.update("jax_enable_x64", True)
    communication = CommunicationLog(len(sites.names))
    found = moments(sites, communication)
    unit = units(found, sites.y, loss, fit_intercept=fit_intercept, standardize=standardize, blocks=blocks)
    scaled = Sites(sites.names, [unit.rows(X) for X in sites.X], [unit.targets(y) for y in sites.y])
    rows = stacked(scaled)
    data = data_of(rows, "samples")
    model = Linear(fit_intercept) if shape is None else Trace(*shape, fit_intercept)
    loss = loss.as_deviance()
    mean = np.asarray(sum(loss.label_sum(y) for y in scaled.y) / found.n, np.float64)
    communication.add("model without features", 1, 0, NUMBER * (mean.size + 1))  # sums of y, and of its least loss
    problem = traced(PosedProblem(model, loss, local_steps=1), np.float64)
    start = model.init(jax.random.key(0), rows.example()[0], None if mean.ndim == 0 else mean.size)
    bracket = None
    if fit_intercept and loss.has_link:
        best = loss.link(jnp.asarray(mean))
        start = Weights(start.coef, best if mean.ndim == 0 else best - best.mean())
    elif fit_intercept:
        start, bracket = best_constant(problem, data, start, communication)
    at = first_order_at(problem, data, start)
    size = NUMBER * (start.coef.size + mean.size * fit_intercept)
    # The columns' means come up, too.
    communication.add("model without features", 1, size, size + NUMBER * (1 + sites.n_features))
    tilt = sum(X.sum(axis=0) for X in scaled.X) / found.n
    null = NullModel(
        at.gradient,
        jnp.asarray(mean),
        at.loss,
        jnp.asarray(tilt),
        jnp.asarray(unit.spread),
        jnp.asarray(float(found.n)),
        bracket,
    )
    return StandardizedProblem(data, model, loss, null, start, unit, communication)


def require_duality(loss: AbstractLoss) -> None:
    """Refuse a loss that does not say what a certificate needs to know."""
    lacking = ["curvature"] * (loss.curvature is None)
    lacking += ["conjugate"] * (not loss.has_conjugate and not loss.attains_zero)
    if lacking:
        raise TypeError(
            f"{type(loss).__name__} gives no {' and no '.join(lacking)}, without which a fit cannot be certified; see "
            "cofed.AbstractLoss"
        )


def best_constant(
    problem: Problem, data: Data, start: Weights, communication: CommunicationLog
) -> tuple[Weights, tuple[FirstOrder, FirstOrder]]:
    """The best model without features of a loss without a link function, and models below and above it.

    Every constant that is tried is one exchange: the constant goes down; the loss and its gradient come up.
    """
    if np.ndim(start.intercept):
        name = type(problem.loss).__name__
        raise TypeError(f"{name} has several outputs but no link, which an intercept needs; see cofed.AbstractLoss")

    def at(constant: float) -> FirstOrder:
        communication.add("model without features", 1, NUMBER, NUMBER * (1 + n_parameters(start)))
        return first_order_at(problem, data, Weights(start.coef, jnp.asarray(constant, data.dtype)))

    def beyond(side: float) -> FirstOrder:
        for doubled in range(100):
            found = at(side * 2.0**doubled)
            if side * float(found.gradient.intercept) > 0:
                return found
        raise ValueError(f"{type(problem.loss).__name__} has no best constant prediction for these labels")

    low, high = beyond(-1.0), beyond(1.0)
    ends = float(low.w.intercept), float(high.w.intercept)
    best = brentq(lambda constant: float(at(constant).gradient.intercept), *ends)
    return Weights(start.coef, jnp.asarray(best, data.dtype)), (low, high)


@eqx.filter_jit
def first_order_at(problem: Problem, data: Data, w: Weights) -> FirstOrder:
    """The mean loss over all rows, and its gradient."""
    return FirstOrder(w, *evaluate.smooth(problem, data, w))


@eqx.filter_jit
def second_order_at(problem: Problem, data: Data, w: Weights) -> tuple[FirstOrder, Hessian]:
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
    return FirstOrder(w, *evaluate.smooth(problem, data, w)), hessian


@eqx.filter_jit
def assess_on(problem: Problem, data: Data, null: NullModel, w: Weights) -> Assessment:
    """The certificate of a model."""
    return assess(problem, null, FirstOrder(w, *evaluate.smooth(problem, data, w)))


@eqx.filter_jit
def assess_known(
    problem: Problem, null: NullModel, at: FirstOrder, curved: FactoredHessian | None = None
) -> Assessment:
    """The certificate of a model whose loss and gradient (and Hessian) are known."""
    return assess(problem, null, at, curved)
