"""From a posed problem to a certified answer, by cofed's own algorithms, without a number to tune.

The rule of `algorithm="auto"`, the cheapest in bytes, and nearly always in rounds, in `benchmarks.estimators`:

- "newton", FedNewton: proximal Newton steps. Models of up to 128 parameters share their whole Hessian; with a penalty
  that is a sum over coordinates and sets some of them to zero, larger ones share it on a working set of 128
  coordinates, which doubles where the answer needs more than half of it. A squared loss takes one such exchange per
  working set.
- "fista", FedFISTA, one gradient per round, where no working set serves and there are more than 512 parameters: there
  a few Hessians are more bytes than some hundred gradients (but fewer rounds; `algorithm="newton"` if those matter).

Every exchange is counted: sums for the standardisation, the model without features, the search for curvature, rounds,
and the certificate's own.
"""

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from sklearn.exceptions import ConvergenceWarning

from cofed.algorithms import FedDecouple, FedFISTA, FedNewton
from cofed.algorithms.base import AbstractServerAlgorithm, as_algorithm, refusal
from cofed.engine.job import traced
from cofed.engine.plan import Plan, pose
from cofed.engine.server_rounds import ServerTask as Task
from cofed.estimators.certificate import Certificate, Curvature, Look, curvature_beside, curvature_of, gradient_rounding
from cofed.estimators.loops import begun, fista_rounds, newton_rounds, power_iteration, rounds_up_to, start
from cofed.estimators.penalty import EPS, fitting, is_open, sets_to_zero, stronger
from cofed.estimators.polish import by_pieces, has_pieces
from cofed.estimators.quadratic import Quadratic, refined
from cofed.estimators.sites import NUMBER
from cofed.estimators.standardized_problem import Posed, known
from cofed.losses import Squared
from cofed.models import Weights

WHOLE = 128  # parameters from which on a working set serves
DENSE = 512  # the most parameters of a model that is not sparse whose Hessian is sent in every round
LARGEST = 2048  # the most parameters whose Hessian is sent once, for a path or for intervals
LOCAL_STEPS = 5  # of FedDecouple
BATCH = 60  # the most Newton rounds before a certificate is looked at
POLISH = 50  # the most steps of `polished`
SEPARABLE = 1e-7  # the least curvature, beside that of the model without features, of data that are not separable
NAMES = ("auto", "newton", "fista", "decouple")


@dataclasses.dataclass(frozen=True)
class Solved:
    """An answer with its certificate."""

    w: Weights
    look: Look
    certificate: Certificate
    algorithm: str
    cause: str  # why it is not converged, "" where it is

    def warn(self, stacklevel: int = 3) -> None:
        """A warning where the answer is not good enough."""
        if self.cause:
            warnings.warn(self.cause, ConvergenceWarning, stacklevel=stacklevel)


def check_algorithm(owner: str, algorithm: Any) -> None:
    """An algorithm is one of NAMES or one of cofed's own, with its numbers."""
    if algorithm in NAMES if isinstance(algorithm, str) else with_server(algorithm) is not None:
        return
    raise ValueError(
        f"{owner}: algorithm must be one of {', '.join(NAMES)} or an algorithm with a server such as "
        f"cofed.FedDualAvg(client_lr=0.1), got {algorithm!r}"
    )


def with_server(algorithm: Any) -> AbstractServerAlgorithm | None:
    """The algorithm, where it is one with a server."""
    try:
        found = as_algorithm(algorithm)
    except (TypeError, ValueError):
        return None
    return found if isinstance(found, AbstractServerAlgorithm) else None


def solve(posed: Posed, psi: Any, algorithm: Any, tol: Any, max_rounds: Any, warm: Solved | None = None) -> Solved:
    """Minimise mean loss + psi until gap <= tol * scale; `warm` is an answer to begin from."""
    problem = posed.problem(psi)
    if warm is None:
        begin = problem.regularizer.prox(posed.start, 0.0)
        # A start at zero is the model without features, which has been looked at.
        fresh = all(map(np.array_equal, jax.tree.leaves(begin), jax.tree.leaves(posed.start)))
        seen = known(problem, posed.null, begin, posed.null.loss, posed.null.gradient) if fresh else None
    else:
        begin = problem.regularizer.prox(warm.w, 0.0)
        seen = known(problem, posed.null, begin, warm.look.loss, warm.look.gradient)
    seen = posed.look(psi, begin) if seen is None else seen
    name = choose(posed, psi) if isinstance(algorithm, str) and algorithm == "auto" else algorithm
    name = name if isinstance(name, str) else as_algorithm(name)
    run = Run(posed, psi, tol, max_rounds)
    if run.done(seen):
        return run.solved(begin, seen, name)
    if isinstance(name, str):
        return {"newton": newton, "fista": fista, "decouple": decouple}[name](run, begin, seen)
    return other(run, begin, name, type(name).__name__, local_steps=1)


