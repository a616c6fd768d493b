"""`cofed.tune`: a whole grid of hyperparameters as one vmapped program, and a second one for what is left of it."""

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Int, PyTree

from cofed.algorithms.base import AbstractAlgorithm, check_algorithm
from cofed.engine.job import Job, Settings, check_kinds, prepare, traced
from cofed.engine.loop import Clock, Task, advance
from cofed.engine.plan import check_refusal, check_seed, optional_integer, positive_integer
from cofed.engine.progress import Bar, interruptible, wanted
from cofed.engine.rounds import State, at, copies, in_blocks
from cofed.engine.run import next_pace
from cofed.federation import Federation
from cofed.gossip.topologies import Topology
from cofed.problem import Problem
from cofed.programs import keep_programs

MEMORY = 2**31  # bytes that the configurations of one slice may take together
WIDTH = 8  # configurations in a block, once many have diverged: few to leave out more, enough to share a batch


@dataclasses.dataclass(frozen=True)
class Tuning:
    """A tuned grid: `table` has one row per configuration, best first; `best` is the best algorithm with its `score`.

    `curves` maps a column of the history to an array (configurations as given, evaluated rounds); `rounds` are those.
    """

    table: pd.DataFrame
    best: Any
    score: float
    curves: dict[str, np.ndarray]
    rounds: np.ndarray


def tune(
    problem: Problem,
    federation: Any,
    grid: AbstractAlgorithm | Iterable[AbstractAlgorithm],
    *,
    rounds: int,
    score: str | None = None,
    last: int = 1,
    maximise: bool = False,
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
    progress: bool | None = None,
) -> Tuning:
    """Run every algorithm of a grid on the same batches, and rank them.

    grid: algorithms, such as [cofed.FedDualAvg(c, s) for c in rates for s in rates]. Those that differ in numbers only
        run as one vmapped program, in slices that fit `memory` (bytes).
    score: the history's column to rank by, averaged over the last `last` evaluations; `maximise` for an accuracy or F1.
        None is the objective, of methods with a model for each client the personal_objective.
    evaluate_every: rounds between evaluations; None evaluates about 20 times.
    A configuration that diverges is marked in the table and ranked last; its curves have no values (NaN) from there on,
        and the grid goes on with the rest. The other arguments are those of `cofed.run`.

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
    algorithms = [grid] if isinstance(grid, AbstractAlgorithm) else list(grid)
    if not algorithms:
        raise ValueError("the grid is empty: give at least one algorithm")
    for algorithm in algorithms:
        check_algorithm(algorithm)
        if algorithm.candidates(problem) is not None:
            raise ValueError(f"{algorithm.name} chooses between methods by itself: tune these one by one")
    if score is None:
        score = "personal_objective" if algorithms[0].is_personal else "objective"
    rounds = positive_integer("rounds", rounds)
    every = max(1, rounds // 20) if evaluate_every is None else positive_integer("evaluate_every", evaluate_every)
    last = positive_integer("last", last)
    settings = Settings(
        rounds,
        optional_integer("local_steps", local_steps),
        optional_integer("local_epochs", local_epochs),
        optional_integer("batch_size", batch_size),
        optional_integer("clients_per_round", clients_per_round),
        check_seed(seed),
        every,
        keep_models=False,
        per_client=False,
    )
    keep_programs()
    start = problem.start(federation, w0, seed)
    curves: list[dict[str, np.ndarray]] = [{} for _ in algorithms]
    failed_at = np.full(len(algorithms), -1)
    with interruptible() as asked, Bar("tuning", len(algorithms), 0, wanted(progress), "configurations") as bar:
        done = 0
        for group in alike(algorithms, problem, settings, federation.dtype):
            one = algorithms[group.members[0]]
            job = prepare(problem, federation, one, settings, weights, metrics, evaluation, topology, link_failure)
            check_score(score, job, start)
            for part in slices(len(group.members), job, start, memory):
                rows, failures = run_together(job, [group.stages[i] for i in part], start, asked)
                for place, i in enumerate(group.members[i] for i in part):
                    curves[i] = {name: values[place] for name, values in rows.items()}
                    failed_at[i] = failures[place]
                if asked.is_set():  # in the last rounds
                    raise KeyboardInterrupt("tuning was stopped")
                done += len(part)
                bar.update(done, float(min(np.nan_to_num(c["objective"][-1], nan=np.inf) for c in curves if c)))
    return rank(algorithms, curves, failed_at, evaluated(settings), score, last, maximise)


@dataclasses.dataclass
class Group:
    """Configurations that differ in numbers only, and so can be one program."""

    members: list[int]  # their places in the grid
    stages: list[list[Any]]  # for each its algorithms, stage by stage, with numbers as arrays


def is_number(value: Any) -> bool:
    """What a column of the table can show: a number, or a few."""
    return isinstance(value, (bool, int, float, tuple)) or (
        isinstance(value, (jax.Array, np.ndarray)) and value.ndim == 0
    )


def numbers_of(module: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers of a method by name, and those of what it is made of: `algorithm.client_lr`, `mirror.p`."""
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        if is_number(value):
            yield prefix + field.name, value
        elif isinstance(value, eqx.Module):
            yield from numbers_of(value, f"{prefix}{field.name}.")


