"""Experiment files: a user's own comparison in TOML, checked by pydantic, as the same declaration as the papers'.

The tables of algorithms, losses, regularizers, models and generators are made of cofed's own classes and functions, so
a new one is known here as soon as it is public. A wrong key or value is named with its line and what is allowed.
"""

import dataclasses
import difflib
import inspect
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field, create_model

import cofed
from cofed import algorithms, gossip, losses, models, regularizers
from cofed._util.files import digest
from cofed.experiments.measure import columns_of
from cofed.experiments.specification import Comparison, Experiment, Method, Setup, View

ALGORITHMS = {
    name: getattr(cofed, name) for room in (algorithms, gossip) for name in room.__all__ if name != "topologies"
}
LOSSES = {name: getattr(losses, name) for name in ("Squared", "Logistic", "Softmax", "Huber", "Poisson")}
MODELS = {name: getattr(models, name) for name in ("Linear", "Trace", "MLP", "CNN")}
MIRRORS = {name: getattr(cofed, name) for name in ("Euclidean", "PNorm", "Entropy")}
GENERATORS = {
    name: getattr(cofed.datasets, name)
    for name in cofed.datasets.__all__
    if name.startswith(("yuan_", "bao_", "liang_", "zhang_", "chen_"))
}
COUNTED = ("participants", "left_out", "bytes_down", "bytes_up", "seconds", "stage")  # columns that the engine adds
METRICS = ("f1", "precision", "recall", "l1_error", "l2_error", "rank_found")
COMBINED = {"On", "Sum", "Scaled", "Translated"}  # regularizers made of regularizers: `on` says the first here
REGULARIZERS = {name: getattr(cofed, name) for name in regularizers.__all__ if hasattr(cofed, name)}
REGULARIZERS = {name: kind for name, kind in REGULARIZERS.items() if name not in COMBINED}
TOPOLOGIES = ("chain", "ring", "star", "complete")  # those that are made of a number of nodes alone


class Strict(BaseModel):
    """A table of the file: unknown keys are refused, and so is text where a number or a truth value belongs."""

    model_config = ConfigDict(extra="forbid", strict=True)


def kind_of(annotation: Any, default: Any) -> Any:
    """The type of a key, from a field's or parameter's annotation, or from its default."""
    if annotation in (Any, inspect.Parameter.empty) or isinstance(annotation, str):
        if isinstance(default, bool):
            return bool
        if isinstance(default, int):
            return int
        return float if default is None or isinstance(default, float) else Any
    origin = typing.get_origin(annotation)
    if origin in (types.UnionType, typing.Union):
        parts = [kind_of(part, default) for part in typing.get_args(annotation) if part is not type(None)]
        return parts[0] if len(parts) == 1 else typing.Union[tuple(parts)]  # noqa: UP007
    if origin is tuple:
        return list[typing.get_args(annotation)[0]]
    return annotation if annotation in (bool, int, float, str) else Any


