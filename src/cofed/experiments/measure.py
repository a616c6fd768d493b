"""The loops of all experiments: tune, run, sweep, in pieces that are kept, so that an interrupted one goes on."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import equinox as eqx
import jax
import pandas as pd
from jaxtyping import PyTree

import cofed
from cofed._util.pandas_types import Frame
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine import evaluate, rates
from cofed.engine.data import data_of
from cofed.engine.grid import group_by_program
from cofed.engine.history import Outcome, Result
from cofed.engine.job import prepare, traced
from cofed.engine.model_selection import check_evaluated_clients
from cofed.engine.progress import interruptible
from cofed.engine.ranking import AllDiverged, maximised, numbers_of
from cofed.engine.spec import RunSpec
from cofed.experiments.gather import Measured, gather
from cofed.experiments.json_values import described
from cofed.experiments.overheard import Overheard, best_rows, with_clients
from cofed.experiments.parts import Parts, Piece
from cofed.experiments.specification import Comparison, Experiment, Method, Numbers, Setup, Sweep
from cofed.problem import Problem

AS_CHECKED = {"evaluate_every": 1, "keep_models": False, "per_client": False}  # what a check of a method records
TOGETHER = 4  # how much less time a configuration takes in a grid than in a run of its own, to estimate what is left
Tick: TypeAlias = Callable[[float, float, str], None]  # hears of progress: done, total, what is being done


def measure(experiment: Experiment, size: str, seeds: list[int], parts: Parts, tick: Tick) -> Measured:
    """Everything that an experiment measures. `tick` hears of the progress in units of work."""
    pieces_of = pieces_of_comparison if isinstance(experiment.measure, Comparison) else pieces_of_sweep
    pieces = list(pieces_of(experiment, size, seeds, parts))
    total, done, tables = float(sum(piece.work for piece in pieces)), 0.0, {}
    for piece in pieces:
        tick(done, total, piece.name)
        tables[piece.name] = parts.done(piece)
        done += piece.work
    tick(done, total, "")
    wall, processor = (sum(column) for column in zip(*(parts.took(piece.name) for piece in pieces), strict=True))
    return gather(experiment, size, seeds, tables)._replace(seconds=wall, processor_seconds=processor)


def pieces_of_comparison(experiment: Experiment, size: str, seeds: list[int], parts: Parts) -> Iterator[Piece]:
    """The pieces of a comparison: for each panel the baselines, then each method's grid, then its runs."""
    what = experiment.measure
    assert isinstance(what, Comparison)

    @functools.lru_cache(maxsize=1)
    def setup(panel: str, seed: int) -> Setup:
        return what.setup(experiment.numbers(size, panel), seed)

    def checked_baselines(panel: str, numbers: Numbers) -> tuple[Frame, dict[str, Any]]:
        return measure_baselines(check_methods(what, setup(panel, seeds[0]), numbers))

    def baselines(panel: str, seed: int) -> tuple[Frame, dict[str, Any]]:
        return measure_baselines(setup(panel, seed))

    for panel in experiment.panels:
        numbers = experiment.numbers(size, panel)
        yield Piece(f"{panel} setup", 20, functools.partial(checked_baselines, panel, numbers))
        for place, method in enumerate(what.methods(numbers)):
            grid = method.algorithms()
            tuning = f"{panel} {method.label} tuning"
            if len(grid) > 1:
                work = numbers.rounds * len(grid) / TOGETHER
                yield Piece(
                    tuning,
                    work,
                    lambda panel=panel, method=method, numbers=numbers, tuning=tuning: tune(
                        what, setup(panel, seeds[0]), method, numbers, seeds[0], parts.path(tuning, "kept")
                    ),
                )
            for seed in seeds:
                if place == 0 and seed != seeds[0]:  # here, since the first method's run needs the same data
                    yield Piece(f"{panel} baselines seed {seed}", 20, functools.partial(baselines, panel, seed))

                def once(panel=panel, method=method, seed=seed, grid=grid, tuning=tuning):
                    best = parts.get(tuning)[1]["best"] if len(grid) > 1 else 0
                    table, record = run(setup(panel, seed), method, best, seed)
                    return table.assign(**{name: make(table) for name, make in what.derive.items()}), record

                yield Piece(f"{panel} {method.label} seed {seed}", numbers.rounds, once)


