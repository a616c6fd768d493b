"""Experiment files: the tables that a TOML file may have, as pydantic models.

What can be named (algorithms, losses, generators, ...) and with which keys is in `registry.py`; what is made of a file
that has been read is in `build.py`.
"""

import functools
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import equinox as eqx
import pydantic
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    SerializeAsAny,
    ValidationInfo,
    create_model,
    model_serializer,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

import cofed
from cofed._util import toml_mistakes
from cofed._util.scalars import AUTO, AUTOMATIC
from cofed._util.types import Given
from cofed.algorithms.base import AbstractAlgorithm
from cofed.compressors import AbstractCompressor
from cofed.engine.callbacks import AbstractCallback
from cofed.experiments import functions, registry
from cofed.experiments.import_path import NotImportable, import_class, import_function
from cofed.experiments.registry import Kind

METRICS = ("f1", "precision", "recall", "l1_error", "l2_error", "rank_found")
NUMBERS = (float, int, bool, int | float)  # types of keys for which several values make a grid
Keys = dict[str, Any]  # keys of a table, as pydantic takes them: type and default


class Strict(BaseModel):
    """A table of the file: unknown keys are refused, and so is text where a number or a truth value belongs."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


class ChosenTable(Strict):
    """A table whose keys are those of the class or generator that it names."""

    chosen_by: ClassVar[str]  # the key with the name
    chosen_kind: ClassVar[Kind]  # the class or generator
    _name_alone: bool = PrivateAttr(default=False)  # whether the file has the name only, and no table around it

    @model_serializer(mode="wrap")
    def as_in_the_file(self, handler: Callable[[Any], dict[str, Any]]) -> Any:
        """A name that stood alone is written so again: results are recognised by what their file said."""
        return getattr(self, self.chosen_by) if self._name_alone else handler(self)


@dataclass(frozen=True)
class Reading:
    """A file while it is read: where it is, and as what each of its tables was read (by the identity of the table)."""

    folder: Path
    tables: dict[int, type[Strict]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class NamedChoice:
    """A table that one of its keys, the tag, chooses among several, such as an algorithm by its name.

    `grids` says whether a list of values for a number makes a grid; `extra` are keys beside those of the class.
    """

    tag: str
    kinds: Mapping[str, Kind]
    grids: bool = False
    extra: Keys = field(default_factory=dict)
    contract: type | None = None  # what a class of one's own derives from; None: it may not be named
    fixed: Mapping[str, type[Strict]] = field(default_factory=dict)  # tables of no class or generator, by their tags

    def read(self, raw: object, info: Given[ValidationInfo[Reading]]) -> Strict:
        """The table, checked. A name alone stands for a table with nothing else in it."""
        given = {self.tag: raw} if isinstance(raw, str) else raw
        if not isinstance(given, dict):
            raise PydanticCustomError("table_expected", "it should be a table with the key {tag}", {"tag": self.tag})
        reading = info.context
        table = self.table(given.get(self.tag), reading.folder)
        reading.tables[id(given)] = table
        checked = table.model_validate(given, context=reading)
        if isinstance(checked, ChosenTable):
            checked._name_alone = isinstance(raw, str)
        return checked

    def table(self, name: object, folder: Path) -> type[Strict]:
        """The table that a name chooses."""
        if isinstance(name, str) and name in self.fixed:
            return self.fixed[name]
        if isinstance(name, str) and name in self.kinds:
            return table_of(name, self.kinds[name], self)
        if self.contract is not None and isinstance(name, str) and ":" in name:
            try:
                return table_of(name, import_class(name, folder, self.contract), self)
            except NotImportable as error:
                raise PydanticCustomError("import_path", "{why}", {"tag": self.tag, "why": str(error)}) from error
        own = ["package.module:Class"] if self.contract is not None else []
        if own and isinstance(name, str) and "." in name:
            module, _, kind = name.rpartition(".")
            own = [f"package.module:Class (an import path has a colon: {module}:{kind})"]
        about = {"tag": self.tag, "allowed": [*sorted([*self.kinds, *self.fixed]), *own]}
        raise PydanticCustomError("unknown_name", "it is not known", about)


@functools.cache
def table_of(name: str, kind: Kind, choice: NamedChoice) -> type[ChosenTable]:
    """The pydantic model of a class or generator: a key for each field or parameter."""
    keys: Keys = {choice.tag: (Literal[name], ...)}
    for key in registry.keys_of(kind):
        several = choice.grids and key.type in NUMBERS
        type_ = key.type | Annotated[list[key.type], Field(min_length=1)] if several else key.type
        type_ = type_ | Literal[AUTO] if several and key.name in AUTOMATIC else type_
        keys[key.name] = (type_, ...) if key.required else (type_ | None, None)
    own_keys = [one for one in (choice.tag, *choice.extra) if one in {key.name for key in registry.keys_of(kind)}]
    if own_keys:
        raise NotImportable(f"{kind.__name__} has a field {own_keys[0]!r}, which is a key of the file; rename it")
    for part in registry.parts_of(kind):
        type_ = one_of(PARTS[part.type])
        keys[part.name] = (type_, ...) if part.required else (type_ | None, None)
    table = create_model(f"{name}Table", __base__=ChosenTable, **keys, **choice.extra)
    table.chosen_by, table.chosen_kind = choice.tag, kind
    return table


def one_of(choice: NamedChoice) -> Any:
    """The type of a key that holds such a table."""
    return Annotated[SerializeAsAny[Strict], PlainValidator(choice.read)]


LABEL: Keys = {"label": (str | None, None)}
LABELLED_WRAPPERS: dict[str, type[Strict]] = {}  # filled below, with what such a table itself may hold
WRAPPERS: dict[str, type[Strict]] = {}
ALGORITHM = NamedChoice("name", registry.ALGORITHMS, True, LABEL, AbstractAlgorithm, LABELLED_WRAPPERS)
COMPRESSOR = NamedChoice("name", registry.COMPRESSORS, grids=True, contract=AbstractCompressor)
MIRROR = NamedChoice("name", registry.MIRRORS, grids=True, contract=cofed.AbstractMirror)
MEAN = NamedChoice("name", registry.MEANS, contract=cofed.means.AbstractMean)
SAMPLER = NamedChoice("name", registry.SAMPLERS, contract=cofed.samplers.AbstractSampler)
CALLBACK = NamedChoice("name", registry.CALLBACKS, contract=AbstractCallback)
BATCHES = NamedChoice("name", registry.BATCHES, contract=cofed.batches.AbstractBatches)
MODEL = NamedChoice("name", registry.MODELS, contract=cofed.AbstractModel)
LOSS = NamedChoice("name", registry.LOSSES, contract=cofed.AbstractLoss)
ON: Keys = {"on": (str | list[str] | None, None)}
REGULARIZER = NamedChoice("name", registry.REGULARIZERS, False, ON, cofed.AbstractRegularizer)
# What a key of an algorithm holds whose value is no number: an algorithm inside an algorithm has no label.
PARTS = {
    AbstractAlgorithm: NamedChoice("name", registry.ALGORITHMS, True, {}, AbstractAlgorithm, WRAPPERS),
    AbstractCompressor: COMPRESSOR,
    cofed.AbstractMirror: MIRROR,
}
FUNCTION = Annotated[SerializeAsAny[functions.FunctionTable], PlainValidator(functions.read)]


def wrappers(extra: Keys) -> dict[str, type[Strict]]:
    """The tables of the methods around others that are made of functions, with these keys beside."""
    inner = one_of(PARTS[AbstractAlgorithm])
    given: dict[type[eqx.Module], Keys] = {
        cofed.ServerOptimizer: {"optimizer": (FUNCTION, ...)},
        cofed.Scheduled: {"schedules": (dict[str, FUNCTION], ...)},
    }
    tables = {}
    for kind, own in given.items():
        keys: Keys = {"name": (Literal[kind.__name__], ...), "algorithm": (inner, ...)} | own | extra
        table = create_model(f"{kind.__name__}Table", __base__=ChosenTable, **keys)
        table.chosen_by, table.chosen_kind = "name", kind
        tables[kind.__name__] = table
    return tables


LABELLED_WRAPPERS |= wrappers(LABEL)
WRAPPERS |= wrappers({})


def number_or(choice: NamedChoice) -> Any:
    """The type of a key that holds a whole number above 0, or a table of what stands in its place."""

    def read(raw: object, info: Given[ValidationInfo[Reading]]) -> int | Strict:
        if isinstance(raw, (str, dict)):
            return choice.read(raw, info)
        if isinstance(raw, bool) or not isinstance(raw, int):
            raise PydanticKnownError("int_type")
        if raw < 1:
            raise PydanticKnownError("greater_than_equal", {"ge": 1})
        return raw

    return Annotated[int | SerializeAsAny[Strict], PlainValidator(read)]


def read_metric(raw: object, info: Given[ValidationInfo[Reading]]) -> str:
    """The name of a metric, or the import path of one's own."""
    if isinstance(raw, str) and ":" in raw:
        try:
            import_function(raw, info.context.folder)
        except NotImportable as error:
            raise PydanticCustomError("import_path", "{why}", {"tag": "metrics", "why": str(error)}) from error
    elif raw not in METRICS:
        expected = ", ".join(map(repr, METRICS)) + " or package.module:function"
        raise PydanticKnownError("literal_error", {"expected": expected})
    assert isinstance(raw, str)
    return raw


