"""The checkpoint folder of a tuning: its definition, and a file for each part of the grid that is done or under way.

tuning.json          what is tuned on what: as long as that stays the same, `cofed.tune` goes on
part-0000.safetensors  configurations that run as one program: their states, and their curves so far
"""

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from cofed._util.files import atomically, read_json, write_json
from cofed.engine import fingerprints, recorded
from cofed.engine.checkpoint import arrays, part, unflatten
from cofed.engine.server_rounds import State
from cofed.engine.spec import RunSpec

FORMAT = 1


@dataclasses.dataclass
class Progress:
    """How far a part of the grid has come."""

    stage: int
    rows: dict[str, np.ndarray]  # columns, each (configurations, evaluations)
    begun: dict[str, np.ndarray]  # the start's row, each (configurations,)
    state: Any  # a State; as it is read, its tensors by name


def describe(spec: RunSpec, algorithms: Sequence[Any], start: PyTree) -> dict[str, Any]:
    """What the curves of a tuning depend on, as JSON."""
    return {
        "problem": fingerprints.outline(spec.problem),
        "code of the problem": fingerprints.code_of_problem(spec.problem, spec.federation, start),
        "algorithms": {"dict": {str(i): fingerprints.outline(one) for i, one in enumerate(algorithms)}},
        "settings": {"dict": recorded.settings_record(spec).model_dump()},
        "w0": fingerprints.outline({name: np.asarray(leaf) for name, leaf in arrays(start).items()}),
        "weights": fingerprints.outline(spec.weights if isinstance(spec.weights, str) else np.asarray(spec.weights)),
        "metrics": fingerprints.outline(dict(spec.metrics)),
        "code of the metrics": {
            "dict": {name: fingerprints.code_of(metric, start) for name, metric in spec.metrics.items()}
        },
        "evaluation": None if spec.evaluation is None else fingerprints.fingerprint(spec.evaluation),
        "federation": fingerprints.fingerprint(spec.federation),
        "topology": fingerprints.outline(spec.topology),
        "link_failure": spec.link_failure,
    }


@dataclasses.dataclass
class Kept:
    """A folder in which a tuning is kept."""

    folder: Path
    complained: bool = False

    def begin(self, definition: dict[str, Any]) -> None:
        """Write what is tuned, or check that it is what the folder is of."""
        path = self.folder / "tuning.json"
        now = json.loads(json.dumps(definition | {"versions": {"dict": recorded.made_by()}}))
        if not path.exists():
            if (self.folder / "run.json").exists():
                raise ValueError(f"checkpoint: {self.folder} is the folder of a run; give another one")
            write_json(path, {"format": FORMAT, "definition": now})
            return
        written = read_json(path, f"{path} is damaged; give another folder as checkpoint=")
        before = written.get("definition")
        if written.get("format") != FORMAT or not isinstance(before, dict):
            raise ValueError(f"{path} was not written by this version of cofed; give another folder as checkpoint=")
        for name in before | now:
            what = fingerprints.contradiction(before.get(name), now.get(name), name)
            if what is not None:
                raise ValueError(f"checkpoint: {self.folder} keeps another tuning: {what}. Give another folder")

    def path(self, number: int) -> Path:
        """The file of a part."""
        return self.folder / f"part-{number:04d}.safetensors"

    def read(self, number: int) -> Progress | None:
        """How far a part had come; None where it is to begin."""
        path = self.path(number)
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                meta, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            whole = meta["content"] == content_of(tensors)
            stage = int(meta["stage"])
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged; delete it to do its part again") from error
        if not whole:
            raise ValueError(f"{path} is damaged; delete it to do its part again")
        return Progress(stage, part(tensors, "rows."), part(tensors, "begun."), part(tensors, "state."))

    def restore(self, number: int, template: State, progress: Progress) -> State:
        """The state of a part."""
        return unflatten(template, progress.state, self.path(number))

    def write(self, number: int, progress: Progress) -> None:
        """Keep how far a part has come; where that fails, such as on a full disk, the tuning goes on."""
        tensors = {f"state.{name}": leaf for name, leaf in arrays(progress.state).items()}
        tensors |= {f"rows.{name}": values for name, values in progress.rows.items()}
        tensors |= {f"begun.{name}": values for name, values in progress.begun.items()}
        meta = {"stage": str(progress.stage), "content": content_of(tensors)}
        try:
            atomically(self.path(number), lambda name: save_file(tensors, name, metadata=meta))
        except OSError as error:
            if not self.complained:
                warnings.warn(
                    f"the tuning was not kept: {error}. It goes on, and is kept again once there is room",
                    RuntimeWarning,
                    stacklevel=4,
                )
            self.complained = True


def content_of(tensors: dict[str, np.ndarray]) -> str:
    """A hash of named arrays."""
    hashed = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        hashed.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return hashed.hexdigest()
