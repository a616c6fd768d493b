"""The problem that an estimator solves: rows in suitable units, a model, a loss, and the model without features."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cofed._util.programs import keep_programs, program
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.engine.job import traced
from cofed.estimators.certificate import Assessment, FactoredHessian, FirstOrder, NullModel, assess
from cofed.estimators.survey import PartMoments, Survey
from cofed.estimators.units import Units, units
from cofed.losses import AbstractLoss
from cofed.models import Linear, Trace, Weights
from cofed.problem import PosedProblem, Problem
from cofed.regularizers import AbstractRegularizer, On
from cofed.sites import AbstractSites, ExchangeTotal, TrainingPlan, spent, totals
from cofed.sites.queries import LookAnswer, LookMessage, look
from cofed.sites.queries.base import n_outputs
from cofed.solvers.curvature import unpack

Hessian = Float[Array, "d d"]
SMALL = 180  # parameters up to which Hessians are asked for along with a first look


@dataclasses.dataclass(frozen=True)
class StandardizedProblem:
    """Minimise mean loss of the pooled rows + psi, over what the sites hold; psi is given later.

    Everything is in `units`, which bring coefficients and objective back. A problem may be that of all folds but one;
    its rows are in the units of all.
    """

    survey: Survey
    model: Linear | Trace
    loss: AbstractLoss
    null: NullModel
    start: Weights  # the model without features
    units: Units
    standardize: bool
    without: int = -1  # the fold that is left out; -1 is none

    def problem(self, psi: AbstractRegularizer) -> Problem:
        """The problem with this regularizer of the coefficients."""
        return traced(PosedProblem(self.model, self.loss, On(psi, "coef"), local_steps=1), np.float64)

    @property
    def asked_loss(self) -> AbstractLoss:
        """The loss that sites are asked about, in the problem's units."""
        return self.survey.loss.in_units(self.units.labels)

    @property
    def sites(self) -> AbstractSites:
        """Where the rows are."""
        return self.survey.sites

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.null.rows)

    @property
    def weight(self) -> float:
        """What the rows count, all together: by that the sums over them are divided."""
        return float(self.null.weight)

    @property
    def fingerprint(self) -> np.ndarray:
        """Numbers from sums over all rows that tell them from others; the first is how many rows there are."""
        units, null = self.units, self.null
        shift, mean = np.ravel(units.labels.shift), np.ravel(null.mean)
        numbers = (self.n, *shift, np.log(units.objective), *mean, float(null.loss))
        ratio = units.mean / (np.abs(units.mean) + units.width)
        return np.concatenate([numbers, np.log(units.width), ratio, np.ravel(null.gradient.coef)])

    @property
    def exchanges(self) -> tuple[ExchangeTotal, ...]:
        """What was asked since the survey, which counts, by kind."""
        return totals(self.sites.exchanges[self.survey.before :])

    @property
    def n_rounds(self) -> int:
        """How many exchanges that were."""
        return spent(self.exchanges).rounds

    @property
    def bytes(self) -> int:
        """Their bytes, both ways, of all sites."""
        return spent(self.exchanges).bytes

    @property
    def parts(self) -> list["StandardizedProblem"]:
        """The problems of all folds but one, for each fold."""
        folds = range(self.survey.n_folds)
        return with_constants([posed(self.survey, self.model, self.units, self.standardize, k) for k in folds])

    def look(
        self, models: Sequence[Weights], closer: Sequence[int] = (), where: np.ndarray | None = None
    ) -> LookAnswer:
        """Look at models, all of this part of the rows, at some more closely; one exchange.

        `where` says which parameters the Hessians are asked for: of all models that are looked at more closely; None
        is all. What comes back are sums.
        """
        p, k = len(self.units.mean), np.size(self.null.mean)
        size = n_parameters(self.start)
        chosen = np.arange(size, dtype=np.int32) if where is None else np.asarray(where, np.int32)
        if not len(closer):
            chosen = chosen[:0]
        message = LookMessage(
            coef=np.stack([np.reshape(np.asarray(w.coef, np.float64), (p, k)) for w in models]),
            intercept=np.stack([np.zeros(k) if w.intercept is None else np.reshape(w.intercept, k) for w in models]),
            without=np.full(len(models), self.without, np.int32),
            closer=np.asarray(closer, np.int32),
            where=np.tile(chosen, (len(closer), 1)),
            scaling=self.units.scaling,
            folds=self.survey.folds,
            loss=self.asked_loss,
        )
        return self.sites.ask(look, message)

    def seen(self, w: Weights, answer: LookAnswer, at: int = 0) -> FirstOrder:
        """The mean loss and gradient of one of the models that were looked at."""
        coef = jnp.asarray(answer.gradient[at] / self.weight).reshape(np.shape(w.coef))
        if w.intercept is None:
            return FirstOrder(w, jnp.asarray(answer.loss[at] / self.weight), Weights(coef, None))
        slope = jnp.asarray(answer.slope[at] / self.weight).reshape(np.shape(w.intercept))
        return FirstOrder(w, jnp.asarray(answer.loss[at] / self.weight), Weights(coef, slope))

    def first_order(self, w: Weights) -> FirstOrder:
        """The loss and its gradient at a model, by one exchange."""
        return self.seen(w, self.look([w]))

    def assess(self, psi: AbstractRegularizer, w: Weights) -> Assessment:
        """The loss, the gradient and the certificate of a model, by one exchange."""
        return assess_known(self.problem(psi), self.null, self.first_order(w))

    def second_order(self, w: Weights, where: np.ndarray | None = None) -> tuple[FirstOrder, Hessian]:
        """The loss, its gradient and its Hessian (of all parameters, or of some) at a model, by one exchange."""
        answer = self.look([w], [0], where)
        size = n_parameters(w) if where is None else len(where)
        return self.seen(w, answer), jnp.asarray(unpack(np.asarray(answer.hessian[0]), size) / self.weight)

    @functools.cached_property
    def hessian(self) -> Hessian | None:
        """The Hessian of a quadratic loss, which is the same everywhere, where the survey has asked for it."""
        moments = second_moments(self)
        if moments is None or not self.loss.quadratic:
            return None
        assert self.loss.curvature is not None
        return jnp.asarray(self.loss.curvature * np.kron(moments, np.eye(np.size(self.null.mean))))

    def training(self, psi: AbstractRegularizer, algorithm: AbstractServerAlgorithm, local_steps: int) -> TrainingPlan:
        """An algorithm on this problem."""
        scaling, folds = self.units.scaling, self.survey.folds
        return TrainingPlan(self.problem(psi), algorithm, scaling, local_steps, folds, self.without)

    def original(
        self, w: Weights, intercept: float | np.ndarray | None = None
    ) -> tuple[np.ndarray, float | np.ndarray]:
        """Coefficients and intercept for the features as they were given; of a model without one, with this one."""
        labels = self.units.labels
        coef = np.asarray(w.coef, np.float64)
        flat = coef.reshape(len(self.units.mean), -1) * self.units.coef[:, None]
        shown, given = np.zeros(flat.shape[1]), w.intercept if intercept is None else intercept
        if given is not None:
            own = np.asarray(given).reshape(-1)
            own = own - own.mean() if self.loss.any_shift else own
            shown = labels.shift + labels.stretch * own - self.units.mean @ flat
        if isinstance(self.model, Trace) or coef.ndim == 1:
            return flat[:, 0], float(shown[0])
        return flat, shown

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
    found: Survey, *, standardize: bool, blocks: np.ndarray, shape: tuple[int, int] | None = None
) -> StandardizedProblem:
    """Choose units, and learn the model without features.

    `shape` makes the coefficients a matrix; features with the same label in `blocks` keep their proportions.
    """
    require_duality(found.loss)
    keep_programs()
    jax.config.update("jax_enable_x64", True)
    columns = found.part().columns
    labels = found.loss.label_units(found.label_moments, found.fit_intercept)
    # Where constants change nothing, columns may be centred as well.
    centred = found.fit_intercept or not found.loss.rowwise
    unit = units(columns, labels, fit_intercept=centred, standardize=standardize, blocks=blocks)
    if not found.loss.rowwise and found.null is None:
        found = dataclasses.replace(found, null=look_at_null(found, unit))
    model = Linear(found.fit_intercept) if shape is None else Trace(*shape, found.fit_intercept)
    return with_constants([posed(found, model, unit, standardize)])[0]