class SampleFile(Strict):
    """Samples in a file: a row is a sample, and a column says whose it is."""

    source: Literal["csv", "parquet"]
    path: str
    target: str
    client: str
    features: list[str] | None = None
    dtype: Literal["float32", "float64"] | None = None
    test_fraction: float | None = Field(default=None, gt=0, lt=1)


DATA = NamedChoice("source", registry.GENERATORS, fixed={"csv": SampleFile, "parquet": SampleFile})


class ClockTable(Strict):
    """The simulated time of asynchronous rounds: the fields of cofed.Clock."""

    seconds: float | list[float]
    spread: float = 0.0
    jitter: float = 0.0
    staleness: float = 0.5


Count = Annotated[int, Field(ge=1)]


class RunTable(Strict):
    """How every algorithm runs: the arguments of cofed.run."""

    rounds: int = Field(ge=1)
    local_steps: Count | Annotated[list[Count], Field(min_length=1)] | None = None
    local_epochs: int | None = Field(default=None, ge=1)
    batch_size: number_or(BATCHES) | None = None  # type: ignore[valid-type]
    clients_per_round: number_or(SAMPLER) | None = None  # type: ignore[valid-type]
    weights: Literal["uniform", "samples"] | Annotated[list[float], Field(min_length=1)] = "uniform"
    evaluate_every: int | None = Field(default=None, ge=1)
    clock: ClockTable | None = None
    mean: one_of(MEAN) | None = None  # type: ignore[valid-type]
    callbacks: list[one_of(CALLBACK)] | None = None  # type: ignore[valid-type]
    per_client: bool | None = None
    topology: Literal[registry.TOPOLOGIES] | None = None  # type: ignore[valid-type]
    link_failure: float | None = Field(default=None, ge=0, lt=1)


