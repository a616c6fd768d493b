"""`cofed.tune`: run a whole grid of hyperparameters, and rank it."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh
from jaxtyping import PyTree

from cofed._util import checks
from cofed._util.programs import keep_programs
from cofed._util.types import Given
from cofed.algorithms.base import AbstractAlgorithm, as_algorithm
from cofed.batches import AbstractBatches
from cofed.clocks import Clock
from cofed.engine import folders
from cofed.engine.grid import MEMORY, Group, group_by_program, slices, state_shapes
from cofed.engine.grid_rounds import Curves, Watch, evaluated, run_slice, trial
from cofed.engine.job import Job, linear_algebra, prepare
from cofed.engine.progress import Bar, interruptible, wanted
from cofed.engine.ranking import Criterion, Trial, Tuning, maximised, rank, ranked
from cofed.engine.spec import RunSpec, check_kinds, checked_mesh, checked_metrics
from cofed.engine.spreading import for_grid
from cofed.engine.tuning_callbacks import Audience, TuningCallback, checked_callbacks
from cofed.engine.tuning_record import TuningFolder, describe
from cofed.federation import Federation
from cofed.gossip.topologies import Topology
from cofed.means import AbstractMean
from cofed.problem import Problem
from cofed.samplers import AbstractSampler, Drawing


def tune(
    problem: Given[Problem],
    federation: Given[Federation],
    grid: Given[Iterable[AbstractAlgorithm]],
    *,
    rounds: int,
    score: str | None = None,
    last: int = 1,
    maximise: bool | None = None,
    local_steps: Given[int | Sequence[int] | None] = None,
    local_epochs: int | None = None,
    batch_size: Given[int | AbstractBatches | None] = None,
    clients_per_round: Given[int | AbstractSampler | Drawing | None] = None,
    weights: Given[str | npt.ArrayLike] = "uniform",
    topology: Topology | None = None,
    link_failure: float = 0.0,
    clock: Clock | None = None,
    mean: AbstractMean | None = None,
    w0: PyTree = None,
    seed: int = 0,
    evaluate_every: int | None = None,
    metrics: Mapping[str, Callable] | None = None,
    evaluation: Federation | None = None,
    memory: int = MEMORY,
    cores: int | None = None,
    mesh: Mesh | None = None,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
    callbacks: Given[Iterable[TuningCallback]] = (),
) -> Tuning:
    """Run every algorithm of a grid on the same batches, and rank them.

    Configurations that differ in numbers only run together, as one vectorized program. One that diverges (see
    `cofed.Outcome`) is marked in the table and ranked last; from where its numbers are no longer finite its curves are
    NaN, and the rest of the grid goes on. Ctrl-C returns what is done.

    Parameters
    ----------
    problem : Problem
        The model, the loss and the regularizer.
    federation : Federation
        The clients' data.
    grid : iterable of algorithms
        The configurations, such as [cofed.FedDualAvg(c, s) for c in rates for s in rates].
    rounds : int
        Rounds of every configuration.
    score : str, optional
        The history's column to rank by. None is the objective or, for methods with a model for each client, the
        personal_objective.
    last : int
        The score is averaged over this many of the last evaluations.
    maximise : bool, optional
        Whether more of the score is better. None is what the column says: accuracies and the F1, precision and recall
        of `cofed.metrics` are maximised, all else is minimised. For a metric of your own it must be said, here or by
        `cofed.metrics.higher_is_better`.
    local_steps, local_epochs, batch_size, clients_per_round, weights, topology, link_failure, \
    clock, mean, w0, seed, metrics, evaluation
        As for `cofed.run`.
    evaluate_every : int, optional
        Rounds between evaluations; None evaluates about 20 times.
    memory : int
        Bytes that the configurations that run together may take; a larger grid runs in slices.
    cores : int, optional
        Over how many cores to spread the configurations, as devices that each have all data; None leaves the cores to
        the compiler, which on two is as fast (see the page "performance"). Results are the same, to round-off.
    mesh : jax.sharding.Mesh, optional
        The devices to spread the configurations over, such as ``cofed.mesh(4)``, in place of `cores`.
    checkpoint : str or Path, optional
        A folder to save the work in: the same call continues where it was stopped or killed, with the same bits.
    progress : bool, optional
        Whether to show a progress bar; None shows one where standard error is a terminal.
    callbacks : iterable of callable
        Functions of the `cofed.Tuning` so far, called between compiled chunks of rounds wherever models were evaluated:
        what is not done yet is "interrupted" in its table, with its latest score. One that answers False (and nothing
        else) ends the search, and what is done is kept.

    Returns
    -------
    Tuning
        The ranked table, the best algorithm and all curves.

    Raises
    ------
    TypeError, ValueError
        Where an argument is not as above, or does not fit the others.
    AllDiverged
        Where no configuration came to a good end.

    Warns
    -----
    RuntimeWarning
        Where configurations completed their rounds without a finite score.

    Examples
    --------
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
    checks.optional_flag("progress", progress)
    checks.integer("memory", memory, most=None)
    most = checks.optional_integer("cores", cores)
    mesh = checked_mesh(mesh, federation)
    if most is not None and mesh is not None:
        raise ValueError("a mesh says which devices a tuning takes: give mesh= or cores=, not both")
    listeners = checked_callbacks(callbacks)
    algorithms = checked_grid(grid, problem)
    rounds = checks.integer("rounds", rounds)
    spec = RunSpec(
        problem,
        federation,
        algorithms[0],
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
        w0=w0,
        seed=seed,
        evaluate_every=max(1, rounds // 20) if evaluate_every is None else evaluate_every,
        metrics=checked_metrics(metrics),
        evaluation=evaluation,
    )
    criterion = checked_criterion(spec, score, last, maximise)
    keep_programs()
    start = spec.start()
    with contextlib.ExitStack() as stack:
        # Everything is checked before anything runs, and before a folder is written to.
        groups = group_by_program(algorithms, spec)
        jobs = [prepare(dataclasses.replace(spec, algorithm=algorithms[group.members[0]])) for group in groups]
        for job in jobs:
            check_score(criterion.column, job, start)
        folder = None
        if checkpoint is not None:
            folder = TuningFolder(folders.writable(checks.folder("checkpoint", checkpoint), "checkpoint"))
            stack.enter_context(folders.held(folder.path))
            folder.begin(describe(spec, algorithms, start) | {"memory": memory})
        stop = stack.enter_context(interruptible())
        bar = stack.enter_context(Bar("tuning", len(algorithms), 0, wanted(progress), "configurations"))
        meshes = [for_grid(job.spec, len(group.members), most, mesh) for group, job in zip(groups, jobs, strict=True)]
        parts = [
            Part(job, group, places, mesh)
            for group, job, mesh in zip(groups, jobs, meshes, strict=True)
            for places in slices(len(group.members), job, start, memory if mesh is None else memory // mesh.size)
        ]

        def so_far(trials: Mapping[int, Trial]) -> Tuning:
            return ranked(algorithms, in_order(trials, len(algorithms)), evaluated(spec), criterion)[0]

        trials = run_parts(parts, start, folder, stop, bar, Audience(listeners, so_far, stop))
    return rank(algorithms, in_order(trials, len(algorithms)), evaluated(spec), criterion)


def in_order(trials: Mapping[int, Trial], count: int) -> list[Trial]:
    """A trial for each configuration, empty where nothing is known of it."""
    return [trials.get(i, Trial({})) for i in range(count)]


def checked_grid(grid: object, problem: Problem) -> list[AbstractAlgorithm]:
    """The algorithms of a grid, or of a single algorithm in place of one."""
    given = [grid] if isinstance(grid, eqx.Module) else checks.items("grid", grid, "algorithms")
    if not given:
        raise ValueError("the grid is empty: give at least one algorithm")
    algorithms = [as_algorithm(algorithm, "each of grid") for algorithm in given]
    for algorithm in algorithms:
        if algorithm.candidates(problem) is not None:
            raise ValueError(f"{algorithm.name} chooses between methods by itself: tune these one by one")
    return algorithms


def checked_criterion(spec: RunSpec, score: object, last: object, maximise: object) -> Criterion:
    """What the configurations are ranked by."""
    column = checks.optional_text("score", score)
    upward = maximised(column or "objective", spec.metrics, checks.optional_flag("maximise", maximise))
    if column is None:
        column = "personal_objective" if spec.algorithm.is_personal else "objective"
    return Criterion(column, checks.integer("last", last), upward)


def check_score(score: str, job: Job, start: PyTree) -> None:
    """Refuse a score that is not a column of the history, before anything runs."""
    columns = jax.eval_shape(job.stages[0].task.row, state_shapes(job, start))
    if score not in columns:
        raise ValueError(f"score={score!r} is not a column of the history; it has {sorted(columns)}")


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of the grid that runs at once: a slice of a group of configurations that share a program."""

    job: Job
    group: Group
    places: range  # in the group
    mesh: Mesh | None  # the devices over which it is spread

    def trials(self, curves: Curves) -> dict[int, Trial]:
        """What is known of its configurations, by their places in the grid."""
        return {self.group.members[i]: trial(self.job, curves, place) for place, i in enumerate(self.places)}


def run_parts(
    parts: list[Part], start: PyTree, folder: TuningFolder | None, stop: threading.Event, bar: Bar, audience: Audience
) -> dict[int, Trial]:
    """Run the parts of a grid one after another, and give a trial for every configuration that has run."""
    trials: dict[int, Trial] = {}
    for number, part in enumerate(parts):
        if stop.is_set():
            break
        members = [part.group.stages[i] for i in part.places]
        file = None if folder is None else folder.part(number)

        def tell(curves: Curves, part: Part = part, before: dict[int, Trial] = trials) -> None:
            audience.tell(before | part.trials(curves))

        with linear_algebra(part.job.spec):
            curves = run_slice(part.job, members, start, Watch(stop, tell), file, part.mesh)
        trials = trials | part.trials(curves)
        ends = [float(one.curve["objective"][-1]) for one in trials.values() if one.curve]
        bar.update(len(trials), min((end for end in ends if not np.isnan(end)), default=np.inf))
    return trials