def posed(
    found: Survey, model: Linear | Trace, unit: Units, standardize: bool, without: int = -1
) -> StandardizedProblem:
    """The problem of all rows, or of all folds but one, in the units of all; see `with_constants`."""
    part, loss = found.part(without), found.loss.in_units(unit.labels).as_deviance()
    own = unit if without < 0 else unit.of_part(part.columns, standardize)
    null = null_model(found, part, loss, own)
    outputs = None if null.mean.ndim == 0 else null.mean.size
    start = model.init(jax.random.key(0), jnp.zeros(len(own.mean)), outputs)
    shaped = Weights(null.gradient.coef.reshape(start.coef.shape), null.gradient.intercept)
    null = dataclasses.replace(null, gradient=shaped)
    if found.fit_intercept and found.has_closed_null:
        best = loss.link(null.mean)
        start = Weights(start.coef, best - best.mean() if loss.any_shift else best)
    return StandardizedProblem(found, model, loss, null, start, own, standardize, without)


def with_constants(problems: list[StandardizedProblem]) -> list[StandardizedProblem]:
    """Problems with their best constants: those that sums do not tell are sought together, by looking at many."""
    if not problems or problems[0].survey.has_closed_null:
        return problems
    from cofed.estimators.best_constant import best_constants

    return best_constants(problems)


