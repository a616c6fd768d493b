"""The compiled loop: a chunk of rounds, with their evaluations, is one call.

The number of rounds in a chunk is a number to the program, not a shape, so one program serves every length: chunking,
resuming and stopping early compile nothing and give the same bits.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Int, PyTree

from cofed.engine import evaluate
from cofed.engine.plan import Plan
from cofed.engine.rounds import Centre, Peers, Roll, State
from cofed.engine.steps import Data
from cofed.problem import Problem


@dataclasses.dataclass(frozen=True)
class Watch:
    """What to record: static, so a change of it compiles a new program."""

    per_client: bool = False
    keep_models: bool = False
    capacity: int = 64  # the most rounds of a chunk


class Records(eqx.Module):
    """What a chunk recorded; entry i is the chunk's i-th round."""

    rows: dict[str, Array]  # evaluations; NaN in rounds that were not evaluated
    models: PyTree  # models after each round; None where they are not kept
    roll: Roll  # who took part


def observe(
    algorithm: Any,
    problem: Problem,
    exchange: Centre | Peers,
    data: Data,
    held_out: Data | None,
    metrics: dict[str, Callable],
    state: State,
    watch: Watch,
) -> dict[str, Array]:
    """The row of the present model."""
    w = exchange.model(algorithm, problem, state)
    row = evaluate.row(problem, data, held_out, metrics, watch.per_client, w)
    return row | exchange.columns(algorithm, problem, data, metrics, state)


look = eqx.filter_jit(observe)  # for the start, before any round


def advance(
    algorithm: Any,
    problem: Problem,
    exchange: Centre | Peers,
    data: Data,
    held_out: Data | None,
    metrics: dict[str, Callable],
    state: State,
    stop: Int[Array, ""],  # the round before which the chunk ends
    last: Int[Array, ""],  # the last round of the run, which is always evaluated
    every: Int[Array, ""],  # rounds between evaluations
    plan: Plan,
    watch: Watch,
) -> tuple[State, Records]:
    """Rounds state.round..stop-1, at most `watch.capacity` of them."""

    def view(state: State) -> dict[str, Array]:
        return observe(algorithm, problem, exchange, data, held_out, metrics, state, watch)

    # Within the loop a row is one vector: one small write per round instead of one per column.
    shapes = jax.eval_shape(view, state)
    flat, back = ravel_pytree(jax.tree.map(lambda s: jnp.full(s.shape, jnp.nan, s.dtype), shapes))

    def seen(state: State) -> tuple[Array, PyTree]:
        due = (state.round % every == 0) | (state.round == last)
        row = jax.lax.cond(due, lambda: ravel_pytree(view(state))[0], lambda: flat)
        return row, exchange.model(algorithm, problem, state) if watch.keep_models else None

    def body(carry):
        i, state, records = carry
        state, roll = exchange.one_round(algorithm, problem, data, state, plan)
        new = (*seen(state), roll)
        return i + 1, state, jax.tree.map(lambda buffer, v: buffer.at[i].set(v), records, new)

    room = lambda s: jnp.zeros((watch.capacity, *s.shape), s.dtype)  # noqa: E731
    who = jnp.zeros((watch.capacity, plan.participants), jnp.int32)
    empty = (*jax.tree.map(room, jax.eval_shape(seen, state)), Roll(who, who.astype(bool), who[:, 0]))
    rounds = jnp.minimum(stop - state.round, watch.capacity)
    start = (jnp.zeros((), jnp.int32), state, empty)
    _, state, (rows, models, roll) = jax.lax.while_loop(lambda carry: carry[0] < rounds, body, start)
    return state, Records(jax.vmap(back)(rows), models, roll)


run_chunk = eqx.filter_jit(advance)
