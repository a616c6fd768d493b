"""Checkpoints: a folder with the run's definition (JSON, data as safetensors) and its newest states.

    run.json                 settings, problem, algorithm; written last of the definition, so it stands for the whole
    federation.safetensors   the data (also evaluation.safetensors, where there is one); of clients on disk
                             federation.json instead, which says where their index is
    round-000000050.*        a state (.safetensors) and, written after it, its history and checksum (.json)

Every file is written under another name and renamed, so a kill at any moment leaves whole files only.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from cofed import trees
from cofed.algorithms.base import AbstractAlgorithm
from cofed.disk import DiskFederation
from cofed.disk.index import Index
from cofed.engine.encode import NotOurs, decode, encode
from cofed.engine.files import atomically
from cofed.engine.history import History, LeftOut, Log
from cofed.engine.rounds import State
from cofed.federation import Federation
from cofed.gossip.topologies import Topology

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Definition:
    """What a run was defined by."""

    problem: Any
    federation: Federation | DiskFederation
    algorithm: AbstractAlgorithm
    settings: dict[str, Any]
    weights: Any
    metrics: Mapping[str, Callable] | None
    evaluation: Federation | None
    topology: Topology | None
    link_failure: float


@dataclasses.dataclass(frozen=True)
class Saved:
    """A checkpoint on disk."""

    round: int
    path: Path  # of the .json


@dataclasses.dataclass
class Store:
    """A folder of checkpoints."""

    folder: Path
    every: int
    keep: int

    def begin(
        self,
        problem: Any,
        federation: Federation | DiskFederation,
        algorithm: AbstractAlgorithm,
        settings: Any,
        weights: Any,
        metrics: Mapping[str, Callable] | None,
        evaluation: Federation | None,
        topology: Topology | None,
        link_failure: float,
    ) -> None:
        """Write the definition of a new run."""
        if self.all():
            raise ValueError(
                f"{self.folder} holds a run already; go on with it by cofed.resume({str(self.folder)!r}), "
                "or give another folder"
            )
        if isinstance(federation, DiskFederation):
            write_json(self.folder / "federation.json", on_disk(federation))
        else:
            write_federation(self.folder / "federation.safetensors", federation)
        if evaluation is not None:
            write_federation(self.folder / "evaluation.safetensors", evaluation)
        write_json(
            self.folder / "run.json",
            {
                "format": FORMAT,
                "cofed": version("cofed"),
                "settings": dataclasses.asdict(settings),
                "checkpoint_every": self.every,
                "keep_checkpoints": self.keep,
                "problem": encode_or_none(problem),
                "algorithm": encode_or_none(algorithm),
                "algorithm_name": type(algorithm).__name__,
                "weights": encode(weights if isinstance(weights, str) else np.asarray(weights)),
                "metrics": {name: encode_or_none(metric) for name, metric in (metrics or {}).items()},
                "evaluation": evaluation is not None,
                "fingerprint": fingerprint(federation),
                "topology": encode(topology),
                "link_failure": float(link_failure),
                "stream": federation.draw is not None,
            },
        )

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """The store in a folder that a run has written."""
        definition = read_json(folder / "run.json", f"{folder} holds no run: there is no whole run.json in it")
        parts = {"settings", "checkpoint_every", "keep_checkpoints", "problem", "algorithm", "fingerprint", "topology"}
        if definition.get("format") != FORMAT or not parts <= set(definition):
            raise ValueError(f"{folder / 'run.json'} was not written by this version of cofed")
        for name in ("round-*", "run.json", "federation.safetensors", "evaluation.safetensors"):
            for leftover in folder.glob(f".{name}.*"):  # of a write that was killed
                leftover.unlink()
        return cls(folder, definition["checkpoint_every"], definition["keep_checkpoints"])

    def definition(
        self,
        problem: Any,
        federation: Federation | DiskFederation | None,
        algorithm: AbstractAlgorithm | None,
        metrics: Mapping[str, Callable] | None,
        evaluation: Federation | None,
    ) -> Definition:
        """The definition of the run, with what the caller gives in place of what a file cannot hold."""
        written = read_json(self.folder / "run.json", f"{self.folder} holds no run")
        given = {"problem": problem, "algorithm": algorithm}
        for part, value in given.items():
            if value is None:
                if written[part] is None:
                    raise ValueError(
                        f"the run in {self.folder} has a {part} with code of its own, which no file can hold: "
                        f"pass {part}= to resume"
                    )
                given[part] = decode(written[part], self.folder / "run.json")
        if type(given["algorithm"]).__name__ != written["algorithm_name"]:
            raise ValueError(
                f"the run in {self.folder} is one of {written['algorithm_name']}, "
                f"not of {type(given['algorithm']).__name__}"
            )
        known = {name: metric for name, metric in written["metrics"].items() if metric is not None}
        metrics = {name: decode(metric, self.folder / "run.json") for name, metric in known.items()} | dict(
            metrics or {}
        )
        if sorted(metrics) != sorted(written["metrics"]):
            raise ValueError(
                f"the run in {self.folder} has the metrics {sorted(written['metrics'])}, some with code of their own, "
                "which no file can hold: pass them as metrics= to resume"
            )
        metrics = {name: metrics[name] for name in written["metrics"]}
        if federation is None and written["stream"]:
            raise ValueError(
                f"the federation of the run in {self.folder} draws its samples with code of its own, which no file can "
                "hold: pass federation= to resume"
            )
        if federation is None and (self.folder / "federation.json").exists():
            federation = reopened(self.folder / "federation.json")
        elif federation is None:
            federation = read_federation(self.folder / "federation.safetensors")
        if fingerprint(federation) != written["fingerprint"]:
            raise ValueError(f"this federation is not the one of the run in {self.folder}: their data differ")
        if evaluation is None and written["evaluation"]:
            evaluation = read_federation(self.folder / "evaluation.safetensors")
        return Definition(
            federation=federation,
            settings=written["settings"],
            weights=decode(written["weights"], self.folder / "run.json"),
            metrics=metrics,
            evaluation=evaluation,
            topology=decode(written["topology"], self.folder / "run.json"),
            link_failure=written["link_failure"],
            **given,
        )

    def save(self, state: State, log: Log) -> None:
        """Write a checkpoint, then drop the oldest beyond the number to keep."""
        tensors = {f"state.{name}": leaf for name, leaf in arrays(state).items()}
        if log.models:
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *log.models)
            tensors |= {f"models.{name}": leaf for name, leaf in arrays(stacked).items()}
        if log.history.client_losses:
            tensors["client_losses"] = np.stack([values for _, values in log.history.client_losses])
        name = f"round-{int(state.round):09d}"
        path = self.folder / f"{name}.safetensors"
        atomically(path, lambda f: save_file(tensors, f))
        history = log.history
        write_json(
            self.folder / f"{name}.json",
            {
                "format": FORMAT,
                "round": int(state.round),
                "sha256": digest(path),
                "rows": history.rows,
                "left_out": [[event.round, event.client] for event in history.left_out],
                "client_rounds": [round for round, _ in history.client_losses],
                "compile_seconds": history.compile_seconds,
                "bytes": [log.down, log.up],
                "seconds": log.seconds,
                "unreported": log.unreported,
            },
        )
        for old in self.all()[: -self.keep]:
            old.path.unlink()
            old.path.with_suffix(".safetensors").unlink(missing_ok=True)

    def all(self) -> list[Saved]:
        """The whole checkpoints, oldest first."""
        found = sorted(self.folder.glob("round-*.json"))
        return [Saved(int(path.stem[6:]), path) for path in found if path.stem[6:].isdecimal()]

    def newest(self) -> Saved:
        """The checkpoint to go on from."""
        found = self.all()
        if not found:
            raise ValueError(f"{self.folder} holds no whole checkpoint yet; start the run again in another folder")
        return found[-1]

    def shapes(self, saved: Saved) -> dict[str, list[int]]:
        """The shapes of a checkpoint's state, by name; of a damaged one nothing, which `load` then refuses."""
        try:
            with safe_open(saved.path.with_suffix(".safetensors"), framework="numpy") as file:
                names = [name for name in file.keys() if name.startswith("state.")]  # noqa: SIM118
                return {name.removeprefix("state."): file.get_slice(name).get_shape() for name in names}
        except (SafetensorError, OSError):
            return {}

    def load(self, saved: Saved, template: State, start: PyTree, federation_names: Sequence[str]):
        """The state and the log of a checkpoint; the template gives the structure that they must have."""
        path = saved.path.with_suffix(".safetensors")
        refuse = f"the checkpoint {path} is damaged; delete {saved.path.stem}.* to go on from the one before"
        meta = read_json(saved.path, refuse)
        if not path.exists() or meta.get("sha256") != digest(path):
            raise ValueError(refuse)
        try:
            tensors = load_file(path)
        except SafetensorError as error:
            raise ValueError(refuse) from error
        state = unflatten(template, part(tensors, "state."), path)
        models = []
        stacked = part(tensors, "models.")
        if stacked:
            count = next(iter(stacked.values())).shape[0]
            shape = jax.tree.map(lambda leaf: np.empty((count, *leaf.shape), leaf.dtype), start)
            whole = jax.tree.map(np.asarray, unflatten(shape, stacked, path))
            models = [jax.tree.map(lambda leaf, i=i: leaf[i], whole) for i in range(count)]
        losses = list(zip(meta["client_rounds"], tensors.get("client_losses", ()), strict=False))
        events = [LeftOut(round, client) for round, client in meta["left_out"]]
        history = History(meta["rows"], events, losses, federation_names, meta["compile_seconds"])
        down, up = meta["bytes"]
        return state, Log(history, models, down, up, meta["seconds"], meta["unreported"])


def arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """The leaves by name; a random key as its data."""
    return {
        name: np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
        for name, leaf in zip(trees.names(tree), jax.tree.leaves(tree), strict=True)
    }


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a random key."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def unflatten(template: PyTree, tensors: dict[str, np.ndarray], path: Path) -> PyTree:
    """The tree of the template with these leaves, which must have its names, shapes and dtypes."""
    expected = arrays(template)
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


def encode_or_none(value: Any) -> Any:
    """The value as JSON, or None where it is a user's own code."""
    try:
        return encode(value)
    except NotOurs:
        return None


def write_federation(path: Path, federation: Federation) -> None:
    """The data of a federation, names as metadata."""
    tensors = {name: np.asarray(getattr(federation, name)) for name in ("X", "y", "sizes", "ids")}
    names = {"names": json.dumps(federation.names), "feature_names": json.dumps(federation.feature_names)}
    atomically(path, lambda f: save_file(tensors, f, metadata=names))


def read_federation(path: Path) -> Federation:
    """The federation that `write_federation` wrote."""
    try:
        with safe_open(path, framework="numpy") as file:
            meta, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, FileNotFoundError) as error:
        raise ValueError(f"the data of the run, {path}, is damaged or missing; pass federation= to resume") from error
    if tensors["X"].dtype == np.float64:
        jax.config.update("jax_enable_x64", True)
    features = json.loads(meta["feature_names"])
    return Federation(
        **tensors,
        names=tuple(json.loads(meta["names"])),
        feature_names=None if features is None else tuple(features),
    )


