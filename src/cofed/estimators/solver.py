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

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from sklearn.exceptions import ConvergenceWarning

from cofed.algorithms import FedDecouple, FedFISTA, FedNewton
from cofed.algorithms.base import AbstractServerAlgorithm, refusal
from cofed.engine import evaluate
from cofed.engine.job import traced, wire
from cofed.engine.loop import Task, Watch
from cofed.engine.plan import Plan, pose
from cofed.engine.rounds import Centre, State, started
from cofed.estimators.certificate import Certificate, Look, Null, duality_gap, look
from cofed.estimators.posed import Posed
from cofed.estimators.sites import NUMBER
from cofed.losses import Squared
from cofed.models import Weights

WHOLE = 128  # parameters from which on a working set serves
DENSE = 512  # the most parameters of a model that is not sparse whose Hessian is sent in every round
LARGEST = 2048  # the most parameters whose Hessian is sent once, for a path or for intervals
LOCAL_STEPS = 5  # of FedDecouple
NAMES = ("auto", "newton", "fista", "decouple")


@dataclasses.dataclass(frozen=True)
class Solved:
    """An answer with its certificate."""

    w: Weights
    look: Look
    certificate: Certificate
    algorithm: str


def check_algorithm(owner: str, algorithm: Any) -> None:
    """An algorithm is one of NAMES or one of cofed's own, with its numbers."""
    if algorithm in NAMES if isinstance(algorithm, str) else isinstance(algorithm, AbstractServerAlgorithm):
        return
    raise ValueError(
        f"{owner}: algorithm must be one of {', '.join(NAMES)} or an algorithm with a server such as "
        f"cofed.FedDualAvg(client_lr=0.1), got {algorithm!r}"
    )


def solve(posed: Posed, psi: Any, algorithm: Any, tol: Any, max_rounds: Any, warm: Solved | None = None) -> Solved:
    """Minimise mean loss + psi until gap <= tol * scale; `warm` is an answer to begin from."""
    problem = posed.problem(psi)
    if warm is None:
        begin = problem.regularizer.prox(posed.start, 0.0)
        # A start at zero is the model without features, which has been looked at.
        fresh = trees_equal(begin, posed.start)
        seen = look_known(posed, psi, begin) if fresh else posed.look(psi, begin)
    else:
        begin = problem.regularizer.prox(warm.w, 0.0)
        seen = look_again(posed, psi, begin, warm.look)
    name = choose(posed, psi) if isinstance(algorithm, str) and algorithm == "auto" else algorithm
    run = Run(posed, psi, tol, max_rounds)
    if run.done(seen):
        return run.solved(begin, seen, name)
    if isinstance(name, str):
        return {"newton": newton, "fista": fista, "decouple": decouple}[name](run, begin, seen)
    return other(run, begin, name, type(name).__name__, local_steps=1)


def choose(posed: Posed, psi: Any) -> str:
    """The rule of "auto"."""
    return "newton" if parameters(posed.start) <= DENSE or sparse(psi) else "fista"


def sparse(psi: Any) -> bool:
    """Whether psi is a sum over coordinates that sets some to zero, so that a working set serves."""
    ratio = getattr(psi, "l1_ratio", 1.0)
    return psi.separable and psi.structure == "density" and float(psi.strength) * float(ratio) > 0


def parameters(w: PyTree) -> int:
    """The numbers of a model."""
    return sum(np.size(leaf) for leaf in jax.tree.leaves(w))


