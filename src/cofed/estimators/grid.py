"""The models of all strengths and training sets in lock-step: one message carries them all.

The loss does not depend on the strength, so every model that was looked at serves every strength. Of each strength the
best model so far is improved by a penalised quadratic model of the loss around it, whose Hessian is its own or that of
its neighbours; then all that are not done yet are looked at in one exchange, with the Hessians of a few. Models of
neighbouring strengths act as shorter and longer steps, so that hardly any are needed. Where Hessians are so large that
a message has only a few, they are kept from look to look, and those of all rows speak for the folds too.

The certificate is that of `certificate.py`. Where a gradient is a little outside the penalty's dual ball, its dual
point is mixed with that of a model of a smaller strength, whose gradient is well inside: by convexity the mixture of
their conjugates bounds that of the mixture.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from cofed._util.programs import program
from cofed.engine.job import traced
from cofed.estimators.bundle import Curvature, Vector
from cofed.estimators.certificate import (
    Assessment,
    DualPoint,
    FactoredHessian,
    FirstOrder,
    NullModel,
    assess,
    best_dual,
    factored,
    of_coefficients,
)
from cofed.estimators.standardized_problem import assess_known
from cofed.estimators.training_set import TrainingSet, weights
from cofed.losses import AbstractLoss
from cofed.models import AbstractModel, Weights
from cofed.problem import Problem
from cofed.regularizers import AbstractRegularizer, On
from cofed.sites.queries import LookAnswer, LookMessage, look
from cofed.solvers.curvature import unpack

Positions = tuple[int, int, int, int]  # a training set, a strength, a model, and its partner

ANCHORS = 60  # the most Hessians in a message
BYTES = 8e6  # the most that they may take
WHOLE = 180  # parameters up to which Hessians are whole
ROUGH = 4  # looks at large models before all of them are
LARGEST_PART = int(np.sqrt(BYTES / 8))  # parameters of Hessians of which a message has two
GOLDEN = (np.sqrt(5) - 1) / 2  # its multiples less their whole parts are spread evenly
STEP = 64  # parameters by which Hessians that are not whole differ in size, as each size is compiled apart
TOGETHER = 128  # certificates that are computed at once


class Grid:
    """The exchanges of a grid."""

    def __init__(self, sets: Sequence[TrainingSet]):
        self.sets = sets
        first = sets[0].problem
        self.model, self.start = first.model, first.start
        self.loss = traced(first.loss, np.float64)  # its numbers are arguments of compiled programs
        self.nulls = stacked([one.problem.null for one in sets])
        self.psis = stacked([one.psi for one in sets])
        self.looks = 0

    def run(self, most: int) -> int:
        """Look at models until all are done, or `most` times; how often."""
        spent = 0
        if not all(0 in one.bundle.curvature for one in self.sets) and most > 0:
            self.look_at_start()
            spent = 1
        self.judge()
        # Held-out losses of the models without features are learnt in the first look.
        while spent < most and not (all(one.finished for one in self.sets) and not self.unheld):
            self.look()
            self.judge()
            spent += 1
        return spent

    @property
    def unheld(self) -> list[int]:
        """Training sets whose model without features was not tried on the rows held out."""
        return [s for s, one in enumerate(self.sets) if not one.is_whole and np.isnan(one.bundle.seen.held[0])]

    def look_at_start(self) -> None:
        """Learn the Hessians of the models without features, on the parameters that matter first."""
        models = [(s, 0, one.bundle.seen.w[0]) for s, one in enumerate(self.sets)]
        size = min(self.part, self.sets[0].size)
        where = np.stack([self.sets[s].working_set(0, w, size) for s, _, w in models])
        self.keep(models, self.ask(models, np.arange(len(models)), where), np.arange(len(models)), where)
        for one in self.sets:
            one.bundle.curvature[0] = one.bundle.curvature[1]
            one.bundle.seen.held[0] = one.bundle.seen.held[1]
            one.anchors = []

    @property
    def part(self) -> int:
        """The most parameters of a Hessian that is not whole, such that a message has five of each training set."""
        return int(np.sqrt(BYTES / (4 * 5 * len(self.sets)))) // 16 * 16

    def look(self) -> None:
        """One exchange: all candidates, and the Hessians of some."""
        models = [(s, 0, self.sets[s].bundle.seen.w[0]) for s in self.unheld]
        # Large models are dear, and the first ones are rough: a part of the strengths serves the others as well.
        first = self.sets[0]
        every = 4 if first.size > WHOLE and len(first.alphas) > 40 and self.looks < ROUGH else 1
        busy = [(s, one) for s, one in enumerate(self.sets) if not one.finished]
        models += [(s, i, w) for s, one in busy for i, w in one.candidates(every)]
        self.looks += 1
        closer, where = self.closer(models)
        self.keep(models, self.ask(models, closer, where), closer, where)

    def closer(self, models: list[tuple[int, int, Vector]]) -> tuple[np.ndarray, np.ndarray]:
        """Which models to look at more closely, spread over the strengths, and on which parameters."""
        size = self.hessian_size(models)
        shared, most = self.is_shared(size), int(min(ANCHORS, BYTES // (4 * size * size)))
        busy = [s for s, one in enumerate(self.sets) if not one.finished]
        asked = self.in_turn(busy, most) if shared and len(models) > most else busy
        own = [[m for m, (s, _, _) in enumerate(models) if s == k] for k in asked]
        own = [which for which in own if which]
        share = max(1 if shared else 2, most // max(1, len(own)))
        begin = GOLDEN * self.looks % 1 if shared and self.looks > ROUGH else None
        closer = np.array([which[j] for which in own for j in spread(len(which), share, begin)], np.int32)
        where = [self.sets[models[m][0]].working_set(models[m][1], models[m][2], size) for m in closer]
        return closer, np.array(where, np.int32).reshape(len(closer), size)

    def hessian_size(self, models: list[tuple[int, int, Vector]]) -> int:
        """How many parameters the Hessians of a message tell of: all, or as many as are in use and some more."""
        size = max(one.size for one in self.sets)
        if size <= WHOLE or self.sets[0].pieces is None:
            return size
        support = max(int(np.count_nonzero(w)) for _, _, w in models)
        wanted = max(2 * STEP, support + support // 8 + 16)
        return min(size, -(-wanted // STEP) * STEP, self.part if support <= self.part else LARGEST_PART)

    def is_shared(self, size: int) -> bool:
        """Whether Hessians of so many parameters are too large for several of each training set in a message."""
        return size > max(self.part, WHOLE)

    def in_turn(self, busy: list[int], most: int) -> list[int]:
        """Whose Hessians to ask for where few fit into a message: those of all rows, and later, in every second look,
        those of the folds, at most so many of them."""
        lend = [s for s in busy if self.sets[s].lender is None]
        borrow = [s for s in busy if self.sets[s].lender is not None]
        turn = self.looks // 2 * most % max(1, len(borrow))
        borrow = (borrow[turn:] + borrow[:turn])[: max(1, most)]
        return (borrow or lend) if self.looks > ROUGH and self.looks % 2 else (lend or borrow)

    def ask(self, models: list[tuple[int, int, Vector]], closer: np.ndarray, where: np.ndarray) -> LookAnswer:
        """The exchange."""
        problem = self.sets[0].problem
        p, k = len(problem.units.mean), np.size(problem.null.mean)
        w = np.stack([one for _, _, one in models])
        message = LookMessage(
            coef=w[:, : p * k].reshape(-1, p, k),
            intercept=np.zeros((len(w), k)) if self.start.intercept is None else w[:, p * k :],
            without=np.array([self.sets[s].problem.without for s, _, _ in models], np.int32),
            closer=np.asarray(closer, np.int32),
            where=np.asarray(where, np.int32),
            scaling=problem.units.scaling,
            folds=problem.survey.folds,
            loss=problem.asked_loss,
        )
        return problem.sites.ask(look, message)

    def keep(
        self, models: list[tuple[int, int, Vector]], answer: LookAnswer, closer: np.ndarray, where: np.ndarray
    ) -> None:
        """Put what came back where it belongs."""
        gradient = np.reshape(np.asarray(answer.gradient), (len(models), -1))
        if self.start.intercept is not None:
            gradient = np.concatenate([gradient, np.asarray(answer.slope)], axis=1)
        shared = self.is_shared(where.shape[1])
        for s, one in enumerate(self.sets):
            own = np.array([m for m, (which, _, _) in enumerate(models) if which == s], int)
            if not len(own):
                continue
            n, fold = one.problem.weight, one.problem.without
            held = 1.0 if fold < 0 else float(one.problem.survey.sums.n[fold])
            w = np.stack([models[m][2] for m in own])
            strengths = [models[m][1] for m in own]
            losses, outside = np.asarray(answer.loss)[own] / n, np.asarray(answer.held)[own] / held
            places = one.take(strengths, one.measured(w, losses, gradient[own] / n, outside))
            if np.isnan(one.bundle.seen.held[0]):
                same = np.flatnonzero((w == one.bundle.seen.w[0]).all(axis=1))
                one.bundle.seen.held[0] = outside[same[0]] if len(same) else np.nan
            anchors = []
            for a, m in enumerate(closer):
                if models[m][0] != s:
                    continue
                matrix = unpack(np.asarray(answer.hessian[a]), where.shape[1]) / n
                if np.isfinite(matrix).all() and np.isfinite(answer.loss[m]):
                    place = int(places[np.searchsorted(own, m)])
                    one.bundle.curvature[place] = Curvature(where[a], matrix)
                    anchors.append((models[m][1], one.bundle.curvature[place]))
            one.renew_anchors(anchors, shared)

    def judge(self) -> None:
        """Find the best model of every strength that is not done, with its certificate."""
        pairs = [pair for s in range(len(self.sets)) for pair in self.contenders(s)]
        if not pairs:
            return
        seen = self.certified(pairs)
        best: dict[tuple[int, int], tuple[int, Assessment]] = {}
        for (s, i, m, _), one in zip(pairs, seen, strict=True):
            before = best.get((s, i))
            if before is None or one.gap + one.rounding < before[1].gap + before[1].rounding:
                best[s, i] = m, one
        worst = 0.0
        for (s, i), (m, one) in best.items():
            seen = self.sharpened(s, i, m, one)
            self.sets[s].settle(i, m, seen)
            worst = max(worst, float(seen.gap)) if self.sets[s].is_whole else worst
        whole = self.sets[0]
        if any(self.sets[s].is_whole for s, _ in best) and np.isfinite(worst):  # for whoever follows the fit
            scale = max(float(whole.problem.null.loss), np.finfo(float).tiny)
            whole.problem.sites.exchanges.tell("gap", gap=worst / scale, target=whole.tol)

    def contenders(self, s: int) -> list[Positions]:
        """For every open strength of a training set, the models with the least objective, with a partner."""
        one = self.sets[s]
        open_ = np.flatnonzero(~one.standing.done)
        if not len(open_):
            return []
        objectives = one.bundle.objectives(one.alphas[open_])
        least, partner = objectives.argmin(axis=1), one.bundle.partners(one.alphas[open_], objectives)
        # Of two that differ by rounding, the better certificate says which is better.
        tie = 1e-9 * max(float(one.problem.null.loss), np.finfo(float).tiny)
        pairs = []
        for j, i in enumerate(open_.tolist()):
            among = {int(least[j]), int(one.standing.latest[i]), int(one.standing.best[i])}
            near = [m for m in sorted(among) if objectives[j, m] <= objectives[j, least[j]] + tie]
            pairs += [(s, i, m, int(partner[j])) for m in near]
        return pairs

    def certified(self, pairs: list[Positions]) -> list[Assessment]:
        """The certificates of models."""
        return [one for first in range(0, len(pairs), TOGETHER) for one in self.some(pairs[first : first + TOGETHER])]

    def some(self, pairs: list[Positions]) -> list[Assessment]:
        """The certificates of so many models that one compiled program serves always."""
        padded = np.array(pairs + [pairs[0]] * (TOGETHER - len(pairs)))
        seen = [one.bundle.seen for one in self.sets]

        def first_orders(column: int) -> FirstOrders:
            w = np.stack([seen[row[0]].w[row[column]] for row in padded])
            gradient = np.stack([seen[row[0]].gradient[row[column]] for row in padded])
            loss = jnp.asarray(np.array([seen[row[0]].loss[row[column]] for row in padded]))
            return FirstOrders(weights(w, self.start), loss, weights(gradient, self.start))

        alphas = jnp.asarray(np.array([self.sets[row[0]].alphas[row[1]] for row in padded]))
        parts = (self.model, self.loss, self.nulls, self.psis)
        found = certificates(parts, jnp.asarray(padded[:, 0]), alphas, (first_orders(2), first_orders(3)))
        leaves, shape = jax.tree.flatten(found)
        rows = zip(*map(np.asarray, leaves), strict=True)
        return [jax.tree.unflatten(shape, row) for row, _ in zip(rows, pairs, strict=False)]

    def sharpened(self, s: int, i: int, m: int, seen: Assessment) -> Assessment:
        """The certificate with the model's own Hessian, where that is known and helps."""
        one = self.sets[s]
        known, bound = one.bundle.curvature.get(m), float(seen.gap) + float(seen.rounding)
        # It certifies models that are off by the root of the tolerance: a step more makes those exact.
        exact = bool(seen.settled) or float(seen.prox_gradient) <= one.tol
        needless = not one.is_whole and one.psi_is_coercive
        if needless or not exact or known is None or len(known.where) < one.size or bound <= one.target:
            return seen
        return self.sharper(one, i, m, seen, factored(jnp.asarray(known.matrix)))

    def sharper(self, one: TrainingSet, i: int, m: int, seen: Assessment, curved: FactoredHessian) -> Assessment:
        """The better of two certificates of a model, the second with its Hessian."""
        looks = one.bundle.seen
        w, gradient = (weights(v[m], self.start) for v in (looks.w, looks.gradient))
        at = FirstOrder(w, jnp.asarray(looks.loss[m]), gradient)
        posed = one.problem.problem(one.psi.scaled(float(one.alphas[i])))
        found = assess_known(posed, one.problem.null, at, curved)
        return found if float(found.gap) + float(found.rounding) < float(seen.gap) + float(seen.rounding) else seen