def on_disk(federation: DiskFederation) -> dict[str, Any]:
    """Where the clients are, and which the history is measured on."""
    measured = None if federation.measured is None else federation.measured.tolist()
    return {"index": str(federation.index.folder.resolve()), "measured": measured}


def reopened(path: Path) -> DiskFederation:
    """The federation that `on_disk` described."""
    told = read_json(path, f"{path} is damaged; pass federation= to resume")
    folder = Path(told["index"])
    if not folder.exists():
        raise ValueError(f"the clients of this run were in {folder}, which is gone; pass federation= to resume")
    measured = None if told["measured"] is None else np.asarray(told["measured"])
    return dataclasses.replace(DiskFederation.of(Index.open(folder)), measured=measured)


def fingerprint(federation: Federation | DiskFederation) -> str:
    """A hash of the data, the clients' names and their order."""
    if isinstance(federation, DiskFederation):
        return hashlib.sha256(
            json.dumps([federation.index.identity, on_disk(federation)["measured"]]).encode()
        ).hexdigest()
    hashed = hashlib.sha256(json.dumps(federation.names).encode())
    for array in (federation.X, federation.y, federation.sizes):
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


def digest(path: Path) -> str:
    """The hash of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON, atomically."""
    atomically(path, lambda f: Path(f).write_text(json.dumps(content, indent=1)))


def read_json(path: Path, refusal: str) -> dict[str, Any]:
    """Read JSON, or refuse with this sentence."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(refusal) from error
    if not isinstance(content, dict):
        raise ValueError(refusal)
    return content