@dataclasses.dataclass
class Run:
    """The rounds of one fit: how many are left, and when it is done."""

    posed: Posed
    psi: Any
    tol: Any
    left: int

    @property
    def scale(self) -> float:
        """What the gap is compared with: the loss of the model without features."""
        return float(self.posed.null.loss) - float(self.posed.null.least)

    @property
    def target(self) -> float:
        """The gap to reach; where the null model is perfect, round-off."""
        return self.tol * self.scale

    def done(self, seen: Look) -> bool:
        """Whether the certificate is good enough."""
        return self.certificate(seen).converged

    def certificate(self, seen: Look) -> Certificate:
        """The certificate of what was seen."""
        gap, residual = float(seen.gap), float(seen.prox_gradient)
        if self.has_dual:
            converged = gap <= max(self.target, self.rounding(seen))
        else:
            gap = np.inf
            first = float(jnp.sqrt(jnp.sum(self.posed.null.gradient**2)))
            converged = residual <= np.sqrt(self.tol) * first
        return Certificate(float(seen.objective), gap, residual, self.scale, self.tol, bool(converged))

    def rounding(self, seen: Look) -> float:
        """Below this no gap can be told from 0: the terms' own round-off, and that of a gradient which has to fit into
        a dual ball much smaller than itself at the start."""
        null = self.posed.null
        size = max(abs(float(value)) for value in (seen.objective, null.loss, null.least))
        strength = float(getattr(self.psi, "strength", 1.0)) * float(getattr(self.psi, "l1_ratio", 1.0))
        steep = float(jnp.max(jnp.abs(null.gradient))) / strength if strength > 0 else 1.0
        return float(np.finfo(np.float64).eps) * size * (256 + 4 * steep)

    @property
    def has_dual(self) -> bool:
        """Whether psi's conjugate is finite where it matters: not for no penalty at all and for open-ended sets."""
        strength = getattr(self.psi, "strength", None)
        if strength is not None:
            return float(strength) > 0
        if hasattr(self.psi, "radius"):
            return True
        return hasattr(self.psi, "low") and bool(np.isfinite(self.psi.low).all() and np.isfinite(self.psi.high).all())

    def solved(self, w: Weights, seen: Look, name: Any) -> Solved:
        """The answer, with a warning where it is not good enough."""
        certificate = self.certificate(seen)
        if not certificate.converged:
            warnings.warn(
                f"stopped after {self.posed.traffic.rounds} rounds at a duality gap of {certificate.gap:.3g} and a "
                f"prox-gradient norm of {certificate.prox_gradient:.3g}; the gap was to be at most tol * scale = "
                f"{self.target:.3g}. More rounds (max_rounds) or a larger tol may help.",
                ConvergenceWarning,
                stacklevel=5,
            )
        return Solved(w, seen, certificate, name if isinstance(name, str) else type(name).__name__)

    def task(self, algorithm: Any, local_steps: int = 1) -> Task:
        """The algorithm on this problem, for cofed's engine."""
        data = self.posed.data
        clients = data.X.shape[0]
        plan = Plan(local_steps, True, None, None, clients, clients)
        problem = pose(self.posed.problem(self.psi), plan)
        reason = refusal(algorithm, problem)
        if reason:
            raise ValueError(reason)
        return Task(traced(algorithm, data.X.dtype), problem, Centre(), data, None, {}, plan, Watch())

    def count(self, what: str, task: Task, w: Weights, rounds: int) -> None:
        """The rounds that an algorithm took, with the bytes of its messages."""
        key = (what, getattr(task.algorithm, "working_set", None))
        if key not in self.posed.messages:
            down, up, _ = wire(task, w)
            self.posed.messages[key] = down, up
        self.posed.traffic.add(what, rounds, *self.posed.messages[key])
        self.left -= rounds


def newton(run: Run, w: Weights, seen: Look) -> Solved:
    """Proximal Newton rounds, each batch of them checked by a certificate, the working set growing as needed."""
    size = parameters(w)
    whole = size <= WHOLE or not sparse(run.psi)
    set_size = size if whole else min(size, fitting_set(w))
    # A squared loss is its own quadratic model: no second step is better than the first. For others, Newton's error
    # is squared by each step.
    enough = np.inf if isinstance(run.posed.loss, Squared) else 1e-8 * run.scale
    while run.left > 0 and not run.done(seen):
        algorithm = FedNewton(working_set=None if set_size == size else set_size)
        task = run.task(algorithm)
        server = start(task, w, seen.gradient)
        state = newton_rounds(task, begun(server), jnp.asarray(enough), jnp.asarray(run.left, jnp.int32))
        run.count("FedNewton", task, w, int(state.round))
        new = task.model(state)
        found = run.posed.look(run.psi, new)
        run.left -= 1
        change = float(found.objective) - float(seen.objective)
        nearer = float(found.prox_gradient) < float(seen.prox_gradient)
        if change < 0 or run.done(found) or (change <= run.rounding(seen) and nearer):
            w, seen = new, found
        elif set_size == size:  # neither a step nor a larger set brings anything
            break
        set_size = max(set_size, min(size, fitting_set(w)))
    return run.solved(w, seen, "newton")


def fitting_set(w: Weights) -> int:
    """A power of two, at least twice the support."""
    needed = 2 * int(np.count_nonzero(np.asarray(w.coef))) + 8
    return max(WHOLE, 1 << (needed - 1).bit_length())


def fista(run: Run, w: Weights, seen: Look) -> Solved:
    """Accelerated rounds until their own bound on the gap is small enough, then the certificate."""
    task = run.task(FedFISTA(curvature(run, w)))
    state = begun(task.algorithm.init(task.problem, w))
    target = run.target if run.has_dual else 0.0
    while run.left > 0 and not run.done(seen):
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
    return run.solved(w, seen, "fista")


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
            break
    assert seen is not None
    return run.solved(w, seen, name)


