"""From an experiment file that has been read to an experiment: the same specification as the papers'."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import equinox as eqx
from jaxtyping import PyTree
from pydantic import BaseModel

import cofed
from cofed._util.files import digest
from cofed._util.toml_mistakes import line_of
from cofed.algorithms.base import AbstractAlgorithm, as_algorithm
from cofed.engine import rates
from cofed.engine.callbacks import AbstractCallback
from cofed.experiments import registry, schema
from cofed.experiments.functions import FunctionTable
from cofed.experiments.import_path import import_function, source_file
from cofed.experiments.measure import columns_of
from cofed.experiments.schema import ChosenTable, ExperimentFile, FileError, ProblemTable, RunTable
from cofed.experiments.specification import Comparison, Experiment, Method, Setup, View, combinations

COUNTED = ("participants", "left_out", "bytes_down", "bytes_up", "seconds", "stage")  # columns that the engine adds
PERSONAL = ("objective", "loss", "accuracy", "test_loss", "test_accuracy")  # columns that clients' own models have too


def as_experiment(path: Path, file: ExperimentFile) -> Experiment:
    """The file as an experiment, after a check that the problem and every algorithm can be made."""
    with located(f"{path}, problem"):
        problem(file.problem)
    with located(f"{path}, run"):
        parts_of_run(file.run)
    check_callbacks(path, file.run)
    methods = methods_of(path, file)
    metrics = [name.rpartition(":")[2] for name in file.metrics]
    columns = [*dict.fromkeys(file.columns), *(column for column in metrics if column not in file.columns)]
    run = file.run.model_dump(exclude_none=True)
    every = run.setdefault("evaluate_every", max(1, file.run.rounds // 50))
    numbers = {
        "rounds": file.run.rounds,
        "tuned_over": file.tune.over,
        "tune_every": every,
        "file": file.model_dump(exclude_none=True),
        "data": content_of(file, path.parent),
    }
    code = code_of(file, path.parent)
    return Experiment(
        id=path.stem,
        title=file.title,
        measure=Comparison(
            lambda n, seed: set_up(file, seed, path.parent, run),
            lambda n: methods,
            score=file.tune.score,
            maximise=file.tune.maximise,
            ties=file.tune.ties,
        ),
        full=numbers | ({"code": code} if code else {}),
        views=tuple(View(column) for column in columns),
    )


@contextlib.contextmanager
def located(where: str) -> Iterator[None]:
    """Say where in the file a value is that was refused."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise FileError(f"{where}: {error}") from error


def methods_of(path: Path, file: ExperimentFile) -> list[Method]:
    """The methods, each with a label of its own; every algorithm of their grids has been made once."""
    methods: list[Method] = []
    text = path.read_text()
    for i, table in enumerate(file.algorithms):
        label = table.label or class_of(table).__name__
        taken = {method.label for method in methods}
        if label in taken:
            label = next(f"{label} ({i})" for i in itertools.count(2) if f"{label} ({i})" not in taken)
        where = f"{path}, line {line_of(text, ('algorithms', i))}"
        with located(f"{where}, algorithm {label!r}"):
            method = Method(label, functools.partial(make_algorithm, class_of(table)), grid_of(table), where=where)
            method.algorithms()
        methods.append(method)
    return methods


def make_algorithm(kind: type[eqx.Module], /, **given: object) -> AbstractAlgorithm:
    """The algorithm; a class of the user's own need not derive from a contract."""
    made = kind(**given)
    if rates.is_open(made):  # its run settles the rest
        as_algorithm(rates.stand_in(made))
        return cast(AbstractAlgorithm, made)
    if kind.__module__.startswith("cofed."):
        return as_algorithm(made)
    for field in registry.fields_of(kind):
        check_value(field.name, getattr(made, field.name, None), bool(field.metadata.get("static")))
    return as_algorithm(made)


def check_value(name: str, value: object, static: bool) -> None:
    """Refuse a table where none is known, and a text that JAX would have to trace."""
    if isinstance(value, dict):
        raise TypeError(f"{name} is {value!r}; a table may only stand for an algorithm, a compressor or a mirror")
    if isinstance(value, str) and not static:
        raise TypeError(f"{name} is {value!r}, which is no number; make it a static field: eqx.field(static=True)")