def pieces_of_sweep(experiment: Experiment, size: str, seeds: list[int], parts: Parts) -> Iterator[Piece]:
    """The pieces of a sweep: each point, each seed."""
    what = experiment.measure
    assert isinstance(what, Sweep)
    for panel in experiment.panels:
        numbers = experiment.numbers(size, panel)
        for point in what.points(numbers):
            for seed in seeds:

                def once(numbers=numbers, point=point, seed=seed):
                    found = pd.DataFrame(what.measure(numbers, point, seed)).assign(seed=seed)
                    source = list(found.pop("data").unique()) if "data" in found else []
                    return found, {"data": {"source": "; ".join(source)}} if source else {}

                yield Piece(f"{panel} {what.x} = {point} seed {seed}", 1, once)


def check_methods(what: Comparison, setup: Setup, numbers: Numbers) -> Setup:
    """The setup, after a check that every method can run on it: before the first one does."""
    for method in what.methods(numbers):
        given, grid = arguments(setup, method, 0), method.algorithms()
        try:
            problem = method.posed(setup.problem, method.choices()[0])
            check_grid(grid, method.score or what.score, what.maximise, setup)
            trained = [rates.stand_in(one) for algorithm in grid for one in trained_by(algorithm, problem)]
            spec = RunSpec(problem, setup.federation, trained[0], **given | AS_CHECKED)
            for group in group_by_program(trained, spec):
                prepare(dataclasses.replace(spec, algorithm=trained[group.members[0]]))
        except ValueError as error:
            where = f"{method.where}, " if method.where else ""
            why = str(error).removeprefix("algorithm: ")
            raise ValueError(f"{where}algorithm {method.label!r}: {why}") from error
    return setup


def check_grid(grid: list[AbstractAlgorithm], score: str, maximise: bool | None, setup: Setup) -> None:
    """Refuse several configurations where they cannot be ranked, and held-out data that a method cannot choose by."""
    if len(grid) > 1:
        maximised(score, setup.metrics, maximise)
        if any(rates.is_open(algorithm) for algorithm in grid):
            raise ValueError('"auto" is settled in a run, which has no grid: give one value for each other key')
    if chooses(grid[0], setup.problem):
        check_evaluated_clients(setup.federation, setup.evaluation)
        if len(grid) > 1:
            raise ValueError(f"{grid[0].name} chooses between methods by itself: give one value for each of its keys")


def chooses(algorithm: AbstractAlgorithm, problem: Problem) -> bool:
    """Whether a method trains others and chooses between them."""
    return algorithm.candidates(problem) is not None


def settles_itself(algorithm: AbstractAlgorithm, problem: Problem) -> bool:
    """Whether there is nothing to tune of a method: it chooses between others, or its numbers are "auto"."""
    return chooses(algorithm, problem) or rates.is_open(algorithm)


def trained_by(algorithm: AbstractAlgorithm, problem: Problem) -> list[AbstractAlgorithm]:
    """The methods that a run trains: the algorithm itself, or the candidates that it chooses between."""
    candidates = algorithm.candidates(problem)
    return [algorithm] if candidates is None else [candidates.shared, candidates.local]


def measure_baselines(setup: Setup) -> tuple[Frame, dict[str, Any]]:
    """The baselines' models, measured as a run's history is (one row each), and the setup in words."""
    problem, rows = setup.problem, []
    for label, solve in setup.baselines.items():
        rows.append({"baseline": label} | row_of(setup, solve()))
    record = {
        "data": {"federation": repr(setup.federation), "source": setup.data},
        "problem": {name: repr(getattr(problem, name)) for name in ("model", "loss", "regularizer")},
        "run": {name: described(value) for name, value in setup.run.items()},
    }
    return pd.DataFrame(rows, columns=None if rows else ["baseline"]), record


def row_of(setup: Setup, model: PyTree) -> dict[str, float]:
    """A model's row, as the history of a run would have it."""
    row = eqx.filter_jit(evaluate.row)(*for_row(setup, model))
    return {name: float(value) for name, value in row.items()}


def columns_of(setup: Setup) -> list[str]:
    """The columns of such a row."""
    return sorted(eqx.filter_eval_shape(evaluate.row, *for_row(setup, setup.problem.start(setup.federation))))


def for_row(setup: Setup, model: PyTree) -> tuple[Any, ...]:
    """The arguments of `evaluate.row`."""
    dtype = setup.federation.dtype
    return (
        traced(setup.problem, dtype),
        data_of(setup.federation, setup.run.get("weights", "uniform")),
        None if setup.evaluation is None else data_of(setup.evaluation, "samples"),
        {name: traced(metric, dtype) for name, metric in setup.metrics.items()},
        False,
        jax.tree.map(lambda leaf: jax.numpy.asarray(leaf, dtype), model),
    )


def arguments(setup: Setup, method: Method, seed: int) -> dict[str, Any]:
    """The arguments with which `cofed.run` and `cofed.tune` are called."""
    given = {"metrics": setup.metrics, "evaluation": setup.evaluation, "seed": seed}
    return given | dict(setup.run) | dict(method.run)