def spread(n: int, some: int, begin: float | None) -> np.ndarray:
    """So many of n positions, evenly spread: from the first to the last, or beginning a part of the distance between
    two after the first."""
    if begin is None:
        return np.unique(np.linspace(0, n - 1, some).round().astype(int))
    return np.unique((n * (np.arange(some) + begin) / some).astype(int))


def stacked(parts: Sequence[PyTree]) -> PyTree:
    """Equal structures as one, with arrays of one more axis."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *parts)


class FirstOrders(NamedTuple):
    """Several `FirstOrder`s, as one."""

    w: Weights
    loss: Float[Array, " n"]
    gradient: Weights


@program
def certificates(
    parts: tuple[AbstractModel, AbstractLoss, NullModel, AbstractRegularizer],
    which: Int[Array, " n"],
    alphas: Float[Array, " n"],
    looks: tuple[FirstOrders, FirstOrders],
) -> Assessment:
    """The certificates of models, each with the help of its partner. All are stacked, as are the training sets' null
    models and penalties (of strength 1), of which `which` says whose each is."""
    model, loss, nulls, psis = parts

    def one(s: Array, alpha: Array, own: FirstOrders, other: FirstOrders) -> Assessment:
        null, psi = (jax.tree.map(lambda a: a[s], stack) for stack in (nulls, psis))
        problem, at = Problem(model, loss, On(psi.scaled(alpha), "coef")), FirstOrder(*own)
        seen = assess(problem, null, at)
        gap = jnp.minimum(seen.gap, mixed_gap(problem, null, at, FirstOrder(*other)))
        return seen._replace(gap=gap)

    return jax.vmap(one)(which, alphas, *looks)


def mixed_gap(problem: Problem, null: NullModel, at: FirstOrder, partner: FirstOrder) -> Float[Array, ""]:
    """The gap at a model with a dual point between its own and its partner's, as near to its own as is feasible."""
    psi = of_coefficients(problem)
    out, inside = psi.zeroing_factor(at.gradient.coef), psi.zeroing_factor(partner.gradient.coef)
    apt = (out > 1) & (inside < 1) & jnp.isfinite(out)
    t = jnp.where(apt, (out - 1) / jnp.where(apt, out - inside, 1), 0)
    t = jnp.minimum(t * (1 + 4 * jnp.finfo(t.dtype).eps), 1)
    mixed = jax.tree.map(lambda a, b: (1 - t) * a + t * b, at.gradient, partner.gradient)
    theta = DualPoint(mixed.coef, (1 - t) * at.conjugate + t * partner.conjugate, at.loss)
    value = best_dual(problem, null, theta, mixed.intercept)
    primal = at.loss + problem.regularizer.value(at.w)
    return jnp.where(apt, jnp.maximum(primal - value, 0), jnp.inf)
