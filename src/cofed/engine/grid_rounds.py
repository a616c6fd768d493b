"""The rounds of many configurations at once: one vectorized program for a slice of a grid.

All configurations advance in one call until half of them have failed. Those that are left then go on in small blocks,
by a second program that serves any number of them.
"""

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from cofed._util.programs import program
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.chunk_loop import ChunkSchedule, advance, schedule_of
from cofed.engine.ending import blown_up, judged_by, usual_start
from cofed.engine.execution import next_pace
from cofed.engine.history import Outcome
from cofed.engine.job import Job
from cofed.engine.mesh import in_one_place, in_parts, put
from cofed.engine.ranking import Trial
from cofed.engine.spec import RunSpec
from cofed.engine.state import State, copies
from cofed.engine.task import AbstractTask
from cofed.engine.tuning_record import PartFile, PartProgress

T = TypeVar("T")

SAVES = 10  # a slice is saved about this many times while it runs
WIDTH = 8  # configurations in a block, once many have failed: small blocks skip more of them, large ones share batches


class Chosen(eqx.Module):
    """Configurations that advance together."""

    places: Int[Array, " some"]  # in the slice; on several devices, as many for each
    mesh: Mesh | None = eqx.field(static=True, default=None)  # the devices


@dataclasses.dataclass(frozen=True)
class Curves:
    """The curves of configurations that ran together."""

    rows: dict[str, np.ndarray]  # columns, each (configurations, evaluations); NaN after a configuration has failed
    first: dict[str, np.ndarray]  # the row of the start, each column (configurations,)
    failed_at: np.ndarray  # the rounds in which configurations failed, or -1
    round: int  # how many rounds were done


