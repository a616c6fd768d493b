"""`cofed.run` and `cofed.resume`: the in-process engine."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

import jax
import numpy.typing as npt
from jax.sharding import Mesh
from jaxtyping import PyTree

from cofed._util import checks
from cofed._util.types import Given
from cofed.algorithms.base import AbstractAlgorithm, as_algorithm
from cofed.batches import AbstractBatches
from cofed.clocks import Clock
from cofed.engine import folders, rates
from cofed.engine.beginning import begun_from, check_start
from cofed.engine.callbacks import Listeners, RunInfo
from cofed.engine.checkpoint import CheckpointStore, checked_store
from cofed.engine.definition import WrittenRun
from cofed.engine.drawn_clients import attendance
from cofed.engine.ending import gathered
from cofed.engine.execution import Conduct, begin_stage, proceed
from cofed.engine.history import History, Log, Outcome, Result
from cofed.engine.job import prepare
from cofed.engine.mesh import spread_state
from cofed.engine.model_selection import choose
from cofed.engine.progress import interruptible
from cofed.engine.spec import RunSpec, checked_metrics
from cofed.engine.spreading import spread
from cofed.federation import AbstractFederation, Federation
from cofed.gossip.topologies import Topology
from cofed.means import AbstractMean
from cofed.problem import Problem
from cofed.samplers import AbstractSampler, Drawing


def run(
    problem: Given[Problem],
    federation: Given[AbstractFederation],
    algorithm: Given[AbstractAlgorithm],
    *,
    rounds: Given[int],
    local_steps: Given[int | Sequence[int] | None] = None,
    local_epochs: Given[int | None] = None,
    batch_size: Given[int | AbstractBatches | None] = None,
    clients_per_round: Given[int | AbstractSampler | Drawing | None] = None,
    weights: Given[str | npt.ArrayLike] = "uniform",
    topology: Given[Topology | None] = None,
    link_failure: Given[float] = 0.0,
    clock: Given[Clock | None] = None,
    mean: Given[AbstractMean | None] = None,
    mesh: Given[Mesh | None] = None,
    cores: Given[int | None] = None,
    w0: PyTree = None,
    start: Given[Result | None] = None,
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
    federation : AbstractFederation
        The clients' data: a `cofed.Federation`, or clients on disk.
    algorithm : AbstractAlgorithm
        The method with its hyperparameters, such as ``cofed.FedDualAvg(client_lr=0.1)``. With
        ``client_lr="auto"`` (and ``mu``, ``L``, ``eta``, ``probability``) rates follow from the clients' curvature.
    rounds : int
        R, how often clients and server talk.
    local_steps : int or sequence of int, optional
        K local steps per round, on batches drawn uniformly at random: one number, or one for each client, in the
        federation's order. Give this or `local_epochs`.
    local_epochs : int, optional
        Passes over a client's own data per round, each over a fresh shuffle. Without `local_steps`, the default is 1.
    batch_size : int or AbstractBatches, optional
        Samples per batch, or a sampler of batches such as ``cofed.batches.Shuffled(20)``; None is the full local
        gradient.
    clients_per_round : int, AbstractSampler or callable, optional
        How many clients are drawn for each round, uniformly, a sampler such as ``cofed.samplers.Cyclic(10)``, or a JAX
        function of (key, round) that gives the ids (the ranks of their names) of its clients; None is everybody.
    weights : {"uniform", "samples"} or array_like of shape (n_clients,)
        pi_m, what each client counts: all alike (the default), by their numbers of samples, or one number for each.
    topology : Topology, optional
        Who talks to whom, such as ``cofed.topologies.ring(16)``, for methods without a server; client m is node m.
    link_failure : float
        The probability that a link of the topology fails in a round (drawn anew every round, by seed); by default 0.
    clock : Clock, optional
        Simulated time: every client works all the time, a round ends when the first `clients_per_round` of them have
        finished, and only these get the new model (see `cofed.Clock`). The history has a column simulated_seconds.
    mean : AbstractMean, optional
        What the server takes in place of the weighted mean of the updates, such as ``cofed.means.Median()``.
    mesh : jax.sharding.Mesh, optional
        The devices to spread the clients over, such as ``cofed.mesh(4)``; the trajectory is the same, to round-off.
    cores : int, optional
        The most cores to use, where no mesh is given; None uses as many as pay (see the page "performance"), 1
        only one.
        The environment's COFED_CORES says the same for a whole process.
    w0 : pytree or dict, optional
        The start, as the model's pytree or a mapping such as ``{"coef": array}``; None is the model's own.
    start : Result, optional
        A run to begin from: the whole state of its server and clients, not only its model. The method is the same, its
        numbers may be others; rounds are counted from 0.
    seed : int
        The seed of every random draw; by default 0.
    evaluate_every : int, optional
        Rounds between rows of the history; an evaluation passes over all data. None is 1; for clients on disk
        it is the start and the end only, unless the federation's `measured_on` has chosen some clients to measure on.
    keep_models : bool
        Whether to keep the model after every round, in `result.models`; by default not.
    metrics : dict of str to callable, optional
        Own columns of the history: functions of the parameters, such as ``{"f1": cofed.metrics.f1(truth)}``, or of
        predictions and labels, by `cofed.metrics.on_samples`.
    evaluation : Federation, optional
        Held-out data: adds test_loss (and test_accuracy) to the history.
    per_client : bool
        Whether to record how the model does at every client, for `result.history.clients()`: loss, accuracy, metrics
        that see data, also on its held-out data. By default not.
    checkpoint : str or Path, optional
        A folder for the run's state: `cofed.resume(folder)` goes on from there. A full disk does not end a run.
    checkpoint_every : int, optional
        Rounds between checkpoints; None is about ten checkpoints per run.
    keep_checkpoints : int
        How many checkpoints are kept, the newest ones; by default 3.
    progress : bool, optional
        Whether to show a progress bar; None shows it where there is a terminal. Ctrl-C returns what is done.
    debug : bool
        Whether to run eagerly, client by client, and raise at the first failure with its client, round and step; by
        default not.
    callbacks : iterable of AbstractCallback or callable
        Objects that are told of the start, of each row and its model, and of the end, such as
        ``cofed.callbacks.EarlyStopping("test_loss")`` or ``cofed.loggers.CSV("rows.csv")``. One that answers a row
        with False ends the run; see `cofed.callbacks.AbstractCallback`. A function is called with each row's
        `cofed.callbacks.Snapshot`.

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
        rates.stand_in(algorithm),
        rounds=rounds,
        local_steps=local_steps,  # pyright: ignore[reportArgumentType]  # a list is settled there
        local_epochs=local_epochs,
        batch_size=batch_size,
        clients_per_round=clients_per_round,  # pyright: ignore[reportArgumentType]  # a function is settled there
        weights=weights,
        topology=topology,
        link_failure=link_failure,
        clock=clock,
        mean=mean,
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
    most = checked_cores(cores, spec.mesh)
    if spec.mesh is not None and debug:
        raise ValueError("debug=True runs client by client in one place: leave mesh= out")
    store = checked_store(checkpoint, checkpoint_every, keep_checkpoints, spec.rounds)
    asked = cast(AbstractAlgorithm, algorithm) if rates.is_open(algorithm) else spec.algorithm
    check_start(spec, start, asked)
    listeners = Listeners(callbacks)
    candidates = asked.candidates(spec.problem)
    if candidates is not None:
        if spec.topology is not None or store is not None or spec.link_failure or start is not None:
            raise ValueError(
                f"{spec.algorithm.name} trains several methods through a server: it has no topology, no "
                "checkpoint and no state of its own; run its candidates one by one for these"
            )

        def go(candidate: RunSpec, method: AbstractAlgorithm) -> Result:
            conduct = Conduct(None, progress, debug, Listeners(listeners.callbacks), cores=most)
            return run_settled(candidate, method, conduct)

        return choose(spec, candidates, go)
    return run_settled(spec, asked, Conduct(store, progress, debug, listeners, start, cores=most))


def run_settled(spec: RunSpec, algorithm: AbstractAlgorithm, conduct: Conduct) -> Result:
    """A run of the method, whose numbers are settled first where they are "auto"; `spec` has others in their place."""
    return run_automatically(spec, algorithm, conduct) if rates.is_open(algorithm) else start_run(spec, conduct)


def run_automatically(spec: RunSpec, algorithm: AbstractAlgorithm, conduct: Conduct) -> Result:
    """A run whose rates follow from the clients' curvature: halved, and begun again, as often as its objective grows.

    A callback is told of every beginning; the last one, of `rates.BEGINNINGS`, goes on whatever happens.
    """
    begins_at = spec if conduct.start is None else dataclasses.replace(spec, w0=conduct.start.model)
    curvature, sent = rates.measured(begins_at)
    with interruptible() as asked:
        for left in reversed(range(rates.BEGINNINGS)):
            spec = dataclasses.replace(spec, algorithm=rates.settled(algorithm, curvature))
            watch = rates.Growth(functools.partial(rates.usual_level, begins_at))
            listeners = Listeners([*conduct.listeners.callbacks, *([watch] if left else [])])
            with rates.quietly(bool(left)):
                result = start_run(spec, dataclasses.replace(conduct, listeners=listeners), sent)
            grew = watch.grew or result.outcome is Outcome.DIVERGED
            if asked.is_set() or not (left and grew):
                return result
            sent = rates.BytesBefore(result.communication.down, result.communication.up)
            if conduct.store is not None:
                conduct.store.clear()
            curvature = curvature.steeper()
    raise AssertionError("the last beginning has no watch")


def checked_cores(cores: object, mesh: Mesh | None) -> int | None:
    """The most cores to use."""
    most = checks.optional_integer("cores", cores)
    if most is not None and mesh is not None:
        raise ValueError("a mesh says which devices a run takes: give mesh= or cores=, not both")
    return most


def start_run(spec: RunSpec, conduct: Conduct, sent: rates.BytesBefore = rates.NOTHING) -> Result:
    """A run from its first round, before which so many bytes were sent."""
    spec = spread(spec, 1 if conduct.debug else conduct.cores)
    job, start, store = prepare(spec, conduct.listeners.see_models), spec.start(), conduct.store
    state = begin_stage(job, 0, start)
    if conduct.start is not None:
        state = begun_from(conduct.start, job, state)
    with contextlib.ExitStack() as held:
        if store is not None and jax.process_index() == 0:  # everything is checked; of several processes, one writes
            held.enter_context(folders.held(folders.writable(store.folder, "checkpoint")))
            store.begin(spec, start)
        conduct.listeners.start(RunInfo(spec))
        history = History([], [], [], spec.federation.names, drawn=attendance(spec), test_names=test_names(spec))
        return proceed(job, state, Log(history, [], *sent), conduct)


def test_names(spec: RunSpec) -> Sequence[str]:
    """The names of the held-out data's clients."""
    return () if spec.evaluation is None else spec.evaluation.names