def choose(posed: Posed, psi: Any) -> str:
    """The rule of "auto"."""
    return "newton" if parameters(posed.start) <= DENSE or sets_to_zero(psi) else "fista"


def parameters(w: PyTree) -> int:
    """The numbers of a model."""
    return sum(np.size(leaf) for leaf in jax.tree.leaves(w))


@dataclasses.dataclass
class Run:
    """The rounds of one fit: how many are left, what is known of the curvature, and when it is done."""

    posed: Posed
    psi: Any
    tol: Any
    left: int
    hessian: Any = None  # of a squared loss, once it is known: the same everywhere
    curved: Curvature | None = None
    first: Curvature | None = None  # at the model without features
    separable: bool = False
    failed: bool = False
    looked: tuple[Weights, tuple[Any, PyTree, Any]] | None = None  # the last model whose Hessian was sent, and that

    @property
    def target(self) -> float:
        """The gap to reach. A model without features that is perfect to rounding leaves nothing to explain."""
        return self.tol * max(float(self.posed.null.loss), EPS)

    def done(self, seen: Look) -> bool:
        """Whether the certificate is good enough."""
        return not self.separable and float(seen.gap) + float(seen.rounding) <= self.target

    def sharper(self, w: Weights, seen: Look) -> Look:
        """The certificate with the Hessian, by one exchange where that is not known; as it is where it is too large."""
        # A small gap alone does not tell that there is a minimum: separable data come as near as one likes to none.
        endless = is_open(self.psi) and not isinstance(self.posed.loss, Squared)
        if (self.done(seen) and not endless) or parameters(w) > LARGEST:
            return seen
        problem, null = self.posed.problem(self.psi), self.posed.null
        loss, gradient, hessian = self.second_order(w, seen)
        if isinstance(self.posed.loss, Squared):
            self.curved = curvature_of(hessian) if self.curved is None else self.curved
            return known(problem, null, w, loss, gradient, self.curved)
        if not endless:
            return known(problem, null, w, loss, gradient, curvature_of(hessian))
        if self.first is None:
            self.first = curvature_of(self.posed.second_order(self.posed.start)[2])
        curved, least = curvature_beside(hessian, self.first)
        self.separable = least < SEPARABLE
        return known(problem, null, w, loss, gradient, curved)

    def second_order(self, w: Weights, seen: Look) -> tuple[Any, PyTree, Any]:
        """The loss, gradient and Hessian at w, by one exchange unless they are known."""
        if isinstance(self.posed.loss, Squared):
            self.hessian = self.posed.second_order(w)[2] if self.hessian is None else self.hessian
            return seen.loss, seen.gradient, self.hessian
        if self.looked is None or self.looked[0] is not w:
            self.looked = w, self.posed.second_order(w)
        return self.looked[1]

    def certificate(self, w: Weights, seen: Look) -> Certificate:
        """The certificate of what was seen, in the user's units."""
        units = self.posed.units
        coef, intercept = self.posed.original(w)
        # The user's own coefficients are rounded once more: that moves all predictions by a like amount.
        moved = EPS * (np.abs(units.mean) @ np.abs(coef) + np.abs(intercept) + abs(units.shift)) / units.stretch
        gap, rounding = float(seen.gap), float(seen.rounding) + float(np.sum(moved**2)) / 2
        converged = not self.separable and gap + rounding <= self.target
        limited = not converged and not self.separable and (bool(seen.settled) or gap <= self.target)
        size = units.objective
        return Certificate(
            objective=size * float(seen.objective) + units.least,
            gap=size * gap,
            prox_gradient=float(seen.prox_gradient),
            scale=size * float(self.posed.null.loss),
            tol=self.tol,
            converged=converged,
            rounding=size * rounding,
            limited_by_rounding=limited,
        )

    def solved(self, w: Weights, seen: Look, name: Any) -> Solved:
        """The answer."""
        certificate = self.certificate(w, seen)
        cause = self.cause(certificate) if certificate.outcome == "not converged" else ""
        return Solved(w, seen, certificate, name if isinstance(name, str) else type(name).__name__, cause)

    def cause(self, certificate: Certificate) -> str:
        """Why it stopped where it did, as a sentence."""
        size = self.posed.units.objective
        reached = (
            f"stopped after {self.posed.traffic.rounds} rounds at a duality gap of {certificate.gap:.3g} and a "
            f"prox-gradient norm of {certificate.prox_gradient:.3g}; the gap was to be at most tol * scale = "
            f"{size * self.target:.3g}. "
        )
        if self.separable:
            return (
                "the data are separable (a combination of features tells apart classes, or rows without a count), so "
                "without a penalty the coefficients grow without end and there is no best model: "
                f"{reached}alpha > 0 helps."
            )
        if self.failed:
            return f"the rounds failed, as the model was no longer finite: {reached}A smaller step may help."
        if self.left <= 0:
            return f"max_rounds is used up: {reached}More rounds (max_rounds) or a larger tol may help."
        return f"no further step lowers the objective: {reached}A larger tol may help."

    def task(self, algorithm: Any, local_steps: int = 1) -> Task:
        """The algorithm on this problem, for cofed's engine."""
        data = self.posed.data
        clients = data.clients
        plan = Plan(local_steps, True, None, None, clients, clients)
        problem = pose(self.posed.problem(self.psi), plan)
        reason = refusal(algorithm, problem)
        if reason:
            raise ValueError(reason)
        return Task(traced(algorithm, data.dtype), problem, data, plan)

    def count(self, what: str, task: Task, w: Weights, rounds: int) -> None:
        """The rounds that an algorithm took, with the bytes of its messages."""
        key = (what, getattr(task.algorithm, "working_set", None))
        if key not in self.posed.messages:
            down, up, _ = task.message_bytes(w)
            self.posed.messages[key] = down, up
        self.posed.traffic.add(what, rounds, *self.posed.messages[key])
        self.left -= rounds


