"""A network run on the server's disk: its checkpoints, its progress, and what it ended with.

run.json                what the run is: settings, problem and algorithm (a hash), the sites' cards
round-000000007.*       the server's state before that round (.safetensors) and its history (.json); the last two
spent.json              of a private run: how many updates each site was asked for, over all starts
progress.jsonl          what happened, line by line, as it happens
model.safetensors, history.csv, result.json   the end
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import PyTree
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from cofed._util import checks, trees
from cofed._util.files import atomically, digest, private_append, read_json, write_json
from cofed.engine.checkpoint import arrays, unflatten
from cofed.engine.history import LeftOut, Result

FORMAT = 1
KEPT = 2


@dataclasses.dataclass(frozen=True)
class Saved:
    """What a run over the network has written: its model by names of arrays, its history, who was left out and why.

    `epsilon` is the largest of any site, where the run was differentially private.
    """

    model: dict[str, np.ndarray]
    history: pd.DataFrame
    outcome: str
    left_out: list[LeftOut]
    epsilon: float | None = None


def read_saved(folder: Any) -> Saved:
    """What the run in this folder ended with.

    >>> from cofed.flower import read_saved
    >>> read_saved("no-such-folder")
    Traceback (most recent call last):
    ValueError: no-such-folder holds no finished run: there is no whole result.json in it
    """
    folder = checks.folder("folder", folder)
    result = read_json(folder / "result.json", f"{folder} holds no finished run: there is no whole result.json in it")
    try:
        return Saved(
            model=load_file(folder / "model.safetensors"),
            history=pd.read_csv(folder / "history.csv"),
            outcome=result["outcome"],
            left_out=[LeftOut(*event) for event in result["left_out"]],
            epsilon=result["epsilon"],
        )
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder} holds a run whose files are damaged or not all there: {error}") from error


class Folder:
    """The folder of a run; without one nothing is written."""

    def __init__(self, path: Any):
        self.path = None if path is None else Path(path)

    def definition(self) -> dict[str, Any] | None:
        """What the run in the folder is, or None for a new one."""
        if self.path is None or not (self.path / "run.json").exists():
            return None
        found = read_json(self.path / "run.json", f"{self.path / 'run.json'} is damaged; give another folder")
        if found.get("format") != FORMAT or "cards" not in found:
            raise ValueError(f"{self.path / 'run.json'} was not written by this version of cofed.flower")
        return found

    def begin(self, content: dict[str, Any]) -> None:
        """Write what the run is."""
        if self.path is not None:
            write_json(self.path / "run.json", {"format": FORMAT} | content)

    def save(self, state: PyTree, meta: dict[str, Any]) -> None:
        """Write the state before a round."""
        if self.path is None:
            return
        path = self.path / f"round-{meta['round']:09d}.safetensors"
        atomically(path, lambda file: save_file(arrays(state), file))
        write_json(path.with_suffix(".json"), meta | {"sha256": digest(path)})
        for old in self.rounds()[:-KEPT]:
            old.unlink()
            old.with_suffix(".safetensors").unlink(missing_ok=True)

    def rounds(self) -> list[Path]:
        """The checkpoints, oldest first."""
        return [] if self.path is None else sorted(self.path.glob("round-*.json"))

    def newest(self) -> dict[str, Any] | None:
        """The history of the newest checkpoint."""
        found = self.rounds()
        if not found:
            return None
        meta = read_json(found[-1], damaged(found[-1]))
        path = found[-1].with_suffix(".safetensors")
        if not path.exists() or digest(path) != meta.get("sha256"):
            raise ValueError(damaged(found[-1]))
        return meta

    def load(self, template: PyTree) -> PyTree:
        """The state of the newest checkpoint, which must have the template's names, shapes and dtypes."""
        path = self.rounds()[-1].with_suffix(".safetensors")
        return unflatten(template, load_file(path), path)

    def spend(self, spent: dict[str, int]) -> None:
        """Write how often each site was asked."""
        if self.path is not None:
            write_json(self.path / "spent.json", {"spent": spent})

    def spent(self) -> dict[str, int]:
        """How often each site was asked, also since the newest checkpoint."""
        path = None if self.path is None else self.path / "spent.json"
        if path is None or not path.exists():
            return {}
        found = read_json(path, f"{path} is damaged, and with it what this run has spent of its privacy")
        return {str(site): int(count) for site, count in found["spent"].items()}

    def tell(self, line: dict[str, Any]) -> None:
        """Add a line to the progress."""
        if self.path is not None:
            with private_append(self.path / "progress.jsonl") as file:
                file.write(json.dumps(line) + "\n")

    def finish(self, result: Result, w: PyTree, epsilon: float | None) -> None:
        """Write what the run ended with."""
        if self.path is None:
            return
        tensors = {name: np.asarray(leaf) for name, leaf in zip(trees.names(w), jax.tree.leaves(w), strict=True)}
        atomically(self.path / "model.safetensors", lambda file: save_file(tensors, file))
        result.history.to_csv(self.path / "history.csv")
        write_json(
            self.path / "result.json",
            {
                "outcome": result.outcome.name,
                "left_out": [dataclasses.astuple(event) for event in result.history.left_out],
                "communication": dataclasses.asdict(result.communication),
                "epsilon": epsilon,
            },
        )


def damaged(path: Path) -> str:
    """What to do about a checkpoint that is not whole."""
    return f"the checkpoint {path} is damaged; delete {path.stem}.* to go on from the one before"
