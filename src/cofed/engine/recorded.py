"""The JSON files of a checkpoint folder: what they hold, checked when read; older ones are brought up to date."""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypeVar

import jax
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cofed._util.files import read_json, write_json
from cofed.engine.spec import RunSpec

FORMAT = 2
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class Record(BaseModel):
    """A file of the folder: every key must be there, of its type, and no other."""

    model_config = ConfigDict(extra="forbid", strict=True)


R = TypeVar("R", bound=Record)


class SettingsRecord(Record):
    """The numbers of a run."""

    rounds: Positive
    local_steps: Positive | None
    local_epochs: Positive | None
    batch_size: Positive | None
    clients_per_round: Positive | None
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    evaluate_every: Positive
    keep_models: bool
    per_client: bool


class OwnCode(Record):
    """What is known of a part with a user's own code: its outline and, where JAX has traced it, a hash of that."""

    outline: Any
    code: str | None


class RunRecord(Record):
    """run.json, the definition of a run."""

    format: int
    cofed: str
    jax: str | None  # None: written by an older version, which did not say
    settings: SettingsRecord
    checkpoint_every: Positive
    keep_checkpoints: Positive
    problem: dict[str, Any] | None
    algorithm: dict[str, Any] | None
    algorithm_name: str
    weights: str | dict[str, Any]
    metrics: dict[str, dict[str, Any] | None]
    own: dict[str, OwnCode]  # of those parts that are None above, by name
    evaluation: bool
    evaluation_fingerprint: str | None  # None where there is none, or where an older version did not say
    fingerprint: str
    topology: dict[str, Any] | None
    link_failure: Annotated[float, Field(ge=0, lt=1)]
    stream: bool


class CheckpointRecord(Record):
    """round-*.json: the history up to a checkpoint, and what its state's file must be."""

    format: int
    round: Count
    run: str | None  # the hash of run.json; None where an older version did not say
    sha256: str  # of the state's file
    rows: Annotated[list[dict[str, float | int]], Field(min_length=1)]
    left_out: list[Annotated[list[int | str], Field(min_length=2, max_length=3)]]  # round, client, why if not as usual
    client_rounds: list[Count]
    compile_seconds: float
    bytes: Annotated[list[Count], Field(min_length=2, max_length=2)]
    seconds: float
    unreported: Count
    content: str | None  # the hash of all this; None as above


class OnDiskRecord(Record):
    """federation.json, of clients on disk: where their index is, and which of them the history is measured on."""

    index: str
    measured: list[Count] | None


def write_record(path: Path, record: Record) -> None:
    """Write a file of the folder, whole or not at all."""
    write_json(path, record.model_dump())


def up_to_date(path: Path, content: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The content of a file of an older format, with what has come since; that of a foreign one is refused."""
    found = content.get("format")
    if type(found) is int and found == FORMAT:
        return content
    if type(found) is int and found == 1:
        return content | new | {"format": FORMAT}
    by = content.get("cofed")
    raise ValueError(
        f"{path} was not written by this version of cofed: its format is {found!r}"
        + (f" (of cofed {by})" if isinstance(by, str) else "")
        + f", and cofed {version('cofed')} reads formats 1 to {FORMAT}"
    )


def read_run(folder: Path) -> RunRecord:
    """The definition of the run in a folder."""
    path = folder / "run.json"
    content = read_json(path, f"{folder} holds no run: there is no whole run.json in it")
    new = {"jax": None, "own": {}, "evaluation_fingerprint": None}
    return checked(RunRecord, up_to_date(path, content, new), f"{path} is damaged")


def read_checkpoint(path: Path, refusal: str) -> CheckpointRecord:
    """The record of a checkpoint, or this sentence."""
    found = read_json(path, refusal)
    record = checked(CheckpointRecord, up_to_date(path, found, {"run": None, "content": None}), refusal)
    if found["format"] == FORMAT and (record.run is None or record.content != content_of(record)):
        raise ValueError(refusal)
    needed = {"round", "objective", "loss", "seconds"}
    if not all(needed <= set(row) for row in record.rows):
        raise ValueError(refusal)
    return record


def content_of(record: CheckpointRecord) -> str:
    """The hash of all that a record of a checkpoint says."""
    told = json.dumps(record.model_dump(exclude={"content"}), sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def checked(kind: type[R], content: dict[str, Any], refusal: str) -> R:
    """The record of this kind, or the sentence with the first key that is wrong."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{refusal} ({key}: {first['msg'].lower()})") from None


def made_by() -> dict[str, str]:
    """Which versions write a file."""
    return {"cofed": version("cofed"), "jax": jax.__version__}


def settings_record(spec: RunSpec) -> SettingsRecord:
    """A run's numbers, for a file."""
    return SettingsRecord(**{name: getattr(spec, name) for name in SettingsRecord.model_fields})
