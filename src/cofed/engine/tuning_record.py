"""The checkpoint folder of a tuning: its definition, and a file for each part of the grid that has begun.

tuning.json            what is tuned on what: `cofed.tune` continues as long as that stays the same
part-0000.safetensors  configurations that run as one program: their states, and their curves so far
"""

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from cofed._util.files import atomically, read_json, write_json
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine import fingerprints, recorded
from cofed.engine.checkpoint import arrays, part, unflatten
from cofed.engine.contracts import metric_arguments
from cofed.engine.spec import RunSpec
from cofed.engine.state import State
from cofed.samplers import AbstractSampler

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class PartProgress:
    """How far a part of the grid has come."""

    stage: int
    rows: dict[str, np.ndarray]  # columns, each (configurations, evaluations)
    first: dict[str, np.ndarray]  # the row of the start, each column (configurations,)
    state: dict[str, np.ndarray]  # the leaves of the state, by name

    @classmethod
    def of(cls, stage: int, rows: dict[str, np.ndarray], first: dict[str, np.ndarray], state: State) -> "PartProgress":
        """The progress of a part in this state."""
        return cls(stage, rows, first, arrays(state))


def describe(spec: RunSpec, algorithms: Sequence[AbstractAlgorithm], start: PyTree) -> dict[str, Any]:
    """All that the curves of a tuning depend on, as JSON."""
    given = spec.clients_per_round
    parts = {"sampler": given if isinstance(given, AbstractSampler) else None}
    parts |= {name: getattr(spec, name) for name in ("batches", "clock", "mean", "steps_by_client")}
    there = {name: fingerprints.outline(part) for name, part in parts.items() if part is not None}
    return there | {
        "problem": fingerprints.outline(spec.problem),
        "code of the problem": fingerprints.code_of_problem(spec.problem, spec.federation, start),
        "algorithms": {"dict": {str(i): fingerprints.outline(one) for i, one in enumerate(algorithms)}},
        "settings": {"dict": recorded.settings_record(spec).model_dump()},
        "w0": fingerprints.outline({name: np.asarray(leaf) for name, leaf in arrays(start).items()}),
        "weights": fingerprints.outline(spec.weights if isinstance(spec.weights, str) else np.asarray(spec.weights)),
        "metrics": fingerprints.outline(dict(spec.metrics)),
        "code of the metrics": {
            "dict": {
                name: fingerprints.code_of(metric, *metric_arguments(spec.problem, spec.federation, metric, start))
                for name, metric in spec.metrics.items()
            }
        },
        "evaluation": None if spec.evaluation is None else fingerprints.fingerprint(spec.evaluation),
        "federation": fingerprints.fingerprint(spec.federation),
        "topology": fingerprints.outline(spec.topology),
        "link_failure": spec.link_failure,
    }


@dataclasses.dataclass
class TuningFolder:
    """The checkpoint folder of a tuning."""

    path: Path
    complained: bool = False  # whether a failed write was reported

    def begin(self, definition: Mapping[str, object]) -> None:
        """Write what is tuned or, where the folder holds a tuning already, check that it is the same."""
        path = self.path / "tuning.json"
        now = json.loads(json.dumps({**definition, "versions": {"dict": recorded.made_by()}}))
        if not path.exists():
            if (self.path / "run.json").exists():
                raise ValueError(f"checkpoint: {self.path} is the folder of a run; give another one")
            write_json(path, {"format": FORMAT, "definition": now})
            return
        written = read_json(path, f"{path} is damaged; give another folder as checkpoint=")
        before = written.get("definition")
        if written.get("format") != FORMAT or not isinstance(before, dict):
            raise ValueError(f"{path} was not written by this version of cofed; give another folder as checkpoint=")
        for name in before | now:
            what = fingerprints.contradiction(before.get(name), now.get(name), name)
            if what is not None:
                raise ValueError(f"checkpoint: {self.path} keeps another tuning: {what}. Give another folder")

    def part(self, number: int) -> "PartFile":
        """The file of a part of the grid."""
        return PartFile(self, self.path / f"part-{number:04d}.safetensors")


@dataclasses.dataclass(frozen=True)
class PartFile:
    """The file in which the progress of a part of the grid is saved."""

    folder: TuningFolder
    path: Path

    def read(self) -> PartProgress | None:
        """How far the part had come; None where it has not begun."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="numpy") as file:
                meta, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            whole = meta["content"] == content_of(tensors)
            stage = int(meta["stage"])
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self.path} is damaged; delete it to do its part again") from error
        if not whole:
            raise ValueError(f"{self.path} is damaged; delete it to do its part again")
        return PartProgress(stage, part(tensors, "rows."), part(tensors, "begun."), part(tensors, "state."))

    def restore(self, progress: PartProgress, template: State) -> State:
        """The state of the part, in the structure of the template."""
        return unflatten(template, progress.state, self.path)

    def write(self, progress: PartProgress) -> None:
        """Save how far the part has come; where that fails, such as on a full disk, warn once and go on."""
        tensors = {f"state.{name}": leaf for name, leaf in progress.state.items()}
        tensors |= {f"rows.{name}": values for name, values in progress.rows.items()}
        tensors |= {f"begun.{name}": values for name, values in progress.first.items()}
        meta = {"stage": str(progress.stage), "content": content_of(tensors)}
        try:
            atomically(self.path, lambda name: save_file(tensors, name, metadata=meta))
        except OSError as error:
            if not self.folder.complained:
                warnings.warn(
                    f"the tuning was not kept: {error}. It goes on, and is kept again once there is room",
                    RuntimeWarning,
                    stacklevel=6,
                )
            self.folder.complained = True


def content_of(tensors: dict[str, np.ndarray]) -> str:
    """A hash of named arrays."""
    hashed = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        hashed.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return hashed.hexdigest()