def keys_of(kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """The keys that a class or generator takes: name, type, default (... where it must be given)."""
    if dataclasses.is_dataclass(kind):
        for entry in dataclasses.fields(kind):
            if entry.name in ("mirror", "activation"):
                continue
            given = entry.default is not dataclasses.MISSING
            default = entry.default if given else None
            required = not given and entry.default_factory is dataclasses.MISSING
            yield entry.name, kind_of(entry.type, default), ... if required else None
        return
    for name, parameter in inspect.signature(kind).parameters.items():
        if name in ("seed", "dtype"):
            continue
        required = parameter.default is inspect.Parameter.empty
        yield name, kind_of(parameter.annotation, None if required else parameter.default), ... if required else None


def table_of(name: str, kind: Any, tag: str, several: bool = False, **extra: Any) -> type[Strict]:
    """The pydantic model of a class: a key per field; with `several` a list of values makes a grid."""
    fields: dict[str, Any] = {tag: (Literal[name], ...)}
    for key, type_, default in keys_of(kind):
        allowed = (
            type_ | typing.Annotated[list[type_], Field(min_length=1)]
            if several and type_ in (float, int, bool)
            else type_
        )
        fields[key] = (allowed, ...) if default is ... else (allowed | None, None)
    return create_model(f"{name}Table", __base__=Strict, **fields, **extra)


def one_of(table: Mapping[str, Any], tag: str, several: bool = False, **extra: Any) -> Any:
    """Any of these tables, told apart by a key."""
    made = [table_of(name, kind, tag, several, **extra) for name, kind in table.items()]
    return typing.Annotated[typing.Union[tuple(made)], Field(discriminator=tag)]  # noqa: UP007


class File(Strict):
    """Samples in a file: a row is a sample, a column says whose it is."""

    source: Literal["csv", "parquet"]
    path: str
    target: str
    client: str
    features: list[str] | None = None
    dtype: Literal["float32", "float64"] | None = None
    test_fraction: float | None = Field(default=None, gt=0, lt=1)


GENERATED = [table_of(name, make, "source") for name, make in GENERATORS.items()]
Data = typing.Annotated[typing.Union[(File, *GENERATED)], Field(discriminator="source")]
Algorithm = one_of(
    ALGORITHMS,
    "name",
    several=True,
    label=(str | None, None),
    mirror=(typing.Optional[Literal[tuple(MIRRORS)]], None),  # noqa: UP045
)
Regularizer = one_of(REGULARIZERS, "name", on=(str | list[str] | None, None))


class RunTable(Strict):
    """How every algorithm runs: the arguments of cofed.run."""

    rounds: int = Field(ge=1)
    local_steps: int | None = Field(default=None, ge=1)
    local_epochs: int | None = Field(default=None, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    clients_per_round: int | None = Field(default=None, ge=1)
    weights: Literal["uniform", "samples"] = "uniform"
    evaluate_every: int | None = Field(default=None, ge=1)
    topology: Literal[TOPOLOGIES] | None = None  # type: ignore[valid-type]


class TuneTable(Strict):
    """How grids are searched."""

    score: str = "objective"
    maximise: bool | None = None  # None: as the column says
    over: int = Field(default=1, ge=1)
    ties: float = Field(default=0.0, ge=0)


class ProblemTable(Strict):
    """Model, loss and regularizer."""

    model: one_of(MODELS, "name") = None  # type: ignore[valid-type]
    loss: one_of(LOSSES, "name") = None  # type: ignore[valid-type]
    regularizer: Regularizer = None  # type: ignore[valid-type]


class ExperimentFile(Strict):
    """The whole file."""

    title: str = "A comparison"
    seeds: int = Field(default=1, ge=1)
    metrics: list[Literal[METRICS]] = Field(default_factory=list)  # type: ignore[valid-type]
    columns: list[str] = Field(default_factory=lambda: ["objective"])
    data: Data  # type: ignore[valid-type]
    problem: ProblemTable = Field(default_factory=ProblemTable)
    run: RunTable
    tune: TuneTable = Field(default_factory=TuneTable)
    algorithms: list[Algorithm] = Field(min_length=1)  # type: ignore[valid-type]


class FileError(ValueError):
    """What is wrong with an experiment file, in a sentence per mistake, each with its line."""


def load(path: str | Path) -> ExperimentFile:
    """Read and check an experiment file; a mistake is a `FileError` that names line, key and what is allowed."""
    path = Path(path)
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise FileError(f"there is no file {path}; `cofed init` writes an example") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{path}: {error}") from None
    try:
        return ExperimentFile.model_validate(raw)
    except pydantic.ValidationError as error:
        sentences = [sentence(mistake, text, raw) for mistake in error.errors()]
        raise FileError("\n".join(f"{path}, {words}" for words in dict.fromkeys(sentences))) from None


def sentence(mistake: Mapping[str, Any], text: str, raw: Mapping[str, Any]) -> str:
    """One mistake in words: the line, the key, what is wrong and what is allowed."""
    place = tuple(part for part in mistake["loc"] if not names_a_table(part))
    key, kind = dotted(place), mistake["type"]
    at = line_of(text, place)
    given = mistake.get("input")
    if kind == "extra_forbidden":
        allowed = sorted(allowed_keys(mistake["loc"]))
        near = difflib.get_close_matches(str(place[-1]), allowed, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        return f"line {at}: {key} is not a key here{hint}; allowed are {', '.join(allowed)}"
    if kind == "missing":
        return f"line {at}: {key} is missing"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag = mistake["ctx"]["discriminator"].strip("'")
        found = given.get(tag) if isinstance(given, dict) else given
        allowed = allowed_tags(mistake["loc"])
        near = difflib.get_close_matches(str(found), allowed, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        said = f"is {found!r}" if found is not None else "is missing"
        at, key = line_of(text, (*place, tag)), dotted((*place, tag))
        return f"line {at}: {key} {said}{hint}; allowed are {', '.join(allowed)}"
    if kind == "literal_error":
        return f"line {at}: {key} is {given!r}; allowed are {mistake['ctx']['expected']}"
    words = re.sub("^Input should be", "it should be", mistake["msg"])
    return f"line {at}: {key} is {given!r}; {words[0].lower()}{words[1:]}"


TAGS = {*ALGORITHMS, *LOSSES, *MODELS, *REGULARIZERS, *GENERATORS, "csv", "parquet"}
BRANCHES = ("float", "int", "bool", "str", "list[float]", "list[int]", "list[bool]", "list[str]")


def names_a_table(part: Any) -> bool:
    """Whether a part of pydantic's path is one of its own: which table of a union, which branch of a type."""
    return isinstance(part, str) and (part in TAGS or part in BRANCHES or part.startswith(("function", "constrained")))


def allowed_tags(place: tuple) -> list[str]:
    """What may stand where a table is chosen by name."""
    tables = {"data": {"csv", "parquet", *GENERATORS}, "loss": LOSSES, "model": MODELS, "regularizer": REGULARIZERS}
    return sorted(next((tables[part] for part in reversed(place) if part in tables), ALGORITHMS))


def allowed_keys(place: tuple) -> Iterable[str]:
    """The keys of the table in which a path ends."""
    tables = {"run": RunTable, "tune": TuneTable, "problem": ProblemTable}
    for part in reversed(place[:-1]):
        if part in ("csv", "parquet"):
            return File.model_fields
        if part in TAGS:
            kind = next(t[part] for t in (ALGORITHMS, LOSSES, MODELS, REGULARIZERS, GENERATORS) if part in t)
            tag = "source" if part in GENERATORS else "name"
            extra = {"label", "mirror"} if part in ALGORITHMS else {"on"} if part in REGULARIZERS else set()
            return {tag, *extra, *(name for name, _, _ in keys_of(kind))}
        if part in tables:
            return tables[part].model_fields
    return ExperimentFile.model_fields


def dotted(place: tuple) -> str:
    """A path as it is written in TOML: algorithms[1].client_lr; entries are counted from 1."""
    words = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in place)
    return words.lstrip(".")


def line_of(text: str, place: tuple) -> int:
    """The line of a key, or of the nearest table around it; tables are headers or inline."""
    best, here, counts = 1, (), {}
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[{1,2})\s*([\w.\-]+)\s*\]{1,2}\s*(#.*)?$", line)
        if header:
            name = tuple(header.group(2).split("."))
            if header.group(1) == "[[":
                counts[name] = counts.get(name, -1) + 1
                name = (*name, counts[name])
            here = name
            if place[: len(here)] == here:
                best = number
            continue
        key = re.match(r"\s*([\w.\-]+)\s*=", line)
        if key:
            full = (*here, *key.group(1).split("."))
            if place[: len(full)] == full or full == place:
                return number
    return best


def declared(file: ExperimentFile, name: str, base: Path) -> Experiment:
    """The file as an experiment: the same machinery runs it."""
    methods = labelled(file)
    columns = [*dict.fromkeys(file.columns), *(column for column in file.metrics if column not in file.columns)]
    run = file.run.model_dump(exclude_none=True)
    every = run.setdefault("evaluate_every", max(1, file.run.rounds // 50))
    return Experiment(
        id=name,
        title=file.title,
        measure=Comparison(
            lambda n, seed: set_up(file, seed, base, run),
            lambda n: methods,
            score=file.tune.score,
            maximise=file.tune.maximise,
            ties=file.tune.ties,
        ),
        full={
            "rounds": file.run.rounds,
            "tuned_over": file.tune.over,
            "tune_every": every,
            "file": file.model_dump(exclude_none=True),
            "data": content_of(file, base),
        },
        views=tuple(View(column) for column in columns),
    )


def content_of(file: ExperimentFile, base: Path) -> str:
    """A hash of the data's files: results are of their content, whatever they are named."""
    path = file.data.model_dump().get("path")
    if path is None:
        return "generated"
    place = base / path
    files = sorted(place.rglob("*.parquet")) if place.is_dir() else [place]
    return "-".join(digest(one)[:16] for one in files if one.is_file()) or "missing"


def labelled(file: ExperimentFile) -> list[Method]:
    """The methods, each with a label of its own."""
    made: list[Method] = []
    for table in file.algorithms:
        given = table.model_dump(exclude_none=True)
        name, label = given.pop("name"), given.pop("label", None)
        mirror = given.pop("mirror", None)
        label = label or name
        taken = {method.label for method in made}
        if label in taken:
            label = next(f"{label} ({i})" for i in range(2, 100) if f"{label} ({i})" not in taken)
        lists = {key for key, type_, _ in keys_of(ALGORITHMS[name]) if type_ not in (float, int, bool)}
        grid = {k: tuple(v) if isinstance(v, list) and k not in lists else (v,) for k, v in given.items()}
        if mirror:
            grid["mirror"] = (MIRRORS[mirror](),)
        made.append(Method(label, ALGORITHMS[name], grid))
    return made


def set_up(file: ExperimentFile, seed: int, base: Path, run: Mapping[str, Any]) -> Setup:
    """Data, problem and metrics of a seed."""
    given = file.data.model_dump(exclude_none=True)
    source, test, truth = given.pop("source"), None, None
    if source in GENERATORS:
        data = GENERATORS[source](**given, seed=seed)
        federation, test, truth = data.federation, data.test, data.truth or None
        words = f"{source}, seed {seed}"
    else:
        read = cofed.Federation.from_csv if source == "csv" else cofed.Federation.from_parquet
        fraction = given.pop("test_fraction", None)
        path = given.pop("path")
        federation = read(base / path, **given)
        if fraction:
            federation, test = federation.split(fraction, seed)
        words = f"{path}, by {given['client']}"
    options = dict(run)
    if options.get("topology"):
        options["topology"] = getattr(cofed.topologies, options["topology"])(federation.n_clients)
    setup = Setup(problem(file.problem), federation, options, measures(file.metrics, truth, source), test, data=words)
    check_columns(file, setup)
    return setup


def check_columns(file: ExperimentFile, setup: Setup) -> None:
    """Columns to draw and to rank by must be there, before anything runs."""
    setup.problem.check(setup.federation)
    known = columns_of(setup)
    over_nodes = [f"{name}_{kind}" for name in ("objective", *file.metrics) for kind in ("min", "mean", "max")]
    gossip = ["consensus", *over_nodes] if setup.run.get("topology") else []
    for key, names, counted in (("columns", file.columns, COUNTED), ("tune.score", [file.tune.score], ())):
        allowed = [*known, *gossip, *counted]
        for name in names:
            if name not in allowed:
                raise FileError(f"{key}: {name!r} is not a column of the history; it has {', '.join(allowed)}")


def problem(table: ProblemTable) -> cofed.Problem:
    """Model, loss and regularizer."""

    def made(kinds: Mapping[str, Callable], part: BaseModel | None, otherwise: Callable) -> Any:
        if part is None:
            return otherwise()
        given = part.model_dump(exclude_none=True)
        on = given.pop("on", None)
        built = kinds[given.pop("name")](**given)
        return built if on is None else cofed.On(built, on)

    return cofed.Problem(
        made(MODELS, table.model, cofed.Linear),
        made(LOSSES, table.loss, cofed.Squared),
        made(REGULARIZERS, table.regularizer, cofed.Zero),
    )


def measures(names: Iterable[str], truth: Any, source: str) -> dict[str, Callable]:
    """The asked-for metrics; most compare with the truth, which only generated data have."""
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