@dataclasses.dataclass
class SliceRun:
    """The configurations of a slice, and what they have recorded so far."""

    job: Job
    members: list[list[AbstractAlgorithm]]  # for each configuration its algorithms, stage by stage
    stop: threading.Event
    file: PartFile | None
    marks: np.ndarray  # the evaluated rounds
    first: dict[str, np.ndarray]  # the row of the start, each column (configurations,)
    rows: dict[str, np.ndarray]  # the columns, each (configurations, evaluations)
    mesh: Mesh | None = None  # the devices over which the configurations are spread
    tell: Callable[[Curves], None] = lambda curves: None  # whom to tell what was evaluated
    pace: int = 1  # rounds of the next chunk

    @property
    def saved_every(self) -> int:
        """Rounds between two saves."""
        return max(1, self.job.spec.rounds // SAVES)

    def algorithms(self, number: int) -> PyTree:
        """The algorithms of one stage, their numbers stacked."""
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(stages[number] for stages in self.members))

    def placed(self, tree: T) -> T:
        """The tree's arrays on every device."""
        return tree if self.mesh is None else put(tree, self.mesh, P())

    def over(self, state: State) -> bool:
        """Whether nothing is left to do: the user has asked to stop, or every configuration has failed."""
        return self.stop.is_set() or bool((np.asarray(state.failed_at) >= 0).all())

    def run_stage(self, number: int, algorithms: PyTree, state: State) -> State:
        """Advance to the end of a stage, chunk by chunk, or until nothing is left to do."""
        stage, finite = self.job.stages[number], jnp.asarray(np.isfinite(self.first["loss"]).all())
        task, algorithms, state = self.placed((stage.task, algorithms, state))
        while int(state.round) < stage.end and not self.over(state):
            began, round = time.perf_counter(), int(state.round)
            end = min(stage.end, round + self.pace)
            if self.file:
                end = min(end, (round // self.saved_every + 1) * self.saved_every)
            schedule = self.placed(schedule_of(self.job.spec, end, finite))
            after = state
            for some, places in self.blocks(np.flatnonzero(np.asarray(state.failed_at) < 0)):
                after, rows = advance_some(algorithms, task, state, after, places, schedule)
                self.record(rows, some, round, end)
            state = jax.block_until_ready(after)
            if ((self.marks > round) & (self.marks <= end)).any():
                self.tell(self.curves(state))
            self.pace = next_pace(self.pace, time.perf_counter() - began, stage.task.recording.capacity)
            if self.file and (end % self.saved_every == 0 or end == stage.end or self.stop.is_set()):
                self.file.write(PartProgress.of(number, self.rows, self.first, state))
        return state if self.mesh is None else in_one_place(state)

    def curves(self, state: State) -> Curves:
        """The curves so far; NaN from where a configuration has failed, and where it has not come to yet."""
        failed_at = np.asarray(state.failed_at)
        ended = (failed_at >= 0)[:, None] & (self.marks > failed_at[:, None])
        rows = {name: np.where(ended, np.nan, values) for name, values in self.rows.items()}
        return Curves(rows, self.first, failed_at, int(state.round))

    def blocks(self, alive: np.ndarray) -> Iterator[tuple[np.ndarray, Chosen]]:
        """The configurations that have not failed: all at once, or in blocks where they are few.

        The last block is filled up by repeating its last configuration, which changes nothing.
        """
        count, devices = len(self.members), 1 if self.mesh is None else self.mesh.size
        width = WIDTH * devices if len(alive) <= count / 2 and count > WIDTH * devices else count
        width += -width % devices
        for first in range(0, len(alive), width):
            some = alive[first : first + width]
            places = jnp.asarray(np.pad(some, (0, width - len(some)), mode="edge"), jnp.int32)
            yield some, Chosen(self.placed(places), self.mesh)

    def record(self, rows: dict[str, Array], some: np.ndarray, begin: int, end: int) -> None:
        """Keep what some configurations have recorded in the rounds from `begin` to `end`."""
        due = np.flatnonzero((self.marks > begin) & (self.marks <= end))
        for name, values in rows.items():
            found = np.asarray(values)[: len(some), self.marks[due] - begin - 1]
            if name not in self.rows:
                shape = (len(self.members), len(self.marks))
                self.rows[name] = np.full(shape, np.nan, np.result_type(found, 0.0))
            self.rows[name][np.ix_(some, due)] = found


class Watch(NamedTuple):
    """Who watches a slice: an event that ends it, and what is called with the curves so far."""

    stop: threading.Event
    tell: Callable[[Curves], None]


def run_slice(
    job: Job,
    members: list[list[AbstractAlgorithm]],
    start: PyTree,
    watch: Watch,
    file: PartFile | None = None,
    mesh: Mesh | None = None,
) -> Curves:
    """Run the configurations of a slice to the end, or until `watch.stop` is set; from where they are saved in a file.

    `watch.tell` is called with the curves so far, after each chunk of rounds in which models were evaluated. The
    configurations are spread over the devices of the mesh, where there is one.
    """
    saved = None if file is None else file.read()
    first, rows = ({}, {}) if saved is None else (saved.first, saved.rows)
    run = SliceRun(job, members, watch.stop, file, evaluated(job.spec), first, rows, mesh, watch.tell)
    starts = copies(job.stages[0].task.spread_start(start), len(members))
    key, state = jax.random.key(job.spec.seed), None
    for number in range(0 if saved is None else saved.stage, len(job.stages)):
        task, algorithms = job.stages[number].task, run.algorithms(number)
        if state is None:
            state = begin_together(algorithms, task, starts, key, 0)
        else:  # what failed in an earlier stage stays failed
            fresh = begin_together(algorithms, task, starts, key, int(state.round))
            state = dataclasses.replace(fresh, failed_at=state.failed_at)
        if file is not None and saved is not None:
            state, saved = file.restore(saved, state), None
        if not run.first:
            run.first = {name: np.asarray(v) for name, v in rows_together(algorithms, task, state).items()}
        state = run.run_stage(number, algorithms, state)
        if run.over(state):
            break
        starts = outputs_together(algorithms, task, state)
    assert state is not None  # every algorithm has a stage
    return run.curves(state)


def trial(job: Job, curves: Curves, place: int) -> Trial:
    """One configuration of a slice, judged by the rules of `cofed.run`."""
    curve = {name: values[place] for name, values in curves.rows.items()}
    failed_at = int(curves.failed_at[place])
    if failed_at >= 0:
        return Trial(curve, failed_at, Outcome.DIVERGED)
    if curves.round < job.spec.rounds:
        return Trial(curve)
    first = {name: float(values[place]) for name, values in curves.first.items()}
    column = judged_by(first, {name: float(values[-1]) for name, values in curve.items()})
    values = [first[column], *curve[column].tolist()]
    blown = math.isfinite(values[0]) and blown_up(values) and blown_up(values, usual_start(job, column))
    return Trial(curve, outcome=Outcome.DIVERGED if blown else Outcome.COMPLETED)


def evaluated(spec: RunSpec) -> np.ndarray:
    """The rounds after which models are evaluated."""
    every, last = spec.evaluate_every, spec.rounds
    return np.array([r for r in range(1, last + 1) if r % every == 0 or r == last])


def with_algorithm(task: AbstractTask, algorithm: AbstractAlgorithm) -> AbstractTask:
    """The task with another algorithm."""
    return dataclasses.replace(task, algorithm=algorithm)


@program
def begin_together(algorithms: PyTree, task: AbstractTask, starts: PyTree, key: PRNGKeyArray, round: int) -> State:
    """The states of all configurations before the first round of a stage."""

    def begin(algorithm, starts):
        state = with_algorithm(task, algorithm).begin(starts, key, round)
        return state.server, state.clients, state.empty, state.idle, state.failed_at

    server, clients, *counts = jax.vmap(begin)(algorithms, starts)
    now = jnp.asarray(round, jnp.int32)
    return State(server, clients, key, now, now, *counts)


@program
def rows_together(algorithms: PyTree, task: AbstractTask, state: State) -> dict[str, jax.Array]:
    """The loss and the objective of every configuration's start, also over its clients' own models."""

    def one(algorithm, server, clients):
        row = with_algorithm(task, algorithm).row(state.holding(server, clients))
        wanted = [f"{kind}{name}" for kind in ("", "personal_") for name in ("loss", "objective")]
        return {name: row[name] for name in wanted if name in row}

    return jax.vmap(one)(algorithms, state.server, state.clients)


@program
def outputs_together(algorithms: PyTree, task: AbstractTask, state: State) -> PyTree:
    """What each configuration hands over to its next stage."""

    def one(algorithm, server, clients):
        return with_algorithm(task, algorithm).next_start(state.holding(server, clients))

    return jax.vmap(one)(algorithms, state.server, state.clients)


@program
def advance_some(
    algorithms: PyTree,
    task: AbstractTask,
    state: State,
    after: State,
    chosen: Chosen,
    schedule: ChunkSchedule,
) -> tuple[State, dict[str, Array]]:
    """Advance the chosen configurations, write their new states into `after`, and give their rows.

    Data, key and schedule are shared by all configurations, and so are the batches. What is on several devices is the
    same on all of them, and each then advances its part of the configurations.
    """
    places, mesh = chosen.places, chosen.mesh
    here = places.size if mesh is None else places.size // mesh.size
    # A step of all configurations works on more memory than a step of one, so fewer clients at a time fit the caches.
    plan = dataclasses.replace(task.plan, block=max(1, (task.plan.block or 1) // here))
    task = dataclasses.replace(task, plan=plan)
    own = lambda state: (state.server, state.clients, state.empty, state.idle, state.failed_at)  # noqa: E731
    arrays, static = eqx.partition((task, state.key, state.round, state.begun, schedule), eqx.is_array)

    def together(arrays, mine):
        task, key, round, begun, schedule = eqx.combine(arrays, static)

        def one(algorithm, server, clients, *counts):
            mine = State(server, clients, key, round, begun, *counts)
            mine, records = advance(with_algorithm(task, algorithm), mine, schedule)
            return own(mine), records.rows, mine.round

        return jax.vmap(one, out_axes=(0, 0, None))(*mine)

    mine = jax.tree.map(lambda leaf: leaf[places], (algorithms, *own(state)))
    new, rows, round = in_parts(together, mesh)(arrays, mine)
    server, clients, *counts = jax.tree.map(lambda all_, some: all_.at[places].set(some), own(after), new)
    return State(server, clients, state.key, round, state.begun, *counts), rows