def alike(algorithms: list[Any], problem: Problem, settings: Settings, dtype: Any) -> list[Group]:
    """The grid in groups."""
    groups: dict[Any, Group] = {}
    for i, algorithm in enumerate(algorithms):
        check_refusal(algorithm, problem)
        stages = algorithm.stages(problem, settings.rounds, settings.local_steps)
        methods = [traced(stage.algorithm, dtype) for stage in stages]
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
    job: Job, members: list[list[Any]], start: PyTree, asked: threading.Event
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """All rows (configurations, evaluations) of one slice, and the rounds in which configurations failed.

    All advance in one call until half have failed; those that are left go on in small blocks, by a second program that
    serves any number of them.
    """
    settings, rows, state = job.settings, {}, None
    marks, failed_at = evaluated(settings), np.full(len(members), -1)
    starts = copies(job.exchange.starts(start, job.stages[0].task.plan), len(members))
    key = jax.random.key(settings.seed)
    finite, pace = None, 1
    for stage, same_stage in zip(job.stages, zip(*members, strict=True), strict=True):
        algorithms = jax.tree.map(lambda *leaves: jnp.stack(leaves), *same_stage)
        began = 0 if state is None else int(state.round)
        new = begin_together(algorithms, stage.task, starts, key, began)
        if state is not None:  # what failed in an earlier stage stays failed
            new = dataclasses.replace(new, failed_at=state.failed_at)
        state = new
        if finite is None:
            finite = jnp.isfinite(losses_together(algorithms, stage.task, state)).all()
        while int(state.round) < stage.end:
            if asked.is_set():
                raise KeyboardInterrupt("tuning was stopped before the grid was done")
            before, since, after = int(state.round), time.perf_counter(), state
            stop = min(stage.end, before + pace)
            when = Clock(*(number_of(n) for n in (stop, settings.rounds, settings.evaluate_every)), finite=finite)
            due = np.flatnonzero((marks > before) & (marks <= stop))
            alive = np.flatnonzero(failed_at < 0)
            if not len(alive):
                return ended(rows, marks, failed_at), failed_at
            few = len(alive) <= len(members) / 2 and len(members) > WIDTH
            for some, places in blocks(alive, WIDTH if few else len(members)):
                after, records = advance_some(algorithms, stage.task, state, after, places, when)
                for name, values in records.items():
                    found = np.asarray(values)[: len(some), marks[due] - before - 1]
                    if name not in rows:
                        rows[name] = np.full((len(members), len(marks)), np.nan, np.result_type(found, 0.0))
                    rows[name][np.ix_(some, due)] = found
            state = jax.block_until_ready(after)
            failed_at = np.asarray(state.failed_at)
            pace = next_pace(pace, time.perf_counter() - since, job.watch.capacity)
        starts = outputs(algorithms, stage.task, state)
    return ended(rows, marks, failed_at), failed_at


def blocks(chosen: np.ndarray, width: int) -> Iterator[tuple[np.ndarray, Int[Array, " width"]]]:
    """The chosen configurations in blocks, each also filled up with its last one again, which changes nothing."""
    for first in range(0, len(chosen), width):
        some = chosen[first : first + width]
        yield some, jnp.asarray(np.pad(some, (0, width - len(some)), mode="edge"), jnp.int32)


def evaluated(settings: Settings) -> np.ndarray:
    """The rounds after which models are evaluated."""
    every, last = settings.evaluate_every, settings.rounds
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
def losses_together(algorithms: Any, task: Task, state: State) -> jax.Array:
    """The loss of every configuration's start."""
    return jax.vmap(lambda a, s, c: of(task, a).row(at(state, s, c))["loss"])(algorithms, state.server, state.clients)


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


def rank(
    algorithms: list[Any],
    curves: list[dict[str, np.ndarray]],
    failed_at: np.ndarray,
    rounds: np.ndarray,
    score: str,
    last: int,
    maximise: bool,
) -> Tuning:
    """The table, best first."""
    sign = -1 if maximise else 1
    records = []
    for algorithm, curve, failure in zip(algorithms, curves, failed_at, strict=True):
        value = float(np.mean(curve[score][-last:]))
        diverged = bool(failure >= 0) or not math.isfinite(value)
        numbers = dict(numbers_of(algorithm))
        final = {name: float(values[-1]) for name, values in curve.items()}
        records.append(
            {"algorithm": algorithm.name}
            | numbers
            | {"score": value, "diverged": diverged, "diverged_at": int(failure) if failure >= 0 else None}
            | final
        )
    table = pd.DataFrame(records)
    order = sorted(
        range(len(records)), key=lambda i: (records[i]["diverged"], sign * np.nan_to_num(records[i]["score"]))
    )
    best = order[0]
    if records[best]["diverged"]:
        raise ValueError("every configuration of the grid diverged; add smaller learning rates")
    joined = {name: np.stack([curve[name] for curve in curves]) for name in curves[0]}
    return Tuning(table.iloc[order], algorithms[best], records[best]["score"], joined, rounds)
