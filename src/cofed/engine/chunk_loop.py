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
from jaxtyping import Array, Bool, Int, PyTree

from cofed.engine import evaluate
from cofed.engine.data import Data
from cofed.engine.gossip_rounds import Peers
from cofed.engine.mesh import alike, on_devices
from cofed.engine.plan import Plan
from cofed.engine.server_rounds import Centre, Roll, State, in_blocks, last_work
from cofed.engine.steps import make_steps
from cofed.problem import Problem


@dataclasses.dataclass(frozen=True)
class Watch:
    """What to record: static, so a change of it compiles a new program."""

    per_client: bool = False
    keep_models: bool = False
    capacity: int = 64  # the most rounds of a chunk


class Personal(eqx.Module):
    """The clients' own models and how they do, each on its own client's data."""

    models: PyTree  # stacked
    scores: dict[str, Array]  # on the clients' data
    tests: dict[str, Array]  # on the held-out parts, in their order
    sizes: Int[Array, " clients"]  # how many samples each client has


class Task(eqx.Module):
    """All that the rounds of a stage work with and never change: arrays, and numbers as arrays."""

    algorithm: Any
    problem: Problem
    exchange: Centre | Peers
    data: Data
    held_out: Data | None
    metrics: dict[str, Callable]
    plan: Plan = eqx.field(static=True)
    watch: Watch = eqx.field(static=True)
    measured: Data | None = None  # what rows are measured on, where that is not the data of the rounds

    def begin(self, starts: PyTree, key: Any, round: Any) -> State:
        """The state before the first round of the stage."""
        return self.exchange.fresh(self.algorithm, self.problem, starts, self.data, key, round, self.plan)

    def model(self, state: State) -> PyTree:
        """The present model."""
        return self.exchange.model(self.algorithm, self.problem, state)

    def row(self, state: State) -> dict[str, Array]:
        """The row of the present model."""
        w, data = self.model(state), self.data if self.measured is None else self.measured
        found = evaluate.row(self.problem, data, self.held_out, self.metrics, self.watch.per_client, w)
        return found | self.exchange.columns(
            self.algorithm, self.problem, data, self.held_out, self.metrics, self.watch.per_client, state
        )

    def conclude(
        self, state: State, for_each: Callable | None = None, make: Callable = make_steps
    ) -> tuple[State, Bool[Array, " clients"]]:
        """The state after the clients' last piece of work, and whose was finite."""
        for_each = for_each or in_blocks(self.plan.block)
        return last_work(self.algorithm, self.problem, self.data, state, self.plan, for_each, make)

    def personal(self, state: State) -> Personal:
        """The clients' own models."""
        models = self.exchange.personal(self.algorithm, self.problem, state)
        everyone = self.data.everybody(models)
        tests, held_out = {}, self.held_out
        if held_out is not None and held_out.owners is not None:
            tests = evaluate.client_scores(self.problem, held_out, evaluate.owned(everyone, held_out))
        scores = evaluate.client_scores(self.problem, self.data, models)
        return Personal(everyone, scores, tests, self.data.everybody(self.data.sizes))


class Clock(eqx.Module):
    """When things happen: numbers, so a change compiles nothing."""

    stop: Int[Array, ""]  # the round before which the chunk ends
    last: Int[Array, ""]  # the last round of the run, which is always evaluated
    every: Int[Array, ""]  # rounds between evaluations
    finite: Bool[Array, ""]  # whether the loss was finite at the start: if so, one that is not means divergence

    def due(self, round: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the model after so many rounds is evaluated."""
        return (round % self.every == 0) | (round == self.last)


class Records(eqx.Module):
    """What a chunk recorded; entry i is the chunk's i-th round."""

    rows: dict[str, Array]  # evaluations; NaN in rounds that were not evaluated
    models: PyTree  # models after each round; None where they are not kept
    roll: Roll  # who took part


def advance(task: Task, state: State, clock: Clock, for_each: Callable | None = None) -> tuple[State, Records]:
    """Rounds state.round..clock.stop-1, at most `watch.capacity` of them; `for_each` maps over the clients."""
    watch, plan = task.watch, task.plan
    for_each = for_each or in_blocks(plan.block)
    # Within the loop a row is one vector: one small write per round instead of one per column.
    shapes = jax.eval_shape(task.row, state)
    flat, back = ravel_pytree(jax.tree.map(lambda s: jnp.full(s.shape, jnp.nan, s.dtype), shapes))

    def seen(state: State) -> tuple[Array, PyTree]:
        row = jax.lax.cond(clock.due(state.round), lambda: ravel_pytree(task.row(state))[0], lambda: flat)
        return row, task.model(state) if watch.keep_models else None

    def body(carry):
        i, old, records = carry
        state, roll = task.exchange.one_round(task.algorithm, task.problem, task.data, old, plan, for_each)
        row, model = seen(state)
        bad = clock.finite & clock.due(state.round) & ~jnp.isfinite(back(row)["loss"])
        state = task.exchange.undo(bad, state, old)
        new = (row, model, roll)
        return i + 1, state, jax.tree.map(lambda buffer, v: buffer.at[i].set(v), records, new)

    room = lambda s: jnp.zeros((watch.capacity, *s.shape), s.dtype)  # noqa: E731
    who = jnp.zeros((watch.capacity, plan.participants), jnp.int32)
    empty = (*jax.tree.map(room, jax.eval_shape(seen, state)), Roll(who, who.astype(bool), who[:, 0]))
    rounds = jnp.minimum(clock.stop - state.round, watch.capacity)
    start = (jnp.zeros((), jnp.int32), state, empty)
    _, state, (rows, models, roll) = jax.lax.while_loop(lambda carry: carry[0] < rounds, body, start)
    return state, Records(jax.vmap(back)(rows), models, roll)


run_chunk = eqx.filter_jit(on_devices(advance, lambda state: (state, alike(state))))
enter = eqx.filter_jit(on_devices(Task.begin, lambda state: state))
look = eqx.filter_jit(on_devices(Task.row))  # for the start, before any round
conclude = eqx.filter_jit(on_devices(Task.conclude, lambda state: (state, alike(state))))
personal = eqx.filter_jit(on_devices(Task.personal))
