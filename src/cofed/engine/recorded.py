"""The JSON files of a checkpoint folder: their contents, checked when read and migrated from older formats."""

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypeVar

import jax
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cofed._util.files import read_json, write_json
from cofed.engine.spec import RunSpec
from cofed.samplers import AbstractSampler

FORMAT = 2
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class Record(BaseModel):
    """A file of the folder, with exactly these keys, each of its type."""

    model_config = ConfigDict(extra="forbid", strict=True)


R = TypeVar("R", bound=Record)


class SettingsRecord(Record):
    """The schedule of a run, and what it records."""

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
    """What is known of a user's own code: an outline and, where JAX has traced it, a hash of its operations."""

    outline: Any
    code: str | None


class RunRecord(Record):
    """run.json: the definition of a run."""

    format: int
    cofed: str
    jax: str | None  # None in files of format 1
    settings: SettingsRecord
    checkpoint_every: Positive
    keep_checkpoints: Positive
    problem: dict[str, Any] | None
    algorithm: dict[str, Any] | None
    algorithm_name: str
    weights: str | dict[str, Any]
    metrics: dict[str, dict[str, Any] | None]
    own: dict[str, OwnCode]  # the parts that are None above, by name
    evaluation: bool
    evaluation_fingerprint: str | None  # None without an evaluation, and in files of format 1
    fingerprint: str
    topology: dict[str, Any] | None
    link_failure: Annotated[float, Field(ge=0, lt=1)]
    stream: bool
    steps_by_client: list[Positive] | None = None  # where clients have local steps of their own
    clock: dict[str, Any] | None = None
    mean: dict[str, Any] | None = None  # what the server takes in place of the weighted mean
    sampler: dict[str, Any] | None = None  # what draws the clients, where that is more than a number
    batches: dict[str, Any] | None = None  # what draws the batches, where that is more than a number


class CheckpointRecord(Record):
    """round-*.json: the history up to a checkpoint, and the hash of the file with its state."""

    format: int
    round: Count
    run: str | None  # the hash of run.json; None in files of format 1
    sha256: str  # of the file with the state
    rows: Annotated[list[dict[str, float | int]], Field(min_length=1)]
    left_out: list[Annotated[list[int | str], Field(min_length=2, max_length=3)]]  # round, client, why if not as usual
    client_rounds: list[Count]
    compile_seconds: float
    bytes: Annotated[list[Count], Field(min_length=2, max_length=2)]
    seconds: float
    unreported: Count
    content: str | None  # the hash of all the above; None in files of format 1


class ExtensionRecord(Record):
    """rounds.json: how many rounds a run has that was given more of them than run.json says."""

    rounds: Positive


class OnDiskRecord(Record):
    """federation.json, for clients on disk: where their index is, and which clients the history is measured on."""

    index: str
    measured: list[Count] | None


def write_record(path: Path, record: Record) -> None:
    """Write a record, whole or not at all."""
    write_json(path, record.model_dump())


def migrated(path: Path, content: dict[str, Any], added: Mapping[str, object]) -> dict[str, Any]:
    """The content of a file in the present format: one of format 1 gets the keys that were added since.

    Any other format is refused.
    """
    found = content.get("format")
    if type(found) is int and found == FORMAT:
        return content
    if type(found) is int and found == 1:
        return {**content, **added, "format": FORMAT}
    by = content.get("cofed")
    raise ValueError(
        f"{path} was not written by this version of cofed: its format is {found!r}"
        + (f" (of cofed {by})" if isinstance(by, str) else "")
        + f", and cofed {version('cofed')} reads formats 1 to {FORMAT}"
    )


def read_run(folder: Path) -> RunRecord:
    """Read the definition of the run in a folder."""
    path = folder / "run.json"
    content = read_json(path, f"{folder} holds no run: there is no whole run.json in it")
    added = {"jax": None, "own": {}, "evaluation_fingerprint": None}
    return checked(RunRecord, migrated(path, content, added), f"{path} is damaged")


def read_checkpoint(path: Path, refusal: str) -> CheckpointRecord:
    """Read the record of a checkpoint, or refuse it with this sentence."""
    found = read_json(path, refusal)
    record = checked(CheckpointRecord, migrated(path, found, {"run": None, "content": None}), refusal)
    if found["format"] == FORMAT and (record.run is None or record.content != content_of(record)):
        raise ValueError(refusal)
    needed = {"round", "objective", "loss", "seconds"}
    if not all(needed <= set(row) for row in record.rows):
        raise ValueError(refusal)
    return record


def content_of(record: CheckpointRecord) -> str:
    """The hash of all that the record of a checkpoint says."""
    told = json.dumps(record.model_dump(exclude={"content"}), sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def checked(kind: type[R], content: Mapping[str, object], refusal: str) -> R:
    """A record of this kind, or refuse it with this sentence and the first key that is wrong."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{refusal} ({key}: {first['msg'].lower()})") from None


def made_by() -> dict[str, str]:
    """The versions that write a file."""
    return {"cofed": version("cofed"), "jax": jax.__version__}


def settings_record(spec: RunSpec) -> SettingsRecord:
    """The schedule of a run, for a file."""
    numbers = {name: getattr(spec, name) for name in SettingsRecord.model_fields}
    if isinstance(numbers["clients_per_round"], AbstractSampler):  # it has a place of its own
        numbers["clients_per_round"] = None
    if spec.batches is not None:
        numbers["batch_size"] = None
    return SettingsRecord(**numbers)
