"""Time the compiled program of a run, or of a slice of a grid, on its own data."""

import dataclasses
import math
import time
from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from cofed._util import machine
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.chunk_loop import glance, looked_at, run_chunk, schedule_of
from cofed.engine.execution import Chunk, begin_stage, count_first, failed, first_row, next_pace, record, schedule
from cofed.engine.grid_rounds import Chosen, advance_some, begin_together
from cofed.engine.history import Log
from cofed.engine.job import Job, program_of
from cofed.engine.state import copies

NEVER = 2**30  # rounds between evaluations, for none at all
ENOUGH = 0.5  # seconds of rounds from which a run of a few seconds can be forecast well enough


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What was measured of the program of a stage."""

    compile_seconds: float
    seconds_per_round: float
    seconds_per_evaluation: float
    messages: float  # per round: clients that were served or, without a server, links in both directions
    first_bytes: int  # of the exchange before the first round of the stage
    argument_bytes: int  # of data and states
    output_bytes: int  # of states and records
    temporary_bytes: int
    resident_bytes: int  # of the process when the program is compiled and nothing has run yet
    columns: int  # of the history


def stages_by_program(job: Job) -> dict[Hashable, int]:
    """The number of the first stage that runs each program."""
    return {program_of(stage.task): number for number, stage in reversed([*enumerate(job.stages)])}


def resident_with_programs() -> int:
    """Bytes of this process with its compiled programs.

    Where compiled programs are cached on disk, a later process does not compile, so what compiling took is not counted.
    """
    cached = jax.config.jax_compilation_cache_dir is not None  # pyright: ignore[reportAttributeAccessIssue]
    return machine.settled() if cached else machine.resident()


def calibrate(job: Job, number: int, start: PyTree, log: Log, budget: float) -> Calibration:
    """Compile the program of a stage, and time its rounds without evaluations and with one in every round.

    The first program also looks at the start, as a run does: that counts as compiling.
    """
    stage, state = job.stages[number], begin_stage(job, number, start)
    began = time.perf_counter()
    program = run_chunk.lower(stage.task, state, glance()).compile()  # pyright: ignore[reportFunctionMemberAccess]
    resident, served = resident_with_programs(), []
    if not log.history.rows:
        first_row(job, state, log, looked_at(program(stage.task, state, glance())))
    compile_seconds = time.perf_counter() - began

    def timer(every: int) -> Callable[[int], float]:
        timed = dataclasses.replace(job, spec=dataclasses.replace(job.spec, rounds=NEVER, evaluate_every=every))
        now = state

        def go(count: int) -> float:
            nonlocal now
            began, first = time.perf_counter(), int(now.round)
            new, records = jax.block_until_ready(program(stage.task, now, schedule(timed, first + count, log)))
            records = jax.device_get(records)
            record(timed, log, Chunk(number, first, new, records, time.perf_counter() - began))
            took = time.perf_counter() - began
            served.append(float(np.mean(records.participation.messages[:count])))
            log.models.clear()
            del log.history.rows[1:], log.history.client_rows[1:]
            now = state if failed(new) else new  # a run that diverges begins again
            return took

        return go

    most = stage.task.recording.capacity
    alone, both = time_in_turns([timer(every) for every in (NEVER, 1)], budget, most, job.spec.rounds)
    before = log.up
    count_first(job, stage, state, log)
    first, log.up = log.up - before, before
    memory = program.compiled.memory_analysis()
    return Calibration(
        compile_seconds=compile_seconds,
        seconds_per_round=alone,
        seconds_per_evaluation=max(0.0, both - alone),
        messages=float(np.mean(served)),
        first_bytes=first,
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        temporary_bytes=memory.temp_size_in_bytes,
        resident_bytes=resident,
        columns=len(log.history.rows[0]),
    )


def calibrate_slice(
    job: Job, number: int, members: list[list[AbstractAlgorithm]], start: PyTree, budget: float
) -> Calibration:
    """As `calibrate`, for configurations of a grid that share a program."""
    stage = job.stages[number]
    algorithms = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(stages[number] for stages in members))
    starts = copies(stage.task.spread_start(start), len(members))
    began = time.perf_counter()
    state = begin_together(algorithms, stage.task, starts, jax.random.key(job.spec.seed), 0)
    untimed = dataclasses.replace(job.spec, rounds=NEVER, evaluate_every=NEVER)
    places = Chosen(jnp.arange(len(members), dtype=jnp.int32))
    finite, never = jnp.asarray(True), schedule_of(untimed, 0, jnp.asarray(True))
    program = advance_some.lower(algorithms, stage.task, state, state, places, never).compile()  # pyright: ignore[reportFunctionMemberAccess]
    compile_seconds, resident = time.perf_counter() - began, resident_with_programs()

    def timer(every: int) -> Callable[[int], float]:
        spec, now = dataclasses.replace(untimed, evaluate_every=every), state

        def go(count: int) -> float:
            nonlocal now
            began = time.perf_counter()
            when = schedule_of(spec, int(now.round) + count, finite)
            now, rows = jax.block_until_ready(program(algorithms, stage.task, now, now, places, when))
            jax.device_get(rows)
            return time.perf_counter() - began

        return go

    most = stage.task.recording.capacity
    alone, both = time_in_turns([timer(every) for every in (NEVER, 1)], budget, most, job.spec.rounds)
    memory = program.compiled.memory_analysis()
    return Calibration(
        compile_seconds=compile_seconds,
        seconds_per_round=alone,
        seconds_per_evaluation=max(0.0, both - alone),
        messages=float(stage.task.plan.participants),
        first_bytes=0,
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        temporary_bytes=memory.temp_size_in_bytes,
        resident_bytes=resident,
        columns=0,
    )


def time_in_turns(
    timers: list[Callable[[int], float]], budget: float, capacity: int, rounds: int | None = None
) -> list[float]:
    """Seconds per round of several ways to run, in chunks that grow as those of a run do.

    The ways take turns, so that a machine that is busy for a while slows down all of them. The first round of each is a
    warm-up that does not count, unless it takes longer than the budget.

    Parameters
    ----------
    timers
        Each runs so many rounds and gives the seconds that they took.
    budget
        Seconds to spend.
    capacity
        The most rounds of a chunk.
    rounds
        The rounds of the run that is forecast: where it will hardly take longer than the budget, less is spent.

    Returns
    -------
    list of float
        Seconds per round, for each timer.
    """
    seconds = [go(1) for go in timers]
    if sum(seconds) > budget:
        return seconds
    paces, spent, done = [1] * len(timers), [0.0] * len(timers), [0] * len(timers)
    while sum(spent) < budget:
        run = math.inf if rounds is None else rounds * max(seconds[i] / paces[i] for i in range(len(timers)))
        if sum(spent) > max(ENOUGH, run / 5):
            break
        for i, go in enumerate(timers):
            paces[i] = next_pace(paces[i], seconds[i], capacity)
            seconds[i] = go(paces[i])
            spent[i], done[i] = spent[i] + seconds[i], done[i] + paces[i]
    return [took / rounds for took, rounds in zip(spent, done, strict=True)]
