"""`cofed.run` and `cofed.resume`: the in-process engine."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from cofed._util import checks, trees
from cofed.algorithms.base import as_algorithm
from cofed.disk import DiskFederation
from cofed.engine import folders
from cofed.engine.callbacks import Listeners, RunInfo
from cofed.engine.checkpoint import Store
from cofed.engine.chunk_loop import Clock, Records, Task
from cofed.engine.definition import Written
from cofed.engine.ending import failed, finish, gathered, judge, rounds_done, settled, to_numpy
from cofed.engine.history import History, LeftOut, Log, Result
from cofed.engine.job import Job, ReadyStage, prepare
from cofed.engine.mesh import spread_state
from cofed.engine.model_selection import choose
from cofed.engine.progress import Bar, interruptible, wanted
from cofed.engine.server_rounds import State
from cofed.engine.spec import RunSpec, checked_metrics
from cofed.federation import Federation
from cofed.gossip.topologies import Topology
from cofed.problem import Problem

CHUNK_SECONDS = 0.25  # a chunk of rounds is about so long: often enough for a progress bar and for Ctrl-C


def run(
    problem: Problem,
    federation: Federation | DiskFederation,
    algorithm: Any,
    *,
    rounds: int,
    local_steps: int | None = None,
    local_epochs: int | None = None,
    batch_size: int | None = None,
    clients_per_round: int | None = None,
    weights: Any = "uniform",
    topology: Topology | None = None,
    link_failure: float = 0.0,
    mesh: Any = None,
    w0: Any = None,
    seed: int = 0,
    evaluate_every: int | None = None,
    keep_models: bool = False,
    metrics: Mapping[str, Callable] | None = None,
    evaluation: Any = None,
    per_client: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    keep_checkpoints: int = 3,
    progress: bool | None = None,
    debug: bool = False,
    callbacks: Iterable[Any] = (),
) -> Result:
    """Run an algorithm on a federation, in this process.

    rounds: R, how often clients and server talk.
    local_steps: K local steps per round, on batches drawn uniformly at random; or
    local_epochs: passes over a client's own data per round (default 1), each over a fresh shuffle.
    batch_size: samples per batch; None is the full local gradient.
    clients_per_round: how many clients are drawn for each round; None is everybody.
    weights: pi_m, "uniform" or "samples", or one number per client.
    topology: who talks to whom, such as cofed.topologies.ring(16), for methods without a server; client m is node m.
    link_failure: the probability that a link of the topology fails in a round (drawn anew every round, by seed).
    mesh: the devices to spread the clients over, such as cofed.mesh(4); the trajectory is the same, to round-off.
    w0: the start, as the model's pytree or a mapping such as {"coef": array}; None is the model's own.
    evaluate_every: rounds between rows of the history; an evaluation passes over all data. None is 1, but for clients
        on disk (unless `measured_on` some) the start and the end only.
    keep_models: keep the model after every round, in `result.models`.
    metrics: own columns of the history, functions of the parameters, such as {"f1": cofed.metrics.f1(truth)}.
    evaluation: a federation of held-out data: adds test_loss (and test_accuracy) to the history.
    per_client: record every client's loss, for `result.history.clients()`.
    checkpoint: a folder for the run's state, written every `checkpoint_every` rounds (default: about ten times); the
        last `keep_checkpoints` are kept, and `cofed.resume(folder)` goes on from there. A full disk does not end a run.
    progress: show a progress bar; None shows it where there is a terminal. Ctrl-C returns what is done.
    debug: run eagerly, client by client, and raise at the first failure with its client, round and step.
    callbacks: objects that are told of the start, of each row and of the end, such as cofed.loggers.CSV("rows.csv");
        see cofed.engine.callbacks.Callback. One that answers a row with False ends the run.

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
    checkpoint: str | Path,
    *,
    problem: Problem | None = None,
    federation: Federation | DiskFederation | None = None,
    algorithm: Any = None,
    metrics: Mapping[str, Callable] | None = None,
    evaluation: Federation | None = None,
    mesh: Any = None,
    progress: bool | None = None,
    callbacks: Iterable[Any] = (),
) -> Result:
    """Go on with a run from its last checkpoint; it ends with the same bits as one that was never stopped.

    The folder holds all that is needed, but for a user's own Python code: a problem with an own loss or model, an own
    algorithm, own metrics (not those of `cofed.metrics`) and a stream must be given again. So must callbacks and mesh.
    What is given and contradicts the folder is refused, as is a folder that is damaged or of a version not known here.
    Clients on disk are not copied: their index must be where it was, or the federation be given.

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
            template = job.place.template(gathered(job, begin_stage(job, number, start)), newest.shapes())
            state, log = newest.restore(template, start, spec.federation.names)
        if spec.mesh is not None:
            state = spread_state(state, spec.mesh)
        listeners.start(RunInfo(spec, tuple(dict(row) for row in log.history.rows)))
        return proceed(job, state, log, Conduct(store, progress, False, listeners))


def check_given(problem: Any, federation: Any) -> None:
    """What is given again to a resumed run must be of the right kind."""
    if problem is not None and not isinstance(problem, Problem):
        raise TypeError(f"problem must be a cofed.Problem, got {checks.shown(problem)}")
    if federation is not None and not isinstance(federation, (Federation, DiskFederation)):
        raise TypeError(f"federation must be a cofed.Federation, got {checks.shown(federation)}")


def begin_stage(job: Job, number: int, w0: PyTree) -> State:
    """The state before a stage, from one start for all."""
    task = job.stages[number].task
    return fresh_state(job, task, job.exchange.starts(w0, task.plan), jax.random.key(job.spec.seed), 0)


def save(job: Job, store: Store, state: State, log: Log) -> None:
    """A checkpoint. Of several processes all gather the state, and one writes it."""
    state = gathered(job, state)
    if jax.process_index() == 0:
        store.attempt(state, log)


def fresh_state(job: Job, task: Task, starts: PyTree, key: Array, round: int) -> State:
    """The state before a stage's first round, checked."""
    state = job.place.enter(task, starts, key, jnp.asarray(round, jnp.int32))
    if not jax.jit(trees.all_finite)((state.round, state.server, state.clients)):  # one program, not one per leaf
        raise ValueError(f"{task.algorithm.name} cannot start from this w0: its state would not be finite")
    return state


