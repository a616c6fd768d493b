"""The loops of all experiments: tune, run, sweep, in parts that are kept, so that an interrupted one goes on."""

import dataclasses
import functools
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import pandas as pd

import cofed
from cofed._util import trees
from cofed._util.files import atomically, file_stem
from cofed.engine import evaluate, folders
from cofed.engine.data import data_of
from cofed.engine.grid import group_by_program
from cofed.engine.history import Outcome, Result
from cofed.engine.job import prepare, traced
from cofed.engine.progress import interruptible
from cofed.engine.ranking import AllDiverged, maximised
from cofed.engine.spec import RunSpec
from cofed.experiments.specification import Comparison, Experiment, Method, Setup, Sweep

AS_CHECKED = {"evaluate_every": 1, "keep_models": False, "per_client": False}  # what a check of a method records
TOGETHER = 4  # a grid runs about so many times faster per configuration than one by one: for the time that is left


class Measured(NamedTuple):
    """All that was measured of an experiment."""

    table: pd.DataFrame  # the curves, or the points of a sweep
    tuning: pd.DataFrame | None  # one row per configuration of the grids
    references: dict[str, dict[str, dict[str, float]]]  # by panel, baseline and column
    algorithms: list[dict[str, Any]]  # what ran with which hyperparameters
    setup: dict[str, Any]  # data and problem, in words


class Piece(NamedTuple):
    """A part of the work, which is done as a whole or not at all."""

    name: str
    work: float  # how much of it there is, in rounds of one configuration
    do: Callable[[], tuple[pd.DataFrame, dict[str, Any]]]