def newton(run: Run, w: Weights, seen: Look) -> Solved:
    """Proximal Newton rounds, checked by certificates; down the path of strengths where they do not get there."""
    w, seen = newton_batches(run, w, seen, 3 if parameters(w) <= WHOLE else 12)
    w, seen = polished(run, w, seen)
    if not (run.done(seen) or run.separable):
        # With a weak penalty and few rows, steps lose themselves among models that fit alike: see `path_down`.
        other_way = path_down(run)
        if other_way is not None:
            found = improved(run, *other_way)
            w, seen = min((w, seen), found, key=lambda one: float(one[1].gap) + float(one[1].rounding))
    return run.solved(w, run.sharper(w, seen), "newton")


def newton_batches(run: Run, w: Weights, seen: Look, most: int = 30) -> tuple[Weights, Look]:
    """Batches of rounds, each checked by a certificate, the working set growing as needed."""
    size = parameters(w)
    whole = size <= WHOLE or not sets_to_zero(run.psi)
    set_size = size if whole else min(size, fitting_set(w))
    # A squared loss is its own quadratic model: no second step is better than the first. For others, Newton's error
    # is squared by each step.
    enough = np.inf if isinstance(run.posed.loss, Squared) else run.target
    for _ in range(most):
        if run.left <= 0 or run.done(seen) or run.separable:
            break
        algorithm = FedNewton(working_set=None if set_size == size else set_size)
        task = run.task(algorithm)
        server = start(task, w, seen.gradient)
        last = min(run.left, BATCH)
        state = newton_rounds(task, begun(server), jnp.asarray(enough), jnp.asarray(last, jnp.int32))
        run.count("FedNewton", task, w, int(state.round))
        if set_size == size and isinstance(run.posed.loss, Squared):
            run.hessian = state.server.hessian
        new = task.model(state)
        found = run.posed.look(run.psi, new)
        run.left -= 1
        change = float(found.objective) - float(seen.objective)
        nearer = change <= float(seen.rounding) and float(found.prox_gradient) < float(seen.prox_gradient)
        halved = nearer and float(found.prox_gradient) < float(seen.prox_gradient) / 2
        better = change < -run.target / 100 or run.done(found) or halved
        if better or nearer:
            w, seen = new, found
        if set_size == size or found.settled:  # the rest may be a matter of the dual point
            seen = run.sharper(w, seen)
        if not better and set_size == size:  # neither a step nor a larger set brings anything
            break
        set_size = max(set_size, min(size, fitting_set(w)))
    return w, seen


def improved(run: Run, w: Weights, seen: Look, most: int = 30) -> tuple[Weights, Look]:
    """Steps by the more exact of the two ways that the penalty allows."""
    return polished(run, w, seen) if has_pieces(run.psi) else newton_batches(run, w, seen, most)


def polished(run: Run, w: Weights, seen: Look) -> tuple[Weights, Look]:
    """Newton steps whose quadratic models are solved directly, as far as the gradient is known."""
    if not has_pieces(run.psi) or parameters(w) > LARGEST:
        return w, seen
    for _ in range(POLISH):
        if run.left <= 0 or run.done(seen) or run.separable:
            break
        loss, gradient, hessian = run.second_order(w, seen)
        noise = gradient_rounding(run.posed.loss, run.posed.null, w, loss)
        z = by_pieces(run.psi, hessian, gradient, w, noise)
        for t in (1.0, 1 / 4, 1 / 16):
            new = jax.tree.map(lambda a, b, t=t: a + t * (b - a), w, z) if t < 1 else z
            found = run.posed.look(run.psi, new)
            run.left -= 1
            change = float(found.objective) - float(seen.objective)
            nearer = float(found.prox_gradient) < float(seen.prox_gradient) / 2
            if change < -float(seen.rounding) or (nearer and change <= float(seen.rounding)):
                break
        else:
            break
        w, seen = new, run.sharper(new, found)
    return w, seen