def class_of(table: ChosenTable) -> type[eqx.Module]:
    """The class that a table names."""
    kind = table.chosen_kind
    assert isinstance(kind, type)
    assert issubclass(kind, eqx.Module)
    return kind


def grid_of(table: ChosenTable) -> dict[str, tuple[Any, ...]]:
    """The values to try for each key that a table gives; a table inside it gives all that it stands for."""
    grid: dict[str, tuple[Any, ...]] = {}
    given: dict[str, Any] = dict(table)
    if class_of(table) is cofed.ServerOptimizer:
        options = {name: tuple(v) if isinstance(v, list) else (v,) for name, v in given["optimizer"].options.items()}
        grid = {"optimizer": (given["optimizer"].function,), "options": tuple(combinations(options))}
        return {"algorithm": tuple(everything_of(given["algorithm"])), **grid}
    if class_of(table) is cofed.Scheduled:
        schedules = {name: function.schedule() for name, function in given["schedules"].items()}
        return {"algorithm": tuple(everything_of(given["algorithm"])), "schedules": (schedules,)}
    for key in registry.keys_of(class_of(table)):
        value = getattr(table, key.name)
        several = isinstance(value, list) and key.type in schema.NUMBERS
        grid[key.name] = tuple(value) if several else (value,)
    for part in registry.parts_of(class_of(table)):
        value = getattr(table, part.name)
        grid[part.name] = tuple(everything_of(value)) if isinstance(value, ChosenTable) else (None,)
    return {name: values for name, values in grid.items() if values != (None,)}


def everything_of(table: ChosenTable) -> list[eqx.Module]:
    """All objects that a table stands for: one, or one for each combination of its lists of values."""
    return [class_of(table)(**choice) for choice in combinations(grid_of(table))]


def names_in(said: object) -> Iterator[str]:
    """The names of classes and functions in a part of a file."""
    if isinstance(said, ChosenTable):
        yield getattr(said, said.chosen_by)
    if isinstance(said, FunctionTable):
        yield said.name
    inside = []
    if isinstance(said, BaseModel):
        inside = [getattr(said, name) for name in type(said).model_fields]
    elif isinstance(said, (dict, list)):
        inside = said.values() if isinstance(said, dict) else said
    for part in inside:
        yield from names_in(part)


def code_of(file: ExperimentFile, folder: Path) -> dict[str, str]:
    """A hash of the source of all code of the user's own: results are of its content."""
    sources = {name: source_file(name, folder) for name in (*names_in(file), *file.metrics) if ":" in name}
    return {name: digest(source)[:16] for name, source in sources.items() if source is not None}


def content_of(file: ExperimentFile, folder: Path) -> str:
    """A hash of the data's files: results are of their content, whatever they are named."""
    if isinstance(file.data, ChosenTable):
        return "generated"
    place = folder / file.data.path
    files = sorted(place.rglob("*.parquet")) if place.is_dir() else [place]
    return "-".join(digest(one)[:16] for one in files if one.is_file()) or "missing"


def set_up(file: ExperimentFile, seed: int, folder: Path, run: Mapping[str, Any]) -> Setup:
    """Data, problem and metrics of a seed."""
    given = file.data.model_dump(exclude_none=True)
    source, test, truth = given.pop("source"), None, None
    if source in registry.GENERATORS:
        data = registry.GENERATORS[source](**given, seed=seed)
        federation, test, truth = data.federation, data.test, data.truth or None
        words = f"{source}, seed {seed}"
    else:
        read = cofed.Federation.from_csv if source == "csv" else cofed.Federation.from_parquet
        fraction = given.pop("test_fraction", None)
        path = given.pop("path")
        federation = read(folder / path, **given)
        if fraction:
            federation, test = federation.split(fraction, seed)
        words = f"{path}, by {given['client']}"
    options: dict[str, Any] = dict(run) | parts_of_run(file.run)
    options.pop("callbacks", None)  # a run's alone, made anew for each
    if options.get("topology"):
        options["topology"] = getattr(cofed.topologies, options["topology"])(federation.n_clients)
    own = {name.partition(":")[2]: import_function(name, folder) for name in file.metrics if ":" in name}
    known = metrics([name for name in file.metrics if ":" not in name], truth, source)
    callbacks = functools.partial(callbacks_of, file.run)
    setup = Setup(problem(file.problem), federation, options, known | own, test, data=words, callbacks=callbacks)
    check_columns(file, setup)
    return setup


