"""Fitted estimators as files: arrays as safetensors, the rest as JSON inside; never pickle."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from sklearn.model_selection import BaseCrossValidator

from cofed._util.files import atomically
from cofed._util.types import Given
from cofed.engine.serialization import decode, encode
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.certificate import Certificate
from cofed.estimators.fitted_path import RegularizationPath
from cofed.estimators.held_out_curves import HeldOutCurves
from cofed.privacy import Privacy, PrivacyReport
from cofed.sites import Design, ExchangeTotal

JSON = dict[str, Any] | list[Any] | str | int | float | bool | None
FORMAT = 1
# Dataclasses by the names that they have in files.
RECORDS = {
    "Certificate": Certificate,
    "Exchange": ExchangeTotal,
    "RegularizationPath": RegularizationPath,
    "Privacy": Privacy,
    "PrivacyReport": PrivacyReport,
    "HeldOutCurves": HeldOutCurves,
}
RENAMED = {"seed": "random_state", "selection": "criterion"}  # parameters of older files


def save(model: FederatedLinearModel, path: str | Path) -> None:
    """Write a fitted estimator to one file, whole or not at all."""
    arrays: dict[str, np.ndarray] = {}
    state = {
        "format": FORMAT,
        "estimator": type(model).__name__,
        "parameters": {name: written(value, arrays) for name, value in model.get_params(deep=False).items()},
        "fitted": {
            name: written(value, arrays) for name, value in vars(model).items() if name.endswith("_") and name[0] != "_"
        },
    }
    atomically(path, lambda f: save_file(arrays, f, metadata={"cofed": json.dumps(state)}))


def load(path: Given[str | Path]) -> FederatedLinearModel:
    """The estimator of a file that `save` wrote.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    FederatedLinearModel
        The fitted estimator.

    Raises
    ------
    ValueError
        Where there is no such file, or it is not one of a cofed estimator.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from cofed.estimators import FederatedLasso, load
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> file = tempfile.mkdtemp() + "/lasso.safetensors"
    >>> FederatedLasso(0.1).fit(X, X[:, 0]).save(file)
    >>> load(file).coef_.round(1).tolist()
    [0.9, 0.0, 0.0]
    """
    from cofed import estimators

    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            state = json.loads((file.metadata() or {}).get("cofed", "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is not a whole file of a cofed estimator: {error}") from None
    kind = getattr(estimators, state.get("estimator", ""), None)
    if state.get("format") != FORMAT or kind is None or state["estimator"] not in estimators.__all__:
        raise ValueError(f"{path} is not a file of a cofed estimator of this version")
    parameters: dict[str, Any] = {name: read(value, arrays) for name, value in state["parameters"].items()}
    model = kind(**{RENAMED.get(name, name): value for name, value in parameters.items()})
    for name, value in state["fitted"].items():
        setattr(model, name, read(value, arrays))
    return model


def written(value: object, arrays: dict[str, np.ndarray]) -> JSON:
    """A value as JSON, its numeric arrays put aside."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.ndim:
        name = f"array {len(arrays)}"
        arrays[name] = np.ascontiguousarray(value)
        return {"tensor": name}
    if isinstance(value, np.ndarray):
        return {"labels": [str(item) for item in value.ravel()], "object": value.dtype.kind == "O"}
    if isinstance(value, pd.DataFrame):
        columns = {str(name): written(column.to_numpy(), arrays) for name, column in value.items()}
        return {"table": columns, "index": [str(name) for name in value.index]}
    if isinstance(value, (Certificate, ExchangeTotal, RegularizationPath, Privacy, PrivacyReport, HeldOutCurves)):
        record = next(name for name, kind in RECORDS.items() if isinstance(value, kind))
        fields = {field.name: written(getattr(value, field.name), arrays) for field in dataclasses.fields(value)}
        return {"record": record, "fields": fields}
    if isinstance(value, Design):
        return {"design": value.model_dump(mode="json")}
    if isinstance(value, BaseCrossValidator):  # what the folds were by; they are not drawn again
        return repr(value)
    if isinstance(value, Mapping):  # of classes, whose labels need not be text, or of sites
        return {"mapping": [[encode(key), written(one, arrays)] for key, one in value.items()]}
    if isinstance(value, (tuple, list)):
        return {"tuple of": [written(item, arrays) for item in value]}
    return encode(value.item() if isinstance(value, np.generic) else value)


def read(value: JSON, arrays: dict[str, np.ndarray]) -> Any:
    """What `written` wrote."""
    match value:
        case {"tensor": name}:
            return arrays[name]
        case {"labels": labels, "object": plain}:
            return np.array(labels, dtype=object if plain else str)
        case {"table": columns, "index": index}:
            return pd.DataFrame({name: read(column, arrays) for name, column in columns.items()}, index=index)
        case {"record": name, "fields": fields}:
            return RECORDS[name](**{field: read(item, arrays) for field, item in fields.items()})
        case {"design": design}:
            return Design.model_validate_json(json.dumps(design))
        case {"mapping": pairs}:
            return {decode(key): read(one, arrays) for key, one in pairs}
        case {"tuple of": items}:
            return tuple(read(item, arrays) for item in items)
    return decode(value)
