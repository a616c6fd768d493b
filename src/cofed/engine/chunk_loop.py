"""The compiled loop: a chunk of rounds, with their evaluations, is one call.

The number of rounds in a chunk is a number to the program, not a shape, so one program serves every length: chunking,
resuming and stopping early compile nothing and give the same bits.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy.typing as npt
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Int, PyTree

from cofed._util.programs import program
from cofed._util.scalars import constant
from cofed.engine.mesh import alike, on_devices
from cofed.engine.spec import RunSpec
from cofed.engine.state import State
from cofed.engine.task import AbstractTask, Participation


class ChunkSchedule(eqx.Module):
    """When a chunk ends and when models are evaluated: numbers, so a change compiles nothing."""

    stop: Int[Array, ""]  # the round before which the chunk ends
    last: Int[Array, ""]  # the last round of the run, which is always evaluated
    every: Int[Array, ""]  # rounds between evaluations
    finite: Bool[Array, ""]  # whether the loss was finite at the start: if so, one that is not means divergence
    only_look: Bool[Array, ""]  # whether no round is made: the first row is then that of the model as it is

    def due(self, round: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the model after so many rounds is evaluated."""
        return self.only_look | (round % self.every == 0) | (round == self.last)


def schedule_of(spec: RunSpec, end: int, finite: Array) -> ChunkSchedule:
    """The schedule of a chunk that ends before the round `end`: arrays, so that other numbers compile nothing."""
    stop, last, every = (constant(n, jnp.int32) for n in (end, spec.rounds, spec.evaluate_every))
    return ChunkSchedule(stop, last, every, finite=finite, only_look=constant(False, bool))


def glance() -> ChunkSchedule:
    """The schedule that evaluates a model as it is, by the program of the rounds: one of its own would have to be
    compiled too, and a network's evaluation takes seconds to compile."""
    one = constant(1, jnp.int32)
    return ChunkSchedule(one, one, one, finite=constant(False, bool), only_look=constant(True, bool))


class ChunkRecords(eqx.Module):
    """What a chunk recorded; entry i is the chunk's i-th round."""

    rows: dict[str, Array]  # evaluations; NaN in rounds that were not evaluated
    models: PyTree  # models after each round; None where they are not kept
    participation: Participation


def looked_at(done: tuple[State, ChunkRecords]) -> dict[str, npt.ArrayLike]:
    """The row of the model as it is, of what a `glance` gave."""
    return {name: values[0] for name, values in jax.device_get(done[1].rows).items()}


def advance(task: AbstractTask, state: State, schedule: ChunkSchedule) -> tuple[State, ChunkRecords]:
    """Rounds state.round..schedule.stop-1, at most `recording.capacity` of them."""
    capacity, plan = task.recording.capacity, task.plan
    # Within the loop a row is one vector: one small write per round instead of one per column.
    measured = jax.jit(lambda state: task.row(state), inline=True)  # the same program, but traced once for both uses
    shapes = jax.eval_shape(measured, state)
    flat, back = ravel_pytree(jax.tree.map(lambda s: jnp.full(s.shape, jnp.nan, s.dtype), shapes))

    def kept(state: State) -> PyTree:
        return task.model(state) if task.recording.keep_models else None

    def body(carry):
        i, old, records = carry
        # One round or none: a loop works in place, where a condition would copy what the clients keep.
        state, participation = jax.lax.fori_loop(0, count, lambda _, now: task.one_round(now[0]), (old, nobody))
        row = jax.lax.cond(schedule.due(state.round), lambda: ravel_pytree(measured(state))[0], lambda: flat)
        model = kept(state)
        bad = schedule.finite & schedule.due(state.round) & ~jnp.isfinite(back(row)["loss"])
        state = task.undo(bad, state, old)
        new = (row, model, participation)
        return i + 1, state, jax.tree.map(lambda buffer, v: buffer.at[i].set(v), records, new)

    who, number = jnp.zeros(plan.participants, jnp.int32), jnp.zeros((), jnp.int32)
    nobody, count = Participation(who, who.astype(bool), number, number), jnp.where(schedule.only_look, 0, 1)
    room = lambda s: jnp.zeros((capacity, *s.shape), s.dtype)  # noqa: E731
    empty = jax.tree.map(room, (flat, jax.eval_shape(kept, state), nobody))
    rounds = jnp.where(schedule.only_look, 1, jnp.minimum(schedule.stop - state.round, capacity))
    start = (jnp.zeros((), jnp.int32), state, empty)
    _, state, (rows, models, participation) = jax.lax.while_loop(lambda carry: carry[0] < rounds, body, start)
    return state, ChunkRecords(jax.vmap(back)(rows), models, participation)


def readout(f: Callable[[AbstractTask, State], PyTree]) -> Callable[[AbstractTask, State], PyTree]:
    """What is read from a state in one place, by one program: else each operation would be compiled by itself. A state
    that already holds it needs none."""
    compiled = program(f)

    def read(task: AbstractTask, state: State) -> PyTree:
        state = state.holding(state.server, eqx.filter(state.clients, eqx.is_array))  # without what lies on disk
        computed = eqx.filter_make_jaxpr(f)(task, state)[0].eqns
        return (compiled if computed else f)(task, state)

    return read


run_chunk = program(on_devices(advance, lambda state: (state, alike(state))))
enter = program(on_devices(lambda task, *given: task.begin(*given), lambda state: state))
look = program(on_devices(lambda task, state: task.row(state)))  # of clients on disk, outside the rounds
conclude = program(on_devices(lambda task, state: task.conclude(state), lambda state: (state, alike(state))))
personal = program(on_devices(lambda task, state: task.personal_report(state)))
model_and_average = readout(lambda task, state: (task.model(state), task.average(state)))
next_start = readout(lambda task, state: task.next_start(state))