def parts_of_run(table: RunTable) -> dict[str, eqx.Module]:
    """What tables in [run] stand for: a clock, samplers, a mean."""
    found: dict[str, eqx.Module] = {}
    if table.clock is not None:
        found["clock"] = cofed.Clock(**table.clock.model_dump())
    for key in ("batch_size", "clients_per_round", "mean"):
        if isinstance(part := getattr(table, key), ChosenTable):
            [found[key]] = everything_of(part)
    return found


def callbacks_of(table: RunTable) -> list[AbstractCallback]:
    """New callbacks, as [run] names them."""
    return [made_callback(one) for one in table.callbacks or ()]


def made_callback(table: ChosenTable) -> AbstractCallback:
    """The callback that a table stands for."""
    kind = table.chosen_kind
    given = {key.name: getattr(table, key.name) for key in registry.keys_of(kind)}
    made = kind(**{name: value for name, value in given.items() if value is not None})
    assert isinstance(made, AbstractCallback)
    return made


def check_callbacks(path: Path, table: RunTable) -> None:
    """Refuse numbers that a callback refuses, with their line."""
    for i, one in enumerate(table.callbacks or ()):
        line = line_of(path.read_text(), ("run", "callbacks", i))
        with located(f"{path}, line {line}, run.callbacks[{i + 1}]"):
            made_callback(one)


def check_columns(file: ExperimentFile, setup: Setup) -> None:
    """Columns to draw and to rank by must be there, before anything runs."""
    setup.problem.check(setup.federation)
    known = columns_of(setup)
    over_nodes = [f"{name}_{kind}" for name in ("objective", *setup.metrics) for kind in ("min", "mean", "max")]
    gossip = ["consensus", *over_nodes] if setup.run.get("topology") else []
    clock = ["simulated_seconds"] if setup.run.get("clock") else []
    personal = [f"personal_{name}" for name in PERSONAL if name in known] if has_personal_models(file, setup) else []
    for key, names, counted in (("columns", file.columns, COUNTED), ("tune.score", [file.tune.score], ())):
        allowed = [*known, *personal, *gossip, *clock, *counted]
        for name in names:
            if name not in allowed:
                raise FileError(f"{key}: {name!r} is not a column of the history; it has {', '.join(allowed)}")


def has_personal_models(file: ExperimentFile, setup: Setup) -> bool:
    """Whether an algorithm of the file gives each client a model of its own."""
    made = [as_algorithm(rates.stand_in(everything_of(table)[0])) for table in file.algorithms]
    return any(one.is_personal or one.candidates(setup.problem) is not None for one in made)


def problem(table: ProblemTable) -> cofed.Problem:
    """Model, loss and regularizer."""
    model = cofed.Linear() if table.model is None else everything_of(table.model)[0]
    loss = cofed.Squared() if table.loss is None else everything_of(table.loss)[0]
    if table.regularizer is None:
        return cofed.Problem(model, loss, cofed.Zero())
    regularizer = everything_of(table.regularizer)[0]
    on = table.regularizer.on
    return cofed.Problem(model, loss, regularizer if on is None else cofed.On(regularizer, on))


def metrics(names: Iterable[str], truth: PyTree, source: str) -> dict[str, Callable[[PyTree], Any]]:
    """The metrics that were asked for; most compare with the truth, which only generated data have."""
    names = list(names)
    needs_truth = [name for name in names if name != "rank_found"]
    if needs_truth and truth is None:
        raise FileError(f"the metrics {needs_truth} compare with the truth, and the data source {source!r} has none")
    kinds = {
        "l1_error": lambda: cofed.metrics.distance(truth, 1),
        "l2_error": lambda: cofed.metrics.distance(truth, 2),
        "rank_found": lambda: cofed.metrics.rank(1e-2),
    }
    return {name: kinds[name]() if name in kinds else cofed.metrics.support(truth)[name] for name in names}