def proceed(job: Job, state: State, log: Log, conduct: Conduct) -> Result:
    """From the state to the end, with everything that happens between chunks of rounds."""
    spec, store, debug, listeners = job.spec, conduct.store, conduct.debug, conduct.listeners
    with (
        jax.disable_jit(debug),
        interruptible() as asked,
        Bar(spec.algorithm.name, spec.rounds, int(state.round), wanted(conduct.progress)) as bar,
    ):
        if not log.history.rows:
            begin(job, state, log)
            if store:
                save(job, store, state, log)
            if not listeners.rows(log.history.rows):
                asked.set()
        pace = 1
        for number, stage in enumerate(job.stages):
            if failed(state) or asked.is_set() or (int(state.round) >= stage.end and number < len(job.stages) - 1):
                continue
            if number > stage_number(job, state):
                state = next_stage(job, number, state, log)
            if not debug and int(state.round) < stage.end:
                log.history.compile_seconds += compile_now(job, stage, state, log)
            while int(state.round) < stage.end and not failed(state) and not asked.is_set():
                stop = min(stage.end, int(state.round) + pace)
                if store:
                    stop = min(stop, (int(state.round) // store.every + 1) * store.every)
                state, seconds = chunk(job, number, state, stop, log, debug)
                pace = next_pace(pace, seconds, job.watch.capacity)
                bar.update(int(state.round), log.history.rows[-1]["objective"])
                if store and (int(state.round) % store.every == 0 or int(state.round) == spec.rounds):
                    save(job, store, state, log)
                if not listeners.rows(log.history.rows):
                    asked.set()
    number = stage_number(job, state)
    outcome = judge(job, state, log)
    if int(state.round) < spec.rounds or failed(state):
        if store:  # without the row that only an ended run has
            save(job, store, state, log)
        close(job, number, state, log)
        listeners.rows(log.history.rows)
    if store:
        store.say_what_is_missing()
    return listeners.end(finish(job, job.stages[number], state, log, outcome, debug))


def next_stage(job: Job, number: int, state: State, log: Log) -> State:
    """The state before a later stage, from what the one before hands over."""
    starts = job.exchange.output(*(before := settled(job, job.stages[number - 1], state)))
    state = fresh_state(job, job.stages[number].task, starts, before[-1].key, int(state.round))
    count_first(job, job.stages[number], state, log)
    return state


def stage_number(job: Job, state: State) -> int:
    """Which stage a state is of: the one that began in its round `begun`."""
    return [0, *(stage.end for stage in job.stages)].index(int(state.begun))


def begin(job: Job, state: State, log: Log) -> None:
    """Row 0 of the history: the start."""
    stage = job.stages[0]
    count_first(job, stage, state, log)
    add_row(log, 0, job.place.look(stage.task, state), participants=0, stage=0, seconds=0.0)
    if job.watch.keep_models:
        log.models.append(to_numpy(job.exchange.model(*settled(job, stage, state))))


def count_first(job: Job, stage: ReadyStage, state: State, log: Log) -> None:
    """The bytes of the exchange before a stage's first round, where the method has one."""
    if stage.first:
        log.up += stage.first * job.exchange.first_messages(gathered(job, state))


def close(job: Job, number: int, state: State, log: Log) -> None:
    """The row of the last good model, where a run ended between two evaluations."""
    done, task = rounds_done(state), job.stages[number].task
    if log.history.rows[-1]["round"] < done:
        add_row(log, done, job.place.look(task, state), task.plan.participants, number, log.seconds)


def compile_now(job: Job, stage: ReadyStage, state: State, log: Log) -> float:
    """Compile the loop by asking it for no rounds, and say how long that took."""
    began = time.perf_counter()
    jax.block_until_ready(job.place.advance(stage.task, state, clock(job, int(state.round), log)))
    return time.perf_counter() - began


def clock(job: Job, stop: int, log: Log) -> Clock:
    """When things happen in a chunk that ends before the round `stop`."""
    numbers = (jnp.asarray(n, jnp.int32) for n in (stop, job.spec.rounds, job.spec.evaluate_every))
    return Clock(*numbers, finite=jnp.asarray(math.isfinite(log.history.rows[0]["loss"])))


def chunk(job: Job, number: int, state: State, stop: int, log: Log, debug: bool) -> tuple[State, float]:
    """Rounds up to `stop`, recorded, and how long they took."""
    began, first, stage = time.perf_counter(), int(state.round), job.stages[number]
    when = clock(job, stop, log)
    if debug:
        state, records = job.place.debug(stage.task, state, when, job.spec.federation.names)
    else:
        state, records = jax.block_until_ready(job.place.advance(stage.task, state, when))
    seconds = time.perf_counter() - began
    record(job, stage, log, first, state, jax.device_get(records), number, seconds)
    return state, seconds


def next_pace(pace: int, seconds: float, capacity: int) -> int:
    """How many rounds the next chunk should have."""
    grown = pace * 4 if seconds < CHUNK_SECONDS / 4 else int(pace * CHUNK_SECONDS / seconds)
    return max(1, min(grown, pace * 4, capacity))


def record(
    job: Job, stage: ReadyStage, log: Log, first: int, state: State, records: Records, number: int, seconds: float
) -> None:
    """What a chunk recorded, into the log. Its rounds share its seconds evenly."""
    done, took = rounds_done(state) - first, seconds / max(1, int(state.round) - first)
    spec, began = job.spec, log.seconds
    log.seconds += seconds
    for i in range(done + failed(state)):
        now = first + i + 1
        clients, heard = records.roll.clients[i], records.roll.heard[i]
        log.history.left_out += [LeftOut(now - 1, job.spec.federation.names[int(m)]) for m in clients[~heard]]
        log.unreported += int((~heard).sum())
        if i == done:  # the round that failed: who was left out is known, but it changed nothing
            break
        log.down += stage.down * int(records.roll.messages[i])
        log.up += stage.up * int(records.roll.messages[i])
        if job.watch.keep_models:
            log.models.append(jax.tree.map(lambda leaf, i=i: leaf[i], records.models))
        if now % spec.evaluate_every == 0 or now == spec.rounds:
            row = {name: values[i] for name, values in records.rows.items()}
            add_row(log, now, row, clients.size, number, began + (i + 1) * took)


def add_row(log: Log, round: int, values: dict[str, Any], participants: int, stage: int, seconds: float) -> None:
    """One row of the history."""
    losses = values.pop("client_loss", None)
    if losses is not None:
        log.history.client_losses.append((round, np.asarray(losses)))
    log.history.rows.append(
        {"round": round}
        | {name: float(value) for name, value in values.items()}
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
