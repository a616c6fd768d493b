"""`cofed.run` and `cofed.resume`: the in-process engine."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray, PyTree

from cofed._util import checks, trees
from cofed._util.types import Given
from cofed.algorithms.base import AbstractAlgorithm, as_algorithm
from cofed.disk import DiskFederation
from cofed.engine import folders
from cofed.engine.callbacks import Listeners, RunInfo
from cofed.engine.checkpoint import Store
from cofed.engine.chunk_loop import ChunkRecords, ChunkSchedule
from cofed.engine.definition import Written
from cofed.engine.ending import failed, finish, gathered, judge, rounds_done, to_numpy
from cofed.engine.history import History, LeftOut, Log, Result
from cofed.engine.job import Job, ReadyStage, prepare
from cofed.engine.mesh import spread_state
from cofed.engine.model_selection import choose
from cofed.engine.progress import Bar, interruptible, wanted
from cofed.engine.spec import RunSpec, checked_metrics
from cofed.engine.state import State
from cofed.engine.task import AbstractTask
from cofed.federation import Federation
from cofed.gossip.topologies import Topology
from cofed.problem import Problem

CHUNK_SECONDS = 0.25  # a chunk of rounds is about so long: often enough for a progress bar and for Ctrl-C


def run(
    problem: Given[Problem],
    federation: Given[Federation | DiskFederation],
    algorithm: Given[AbstractAlgorithm],
    *,
    rounds: Given[int],
    local_steps: Given[int | None] = None,
    local_epochs: Given[int | None] = None,
    batch_size: Given[int | None] = None,
    clients_per_round: Given[int | None] = None,
    weights: Given[str | npt.ArrayLike] = "uniform",
    topology: Given[Topology | None] = None,
    link_failure: Given[float] = 0.0,
    mesh: Given[Mesh | None] = None,
    w0: PyTree = None,
    seed: Given[int] = 0,
    evaluate_every: Given[int | None] = None,
    keep_models: Given[bool] = False,
    metrics: Given[Mapping[str, Callable] | None] = None,
    evaluation: Given[Federation | None] = None,
    per_client: Given[bool] = False,
    checkpoint: Given[str | Path | None] = None,
    checkpoint_every: Given[int | None] = None,
    keep_checkpoints: Given[int] = 3,
    progress: Given[bool | None] = None,
    debug: Given[bool] = False,
    callbacks: Given[Iterable[object]] = (),
) -> Result:
    """Run an algorithm on a federation, in this process.

    Parameters
    ----------
    problem : Problem
        The model, the loss and the regularizer.
    federation : Federation or DiskFederation
        The clients' data.
    algorithm : AbstractAlgorithm
        The method with its hyperparameters, such as ``cofed.FedDualAvg(client_lr=0.1)``.
    rounds : int
        R, how often clients and server talk.
    local_steps : int, optional
        K local steps per round, on batches drawn uniformly at random. Give this or `local_epochs`.
    local_epochs : int, optional
        Passes over a client's own data per round, each over a fresh shuffle. Without `local_steps`, the default is 1.
    batch_size : int, optional
        Samples per batch; None is the full local gradient.
    clients_per_round : int, optional
        How many clients are drawn for each round; None is everybody.
    weights : {"uniform", "samples"} or array_like of shape (n_clients,)
        pi_m, what each client counts.
    topology : Topology, optional
        Who talks to whom, such as ``cofed.topologies.ring(16)``, for methods without a server; client m is node m.
    link_failure : float
        The probability that a link of the topology fails in a round (drawn anew every round, by seed).
    mesh : jax.sharding.Mesh, optional
        The devices to spread the clients over, such as ``cofed.mesh(4)``; the trajectory is the same, to round-off.
    w0 : pytree or dict, optional
        The start, as the model's pytree or a mapping such as ``{"coef": array}``; None is the model's own.
    seed : int
        The seed of every random draw.
    evaluate_every : int, optional
        Rounds between rows of the history; an evaluation passes over all data. None is 1, but for clients on disk
        (unless `measured_on` some) the start and the end only.
    keep_models : bool
        Whether to keep the model after every round, in `result.models`.
    metrics : dict of str to callable, optional
        Own columns of the history, functions of the parameters, such as ``{"f1": cofed.metrics.f1(truth)}``.
    evaluation : Federation, optional
        Held-out data: adds test_loss (and test_accuracy) to the history.
    per_client : bool
        Whether to record every client's loss, for `result.history.clients()`.
    checkpoint : str or Path, optional
        A folder for the run's state: `cofed.resume(folder)` goes on from there. A full disk does not end a run.
    checkpoint_every : int, optional
        Rounds between checkpoints; None is about ten checkpoints per run.
    keep_checkpoints : int
        How many checkpoints are kept, the newest ones.
    progress : bool, optional
        Whether to show a progress bar; None shows it where there is a terminal. Ctrl-C returns what is done.
    debug : bool
        Whether to run eagerly, client by client, and raise at the first failure with its client, round and step.
    callbacks : iterable of Callback
        Objects that are told of the start, of each row and of the end, such as ``cofed.loggers.CSV("rows.csv")``; see
        `cofed.engine.callbacks.Callback`. One that answers a row with False ends the run.

    Returns
    -------
    Result
        The model, the history, and how the run ended.

    Raises
    ------
    TypeError, ValueError
        Where an argument is not what it should be, or the parts of the run do not fit each other.
    DebugFailure
        With ``debug=True``, at the first number that is not finite.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> rng = np.random.default_rng(0)
    >>> clients = [(X := rng.normal(size=(20, 3)), X @ np.array([1.0, 0.0, 2.0])) for _ in range(4)]
    >>> federation = cofed.Federation.from_arrays(clients)
    >>> problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(0.01))
    >>> result = cofed.run(problem, federation, cofed.FedDualAvg(client_lr=0.1), rounds=100, local_steps=2)
    >>> result.model.coef.round(1).tolist()
    [1.0, 0.0, 2.0]
    """
    spec = RunSpec(
        problem,
        federation,
        algorithm,
        rounds=rounds,
        local_steps=local_steps,
        local_epochs=local_epochs,
        batch_size=batch_size,
        clients_per_round=clients_per_round,
        weights=weights,
        topology=topology,
        link_failure=link_failure,
        mesh=mesh,
        w0=w0,
        seed=seed,
        evaluate_every=evaluate_every,  # pyright: ignore[reportArgumentType]  # None is settled there
        keep_models=keep_models,
        metrics=metrics,  # pyright: ignore[reportArgumentType]  # and here
        evaluation=evaluation,
        per_client=per_client,
    )
    checks.flag("debug", debug)
    checks.optional_flag("progress", progress)
    if spec.mesh is not None and debug:
        raise ValueError("debug=True runs client by client in one place: leave mesh= out")
    store = checked_store(checkpoint, checkpoint_every, keep_checkpoints, spec.rounds)
    listeners = Listeners(callbacks)
    candidates = spec.algorithm.candidates(spec.problem)
    if candidates is not None:
        if spec.topology is not None or store is not None or spec.link_failure:
            raise ValueError(
                f"{spec.algorithm.name} trains several methods through a server: it has no topology and no "
                "checkpoint of its own; run its candidates one by one for these"
            )

        def go(candidate: RunSpec) -> Result:
            return start_run(candidate, Conduct(None, progress, debug, Listeners(listeners.callbacks)))

        return choose(spec, candidates, go)
    return start_run(spec, Conduct(store, progress, debug, listeners))


@dataclasses.dataclass(frozen=True)
class Conduct:
    """How a run is kept and watched: nothing that changes what it computes."""

    store: Store | None  # of checkpoints
    progress: bool | None  # whether there is a progress bar; None: where there is a terminal
    debug: bool
    listeners: Listeners


def checked_store(checkpoint: object, every: object, keep: object, rounds: int) -> Store | None:
    """The folder of a run's checkpoints, where there is one."""
    every = checks.optional_integer("checkpoint_every", every, most=None)
    keep = checks.integer("keep_checkpoints", keep, most=None)
    if checkpoint is None:
        if every is not None:
            raise ValueError("checkpoint_every is for runs with a checkpoint, and none is given")
        return None
    every = checks.integer("checkpoint_every", max(1, rounds // 10) if every is None else every)
    return Store(checks.folder("checkpoint", checkpoint), every, checks.integer("keep_checkpoints", keep))


def start_run(spec: RunSpec, conduct: Conduct) -> Result:
    """A run from its first round."""
    job, start, store = prepare(spec), spec.start(), conduct.store
    state = begin_stage(job, 0, start)
    with contextlib.ExitStack() as held:
        if store is not None and jax.process_index() == 0:  # everything is checked; of several processes, one writes
            held.enter_context(folders.held(folders.writable(store.folder, "checkpoint")))
            store.begin(spec, start)
        conduct.listeners.start(RunInfo(spec))
        return proceed(job, state, Log(History([], [], [], spec.federation.names), []), conduct)


def resume(
    checkpoint: Given[str | Path],
    *,
    problem: Given[Problem | None] = None,
    federation: Given[Federation | DiskFederation | None] = None,
    algorithm: Given[AbstractAlgorithm | None] = None,
    metrics: Given[Mapping[str, Callable] | None] = None,
    evaluation: Given[Federation | None] = None,
    mesh: Given[Mesh | None] = None,
    progress: Given[bool | None] = None,
    callbacks: Given[Iterable[object]] = (),
) -> Result:
    """Go on with a run from its last checkpoint; it ends with the same bits as one that was never stopped.

    The folder holds all that is needed, but for a user's own Python code: a problem with an own loss or model, an own
    algorithm, own metrics (not those of `cofed.metrics`) and a stream must be given again. So must callbacks and mesh.
    Clients on disk are not copied: their index must be where it was, or the federation be given.

    Parameters
    ----------
    checkpoint : str or Path
        The folder that `cofed.run(..., checkpoint=...)` has written.
    problem : Problem, optional
        The run's problem, where it has code of its own.
    federation : Federation or DiskFederation, optional
        The run's data, where the folder cannot hold them or they have moved.
    algorithm : AbstractAlgorithm, optional
        The run's method, where it has code of its own.
    metrics : dict of str to callable, optional
        The run's own metrics, where they have code of their own.
    evaluation : Federation, optional
        The run's held-out data; read from the folder unless given.
    mesh : jax.sharding.Mesh, optional
        The devices to spread the clients over.
    progress : bool, optional
        Whether to show a progress bar; None shows it where there is a terminal.
    callbacks : iterable of Callback
        Objects that are told of the run; see `cofed.run`.

    Returns
    -------
    Result
        That of the whole run.

    Raises
    ------
    ValueError
        Where the folder is damaged or of a version not known here, or where what is given contradicts it.

    Examples
    --------
    >>> import tempfile, numpy as np, cofed
    >>> federation = cofed.Federation.from_arrays([(np.eye(3), np.ones(3)), (2 * np.eye(3), np.ones(3))])
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> first = cofed.run(cofed.Problem(), federation, cofed.FedAvg(0.1), rounds=4, checkpoint=folder)
    >>> again = cofed.resume(folder)
    >>> bool((again.model.coef == first.model.coef).all())
    True
    """
    checks.optional_flag("progress", progress)
    if problem is not None or federation is not None:
        check_given(problem, federation)
    if algorithm is not None:
        algorithm = as_algorithm(algorithm, "algorithm")
    metrics = checked_metrics(metrics)
    listeners = Listeners(callbacks)
    store = Store.open(checks.path("checkpoint", checkpoint))
    with folders.held(store.folder) if jax.process_index() == 0 else contextlib.nullcontext():
        store.tidy()
        written = Written.read(store.folder)
        newest = store.load(store.newest(written.record.settings.rounds))
        with newest.of_its_definition():
            spec = written.definition(problem, federation, algorithm, metrics, evaluation)
            spec = dataclasses.replace(spec, mesh=mesh)
            job, start = prepare(spec), spec.start()
            # The shapes of the state follow from the stage that the checkpoint was made in.
            number = next(i for i, stage in enumerate(job.stages) if newest.record.round <= stage.end)
            template = job.storage.template(gathered(job, begin_stage(job, number, start)), newest.shapes())
            state, log = newest.restore(template, start, spec.federation.names)
        if spec.mesh is not None:
            state = spread_state(state, spec.mesh)
        listeners.start(RunInfo(spec, tuple(dict(row) for row in log.history.rows)))
        return proceed(job, state, log, Conduct(store, progress, False, listeners))


def check_given(problem: object, federation: object) -> None:
    """What is given again to a resumed run must be of the right kind."""
    if problem is not None and not isinstance(problem, Problem):
        raise TypeError(f"problem must be a cofed.Problem, got {checks.shown(problem)}")
    if federation is not None and not isinstance(federation, (Federation, DiskFederation)):
        raise TypeError(f"federation must be a cofed.Federation, got {checks.shown(federation)}")


def begin_stage(job: Job, number: int, w0: PyTree) -> State:
    """The state before a stage, from one start for all."""
    task = job.stages[number].task
    return fresh_state(job, task, task.spread_start(w0), jax.random.key(job.spec.seed), 0)


def fresh_state(job: Job, task: AbstractTask, starts: PyTree, key: PRNGKeyArray, round: int) -> State:
    """The state before a stage's first round, checked."""
    state = job.storage.enter(task, starts, key, jnp.asarray(round, jnp.int32))
    if not jax.jit(trees.all_finite)((state.round, state.server, state.clients)):  # one program, not one per leaf
        raise ValueError(f"{task.algorithm.name} cannot start from this w0: its state would not be finite")
    return state


def save(job: Job, store: Store, state: State, log: Log) -> None:
    """Write a checkpoint. Of several processes all gather the state, and one writes it."""
    state = gathered(job, state)
    if jax.process_index() == 0:
        store.attempt(state, log)


def proceed(job: Job, state: State, log: Log, conduct: Conduct) -> Result:
    """The rounds from this state to the end, chunk by chunk, and the result."""
    spec, store, listeners = job.spec, conduct.store, conduct.listeners
    with (
        jax.disable_jit(conduct.debug),
        interruptible() as asked,
        Bar(spec.algorithm.name, spec.rounds, int(state.round), wanted(conduct.progress)) as bar,
    ):

        def tell(state: State) -> None:
            """Save and show what has been done."""
            if store and (int(state.round) % store.every == 0 or int(state.round) == spec.rounds):
                save(job, store, state, log)
            if not listeners.rows(log.history.rows):
                asked.set()

        if not log.history.rows:
            first_row(job, state, log)
            tell(state)
        pace = 1
        for number, stage in enumerate(job.stages):
            if failed(state) or asked.is_set() or (int(state.round) >= stage.end and number < len(job.stages) - 1):
                continue
            if number > stage_number(job, state):
                state = next_stage(job, number, state, log)
            if not conduct.debug and int(state.round) < stage.end:
                log.history.compile_seconds += compile_now(job, stage, state, log)
            while int(state.round) < stage.end and not failed(state) and not asked.is_set():
                stop = min(stage.end, int(state.round) + pace)
                if store:
                    stop = min(stop, (int(state.round) // store.every + 1) * store.every)
                state, seconds = chunk(job, number, state, stop, log, conduct.debug)
                pace = next_pace(pace, seconds, stage.task.recording.capacity)
                bar.update(int(state.round), log.history.rows[-1]["objective"])
                tell(state)
    number = stage_number(job, state)
    outcome = judge(job, state, log)
    if int(state.round) < spec.rounds or failed(state):
        if store:  # without the row that only an ended run has
            save(job, store, state, log)
        close(job, number, state, log)
        listeners.rows(log.history.rows)
    if store:
        store.say_what_is_missing()
    return listeners.end(finish(job, job.stages[number], state, log, outcome, conduct.debug))


def next_stage(job: Job, number: int, state: State, log: Log) -> State:
    """The state before a later stage, from what the one before hands over."""
    before = gathered(job, state)
    starts = job.stages[number - 1].here.next_start(before)
    state = fresh_state(job, job.stages[number].task, starts, before.key, int(state.round))
    count_first(job, job.stages[number], state, log)
    return state


def stage_number(job: Job, state: State) -> int:
    """Which stage a state is of: the one that began in its round `begun`."""
    return [0, *(stage.end for stage in job.stages)].index(int(state.begun))


def first_row(job: Job, state: State, log: Log) -> None:
    """Row 0 of the history: the start."""
    stage = job.stages[0]
    count_first(job, stage, state, log)
    add_row(log, 0, job.storage.look(stage.task, state), participants=0, stage=0, seconds=0.0)
    if job.spec.keep_models:
        log.models.append(to_numpy(stage.here.model(gathered(job, state))))


def count_first(job: Job, stage: ReadyStage, state: State, log: Log) -> None:
    """The bytes of the exchange before a stage's first round, where the method has one."""
    if stage.first:
        log.up += stage.first * stage.here.first_messages(gathered(job, state))


def close(job: Job, number: int, state: State, log: Log) -> None:
    """The row of the last good model, where a run ended between two evaluations."""
    done, task = rounds_done(state), job.stages[number].task
    if log.history.rows[-1]["round"] < done:
        add_row(log, done, job.storage.look(task, state), task.plan.participants, number, log.seconds)


def compile_now(job: Job, stage: ReadyStage, state: State, log: Log) -> float:
    """Compile the loop by asking it for no rounds, and say how long that took."""
    began = time.perf_counter()
    jax.block_until_ready(job.storage.advance(stage.task, state, schedule(job.spec, int(state.round), log)))
    return time.perf_counter() - began


def schedule(spec: RunSpec, stop: int, log: Log) -> ChunkSchedule:
    """When things happen in a chunk that ends before the round `stop`."""
    numbers = (jnp.asarray(n, jnp.int32) for n in (stop, spec.rounds, spec.evaluate_every))
    return ChunkSchedule(*numbers, finite=jnp.asarray(math.isfinite(log.history.rows[0]["loss"])))


def chunk(job: Job, number: int, state: State, stop: int, log: Log, debug: bool) -> tuple[State, float]:
    """Rounds up to `stop`, recorded, and how long they took."""
    began, first, task = time.perf_counter(), int(state.round), job.stages[number].task
    when = schedule(job.spec, stop, log)
    if debug:
        state, records = job.storage.debug(task, state, when, job.spec.federation.names)
    else:
        state, records = jax.block_until_ready(job.storage.advance(task, state, when))
    seconds = time.perf_counter() - began
    record(job, log, Chunk(number, first, state, jax.device_get(records), seconds))
    return state, seconds


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


def record(job: Job, log: Log, chunk: Chunk) -> None:
    """What a chunk recorded, into the log. Its rounds share its seconds evenly."""
    state, records, first, spec = chunk.state, chunk.records, chunk.first, job.spec
    stage, names, began = job.stages[chunk.stage], spec.federation.names, log.seconds
    done, took = rounds_done(state) - first, chunk.seconds / max(1, int(state.round) - first)
    log.seconds += chunk.seconds
    for i in range(done + failed(state)):
        now = first + i + 1
        clients, heard = records.participation.clients[i], records.participation.heard[i]
        log.history.left_out += [LeftOut(now - 1, names[int(m)]) for m in clients[~heard]]
        log.unreported += int((~heard).sum())
        if i == done:  # the round that failed: who was left out is known, but it changed nothing
            break
        log.down += stage.down * int(records.participation.messages[i])
        log.up += stage.up * int(records.participation.messages[i])
        if spec.keep_models:
            log.models.append(jax.tree.map(lambda leaf, i=i: leaf[i], records.models))
        if now % spec.evaluate_every == 0 or now == spec.rounds:
            row = {name: values[i] for name, values in records.rows.items()}
            add_row(log, now, row, clients.size, chunk.stage, began + (i + 1) * took)


def add_row(
    log: Log, round: int, values: Mapping[str, npt.ArrayLike], participants: int, stage: int, seconds: float
) -> None:
    """One row of the history."""
    losses = values.get("client_loss")
    if losses is not None:
        log.history.client_losses.append((round, np.asarray(losses)))
    log.history.rows.append(
        {"round": round}
        | {name: float(np.asarray(value)) for name, value in values.items() if name != "client_loss"}
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