def path_down(run: Run) -> tuple[Weights, Look] | None:
    """A better start: the answers of ever weaker penalties, from one at which no feature is used, each begun from the
    one before. Supports stay small that way. A squared loss is known by its Hessian, and takes no exchange."""
    posed, w = run.posed, run.posed.start
    reach = fitting(run.psi, posed.null.gradient.coef)
    if is_open(run.psi) or not 0 < reach < 1 or parameters(w) > LARGEST:
        return None
    steps = int(np.ceil(-np.log(float(reach)) / np.log(4)))
    quadratic = None
    if isinstance(posed.loss, Squared):
        hessian = posed.second_order(w)[2] if run.hessian is None else run.hessian
        quadratic = Quadratic(hessian, posed.null.gradient, w, posed.null.loss)
    for k in range(steps, -1, -1):
        psi = stronger(run.psi, 4.0**k)
        if quadratic is not None:
            w = refined(posed.problem(psi), posed.null, quadratic, w)[0]
            continue
        near = Run(posed, psi, 1e-6, run.left)
        begin = known(posed.problem(psi), posed.null, w, posed.null.loss, posed.null.gradient) if k == steps else None
        begin = posed.look(psi, w) if begin is None else begin
        w = improved(near, w, begin, 1)[0]
        run.left = near.left
        if run.left <= 0:
            return None
    run.left -= 1
    return w, posed.look(run.psi, w)


def fitting_set(w: Weights) -> int:
    """A power of two, at least twice the support."""
    needed = 2 * int(np.count_nonzero(np.asarray(w.coef))) + 8
    return max(WHOLE, 1 << (needed - 1).bit_length())


def fista(run: Run, w: Weights, seen: Look) -> Solved:
    """Accelerated rounds until their own bound on the gap is small enough, then the certificate."""
    task = run.task(FedFISTA(curvature(run, w)))
    state = begun(task.algorithm.init(task.problem, w))
    target = 0.0 if is_open(run.psi) else run.target / 2  # the rest is for rounding
    while run.left > 0 and not run.done(seen) and not seen.settled:
        before = int(state.round)
        last = jnp.asarray(before + run.left, jnp.int32)
        state = fista_rounds(task, state, run.posed.null, jnp.asarray(target), last)
        run.count("FedFISTA", task, w, int(state.round) - before)
        w = task.model(state)
        seen = run.posed.look(run.psi, w)
        run.left -= 1
        target /= 10
        if int(state.round) == before:
            state = rounds_up_to(task, state, jnp.asarray(before + 10, jnp.int32))
            run.count("FedFISTA", task, w, 10)
    return run.solved(w, run.sharper(w, seen), "fista")


def decouple(run: Run, w: Weights, seen: Look) -> Solved:
    """FedDecouple, its step from the federation's curvature."""
    lr = 0.5 / (LOCAL_STEPS * curvature(run, w))
    return other(run, w, FedDecouple(lr), "decouple", LOCAL_STEPS)


def other(run: Run, w: Weights, algorithm: Any, name: str, local_steps: int) -> Solved:
    """Any algorithm, looked at from time to time."""
    task = run.task(algorithm, local_steps)
    state = task.begin(w, jax.random.key(0), 0)
    pause = 10
    seen = None
    while run.left > 0 and (seen is None or not run.done(seen)):
        before = int(state.round)
        stop = before + min(pause, run.left)
        state = rounds_up_to(task, state, jnp.asarray(stop, jnp.int32))
        run.count(type(algorithm).__name__, task, w, stop - before)
        w = task.model(state)
        seen = run.posed.look(run.psi, w)
        run.left -= 1
        pause = max(10, stop // 8)
        if int(state.failed_at) >= 0:
            run.failed = True
            break
        if seen.settled:
            break
    assert seen is not None
    return run.solved(w, run.sharper(w, seen), name)


def curvature(run: Run, w: Weights) -> float:
    """The largest curvature of the mean loss at w, by power iteration: each round one vector down and one up."""
    rounds, size = 12, NUMBER * parameters(w)
    run.posed.traffic.add("curvature", rounds, size, size)
    run.left -= rounds
    return float(power_iteration(run.posed.problem(run.psi), run.posed.data, w, rounds))
