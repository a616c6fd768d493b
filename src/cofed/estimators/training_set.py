"""One training set of a grid: its problem, what has been looked at, and where the model of each strength stands."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from cofed._util.programs import program
from cofed._util.rounding import EPS
from cofed._util.threads import one_thread
from cofed.engine.job import traced
from cofed.estimators.bundle import Bundle, Curvature, Looks, Vector
from cofed.estimators.certificate import Assessment
from cofed.estimators.polish import Pieces, minimise_by_pieces
from cofed.estimators.standardized_problem import StandardizedProblem, n_parameters, second_moments
from cofed.models import Weights
from cofed.regularizers import AbstractRegularizer, On
from cofed.solvers import active_set, quadratic
from cofed.solvers.active_set import ElasticQuadratic
from cofed.solvers.curvature import unpack

SHORTER = 5.0  # a step that brought nothing is tried again, divided by this, its square and its cube
NEARLY = 0.7  # of the slope at which a coefficient is used
TOGETHER = 32  # models whose penalties are computed at once: one compiled program
UNTOLD = 4  # of the parameters of a Hessian, so many times fewer come into use that it does not tell of
NEAR = 3  # strengths between two Hessians of which the later one speaks for both
FAR = 12  # strengths up to which a fold's own Hessian is better than one of all rows
GIVE_UP = 5  # looks without a better model, after which there is none to be had

Anchor = tuple[int, Curvature]  # a strength, and the Hessian at a model of it


@dataclasses.dataclass
class Standing:
    """Where the models of all strengths are: the best one seen of each, and its certificate."""

    best: np.ndarray  # positions in the bundle
    latest: np.ndarray  # the last candidates
    bound: Vector  # gap + rounding of the best
    tried: np.ndarray  # whether there was a candidate in the last look
    stayed: np.ndarray  # for how many looks at candidates the best has been the same
    done: np.ndarray
    seen: list[Assessment | None]

    @classmethod
    def at_start(cls, strengths: int) -> "Standing":
        """All at the model without features."""
        zero = np.zeros(strengths, int)
        return cls(zero, zero.copy(), np.full(strengths, np.inf), zero > 0, zero.copy(), zero > 0, [None] * strengths)


class TrainingSet:
    """All rows, or those of all folds but one, with a penalty of several strengths.

    Not all strengths need be `asked` for: others help on the way, or make for good certificates of stronger ones.
    """

    def __init__(
        self, problem: StandardizedProblem, psi: AbstractRegularizer, alphas: Vector, asked: np.ndarray, tol: float
    ):
        self.problem, self.alphas, self.asked, self.tol = problem, alphas, asked, tol
        self.psi = traced(psi, np.float64)  # its strength is an argument of compiled programs, and not part of them
        self.size = n_parameters(problem.start)
        self.standing = Standing.at_start(len(alphas))
        self.anchors: list[Anchor] = []  # Hessians of the last models
        self.lender: TrainingSet | None = None  # that of all rows, of a fold
        self.borrowed: list[Anchor] = []  # Hessians of the lender, where a message has none for each training set
        self.spoken: tuple[list[Anchor], list[Anchor], list[Anchor]] = (self.borrowed, self.anchors, [])
        self.null_loss = float(problem.null.loss)
        self.pieces, self.psi_is_coercive = elastic_pieces(psi, problem.start), psi.coercive
        form = psi.piecewise_quadratic()
        self.limited = None if form is None or self.pieces is not None else Pieces(psi, problem.start)
        null = problem.null
        start, gradient = flat(problem.start), flat(null.gradient)
        first = self.measured(start[None], np.array([float(null.loss)]), gradient[None], np.array([np.nan]))
        self.bundle = Bundle(first)
        known = null_curvature(problem)
        if known is not None:
            self.bundle.curvature[0] = Curvature(np.arange(self.size), known)

    @property
    def is_whole(self) -> bool:
        """Whether it has all rows."""
        return self.problem.without < 0

    @property
    def target(self) -> float:
        """The bound to reach: of held-out folds, beside what the features explain; else, beside the null model."""
        scale = self.null_loss
        if not self.is_whole:
            scale = max(scale - float(self.bundle.seen.loss.min()), 1e-3 * scale)
        return self.tol * max(scale, np.finfo(float).eps)

    @property
    def finished(self) -> bool:
        """Whether all strengths that are asked for are done."""
        return bool(self.standing.done[self.asked].all())

    def measured(self, w: np.ndarray, loss: Vector, gradient: np.ndarray, held: Vector) -> Looks:
        """Models that were looked at, with what their penalties are. What is not finite is as bad as can be."""
        good = np.isfinite(loss) & np.isfinite(gradient).all(axis=1)
        more, safe = -len(w) % TOGETHER, np.where(good[:, None], gradient, 0)
        models, slopes = (np.pad(one, ((0, more), (0, 0))) for one in (w, safe))
        found = []
        for first in range(0, len(models), TOGETHER):
            some = slice(first, first + TOGETHER)
            coef, slope = (weights(one[some], self.problem.start).coef for one in (models, slopes))
            found.append(values(self.psi, coef, slope))
        penalty, zeroing = (np.concatenate(parts)[: len(w)] for parts in zip(*found, strict=True))
        inf = np.inf
        return Looks(w, np.where(good, loss, inf), safe, penalty, np.where(good & (zeroing >= 0), zeroing, inf), held)

    def candidates(self, every: int = 1) -> list[tuple[int, Vector]]:
        """The next models to look at, by (every so many) strength: minimisers of penalised quadratic models around the
        best ones.

        Where the best one has stayed the same, the step to the minimiser was too long, and shorter ones are tried.
        """
        found: list[tuple[int, Vector]] = []
        guess = None
        chosen = np.flatnonzero(~self.standing.done)[::every]
        self.standing.tried[:] = False
        self.standing.tried[chosen] = True
        with one_thread():
            for i in chosen.tolist():
                x = self.bundle.seen.w[self.standing.best[i]]
                guess = self.minimiser(i, x, guess)
                stayed = int(self.standing.stayed[i])
                if stayed > 0:
                    steps = SHORTER ** -(3.0 * (stayed - 1) + np.arange(1, 4))
                    found += [(i, x + t * (guess - x)) for t in steps]
                else:
                    found.append((i, guess))
        return found

    def minimiser(self, i: int, x: Vector, guess: Vector | None) -> Vector:
        """The minimiser of the penalised quadratic model at x, the best model of a strength."""
        g, alpha = self.bundle.seen.gradient[self.standing.best[i]], self.alphas[i]
        if self.limited is not None:
            begin, H = x if guess is None else guess, self.curvature(i, np.arange(self.size))
            slope = g + H @ (begin - x)
            return minimise_by_pieces(H, slope, begin, self.limited.scaled(alpha), 4 * EPS * (np.abs(slope) + EPS))
        if self.pieces is None:
            H = self.curvature(i, np.arange(self.size))
            psi, like = On(self.psi.scaled(jnp.asarray(alpha)), "coef"), self.problem.start
            return np.asarray(by_proximal_steps(psi, like, jnp.asarray(H), jnp.asarray(g), jnp.asarray(x)))
        l1, ridge = alpha * self.pieces.l1, alpha * self.pieces.ridge
        own = np.arange(self.size)
        if any(len(one.where) < self.size for _, one in self.neighbours(i)):
            own = np.flatnonzero((x != 0) | self.newcomers(i, x, guess))
        q = ElasticQuadratic(self.curvature(i, own), g[own], x[own], l1[own], ridge[own])
        starts = [x[own]] if guess is None else [x[own], guess[own]]
        z = np.zeros_like(x)
        z[own] = active_set.minimise(q, min(starts, key=q.value))
        return z

    def newcomers(self, i: int, x: Vector, guess: Vector | None) -> np.ndarray:
        """Where Hessians are not whole: which parameters may come into use at the best model x of a strength.

        What is far from being used stays out; and of what no Hessian tells of all but the strongest, since of those a
        step can go anywhere. Where that is wrong, the next look tells.
        """
        assert self.pieces is not None
        l1 = self.alphas[i] * self.pieces.l1
        pull = np.abs(self.bundle.seen.gradient[self.standing.best[i]]) / np.where(l1 > 0, l1, 1)
        near = (l1 == 0) | (pull >= NEARLY) | (False if guess is None else guess != 0)
        told, some = np.zeros(self.size, bool), 0
        for _, one in self.neighbours(i):
            told[one.where], some = True, max(some, len(one.where) // UNTOLD)
        rest = np.flatnonzero(near & ~told & (x == 0))
        near[rest[np.argsort(-pull[rest], kind="stable")[some:]]] = False
        return near

    def neighbours(self, i: int) -> list[tuple[float, Curvature]]:
        """The Hessians that speak for the best model of a strength, with their weights: its own, or those of the
        nearest models on both sides."""
        known, at = self.bundle.curvature, int(self.standing.best[i])
        if at in known:
            return [(1.0, known[at])]
        anchors = self.speakers
        if not anchors:
            return [(1.0, known[0])]
        strengths = [one for one, _ in anchors]
        right = int(np.searchsorted(strengths, i))
        if right in (0, len(strengths)):
            return [(1.0, anchors[min(right, len(strengths) - 1)][1])]
        (low, before), (high, after) = anchors[right - 1 : right + 1]
        t = (i - low) / (high - low)
        return [(1 - t, before), (t, after)]

    @property
    def speakers(self) -> list[Anchor]:
        """The Hessians that speak for others, the lender's where there are none of its own nearby: put together once
        for all strengths of a look."""
        borrowed, own, found = self.spoken
        if borrowed is not self.borrowed or own is not self.anchors:
            found = joined(self.borrowed, self.anchors, FAR)
            self.spoken = self.borrowed, self.anchors, found
        return found

    def renew_anchors(self, new: list[Anchor], shared: bool) -> None:
        """Take Hessians in place of the last ones; where few are had at a time, in place of the nearest only."""
        self.anchors = joined(self.anchors, new, NEAR) if shared else new or self.anchors
        if shared and self.lender is not None:
            self.borrowed = self.lender.anchors

    def curvature(self, i: int, own: np.ndarray) -> np.ndarray:
        """The Hessian at the best model of a strength, on some parameters."""
        parts = [one.on(own, self.size) if t == 1 else t * one.on(own, self.size) for t, one in self.neighbours(i)]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def working_set(self, i: int, w: Vector, size: int) -> np.ndarray:
        """The parameters on which the Hessian at a candidate is worth most: those in use, then those nearly."""
        if size >= self.size:
            return np.arange(self.size)
        assert self.pieces is not None
        l1 = self.alphas[i] * self.pieces.l1
        g = self.bundle.seen.gradient[self.standing.best[i]]
        near = np.abs(g) / np.where(l1 > 0, l1, 1)
        order = np.argsort(-np.where(l1 == 0, np.inf, np.where(w != 0, 1e6, 0) + near), kind="stable")
        return np.sort(order[:size])

    def take(self, strengths: list[int], looks: Looks) -> np.ndarray:
        """Keep what was seen of candidates; their positions."""
        where = self.bundle.add(looks)
        self.standing.latest[strengths] = where
        return where

    def settle(self, i: int, best: int, seen: Assessment) -> None:
        """Take the best model of a strength, with its certificate."""
        now = self.standing
        now.stayed[i] = now.stayed[i] + int(now.tried[i]) if now.best[i] == best else 0
        now.best[i], now.bound[i], now.seen[i] = best, float(seen.gap) + float(seen.rounding), seen
        # Where rounding leaves no better model, the Hessian may still make for a better certificate.
        at_rest = bool(seen.settled) and (best in self.bundle.curvature or now.stayed[i] > 1)
        now.done[i] = now.bound[i] <= self.target or at_rest or now.stayed[i] >= GIVE_UP

    def model(self, i: int) -> Weights:
        """The best model of a strength."""
        return weights(self.bundle.seen.w[self.standing.best[i]], self.problem.start)


def joined(old: list[Anchor], new: list[Anchor], reach: int) -> list[Anchor]:
    """The new Hessians, and those old ones that are farther than `reach` strengths from all of them."""
    far = [one for one in old if all(abs(one[0] - i) > reach for i, _ in new)]
    return sorted(far + new, key=lambda one: one[0])


def flat(w: Weights) -> Vector:
    """A model as a vector."""
    return np.asarray(ravel_pytree(w)[0])


def weights(v: np.ndarray, like: Weights) -> Weights:
    """Vectors, the last axis of an array, as models of NumPy arrays."""
    many, cut = v.shape[:-1], like.coef.size
    coef = v[..., :cut].reshape((*many, *like.coef.shape))
    if like.intercept is None:
        return Weights(coef, None)
    return Weights(coef, v[..., cut:].reshape((*many, *np.shape(like.intercept))))


def elastic_pieces(psi: AbstractRegularizer, like: Weights) -> Pieces | None:
    """The weights of an elastic net; None of other penalties."""
    form = psi.piecewise_quadratic()
    if form is None or np.any(np.isfinite(form.low)) or np.any(np.isfinite(form.high)):
        return None
    return Pieces(psi, like)


def null_curvature(problem: StandardizedProblem) -> np.ndarray | None:
    """The Hessian at the model without features, where it was seen, or the products of features are known."""
    seen = problem.survey.null
    if seen is not None:
        if not len(seen.hessian):
            return None
        return unpack(np.asarray(seen.hessian[problem.without + 1]), n_parameters(problem.start)) / problem.weight
    moments = second_moments(problem)
    if moments is None or (problem.survey.sites.has_offsets and not problem.loss.quadratic):
        return None
    loss, outputs = problem.loss, np.size(problem.null.mean)
    if loss.has_link and not loss.is_canonical:  # the labels decide how each row bends
        return None
    if loss.has_link:
        at = jnp.zeros_like(problem.null.mean) if problem.start.intercept is None else problem.start.intercept
        bend = np.reshape(np.asarray(jax.hessian(loss.cumulant)(at)), (outputs, outputs))
    else:
        bend = np.eye(outputs) * float(loss.curvature or 1)
    return np.kron(moments, bend)


@program
def values(psi: AbstractRegularizer, coef: Array, gradient: Array) -> tuple[Array, Array]:
    """The penalty of every model, and the least factor of it that has its gradient in the dual ball."""
    return jax.vmap(psi.value)(coef), jax.vmap(psi.zeroing_factor)(gradient)


@program
def by_proximal_steps(psi: On, like: Weights, H: Array, g: Array, x: Array) -> Array:
    """The minimiser of a penalised quadratic model, for any penalty with a prox."""
    back = ravel_pytree(like)[1]
    prox = lambda v, step: ravel_pytree(psi.prox(back(v), step))[0]  # noqa: E731
    penalty = quadratic.VectorPenalty(prox, lambda v: psi.value(back(v)), psi.separable)
    return quadratic.minimise(H, g, x, penalty)