def resume(
    checkpoint: Given[str | Path],
    *,
    rounds: Given[int | None] = None,
    problem: Given[Problem | None] = None,
    federation: Given[AbstractFederation | None] = None,
    algorithm: Given[AbstractAlgorithm | None] = None,
    metrics: Given[Mapping[str, Callable] | None] = None,
    evaluation: Given[Federation | None] = None,
    mesh: Given[Mesh | None] = None,
    cores: Given[int | None] = None,
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
    rounds : int, optional
        More rounds than the run has, also where it is over: it then ends as one that had so many from the start.
    problem : Problem, optional
        The run's problem, where it has code of its own.
    federation : AbstractFederation, optional
        The run's data, where the folder cannot hold them or they have moved.
    algorithm : AbstractAlgorithm, optional
        The run's method, where it has code of its own.
    metrics : dict of str to callable, optional
        The run's own metrics, where they have code of their own.
    evaluation : Federation, optional
        The run's held-out data; read from the folder unless given.
    mesh : jax.sharding.Mesh, optional
        The devices to spread the clients over.
    cores : int, optional
        The most cores to use, where no mesh is given; see `cofed.run`.
    progress : bool, optional
        Whether to show a progress bar; None shows it where there is a terminal.
    callbacks : iterable of AbstractCallback
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
    >>> cofed.resume(folder, rounds=6).history["round"].tolist()
    [0, 1, 2, 3, 4, 5, 6]
    """
    checks.optional_flag("progress", progress)
    more = checks.optional_integer("rounds", rounds)
    if problem is not None or federation is not None:
        check_given(problem, federation)
    if algorithm is not None:
        algorithm = as_algorithm(algorithm, "algorithm")
    metrics = checked_metrics(metrics)
    listeners = Listeners(callbacks)
    store = CheckpointStore.open(checks.path("checkpoint", checkpoint))
    with folders.held(store.folder) if jax.process_index() == 0 else contextlib.nullcontext():
        store.tidy()
        written = WrittenRun.read(store.folder)
        newest = store.load(store.newest(written.rounds))
        with newest.of_its_definition():
            spec = written.definition(problem, federation, algorithm, metrics, evaluation)
            spec = dataclasses.replace(spec, mesh=mesh)
            most = checked_cores(cores, spec.mesh)
            job, start = prepare(spec, listeners.see_models), spec.start()
            # The shapes of the state follow from the stage that the checkpoint was made in.
            number = next(i for i, stage in enumerate(job.stages) if newest.record.round <= stage.end)
            template = job.storage.template(gathered(job, begin_stage(job, number, start)), newest.shapes())
            state, log = newest.restore(template, start, spec.federation.names)
            log.history.drawn, log.history.test_names = attendance(spec), test_names(spec)
        longer = spread(spec if more is None else extended(written, spec, log, more), most)
        if longer is not spec:
            spec, job = longer, prepare(longer, listeners.see_models)
        if spec.mesh is not None:
            state = spread_state(state, spec.mesh)
        listeners.start(RunInfo(spec, tuple(dict(row) for row in log.history.rows)))
        return proceed(job, state, log, Conduct(store, progress, False, listeners))


def extended(written: WrittenRun, spec: RunSpec, log: Log, rounds: int) -> RunSpec:
    """The run with more rounds; the log goes on as if it had had so many from the start."""
    if rounds < spec.rounds:
        raise ValueError(f"rounds: the run in {written.folder} has {spec.rounds} rounds already, got {rounds}")
    if rounds == spec.rounds:
        return spec
    longer = written.extend(spec, rounds)
    if log.history.rows[-1]["round"] == spec.rounds:
        log.reopen(spec.evaluate_every)
    return longer


def check_given(problem: object, federation: object) -> None:
    """What is given again to a resumed run must be of the right kind."""
    if problem is not None and not isinstance(problem, Problem):
        raise TypeError(f"problem must be a cofed.Problem, got {checks.shown(problem)}")
    if federation is not None and not isinstance(federation, AbstractFederation):
        raise TypeError(f"federation must be a cofed.Federation, got {checks.shown(federation)}")
