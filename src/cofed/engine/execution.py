"""The way of a run from chunk to chunk of rounds, and what happens in between."""

import dataclasses
import functools
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import PRNGKeyArray, PyTree

from cofed._util import trees
from cofed._util.scalars import constant
from cofed.engine.callbacks import Listeners
from cofed.engine.checkpoint import CheckpointStore
from cofed.engine.chunk_loop import ChunkRecords, ChunkSchedule, model_and_average, next_start, schedule_of
from cofed.engine.ending import failed, finish, gathered, judge, rounds_done, to_numpy
from cofed.engine.history import LeftOut, Log, Result
from cofed.engine.job import Job, ReadyStage, linear_algebra
from cofed.engine.mesh import everywhere
from cofed.engine.progress import Bar, interruptible, wanted
from cofed.engine.state import State
from cofed.engine.task import AbstractTask

Advanced = tuple[State, ChunkRecords]  # what a chunk of rounds gives

CHUNK_SECONDS = 0.25  # a chunk of rounds is about so long: often enough for a progress bar and for Ctrl-C


@dataclasses.dataclass(frozen=True)
class Conduct:
    """How a run is kept and watched, and where it begins: nothing that changes what a round computes."""

    store: CheckpointStore | None  # of checkpoints
    progress: bool | None  # whether there is a progress bar; None: where there is a terminal
    debug: bool
    listeners: Listeners
    start: Result | None = None  # the run whose state this one begins from
    cores: int | None = None  # the most to use; None: as many as pay


def begin_stage(job: Job, number: int, w0: PyTree) -> State:
    """The state before a stage, from one start for all."""
    task = job.stages[number].task
    return fresh_state(job, task, task.spread_start(w0), jax.random.key(job.spec.seed), 0)


def fresh_state(job: Job, task: AbstractTask, starts: PyTree, key: PRNGKeyArray, round: int) -> State:
    """The state before a stage's first round, checked."""
    state = job.storage.enter(task, starts, key, constant(round, jnp.int32))
    if not trees.are_finite((state.round, state.server, state.clients)):
        raise ValueError(f"{task.algorithm.name} cannot start from this w0: its state would not be finite")
    return state


def save(job: Job, store: CheckpointStore, state: State, log: Log) -> None:
    """Write a checkpoint. Of several processes all gather the state, and one writes it."""
    state = gathered(job, state)
    if jax.process_index() == 0:
        store.attempt(state, log)


def proceed(job: Job, state: State, log: Log, conduct: Conduct) -> Result:
    """The rounds from this state to the end, in chunks that are each one call of a compiled program, and the result."""
    spec, names = job.spec, job.spec.federation.names
    advance = functools.partial(job.storage.debug, names=names) if conduct.debug else job.storage.advance
    with (
        jax.disable_jit(conduct.debug),
        linear_algebra(spec),
        interruptible() as asked,
        Bar(spec.algorithm.name, spec.rounds, int(state.round), wanted(conduct.progress)) as bar,
    ):
        reporter = Reporter(job, log, conduct, asked, bar)
        if not log.history.rows:
            if not conduct.debug:
                log.history.compile_seconds += compile_now(job, job.stages[0], state)
            first_row(job, state, log, job.storage.look(job.stages[0].task, state))
            reporter.save(state)
            reporter.tell()
        pace = 1
        for number, stage in enumerate(job.stages):
            if reporter.over(state) or (int(state.round) >= stage.end and number < len(job.stages) - 1):
                continue
            if number > stage_number(job, state):
                state = next_stage(job, number, state, log)
            if not conduct.debug and int(state.round) < stage.end:
                log.history.compile_seconds += compile_now(job, stage, state)
            while int(state.round) < stage.end and not reporter.over(state):
                began, before, mark = time.perf_counter(), reporter.steady(state), log.mark()
                when = schedule(job, min(stage.end, reporter.next_checkpoint(state), int(state.round) + pace), log)
                state, records = jax.block_until_ready(advance(stage.task, state, when))
                seconds = time.perf_counter() - began
                chunk = Chunk(number, int(before.round), state, jax.device_get(records), seconds)
                record(job, log, chunk)
                pace = next_pace(pace, seconds, stage.task.recording.capacity)
                reporter.save(state)  # before callbacks hear of it: where one ends the process, the rounds are kept
                end = reporter.tell()
                if end is not None and end < int(state.round):  # a callback ended the run within the chunk
                    log.rewind(mark)
                    state = cut_short(job, log, chunk, before, functools.partial(advance, stage.task), end)
                    reporter.save(state)
    return conclude_run(job, state, log, conduct)