def null_model(found: Survey, part: PartMoments, loss: AbstractLoss, unit: Units) -> NullModel:
    """The model without features, from sums that are known: all of it, if they tell the best constant."""
    labels, width, many = unit.labels, unit.scaling.width, len(part.labels) > 1
    tilt = (found.centre - unit.mean + part.shift) / width
    mean = (found.label_centre - labels.centre + part.label_shift) / labels.size
    covariance = part.covariance / width[:, None] / labels.size
    at = (found.constant - labels.shift) / labels.stretch  # where the sites have looked, in these units
    shaped = (lambda v: jnp.asarray(v)) if many else (lambda v: jnp.asarray(v[0]))
    value, predicted = part.constant_loss / labels.objective, mean
    steep, natural = float(loss.curvature or 1) if loss.quadratic else 1.0, np.ones_like(mean)
    if loss.has_link and found.fit_intercept:
        best, seen = loss.link(shaped(mean)), shaped(at)
        way = loss.natural(best) - loss.natural(seen)
        step = loss.cumulant(best) - loss.cumulant(seen) - jnp.sum(shaped(mean) * way)
        value, natural = value + steep * float(step), natural_slope(loss, best)
    elif loss.has_link:
        natural = natural_slope(loss, shaped(at))
        predicted = np.reshape(np.asarray(jax.grad(loss.cumulant)(shaped(at))), -1) / natural
    gradient = steep * natural * (tilt[:, None] * (predicted - mean) - covariance)
    reach, offset = np.sqrt(part.n) * unit.spread, 0.0
    if len(found.gram.offsets):
        # No entry of a column is farther from a centre than the root of the sum of all squares.
        reach = (np.sqrt(found.gram.spans) + np.abs(found.centre - unit.mean)) / width
        offset = 0.0 if loss.location else np.sqrt(float(found.gram.offsets[0]) / float(np.sum(found.sums.n)))
    return NullModel(
        Weights(jnp.asarray(gradient), jnp.zeros_like(shaped(mean)) if found.fit_intercept else None),
        shaped(mean),
        jnp.asarray(value),
        jnp.asarray(tilt),
        jnp.asarray(unit.spread),
        jnp.asarray(reach),
        jnp.asarray(offset),
        jnp.asarray(float(part.n)),
        jnp.asarray(part.weight),
    )


def natural_slope(loss: AbstractLoss, prediction: Float[Array, "*k"]) -> np.ndarray:
    """The derivative of the natural parameter by the prediction, of each output."""
    return np.reshape(np.asarray(jax.grad(lambda z: jnp.sum(loss.natural(z)))(prediction)), -1)


def look_at_null(found: Survey, unit: Units) -> LookAnswer:
    """A look at the model without features, of all rows and without each fold; at Hessians unless they are large."""
    parts, p, k = found.n_folds + 1, len(unit.mean), n_outputs(found.loss)
    closer = parts if p * k <= SMALL else 0
    message = LookMessage(
        coef=np.zeros((parts, p, k)),
        intercept=np.zeros((parts, k)),
        without=np.arange(-1, parts - 1, dtype=np.int32),
        closer=np.arange(closer, dtype=np.int32),
        where=np.tile(np.arange(p * k if closer else 0, dtype=np.int32), (closer, 1)),
        scaling=unit.scaling,
        folds=found.folds,
        loss=found.loss.in_units(unit.labels),
    )
    return found.sites.ask(look, message)


def second_moments(problem: StandardizedProblem) -> np.ndarray | None:
    """The mean products of all that parameters are multiplied with, where the survey has asked for them."""
    survey, unit = problem.survey, problem.units
    products = survey.products(problem.without)
    if products is None:
        return None
    width, tilt = unit.scaling.width, np.asarray(problem.null.tilt)
    off = survey.centre - unit.mean
    moved = np.outer(survey.part(problem.without).shift, off)
    features = (products + moved + moved.T + np.outer(off, off)) / width / width[:, None]
    if problem.start.intercept is None:
        return features
    return np.block([[features, tilt[:, None]], [tilt[None, :], np.ones((1, 1))]])


def require_duality(loss: AbstractLoss) -> None:
    """Refuse a loss that does not say what a certificate needs to know."""
    lacking = ["curvature"] * (loss.curvature is None)
    lacking += ["conjugate"] * (not loss.has_conjugate and not loss.attains_zero)
    if lacking:
        raise TypeError(
            f"{type(loss).__name__} gives no {' and no '.join(lacking)}, without which a fit cannot be certified; see "
            "cofed.AbstractLoss"
        )


@program
def assess_known(
    problem: Problem, null: NullModel, at: FirstOrder, curved: FactoredHessian | None = None
) -> Assessment:
    """The certificate of a model whose loss and gradient (and Hessian) are known."""
    return assess(problem, null, at, curved)