class Parts:
    """Finished pieces of an experiment on disk, a table and a record each; those of another definition go aside."""

    def __init__(self, folder: Path, definition: str):
        self.folder, mark = folder, folder / "definition.json"
        if folder.exists() and (not mark.exists() or mark.read_text() != definition):
            folders.set_aside(folder)
        atomically(mark, lambda name: Path(name).write_text(definition))

    def __contains__(self, name: str) -> bool:
        """Whether a part is there, and whole."""
        try:
            return self.path(name, "json").exists() and bool(self.get(name))
        except (ValueError, OSError):  # damaged, so it is done again; pyarrow's errors are either
            return False

    def path(self, name: str, ending: str) -> Path:
        """Where a part is kept; the record is written last, so it says that the part is whole."""
        return self.folder / f"{file_stem(name)}.{ending}"

    def get(self, name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
        """A finished part."""
        return pd.read_parquet(self.path(name, "parquet")), json.loads(self.path(name, "json").read_text())

    def put(self, name: str, table: pd.DataFrame, record: dict[str, Any]) -> None:
        """Keep a part."""
        atomically(self.path(name, "parquet"), lambda file: table.to_parquet(file, index=False))
        atomically(self.path(name, "json"), lambda file: Path(file).write_text(json.dumps(record)))

    def done(self, piece: Piece) -> tuple[pd.DataFrame, dict[str, Any]]:
        """A part, done now where it is not done yet."""
        if piece.name not in self:
            self.put(piece.name, *piece.do())
        return self.get(piece.name)


def measure(
    experiment: Experiment, size: str, seeds: list[int], parts: Parts, tick: Callable[[float, float, str], None]
) -> Measured:
    """Everything that an experiment measures. `tick(done, total, what)` hears of the progress, in units of work."""
    kind = comparison if isinstance(experiment.measure, Comparison) else sweep
    pieces = list(kind(experiment, size, seeds, parts))
    total, done, tables = float(sum(piece.work for piece in pieces)), 0.0, {}
    for piece in pieces:
        tick(done, total, piece.name)
        tables[piece.name] = parts.done(piece)
        done += piece.work
    tick(done, total, "")
    return gather(experiment, size, seeds, tables)


def comparison(experiment: Experiment, size: str, seeds: list[int], parts: Parts) -> Iterator[Piece]:
    """The pieces of a comparison: for each panel the baselines, then each method's grid, then its runs."""
    what = experiment.measure
    assert isinstance(what, Comparison)

    @functools.lru_cache(maxsize=1)
    def setup(panel: str, seed: int) -> Setup:
        return what.setup(experiment.numbers(size, panel), seed)

    for panel in experiment.panels:
        numbers = experiment.numbers(size, panel)
        yield Piece(f"{panel} setup", 20, lambda panel=panel, n=numbers: look(fit(what, setup(panel, seeds[0]), n)))
        for method in what.methods(numbers):
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

                def once(panel=panel, method=method, seed=seed, grid=grid, tuning=tuning):
                    best = parts.get(tuning)[1]["best"] if len(grid) > 1 else 0
                    table, record = run(setup(panel, seed), method, best, seed)
                    return table.assign(**{name: make(table) for name, make in what.derive.items()}), record

                yield Piece(f"{panel} {method.label} seed {seed}", numbers.rounds, once)


def fit(what: Comparison, setup: Setup, numbers: Any) -> Setup:
    """The setup, after a check that every method can run on it: before the first one does."""
    for method in what.methods(numbers):
        given = arguments(setup, method, 0)
        grid = [one for one in method.algorithms() if one.candidates(setup.problem) is None]  # these are runs of others
        try:
            if grid:
                spec = RunSpec(setup.problem, setup.federation, grid[0], **given | AS_CHECKED)
                for group in group_by_program(grid, spec):
                    prepare(dataclasses.replace(spec, algorithm=grid[group.members[0]]))
            if len(grid) > 1:
                maximised(what.score, setup.metrics, what.maximise)
        except ValueError as error:
            raise ValueError(f"algorithm {method.label!r}: {error}") from error
    return setup


def look(setup: Setup) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The baselines' models, measured like the methods' (one row each), and the setup in words."""
    problem, rows = setup.problem, []
    for label, solve in setup.baselines.items():
        rows.append({"baseline": label} | measured(setup, solve()))
    record = {
        "data": {"federation": repr(setup.federation), "source": setup.data},
        "problem": {name: repr(getattr(problem, name)) for name in ("model", "loss", "regularizer")},
        "run": {name: described(value) for name, value in setup.run.items()},
    }
    return pd.DataFrame(rows, columns=None if rows else ["baseline"]), record


def measured(setup: Setup, model: Any) -> dict[str, float]:
    """A model's row, as the history of a run would have it."""
    row = eqx.filter_jit(evaluate.row)(*for_row(setup, model))
    return {name: float(value) for name, value in row.items()}


def columns_of(setup: Setup) -> list[str]:
    """What such a row has."""
    return sorted(eqx.filter_eval_shape(evaluate.row, *for_row(setup, setup.problem.start(setup.federation))))


def for_row(setup: Setup, model: Any) -> tuple[Any, ...]:
    """What `evaluate.row` takes."""
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
    """What `cofed.run` and `cofed.tune` are called with."""
    given = {"metrics": setup.metrics, "evaluation": setup.evaluation, "seed": seed}
    return given | dict(setup.run) | dict(method.run)


def tune(
    what: Comparison, setup: Setup, method: Method, numbers: Any, seed: int, kept: Path | None = None
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A method's whole grid, ranked; `kept` is the folder in which it goes on where it was stopped."""
    every = getattr(numbers, "tune_every", None)
    given: dict[str, Any] = arguments(setup, method, seed) | {"evaluate_every": every}
    over = max(1, getattr(numbers, "tuned_over", 1) // (every or max(1, given["rounds"] // 20)))
    with interruptible() as asked:
        try:
            tuning = cofed.tune(
                setup.problem,
                setup.federation,
                method.algorithms(),
                score=what.score,
                maximise=what.maximise,
                last=over,
                progress=False,
                checkpoint=kept,
                **given,
            )
        except AllDiverged as error:  # the run that follows says it
            tuning = error.tuning
    if tuning.outcome is Outcome.INTERRUPTED or asked.is_set():  # it may have been asked for in the last rounds
        raise KeyboardInterrupt("tuning was stopped before the grid was done")
    return ranked(what, method, tuning)


def ranked(what: Comparison, method: Method, tuning: cofed.Tuning) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The grid as a table, and the place of its best configuration."""
    curves, table = tuning.curves[what.score], tuning.table  # its index is the place in the grid
    sign = -1 if (tuning.maximise if what.maximise is None else what.maximise) else 1
    near: Any = ~table["diverged"] & ((table["score"] - tuning.score).abs() <= what.ties)
    equal = [int(place) for place in table.index[near]] or [int(table.index[0])]
    best = min(equal, key=lambda place: sign * curves[place].mean())
    choices = pd.DataFrame([{k: described(v) for k, v in choice.items()} for choice in method.choices()])
    scores: Any = table["score"]
    return choices.join(table[["score", "diverged"]]), {"best": best, "score": float(scores[best])}


def run(setup: Setup, method: Method, best: int, seed: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """One run of a method with its best hyperparameters."""
    algorithm, choice = method.algorithms()[best], method.choices()[best]
    with warnings.catch_warnings(), interruptible() as asked:
        warnings.filterwarnings("ignore", message=".* diverged", category=RuntimeWarning)  # the record says it
        result: Result = cofed.run(
            setup.problem, setup.federation, algorithm, progress=False, **arguments(setup, method, seed)
        )
    if result.outcome is Outcome.INTERRUPTED or asked.is_set():  # it may have been asked for in the last rounds
        raise KeyboardInterrupt("the run was stopped before its rounds were done")
    table = result.history.to_pandas()
    return table.assign(seed=seed), {
        "algorithm": type(algorithm).__name__,
        "hyperparameters": {name: described(value) for name, value in choice.items()},
        "outcome": result.outcome.name.lower(),
        "compile_seconds": result.history.compile_seconds,
        "parameters": sum(np.size(leaf) for leaf in jax.tree.leaves(trees_of(result.model))),
    }


def trees_of(model: Any) -> Any:
    """A model's arrays."""
    return [leaf for leaf in jax.tree.leaves(model) if hasattr(leaf, "shape")]


def sweep(experiment: Experiment, size: str, seeds: list[int], parts: Parts) -> Iterator[Piece]:
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


def gather(experiment: Experiment, size: str, seeds: list[int], tables: dict[str, Any]) -> Measured:
    """The parts, put together."""
    what, curves, tunings, algorithms = experiment.measure, [], [], []
    references: dict[str, dict[str, dict[str, float]]] = {}
    words: dict[str, Any] = {}
    for panel in experiment.panels:
        numbers = experiment.numbers(size, panel)
        if isinstance(what, Sweep):
            for point in what.points(numbers):
                found = [tables[f"{panel} {what.x} = {point} seed {seed}"] for seed in seeds]
                table, words[panel] = pd.concat([rows for rows, _ in found]), found[0][1]
                curves.append(table if "panel" in table else table.assign(panel=panel))
            algorithms += [declared(method, panel) for method in what.methods(numbers)]
            continue
        baselines, words[panel] = tables[f"{panel} setup"]
        references[panel] = {
            row.pop("baseline"): {k: v for k, v in row.items() if pd.notna(v)} for row in baselines.to_dict("records")
        }
        for method in what.methods(numbers):
            entry = declared(method, panel)
            tuned = tables.get(f"{panel} {method.label} tuning")
            if tuned:
                tunings.append(tuned[0].assign(panel=panel, algorithm=method.label))
                entry |= {"tuned": True, "score": tuned[1]["score"]}
            for seed in seeds:
                table, record = tables[f"{panel} {method.label} seed {seed}"]
                curves.append(table.assign(panel=panel, algorithm=method.label))
                entry["algorithm"], entry["hyperparameters"] = record["algorithm"], record["hyperparameters"]
                entry.setdefault("outcomes", {})[str(seed)] = record["outcome"]
            algorithms.append(entry)
    table: Any = pd.concat(curves, ignore_index=True)
    if isinstance(what, Sweep):
        table = table.assign(x_name=what.x)
    first = ["panel", "algorithm", "seed", *(("x", "x_name") if isinstance(what, Sweep) else ("round",))]
    table = table[first + [column for column in table if column not in first]]
    tuning: Any = pd.concat(tunings, ignore_index=True) if tunings else None
    if tuning is not None:
        tuning = tuning[["panel", "algorithm", *(c for c in tuning if c not in ("panel", "algorithm"))]]
    setup = next(iter(words.values()), {})
    if len(words) > 1:
        setup = setup | {"panels": words}
    return Measured(table, tuning, references, algorithms, setup)


def declared(method: Method, panel: str) -> dict[str, Any]:
    """A method, for the configuration."""
    several = {name: [described(v) for v in values] for name, values in method.grid.items()}
    tuned = any(len(values) > 1 for values in several.values())
    return {
        "label": method.label,
        "panel": panel,
        "algorithm": type(method.algorithms()[0]).__name__,
        "hyperparameters": {name: values[0] for name, values in several.items()},
        "tuned": tuned,
        "paper_hyperparameters": None if method.paper is None else {k: described(v) for k, v in method.paper.items()},
        "grid": several if tuned else None,
        "run": {name: described(value) for name, value in method.run.items()},
    }


def described(value: Any) -> Any:
    """A value as JSON has it: what is no number, text or list of them, in words."""
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [described(entry) for entry in value]
    if isinstance(value, dict):
        return {str(key): described(entry) for key, entry in value.items()}
    if dataclasses.is_dataclass(value) and trees.names(value) == [] and not dataclasses.fields(value):
        return type(value).__name__
    return repr(value)
