"""A network run on the server's disk: its checkpoints, its progress, and what it ended with.

run.json                what the run is: settings, problem and algorithm (a hash), what the sites said of themselves
round-000000007.*       checkpoints, as the engine writes them: the server's state before that round; the last two
spent.json              of a private run: how many updates each site was asked for, over all starts
progress.jsonl          what happened, line by line, as it happens
model.safetensors, history.csv, result.json   the end
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
import pandas as pd
from jaxtyping import Array, Int, PyTree
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from cofed._util import checks
from cofed._util.files import atomically, digest, private_append, read_json, write_json
from cofed._util.types import Given
from cofed.engine.checkpoint import CheckpointStore, LoadedCheckpoint, arrays
from cofed.engine.history import LeftOut, Log, Result
from cofed.engine.recorded import FORMAT as RECORD_FORMAT
from cofed.engine.recorded import CheckpointRecord

FORMAT = 2  # of run.json and the checkpoints; those of format 1 can be read
KEPT = 2  # checkpoints


@dataclasses.dataclass(frozen=True)
class SavedRun:
    """What a run over the network has written into its folder.

    Parameters
    ----------
    model : dict of str to ndarray
        The arrays of the last model, by name.
    history : DataFrame
        One row per round; row 0 is the start.
    outcome : str
        The name of the run's `cofed.Outcome`.
    left_out : list of LeftOut
        Which sites' updates did not count in which rounds, and why.
    epsilon : float, optional
        The largest privacy loss of any site, where the run was differentially private.
    is_masked : bool
        Whether updates were masked, so that the server saw sums over cohorts only.
    """

    model: dict[str, np.ndarray]
    history: pd.DataFrame
    outcome: str
    left_out: list[LeftOut]
    epsilon: float | None = None
    is_masked: bool = False


def read_saved(folder: Given[str | Path]) -> SavedRun:
    """Read what the run in a folder ended with.

    Parameters
    ----------
    folder : str or Path
        The folder that was given to the run as `checkpoint`.

    Returns
    -------
    SavedRun
        The model, the history, the outcome, and who was left out and why.

    Raises
    ------
    ValueError
        Where the folder holds no finished run, or one whose files are damaged.

    Examples
    --------
    >>> from cofed.flower import read_saved
    >>> read_saved("no-such-folder")
    Traceback (most recent call last):
    ValueError: no-such-folder holds no finished run: there is no whole result.json in it
    """
    folder = checks.folder("folder", folder)
    result = read_json(folder / "result.json", f"{folder} holds no finished run: there is no whole result.json in it")
    try:
        return SavedRun(
            model=load_file(folder / "model.safetensors"),
            history=pd.read_csv(folder / "history.csv"),
            outcome=result["outcome"],
            left_out=[LeftOut(*event) for event in result["left_out"]],
            epsilon=result["epsilon"],
            is_masked=result.get("masked", False),  # which earlier versions did not have
        )
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder} holds a run whose files are damaged or not all there: {error}") from error


class NetworkCheckpoint(eqx.Module):
    """What a server that was killed must know to go on. The sites keep their own states."""

    server: PyTree  # the server's state in the algorithm's sense
    start: PyTree  # the model that the stage began from
    round: Int[Array, ""]  # the next round, over all stages
    begun: Int[Array, ""]  # the round in which the stage began
    stage: Int[Array, ""]
    counted: Int[Array, " sites"]  # the last round of this stage in which each site's update counted; -1: none yet
    spent: Int[Array, " sites"]  # how many updates each site was asked for


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder of a run; without one, nothing is written."""

    path: Path | None

    @property
    def store(self) -> CheckpointStore | None:
        """The engine's store of checkpoints in the folder."""
        return None if self.path is None else CheckpointStore(self.path, every=1, keep=KEPT)

    def definition(self) -> dict[str, Any] | None:
        """What the run in the folder is; None for a new one."""
        if self.path is None or not (self.path / "run.json").exists():
            return None
        found = read_json(self.path / "run.json", f"{self.path / 'run.json'} is damaged; give another folder")
        if found.get("format") not in (1, FORMAT) or "cards" not in found:
            raise ValueError(f"{self.path / 'run.json'} was not written by this version of cofed.flower")
        return found

    def write_definition(self, content: Mapping[str, object]) -> None:
        """Write what the run is."""
        if self.path is not None:
            write_json(self.path / "run.json", {"format": FORMAT, **content})

    def save(self, state: NetworkCheckpoint, log: Log) -> None:
        """Write a checkpoint."""
        if self.store is not None:
            self.store.save(state, log)

    def newest(self, sites: Sequence[str]) -> LoadedCheckpoint | None:
        """The newest checkpoint of a run with these sites; None where there is none yet."""
        found = [] if self.store is None else self.store.all()
        if self.store is None or not found:
            return None
        path = found[-1].path
        damaged = f"the checkpoint {path} is damaged; delete {path.stem}.* to go on from the one before"
        meta = read_json(path, damaged)
        return self.store.load(found[-1]) if "format" in meta else loaded_from_format_1(path, meta, sites, damaged)

    def spend(self, spent: Mapping[str, int]) -> None:
        """Write how often each site was asked for an update."""
        if self.path is not None:
            write_json(self.path / "spent.json", {"spent": dict(spent)})

    def spent(self) -> dict[str, int]:
        """How often each site was asked for an update, including since the newest checkpoint."""
        path = None if self.path is None else self.path / "spent.json"
        if path is None or not path.exists():
            return {}
        found = read_json(path, f"{path} is damaged, and with it what this run has spent of its privacy")
        return {str(site): int(count) for site, count in found["spent"].items()}

    def append_progress(self, line: Mapping[str, object]) -> None:
        """Add a line to the progress."""
        if self.path is not None:
            with private_append(self.path / "progress.jsonl") as file:
                file.write(json.dumps(line) + "\n")

    def finish(self, result: Result, w: PyTree, epsilon: float | None, is_masked: bool) -> None:
        """Write what the run ended with."""
        if self.path is None:
            return
        save_model(self.path / "model.safetensors", w)
        result.history.to_csv(self.path / "history.csv")
        write_json(
            self.path / "result.json",
            {
                "outcome": result.outcome.name,
                "left_out": [dataclasses.astuple(event) for event in result.history.left_out],
                "communication": dataclasses.asdict(result.communication),
                "epsilon": epsilon,
                "masked": is_masked,
            },
        )


