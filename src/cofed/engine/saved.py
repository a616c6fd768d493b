"""Results on disk, in open formats that `cofed report` reads.

config.json        what ran, how it ended, with which numbers
numbers.parquet    the rows of the history, with the columns algorithm and seed
model.safetensors  the parameters of the last model by name; of several seeds, model-seed-3.safetensors
"""

import datetime
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from jaxtyping import PyTree
from safetensors.numpy import save_file

from cofed._util import checks, trees
from cofed._util.files import atomically, private_folder, write_json
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine import recorded


def write_results(
    folder: object, label: object, algorithm: AbstractAlgorithm | None, rows: pd.DataFrame, ended: Mapping[str, object]
) -> Path:
    """Write what a report shows of runs of one method into a folder, which must not hold another result."""
    place = checks.folder("folder", folder)
    name = checks.optional_text("label", label) or (algorithm.name if algorithm is not None else "run")
    if (place / "config.json").exists():
        raise FileExistsError(f"folder: {place} holds a result already; give another folder")
    private_folder(place)
    numbers = rows.assign(algorithm=name)
    atomically(place / "numbers.parquet", lambda file: numbers.to_parquet(file, index=False))
    config = {
        "id": place.name,
        "title": name,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "rounds": int(rows["round"].to_numpy().max()),
        "algorithms": [{"label": name, "hyperparameters": {} if algorithm is None else numbers_of(algorithm)}],
        **ended,
        "versions": recorded.made_by(),
    }
    write_json(place / "config.json", config)
    return place


def numbers_of(algorithm: AbstractAlgorithm) -> dict[str, float]:
    """The hyperparameters that are numbers, by name."""
    leaves = zip(trees.names(algorithm), jax.tree.leaves(algorithm), strict=True)
    return {name: float(leaf) for name, leaf in leaves if checks.is_real(leaf) or np.ndim(leaf) == 0}


def write_model(path: Path, model: PyTree) -> None:
    """The parameters of a model, by name."""
    leaves = zip(trees.names(model), jax.tree.leaves(model), strict=True)
    tensors = {name: np.ascontiguousarray(leaf) for name, leaf in leaves}
    atomically(path, lambda file: save_file(tensors, file))
