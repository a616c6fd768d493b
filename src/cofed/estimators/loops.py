"""Rounds of cofed's engine as compiled loops, each until what an estimator waits for."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from cofed._util import trees
from cofed.algorithms import FedNewton
from cofed.engine import evaluate
from cofed.engine.data import Data
from cofed.engine.server_rounds import ServerTask
from cofed.engine.state import State
from cofed.estimators.certificate import FirstOrder, NullModel, duality_gap
from cofed.models import Weights
from cofed.problem import Problem


def begun(server: PyTree) -> State:
    """The state before the first round, of an algorithm whose clients keep nothing."""
    return State.before_stage(server, (), jax.random.key(0), 0)


@eqx.filter_jit
def start(task: ServerTask, w: Weights, gradient: Weights) -> PyTree:
    """FedNewton's state before its first round, from the gradient at w."""
    assert isinstance(task.algorithm, FedNewton)
    return task.algorithm.start(task.problem, w, gradient)


@eqx.filter_jit
def newton_rounds(task: ServerTask, state: State, enough: Array, last: Array) -> State:
    """Rounds until a whole step promises a decrease of no more than `enough`."""
    algorithm = task.algorithm
    assert isinstance(algorithm, FedNewton)

    def more(state: State) -> Array:
        server = state.server
        settled = (server.known == 1) & (server.t == algorithm.server_lr) & (server.promise >= -enough)
        return ~settled & (state.round < last) & (state.failed_at < 0)

    return jax.lax.while_loop(more, lambda state: one(task, state), state)


@eqx.filter_jit
def fista_rounds(task: ServerTask, state: State, null: NullModel, target: Array, last: Array) -> State:
    """Rounds until the gap, bounded by what the server knows, is at most the target."""

    def more(state: State) -> Array:
        server = state.server
        moved = jax.tree.map(jnp.subtract, server.w, server.at)
        square = trees.dot(moved, moved)
        bound = server.loss + trees.dot(server.gradient, moved) + server.L / 2 * square
        at = FirstOrder(server.at, server.loss, server.gradient)
        gap = duality_gap(task.problem, null, server.w, bound, at)
        still = (server.L * jnp.sqrt(square)) > 1e-15 * server.L
        return ((server.known == 0) | ((gap > target) & still)) & (state.round < last) & (state.failed_at < 0)

    return jax.lax.while_loop(more, lambda state: one(task, state), state)


@eqx.filter_jit
def rounds_up_to(task: ServerTask, state: State, stop: Array) -> State:
    """Rounds until the round `stop`."""
    return jax.lax.while_loop(
        lambda state: (state.round < stop) & (state.failed_at < 0), lambda state: one(task, state), state
    )


def one(task: ServerTask, state: State) -> State:
    """One round of the engine."""
    return task.one_round(state)[0]


@eqx.filter_jit
def power_iteration(problem: Problem, data: Data, w: Weights, rounds: int) -> Array:
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
