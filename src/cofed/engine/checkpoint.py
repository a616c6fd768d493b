"""Checkpoints: a folder with the run's definition (JSON, data as safetensors) and its newest states.

    run.json                 settings, problem, algorithm; written last of the definition, so it stands for the whole
    federation.safetensors   the data (also evaluation.safetensors, where there is one); of clients on disk
                             federation.json instead, which says where their index is
    rounds.json              the rounds of a run that was given more of them later
    round-000000050.*        a state (.safetensors) and, written after it, its history and checksum (.json)

Every file is written under another name and renamed, so a kill at any moment leaves whole files only.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from cofed._util import checks, trees
from cofed._util.caller import warn_caller
from cofed._util.files import atomically, digest
from cofed.engine import recorded
from cofed.engine.contracts import in_a_line
from cofed.engine.definition import WrittenRun, write_definition
from cofed.engine.history import History, LeftOut, Log
from cofed.engine.spec import RunSpec
from cofed.engine.state import State


@runtime_checkable
class Resumable(Protocol):
    """A state that a checkpoint can hold: a pytree of arrays, which knows its round."""

    round: Int[Array, ""]  # the next one


S = TypeVar("S", bound=Resumable)

ADDED = ("idle",)  # counts of a state that older checkpoints lack: 0 there


@dataclasses.dataclass(frozen=True)
class CheckpointFile:
    """A checkpoint on disk."""

    round: int
    path: Path  # of the .json


@dataclasses.dataclass
class CheckpointStore:
    """A folder of checkpoints."""

    folder: Path
    every: int
    keep: int
    unwritten: OSError | None = None  # why the last checkpoint could not be written, if so

    def begin(self, spec: RunSpec, start: PyTree) -> None:
        """Write the definition of a new run: all of it, or nothing."""
        if self.all():
            raise ValueError(
                f"{self.folder} holds a run already; go on with it by cofed.resume({str(self.folder)!r}), "
                "or give another folder"
            )
        try:
            write_definition(self.folder, self.every, self.keep, spec, start)
        except BaseException:
            for name in ("federation.json", "federation.safetensors", "evaluation.safetensors"):
                (self.folder / name).unlink(missing_ok=True)
            raise

    def clear(self) -> None:
        """Remove the states of the run that was begun here, which is to begin again."""
        for path in self.folder.glob("round-*"):
            path.unlink()

    @classmethod
    def open(cls, folder: Path) -> "CheckpointStore":
        """The store in a folder that a run has written."""
        written = WrittenRun.read(folder).record
        return cls(folder, written.checkpoint_every, written.keep_checkpoints)

    def tidy(self) -> None:
        """Remove what a write that was killed has left."""
        for name in ("round-*", "run.json", "rounds.json", "federation.safetensors", "evaluation.safetensors"):
            for leftover in self.folder.glob(f".{name}.*"):
                leftover.unlink()
        for state in self.folder.glob("round-*.safetensors"):  # its record is written after it
            if not state.with_suffix(".json").exists():
                state.unlink()

    def attempt(self, state: State, log: Log) -> None:
        """Write a checkpoint. Where that fails, such as on a full disk, the run goes on, and the next one is tried."""
        try:
            self.save(state, log)
        except OSError as error:
            if self.unwritten is None:
                warn_caller(
                    f"a checkpoint was not written: {error}. The run goes on; later checkpoints are written once there "
                    "is room"
                )
            self.unwritten = error
        else:
            self.unwritten = None

    def say_what_is_missing(self) -> None:
        """At the end of a run whose last checkpoint could not be written, say where a resumed one would begin."""
        if self.unwritten is not None:
            rounds = self.all()
            last = f"its last checkpoint is of round {rounds[-1].round}" if rounds else "it has no checkpoint"
            warn_caller(
                f"the run in {self.folder} is over, but {last}, since {self.unwritten}. The result is whole; "
                "cofed.resume does the missing rounds again"
            )

    def save(self, state: Resumable, log: Log) -> None:
        """Write a checkpoint, then drop later ones, of rounds taken back, and the oldest beyond the number to keep."""
        tensors = {f"state.{name}": leaf for name, leaf in arrays(state).items()}
        if log.models:
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *log.models)
            tensors |= {f"models.{name}": leaf for name, leaf in arrays(stacked).items()}
        tensors |= client_tensors(log.history)
        name = f"round-{int(state.round):09d}"
        path = self.folder / f"{name}.safetensors"
        atomically(path, lambda f: save_file(tensors, f))
        try:
            recorded.write_record(path.with_suffix(".json"), self.record(state, log, digest(path)))
        except OSError:
            path.unlink(missing_ok=True)  # without its record it is no checkpoint
            raise
        found = self.all()
        upto = [saved for saved in found if saved.round <= int(state.round)]
        for other in [*found[len(upto) :], *upto[: -self.keep]]:
            other.path.unlink()
            other.path.with_suffix(".safetensors").unlink(missing_ok=True)

    def record(self, state: Resumable, log: Log, sha256: str) -> recorded.CheckpointRecord:
        """What the record of a checkpoint says."""
        history = log.history
        record = recorded.CheckpointRecord(
            format=recorded.FORMAT,
            round=int(state.round),
            run=digest(self.folder / "run.json"),
            sha256=sha256,
            rows=history.rows,
            left_out=[event.entries() for event in history.left_out],
            client_rounds=[round for round, _ in history.client_rows],
            compile_seconds=history.compile_seconds,
            bytes=[log.down, log.up],
            seconds=log.seconds,
            unreported=log.unreported,
            content=None,
        )
        return record.model_copy(update={"content": recorded.content_of(record)})

    def all(self) -> list[CheckpointFile]:
        """The whole checkpoints, oldest first."""
        found = sorted(self.folder.glob("round-*.json"))
        return [CheckpointFile(int(path.stem[6:]), path) for path in found if path.stem[6:].isdecimal()]

    def newest(self, rounds: int) -> CheckpointFile:
        """The checkpoint to go on from, of a run of so many rounds."""
        found = self.all()
        if not found:
            raise ValueError(f"{self.folder} holds no whole checkpoint yet; start the run again in another folder")
        if found[-1].round > rounds:
            name = found[-1].path
            raise ValueError(f"{name} is not of this run, which has {rounds} rounds; delete {name.stem}.* to go on")
        return found[-1]

    def load(self, saved: CheckpointFile) -> "LoadedCheckpoint":
        """The files of a checkpoint, whole, or a sentence."""
        path = saved.path.with_suffix(".safetensors")
        refuse = f"the checkpoint {path} is damaged; delete {saved.path.stem}.* to go on from the one before"
        record = recorded.read_checkpoint(saved.path, refuse)
        if record.round != saved.round or not path.exists() or record.sha256 != digest(path):
            raise ValueError(refuse)
        try:
            tensors = load_file(path)
        except SafetensorError as error:
            raise ValueError(refuse) from error
        tables = client_tables(tensors)
        if bool(tables) != bool(record.client_rounds) or any(
            len(each) != len(record.client_rounds) for each in tables.values()
        ):
            raise ValueError(refuse)
        return LoadedCheckpoint(path, record, tensors)


@dataclasses.dataclass(frozen=True)
class LoadedCheckpoint:
    """A checkpoint that has been read."""

    path: Path  # of the state
    record: recorded.CheckpointRecord
    tensors: dict[str, np.ndarray]

    def shapes(self) -> dict[str, list[int]]:
        """The shapes of the state, by name."""
        return {name: list(leaf.shape) for name, leaf in part(self.tensors, "state.").items()}

    @contextlib.contextmanager
    def of_its_definition(self) -> Iterator[None]:
        """Around what makes the run of its definition: where that was changed since, this is said with what came."""
        path = self.path.parent / "run.json"
        same, words = (
            self.record.run in (None, digest(path)),
            f"{path} is not the definition that {self.path} belongs to",
        )
        try:
            yield
        except Exception as error:
            if same:
                raise
            raise ValueError(f"{words}: {in_a_line(error)}") from error
        if not same:
            raise ValueError(f"{words}: it was changed after the run had begun")

    def restore(self, template: S, start: PyTree, names: Sequence[str]) -> tuple[S, Log]:
        """The state and the log; the template gives the structure that they must have."""
        record = self.record
        state = unflatten(template, part(self.tensors, "state."), self.path)
        if int(state.round) != record.round:
            raise ValueError(f"{self.path} does not fit this run: its state is of round {int(state.round)}")
        models = []
        stacked = part(self.tensors, "models.")
        if stacked:
            count = next(iter(stacked.values())).shape[0]
            shape = jax.tree.map(lambda leaf: np.empty((count, *leaf.shape), leaf.dtype), start)
            whole = jax.tree.map(np.asarray, unflatten(shape, stacked, self.path))
            models = [jax.tree.map(lambda leaf, i=i: leaf[i], whole) for i in range(count)]
        events = [LeftOut.of(event) for event in record.left_out]
        tables = client_tables(self.tensors)
        rounds = enumerate(record.client_rounds)
        by_client = [(round, {name: each[i] for name, each in tables.items()}) for i, round in rounds]
        history = History(record.rows, events, by_client, names, record.compile_seconds)
        down, up = record.bytes
        return state, Log(history, models, down, up, record.seconds, record.unreported)


def checked_store(checkpoint: object, every: object, keep: object, rounds: int) -> CheckpointStore | None:
    """The folder of a run's checkpoints, where there is one."""
    every = checks.optional_integer("checkpoint_every", every, most=None)
    keep = checks.integer("keep_checkpoints", keep, most=None)
    if checkpoint is None:
        if every is not None:
            raise ValueError("checkpoint_every is for runs with a checkpoint, and none is given")
        return None
    every = checks.integer("checkpoint_every", max(1, rounds // 10) if every is None else every)
    return CheckpointStore(checks.folder("checkpoint", checkpoint), every, checks.integer("keep_checkpoints", keep))


def client_tensors(history: History) -> dict[str, np.ndarray]:
    """The tables by client, as they are written: the losses under a name of their own, as the first format has it."""
    if not history.client_rows:
        return {}
    tables = {name: np.stack([each[name] for _, each in history.client_rows]) for name in history.client_rows[0][1]}
    return {"client_losses" if name == "loss" else f"clients.{name}": table for name, table in tables.items()}


def client_tables(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tables by client that a checkpoint holds."""
    losses = {"loss": tensors["client_losses"]} if "client_losses" in tensors else {}
    return losses | part(tensors, "clients.")


def arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """The leaves by name; a random key as its data."""
    return {
        name: np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
        for name, leaf in zip(trees.names(tree), jax.tree.leaves(tree), strict=True)
    }


def is_key(leaf: object) -> bool:
    """Whether a leaf is a random key."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def unflatten(template: PyTree, tensors: dict[str, np.ndarray], path: Path) -> PyTree:
    """The tree of the template with these leaves, which must have its names, shapes and dtypes."""
    expected = arrays(template)
    tensors = {name: np.zeros_like(leaf) for name, leaf in expected.items() if name in ADDED} | tensors
    for name, leaf in expected.items():
        found = tensors.get(name)
        if found is None or found.shape != leaf.shape or found.dtype != leaf.dtype:
            what = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
            raise ValueError(f"{path} does not fit this run: {name} is {what}, not {leaf.dtype}{list(leaf.shape)}")
    if set(tensors) != set(expected):
        raise ValueError(f"{path} does not fit this run: it has {sorted(set(tensors) - set(expected))} too many")
    leaves = [
        jax.random.wrap_key_data(jnp.asarray(tensors[name])) if is_key(leaf) else jnp.asarray(tensors[name])
        for name, leaf in zip(trees.names(template), jax.tree.leaves(template), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def part(tensors: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The tensors of one section, without its prefix."""
    return {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
