"""`cofed.tune`: a whole grid of hyperparameters as one vmapped program, and a second one for what is left of it."""

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from cofed._util import checks
from cofed._util.programs import keep_programs
from cofed.algorithms.base import AbstractAlgorithm, as_algorithm
from cofed.engine import folders
from cofed.engine.chunk_loop import Clock, Task, advance
from cofed.engine.ending import blown_up, judged_by, usual_start
from cofed.engine.history import Outcome
from cofed.engine.job import Job, prepare, traced
from cofed.engine.plan import check_refusal
from cofed.engine.progress import Bar, interruptible, wanted
from cofed.engine.ranking import Tried, Tuning, maximised, rank
from cofed.engine.run import next_pace
from cofed.engine.server_rounds import State, at, copies, in_blocks
from cofed.engine.spec import RunSpec, check_kinds, checked_metrics
from cofed.engine.tuning_record import Kept, Progress, describe
from cofed.federation import Federation
from cofed.gossip.topologies import Topology
from cofed.problem import Problem

KEPT = 10  # a part of a grid is kept about so many times while it runs
MEMORY = 2**31  # bytes that the configurations of one slice may take together
WIDTH = 8  # configurations in a block, once many have diverged: few to leave out more, enough to share a batch


def tune(
    problem: Problem,
    federation: Any,
    grid: Iterable[Any],
    *,
    rounds: int,
    score: str | None = None,
    last: int = 1,
    maximise: bool | None = None,
    local_steps: int | None = None,
    local_epochs: int | None = None,
    batch_size: int | None = None,
    clients_per_round: int | None = None,
    weights: Any = "uniform",
    topology: Topology | None = None,
    link_failure: float = 0.0,
    w0: Any = None,
    seed: int = 0,
    evaluate_every: int | None = None,
    metrics: Mapping[str, Callable] | None = None,
    evaluation: Federation | None = None,
    memory: int = MEMORY,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
) -> Tuning:
    """Run every algorithm of a grid on the same batches, and rank them.

    grid: algorithms, such as [cofed.FedDualAvg(c, s) for c in rates for s in rates]. Those that differ in numbers only
        run as one vmapped program, in slices that fit `memory` (bytes).
    score: the history's column to rank by, averaged over the last `last` evaluations. None is the objective, of methods
        with a model for each client the personal_objective.
    maximise: whether more of the score is better. None is what the column says (accuracies, and the F1, precision and
        recall of `cofed.metrics`: more; all else: less); of a metric of your own it must be said, here or by
        `cofed.metrics.higher_is_better`.
    evaluate_every: rounds between evaluations; None evaluates about 20 times.
    checkpoint: a folder to keep the work in: the same call goes on where it was stopped or killed, with the same bits.
    A configuration that diverges (see `cofed.Outcome`) is marked in the table and ranked last; where its numbers are no
        longer finite its curves have no values (NaN), and the grid goes on with the rest. Ctrl-C returns what is done.
        The other arguments are those of `cofed.run`.

    >>> import numpy as np, cofed
    >>> rng = np.random.default_rng(0)
    >>> clients = [(X := rng.normal(size=(20, 3)), X @ np.array([1.0, 0.0, 2.0])) for _ in range(4)]
    >>> federation = cofed.Federation.from_arrays(clients)
    >>> grid = [cofed.FedDualAvg(client_lr=rate) for rate in (0.001, 0.1, 100.0)]
    >>> tuning = cofed.tune(cofed.Problem(), federation, grid, rounds=50, local_steps=2)
    >>> tuning.best.client_lr, tuning.table["diverged"].tolist()
    (0.1, [False, False, True])
    """
    check_kinds(problem, federation)
    given = [grid] if isinstance(grid, eqx.Module) else checks.items("grid", grid, "algorithms")
    checks.optional_flag("progress", progress)
    checks.optional_flag("maximise", maximise)
    checks.integer("memory", memory, most=None)
    checks.optional_text("score", score)
    if not given:
        raise ValueError("the grid is empty: give at least one algorithm")
    algorithms = [as_algorithm(algorithm, "each of grid") for algorithm in given]
    for algorithm in algorithms:
        if algorithm.candidates(problem) is not None:
            raise ValueError(f"{algorithm.name} chooses between methods by itself: tune these one by one")
    upward = maximised(score or "objective", checked_metrics(metrics), maximise)
    if score is None:
        score = "personal_objective" if algorithms[0].is_personal else "objective"
    rounds = checks.integer("rounds", rounds)
    last = checks.integer("last", last)
    spec = RunSpec(
        problem,
        federation,
        algorithms[0],
        rounds=rounds,
        local_steps=local_steps,
        local_epochs=local_epochs,
        batch_size=batch_size,
        clients_per_round=clients_per_round,
        weights=weights,
        topology=topology,
        link_failure=link_failure,
        w0=w0,
        seed=seed,
        evaluate_every=max(1, rounds // 20) if evaluate_every is None else evaluate_every,
        metrics=checked_metrics(metrics),
        evaluation=evaluation,
    )
    keep_programs()
    start = spec.start()
    tried = [Tried({}) for _ in algorithms]
    with contextlib.ExitStack() as stack:
        # Everything is checked before anything runs, and before a folder is begun.
        groups = alike(algorithms, spec)
        jobs = [prepare(dataclasses.replace(spec, algorithm=algorithms[group.members[0]])) for group in groups]
        for job in jobs:
            check_score(score, job, start)
        kept = None
        if checkpoint is not None:
            kept = Kept(folders.writable(checks.folder("checkpoint", checkpoint), "checkpoint"))
            stack.enter_context(folders.held(kept.folder))
            kept.begin(describe(spec, algorithms, start) | {"memory": memory})
        asked = stack.enter_context(interruptible())
        bar = stack.enter_context(Bar("tuning", len(algorithms), 0, wanted(progress), "configurations"))
        number = done = 0
        for group, job in zip(groups, jobs, strict=True):
            for part in slices(len(group.members), job, start, memory):
                if asked.is_set():
                    break
                keep = None if kept is None else (kept, number)
                together = run_together(job, [group.stages[i] for i in part], start, asked, keep)
                for place, i in enumerate(group.members[i] for i in part):
                    tried[i] = judged(job, together, place)
                number, done = number + 1, done + len(part)
                ends = (one.curve["objective"][-1] for one in tried if one.curve)
                bar.update(done, float(min((np.nan_to_num(end, nan=np.inf) for end in ends), default=np.inf)))
    return rank(algorithms, tried, evaluated(spec), score, last, upward)


class Together(NamedTuple):
    """What became of configurations that ran together."""

    rows: dict[str, np.ndarray]  # columns, each (configurations, evaluations)
    begun: dict[str, np.ndarray]  # what tells how the start was, each (configurations,)
    failed_at: np.ndarray  # the rounds in which configurations failed, or -1
    round: int  # how many rounds were done


def judged(job: Job, together: Together, place: int) -> Tried:
    """How a configuration ended, by the rules of `cofed.run`."""
    curve = {name: values[place] for name, values in together.rows.items()}
    failed_at = int(together.failed_at[place])
    if failed_at >= 0:
        return Tried(curve, failed_at, Outcome.DIVERGED)
    if together.round < job.spec.rounds:
        return Tried(curve)
    first = {name: float(values[place]) for name, values in together.begun.items()}
    column = judged_by(first, {name: float(values[-1]) for name, values in curve.items()})
    values = [first[column], *curve[column].tolist()]
    blown = math.isfinite(values[0]) and blown_up(values) and blown_up(values, usual_start(job, column))
    return Tried(curve, outcome=Outcome.DIVERGED if blown else Outcome.COMPLETED)


@dataclasses.dataclass
class Group:
    """Configurations that differ in numbers only, and so can be one program."""

    members: list[int]  # their places in the grid
    stages: list[list[Any]]  # for each its algorithms, stage by stage, with numbers as arrays


def alike(algorithms: list[Any], spec: RunSpec) -> list[Group]:
    """The grid in groups."""
    groups: dict[Any, Group] = {}
    for i, algorithm in enumerate(algorithms):
        check_refusal(algorithm, spec.problem)
        stages = algorithm.stages(spec.problem, spec.rounds, spec.local_steps)
        methods = [traced(stage.algorithm, spec.federation.dtype) for stage in stages]
        shapes = tuple(leaf.shape for leaf in jax.tree.leaves(methods))
        ends = tuple((stage.rounds, stage.local_steps) for stage in stages)
        group = groups.setdefault((jax.tree.structure(methods), shapes, ends), Group([], []))
        group.members.append(i)
        group.stages.append(methods)
    return list(groups.values())


def check_score(score: str, job: Job, start: PyTree) -> None:
    """The column to rank by must be there, before anything runs."""
    task = job.stages[0].task
    columns = jax.eval_shape(lambda: task.row(task.begin(job.exchange.starts(start, task.plan), jax.random.key(0), 0)))
    if score not in columns:
        raise ValueError(f"score={score!r} is not a column of the history; it has {sorted(columns)}")


def slices(count: int, job: Job, start: PyTree, memory: int) -> list[range]:
    """A group in parts whose states, and what a round makes of them, fit into memory."""
    size = lambda tree: sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))  # noqa: E731
    task = job.stages[0].task
    state = jax.eval_shape(lambda: task.begin(job.exchange.starts(start, task.plan), jax.random.key(0), 0))
    one = 3 * (size(state.server) + size(state.clients)) + 6 * task.plan.participants * size(start)
    width = max(1, int(memory // one))
    return [range(i, min(i + width, count)) for i in range(0, count, width)]


def run_together(
    job: Job,
    members: list[list[Any]],
    start: PyTree,
    asked: threading.Event,
    keep: tuple[Kept, int] | None = None,
) -> Together:
    """All rows of one slice, up to the end or to Ctrl-C; `keep` is the folder that it is kept in, and its number there.

    All advance in one call until half have failed; those that are left go on in small blocks, by a second program that
    serves any number of them.
    """
    spec, rows, state = job.spec, {}, None
    marks, failed_at = evaluated(spec), np.full(len(members), -1)
    starts = copies(job.exchange.starts(start, job.stages[0].task.plan), len(members))
    key = jax.random.key(spec.seed)
    before = keep[0].read(keep[1]) if keep else None
    begun, pace = {} if before is None else before.begun, 1
    every = max(1, spec.rounds // KEPT)
    for number, (stage, same_stage) in enumerate(zip(job.stages, zip(*members, strict=True), strict=True)):
        if before is not None and number < before.stage:
            continue
        algorithms = jax.tree.map(lambda *leaves: jnp.stack(leaves), *same_stage)
        began = 0 if state is None else int(state.round)
        new = begin_together(algorithms, stage.task, starts, key, began)
        if keep and before is not None:
            new, rows, before = keep[0].restore(keep[1], new, before), before.rows, None
            failed_at = np.asarray(new.failed_at)
        elif state is not None:  # what failed in an earlier stage stays failed
            new = dataclasses.replace(new, failed_at=state.failed_at)
        state = new
        if not begun:
            begun = {name: np.asarray(v) for name, v in rows_together(algorithms, stage.task, state).items()}
        finite = jnp.asarray(np.isfinite(begun["loss"]).all())
        while int(state.round) < stage.end and (failed_at < 0).any() and not asked.is_set():
            first, since, after = int(state.round), time.perf_counter(), state
            stop = min(stage.end, first + pace)
            if keep:
                stop = min(stop, (first // every + 1) * every)
            when = Clock(*(number_of(n) for n in (stop, spec.rounds, spec.evaluate_every)), finite=finite)
            due = np.flatnonzero((marks > first) & (marks <= stop))
            alive = np.flatnonzero(failed_at < 0)
            few = len(alive) <= len(members) / 2 and len(members) > WIDTH
            for some, places in blocks(alive, WIDTH if few else len(members)):
                after, records = advance_some(algorithms, stage.task, state, after, places, when)
                for name, values in records.items():
                    found = np.asarray(values)[: len(some), marks[due] - first - 1]
                    if name not in rows:
                        rows[name] = np.full((len(members), len(marks)), np.nan, np.result_type(found, 0.0))
                    rows[name][np.ix_(some, due)] = found
            state = jax.block_until_ready(after)
            failed_at = np.asarray(state.failed_at)
            pace = next_pace(pace, time.perf_counter() - since, job.watch.capacity)
            if keep and (stop % every == 0 or stop == stage.end or asked.is_set()):
                keep[0].write(keep[1], Progress(number, rows, begun, state))
        if asked.is_set() or (failed_at >= 0).all():
            break
        starts = outputs(algorithms, stage.task, state)
    assert state is not None  # there is a stage
    return Together(ended(rows, marks, failed_at), begun, failed_at, int(state.round))


def blocks(chosen: np.ndarray, width: int) -> Iterator[tuple[np.ndarray, Int[Array, " width"]]]:
    """The chosen configurations in blocks, each also filled up with its last one again, which changes nothing."""
    for first in range(0, len(chosen), width):
        some = chosen[first : first + width]
        yield some, jnp.asarray(np.pad(some, (0, width - len(some)), mode="edge"), jnp.int32)


def evaluated(spec: RunSpec) -> np.ndarray:
    """The rounds after which models are evaluated."""
    every, last = spec.evaluate_every, spec.rounds
    return np.array([r for r in range(1, last + 1) if r % every == 0 or r == last])


def ended(rows: dict[str, np.ndarray], marks: np.ndarray, failed_at: np.ndarray) -> dict[str, np.ndarray]:
    """The rows, without a value after a configuration has failed."""
    over = (failed_at >= 0)[:, None] & (marks > failed_at[:, None])
    return {name: np.where(over, np.nan, values) for name, values in rows.items()}


def number_of(value: int) -> jax.Array:
    """A number that a change of does not recompile."""
    return jnp.asarray(value, jnp.int32)


def of(task: Task, algorithm: AbstractAlgorithm) -> Task:
    """The task with another algorithm."""
    return dataclasses.replace(task, algorithm=algorithm)


@eqx.filter_jit
def begin_together(algorithms: Any, task: Task, starts: PyTree, key: Any, round: int) -> State:
    """The states of all configurations before a stage."""

    def begin(algorithm, starts):
        state = of(task, algorithm).begin(starts, key, round)
        return state.server, state.clients, state.empty, state.failed_at

    server, clients, empty, failed_at = jax.vmap(begin)(algorithms, starts)
    return State(server, clients, key, number_of(round), number_of(round), empty, failed_at)


@eqx.filter_jit
def rows_together(algorithms: Any, task: Task, state: State) -> dict[str, jax.Array]:
    """The loss and the objective of every configuration's start, and those of its clients' own models."""

    def one(algorithm, server, clients):
        row = of(task, algorithm).row(at(state, server, clients))
        wanted = [f"{kind}{name}" for kind in ("", "personal_") for name in ("loss", "objective")]
        return {name: row[name] for name in wanted if name in row}

    return jax.vmap(one)(algorithms, state.server, state.clients)


@eqx.filter_jit
def outputs(algorithms: Any, task: Task, state: State) -> PyTree:
    """What each configuration hands to its next stage."""

    def one(algorithm, server, clients):
        return task.exchange.output(algorithm, task.problem, at(state, server, clients))

    return jax.vmap(one)(algorithms, state.server, state.clients)


@eqx.filter_jit
def advance_some(
    algorithms: Any, task: Task, state: State, after: State, places: Int[Array, " some"], clock: Clock
) -> tuple[State, dict[str, Array]]:
    """`loop.advance` of the configurations at these places, put into `after`, and their rows. Data, the key and the
    clock are shared, and so are all batches."""
    # Configurations share a batch, so a step of all of them fits the cache with fewer clients at once.
    for_each = in_blocks(max(1, (task.plan.block or 1) // places.size))

    def one(algorithm, server, clients, empty, failed_at):
        mine = State(server, clients, state.key, state.round, state.begun, empty, failed_at)
        mine, records = advance(of(task, algorithm), mine, clock, for_each)
        return (mine.server, mine.clients, mine.empty, mine.failed_at), records.rows, mine.round

    own = lambda of: (of.server, of.clients, of.empty, of.failed_at)  # noqa: E731
    mine = jax.tree.map(lambda leaf: leaf[places], (algorithms, *own(state)))
    new, rows, round = jax.vmap(one, out_axes=(0, 0, None))(*mine)
    server, clients, empty, failed_at = jax.tree.map(lambda all_, some: all_.at[places].set(some), own(after), new)
    return State(server, clients, state.key, round, state.begun, empty, failed_at), rows