def tune(
    what: Comparison, setup: Setup, method: Method, numbers: Numbers, seed: int, kept: Path | None = None
) -> tuple[Frame, dict[str, Any]]:
    """A method's whole grid, ranked. `kept` is the folder from which an interrupted tuning goes on."""
    every, score = vars(numbers).get("tune_every"), method.score or what.score
    given: dict[str, Any] = arguments(setup, method, seed) | {"evaluate_every": every}
    given.pop("per_client", None)  # a grid is ranked by means
    # The same part of the rounds for a method that has more or fewer of them than the others.
    last = vars(numbers).get("tuned_over", 1) * given["rounds"] // numbers.rounds
    over = max(1, last // (every or max(1, given["rounds"] // 20)))
    choices, grid, found = method.choices(), method.algorithms(), {}
    for places in same_problem(method):
        number = len(found)
        with interruptible() as asked:
            try:
                tuning = cofed.tune(
                    method.posed(setup.problem, choices[places[0]]),
                    setup.federation,
                    [grid[place] for place in places],
                    score=score,
                    maximise=what.maximise,
                    last=over,
                    progress=False,
                    checkpoint=kept if kept is None or not number else kept.with_name(f"{kept.name}-{number}"),
                    **given,
                )
            except AllDiverged as error:  # the run that follows says it
                tuning = error.tuning
        if tuning.outcome is Outcome.INTERRUPTED or asked.is_set():  # it may have been asked for in the last rounds
            raise KeyboardInterrupt("tuning was stopped before the grid was done")
        found[tuple(places)] = tuning
    return rank(what, method, found)


def same_problem(method: Method) -> list[list[int]]:
    """The places of a method's grid, in groups that have the same problem."""
    groups: dict[Any, list[int]] = {}
    for place, choice in enumerate(method.choices()):
        groups.setdefault(None if method.regularizer is None else choice["strength"], []).append(place)
    return list(groups.values())


def rank(
    what: Comparison, method: Method, found: Mapping[tuple[int, ...], cofed.Tuning]
) -> tuple[Frame, dict[str, Any]]:
    """The grid as a table, and the place of its best configuration. `found` has a tuning of each group of places."""
    tunings, curves = list(found.values()), {}
    for places, tuning in found.items():
        curves |= dict(zip(places, tuning.curves[method.score or what.score], strict=True))
    # The index of a tuning's table is the place in its own grid.
    table: Frame = pd.concat([one.table.rename(index=dict(enumerate(places))) for places, one in found.items()])
    sign = -1 if (tunings[0].maximise if what.maximise is None else what.maximise) else 1
    whole = table[~table["diverged"]]
    top = sign * (sign * whole["score"]).min()
    equal = [int(place) for place in whole.index[(whole["score"] - top).abs() <= what.ties]] or [int(table.index[0])]
    best = min(equal, key=lambda place: sign * curves[place].mean())
    choices = pd.DataFrame([{k: described(v) for k, v in choice.items()} for choice in method.choices()])
    return choices.join(table[["score", "diverged"]]), {"best": best, "score": float(table["score"][best])}


def run(setup: Setup, method: Method, best: int, seed: int) -> tuple[Frame, dict[str, Any]]:
    """One run of a method with its best hyperparameters."""
    algorithm, choice = method.algorithms()[best], method.choices()[best]
    callbacks = [Overheard(one) for one in setup.callbacks()]
    with warnings.catch_warnings(), interruptible() as asked:
        warnings.filterwarnings("ignore", message=".* diverged", category=RuntimeWarning)  # the record says it
        result: Result = cofed.run(
            method.posed(setup.problem, choice),
            setup.federation,
            algorithm,
            progress=False,
            callbacks=callbacks,
            **arguments(setup, method, seed),
        )
    stopped = result.outcome is Outcome.INTERRUPTED and any(one.has_ended for one in callbacks)
    interrupted = result.outcome is Outcome.INTERRUPTED and not stopped
    if interrupted or asked.is_set():  # it may have been asked for in the last rounds
        raise KeyboardInterrupt("the run was stopped before its rounds were done")
    table = with_clients(result.history)
    settled = {"settled": dict(numbers_of(result.algorithm))} if rates.is_open(algorithm) and result.algorithm else {}
    return table.assign(seed=seed), settled | best_rows(callbacks) | {
        "algorithm": type(algorithm).__name__,
        "hyperparameters": {name: described(value) for name, value in choice.items()},
        "outcome": "stopped" if stopped else result.outcome.name.lower(),
    }