@dataclasses.dataclass(frozen=True)
class Reporter:
    """What happens between chunks: checkpoints, the progress bar, callbacks, and Ctrl-C."""

    job: Job
    log: Log
    conduct: Conduct
    asked: threading.Event  # set where the run is to stop
    bar: Bar

    def steady(self, state: State) -> State:
        """The state to go back to where a callback ends the run."""
        return self.job.storage.steady(state) if self.conduct.listeners.callbacks else state

    def over(self, state: State) -> bool:
        """Whether the run has failed, or is to stop."""
        return failed(state) or self.asked.is_set()

    def next_checkpoint(self, state: State) -> int:
        """The round before which the next checkpoint is due."""
        store = self.conduct.store
        return (int(state.round) // store.every + 1) * store.every if store else self.job.spec.rounds

    def tell(self) -> int | None:
        """Tell the callbacks of new rows: the round after which one of them ends the run; None where none does."""
        end = self.conduct.listeners.rows(self.log)
        if end is not None:
            self.asked.set()
        return end

    def save(self, state: State) -> None:
        """Show what has been done, and save it where that is due."""
        store, round = self.conduct.store, int(state.round)
        self.bar.update(round, self.log.history.rows[-1]["objective"])
        if store and (round % store.every == 0 or round == self.job.spec.rounds):
            save(self.job, store, state, self.log)


def conclude_run(job: Job, state: State, log: Log, conduct: Conduct) -> Result:
    """The result of a run that has come to its end, was stopped or has failed."""
    store, number = conduct.store, stage_number(job, state)
    outcome = judge(job, state, log)
    if int(state.round) < job.spec.rounds or failed(state):
        if store:  # without the row that only an ended run has
            save(job, store, state, log)
        close(job, number, state, log)
        conduct.listeners.rows(log)
    if store:
        store.say_what_is_missing()
    return conduct.listeners.end(finish(job, job.stages[number], state, log, outcome, conduct.debug))


def next_stage(job: Job, number: int, state: State, log: Log) -> State:
    """The state before a later stage, from what the one before hands over."""
    before = gathered(job, state)
    starts = next_start(job.stages[number - 1].here, before)
    state = fresh_state(job, job.stages[number].task, starts, before.key, int(state.round))
    count_first(job, job.stages[number], state, log)
    return state


def stage_number(job: Job, state: State) -> int:
    """Which stage a state is of: the one that began in its round `begun`."""
    return [0, *(stage.end for stage in job.stages)].index(int(state.begun))


def first_row(job: Job, state: State, log: Log, values: Mapping[str, npt.ArrayLike]) -> None:
    """Row 0 of the history: what was found at the start."""
    stage = job.stages[0]
    count_first(job, stage, state, log)
    add_row(log, 0, values, participants=0, stage=0, seconds=0.0)
    if stage.task.recording.keep_models:
        keep_model(job, log, 0, model_of(job, stage, state))


def count_first(job: Job, stage: ReadyStage, state: State, log: Log) -> None:
    """The bytes of the exchange before a stage's first round, where the method has one."""
    if stage.first:
        log.up += stage.first * stage.here.first_messages(gathered(job, state))


def close(job: Job, number: int, state: State, log: Log) -> None:
    """The row of the last good model, where a run ended between two evaluations."""
    done, stage = rounds_done(state), job.stages[number]
    task = stage.task
    if log.history.rows[-1]["round"] < done:
        add_row(log, done, job.storage.look(task, state), task.plan.participants, number, log.seconds)
        if job.watched:
            log.unseen[done] = job.spec.problem.ready(model_of(job, stage, state))


def model_of(job: Job, stage: ReadyStage, state: State) -> PyTree:
    """The model of a state, as NumPy arrays."""
    return to_numpy(model_and_average(stage.here, gathered(job, state))[0])


def keep_model(job: Job, log: Log, round: int, model: PyTree) -> None:
    """The model after a round, into the log where models are kept, and to be seen where its row is."""
    if job.spec.keep_models:
        log.models.append(model)
    if job.watched and log.history.rows[-1]["round"] == round:
        log.unseen[round] = job.spec.problem.ready(model)


def compile_now(job: Job, stage: ReadyStage, state: State) -> float:
    """Compile the loop by asking it for no rounds, and say how long that took."""
    began = time.perf_counter()
    none = schedule_of(job.spec, int(state.round), constant(False, bool))
    jax.block_until_ready(job.storage.advance(stage.task, state, everywhere(stage.task, none)))
    return time.perf_counter() - began


def schedule(job: Job, stop: int, log: Log) -> ChunkSchedule:
    """When things happen in a chunk that ends before the round `stop`, on the devices of the run."""
    finite = constant(math.isfinite(log.history.rows[0]["loss"]), bool)
    return everywhere(job.stages[0].task, schedule_of(job.spec, stop, finite))


def next_pace(pace: int, seconds: float, capacity: int) -> int:
    """How many rounds the next chunk should have."""
    grown = pace * 4 if seconds < CHUNK_SECONDS / 4 else int(pace * CHUNK_SECONDS / seconds)
    return max(1, min(grown, pace * 4, capacity))


class Chunk(NamedTuple):
    """Rounds that were done in one call."""

    stage: int
    first: int  # the first of these rounds
    state: State  # after the last one
    records: ChunkRecords
    seconds: float


def cut_short(
    job: Job, log: Log, chunk: Chunk, before: State, advance: Callable[[State, ChunkSchedule], Advanced], end: int
) -> State:
    """Do the rounds of a chunk once more, from the state before it, up to `end`: the state and the log after these."""
    state, each = before, chunk.seconds / (int(chunk.state.round) - chunk.first)
    while (first := int(state.round)) < end:
        state, records = advance(state, schedule(job, end, log))
        took = each * (int(state.round) - first)
        record(job, log, Chunk(chunk.stage, first, state, jax.device_get(records), took))
    log.unseen.clear()  # they have been told of
    return state


def record(job: Job, log: Log, chunk: Chunk) -> None:
    """What a chunk recorded, into the log. Its rounds share its seconds evenly."""
    state, records, first, spec = chunk.state, chunk.records, chunk.first, job.spec
    stage, names, began = job.stages[chunk.stage], spec.federation.names, log.seconds
    done, each = rounds_done(state) - first, chunk.seconds / max(1, int(state.round) - first)
    log.seconds += chunk.seconds
    for i in range(done + failed(state)):
        now = first + i + 1
        took = jax.tree.map(lambda leaf, i=i: leaf[i], records.participation)
        lost = took.clients[took.lost]
        log.history.left_out += [LeftOut(now - 1, names[int(m)]) for m in lost]
        log.unreported += lost.size
        if i == done:  # the round that failed: who was left out is known, but it changed nothing
            break
        log.down += stage.down * int(took.messages)
        log.up += stage.up * int(took.messages)
        if now % spec.evaluate_every == 0 or now == spec.rounds:
            row = {name: values[i] for name, values in records.rows.items()}
            add_row(log, now, row, int(took.present), chunk.stage, began + (i + 1) * each)
        if stage.task.recording.keep_models:
            keep_model(job, log, now, jax.tree.map(lambda leaf, i=i: leaf[i], records.models))


def add_row(
    log: Log, round: int, values: Mapping[str, npt.ArrayLike], participants: int, stage: int, seconds: float
) -> None:
    """One row of the history."""
    by_client = {name.removeprefix("client_"): np.asarray(each) for name, each in values.items() if np.ndim(each)}
    if by_client:
        log.history.client_rows.append((round, by_client))
    log.history.rows.append(
        {"round": round}
        | {name: float(np.asarray(value)) for name, value in values.items() if not np.ndim(value)}
        | {
            "participants": participants,
            "left_out": log.unreported,
            "bytes_down": log.down,
            "bytes_up": log.up,
            "seconds": seconds,
            "stage": stage,
        }
    )
    log.unreported = 0