class TuneTable(Strict):
    """How grids are searched."""

    score: str = "objective"
    maximise: bool | None = None  # None: as the column says
    over: int = Field(default=1, ge=1)
    ties: float = Field(default=0.0, ge=0)


class ProblemTable(Strict):
    """Model, loss and regularizer; what is left out has cofed's default."""

    model: one_of(MODEL) | None = None  # type: ignore[valid-type]
    loss: one_of(LOSS) | None = None  # type: ignore[valid-type]
    regularizer: one_of(REGULARIZER) | None = None  # type: ignore[valid-type]


class ExperimentFile(Strict):
    """The whole file."""

    title: str = "A comparison"
    seeds: int = Field(default=1, ge=1)
    metrics: list[Annotated[str, PlainValidator(read_metric)]] = Field(default_factory=list)
    columns: list[str] = Field(default_factory=lambda: ["objective"])
    data: one_of(DATA)  # type: ignore[valid-type]
    problem: ProblemTable = Field(default_factory=ProblemTable)
    run: RunTable
    tune: TuneTable = Field(default_factory=TuneTable)
    algorithms: list[one_of(ALGORITHM)] = Field(min_length=1)  # type: ignore[valid-type]


class FileError(ValueError):
    """What is wrong with an experiment file, in a sentence per mistake, each with its line."""


def load(path: str | Path) -> ExperimentFile:
    """Read and check an experiment file.

    Parameters
    ----------
    path
        A TOML file. Where it names code by import path, that module is imported, which runs its code.

    Raises
    ------
    FileError
        If the file cannot be read, or has mistakes: the sentences name line, key and what is allowed.
    """
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
    plain = {id(raw[name]): table for name, table in PLAIN_TABLES.items() if name in raw}
    reading = Reading(path.parent, {id(raw): ExperimentFile} | plain)
    try:
        return ExperimentFile.model_validate(raw, context=reading)
    except pydantic.ValidationError as error:
        allowed = {place: list(table.model_fields) for place, table in reading.tables.items()}
        sentences = toml_mistakes.sentences(error.errors(), text, raw, allowed)
        raise FileError("\n".join(f"{path}, {words}" for words in sentences)) from None


PLAIN_TABLES: dict[str, type[Strict]] = {"run": RunTable, "tune": TuneTable, "problem": ProblemTable}