def save_model(path: Path, w: PyTree) -> None:
    """Write a model's arrays by name."""
    atomically(path, lambda file: save_file(arrays(w), file))


def loaded_from_format_1(path: Path, meta: dict[str, Any], sites: Sequence[str], damaged: str) -> LoadedCheckpoint:
    """A checkpoint of format 1, which held numbers by site in its JSON file, as the engine reads one of today."""
    state = path.with_suffix(".safetensors")
    if not state.exists() or digest(state) != meta.get("sha256"):
        raise ValueError(damaged)
    numbers = {name: meta[name] for name in ("round", "begun", "stage")}
    numbers["counted"] = [meta["counted"][site] for site in sites]
    numbers["spent"] = [meta["spent"].get(site, 0) for site in sites]
    tensors = load_file(state) | {name: np.asarray(value, np.int32) for name, value in numbers.items()}
    record = CheckpointRecord(
        format=RECORD_FORMAT,
        round=meta["round"],
        run=None,
        sha256=meta["sha256"],
        rows=meta["rows"],
        left_out=meta["left_out"],
        client_rounds=[],
        compile_seconds=0.0,
        bytes=[meta["down"], meta["up"]],
        seconds=meta["seconds"],
        unreported=0,
        content=None,
    )
    return LoadedCheckpoint(state, record, {f"state.{name}": tensor for name, tensor in tensors.items()})