def curvature(run: Run, w: Weights) -> float:
    """The largest curvature of the mean loss at w, by power iteration: each round one vector down and one up."""
    rounds, size = 12, NUMBER * parameters(w)
    run.posed.traffic.add("curvature", rounds, size, size)
    run.left -= rounds
    return float(power_iteration(run.posed.problem(run.psi), run.posed.data, w, rounds))


def begun(server: PyTree) -> State:
    """The state before the first round, of an algorithm whose clients keep nothing."""
    return started(server, (), jax.random.key(0), 0)


def trees_equal(a: PyTree, b: PyTree) -> bool:
    """Whether two models have the same numbers."""
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def look_known(posed: Posed, psi: Any, w: Weights) -> Look:
    """The certificate of the model without features, whose loss and gradient are known."""
    intercept = None if w.intercept is None else jnp.zeros_like(w.intercept)
    return known(posed.problem(psi), posed.null, w, posed.null.loss, Weights(posed.null.gradient, intercept))


def look_again(posed: Posed, psi: Any, w: Weights, seen: Look) -> Look:
    """The certificate of a model whose loss and gradient are known, under another penalty."""
    return known(posed.problem(psi), posed.null, w, seen.loss, seen.gradient)


@eqx.filter_jit
def known(problem: Any, null: Null, w: Weights, loss: Array, gradient: Weights) -> Look:
    """The certificate from what is known."""
    return look(problem, null, w, loss, gradient)


@eqx.filter_jit
def start(task: Task, w: Weights, gradient: Weights) -> PyTree:
    """FedNewton's state before its first round, from the gradient at w."""
    return task.algorithm.start(task.problem, w, gradient)


@eqx.filter_jit
def newton_rounds(task: Task, state: State, enough: Array, last: Array) -> State:
    """Rounds until a whole step promises a decrease of no more than `enough`."""

    def more(state: State) -> Array:
        server = state.server
        settled = (server.known == 1) & (server.t == task.algorithm.server_lr) & (server.promise >= -enough)
        return ~settled & (state.round < last) & (state.failed_at < 0)

    return jax.lax.while_loop(more, lambda state: one(task, state), state)


@eqx.filter_jit
def fista_rounds(task: Task, state: State, null: Null, target: Array, last: Array) -> State:
    """Rounds until the gap, bounded by what the server knows, is at most the target."""

    def more(state: State) -> Array:
        server = state.server
        moved = jax.tree.map(jnp.subtract, server.w, server.at)
        dot = lambda a, b: sum(jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))  # noqa: E731
        bound = server.loss + dot(server.gradient, moved) + server.L / 2 * dot(moved, moved)
        gap = duality_gap(task.problem, null, server.w, bound, server.at, server.loss, server.gradient)
        still = (server.L * jnp.sqrt(dot(moved, moved))) > 1e-15 * server.L
        return ((server.known == 0) | ((gap > target) & still)) & (state.round < last) & (state.failed_at < 0)

    return jax.lax.while_loop(more, lambda state: one(task, state), state)


@eqx.filter_jit
def rounds_up_to(task: Task, state: State, stop: Array) -> State:
    """Rounds until the round `stop`."""
    return jax.lax.while_loop(
        lambda state: (state.round < stop) & (state.failed_at < 0), lambda state: one(task, state), state
    )


def one(task: Task, state: State) -> State:
    """One round of the engine."""
    return task.exchange.one_round(task.algorithm, task.problem, task.data, state, task.plan)[0]


@eqx.filter_jit
def power_iteration(problem: Any, data: Any, w: Weights, rounds: int) -> Array:
    """The largest eigenvalue of the mean loss's Hessian at w, slightly from below."""
    gradient = lambda v: evaluate.smooth(problem, data, v)[1]  # noqa: E731
    norm = lambda v: jnp.sqrt(sum(jnp.vdot(x, x) for x in jax.tree.leaves(v)))  # noqa: E731

    def step(_, carry):
        v, _ = carry
        Hv = jax.jvp(gradient, (w,), (v,))[1]
        size = norm(Hv)
        return jax.tree.map(lambda x: x / jnp.where(size > 0, size, 1), Hv), size

    keys = jax.random.split(jax.random.key(0), len(jax.tree.leaves(w)))
    leaves, structure = jax.tree.flatten(w)
    first = [jax.random.normal(key, leaf.shape, leaf.dtype) for key, leaf in zip(keys, leaves, strict=True)]
    v = jax.tree.unflatten(structure, first)
    v = jax.tree.map(lambda x: x / norm(v), v)
    size = jax.lax.fori_loop(0, rounds, step, (v, jnp.zeros((), data.X.dtype)))[1]
    return jnp.where(size > 0, size, 1)
