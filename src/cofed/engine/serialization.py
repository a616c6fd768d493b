"""cofed's own objects as JSON and back. No pickle: only cofed's classes can come out of a file."""

import dataclasses
import importlib
import inspect
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import numpy as np

# Fields that a class has no longer, with the values that they always had in files: written on, so that the format (and
# every hash of it) stays as it was, and left out when read.
FORMER_FIELDS: dict[str, dict[str, Any]] = {
    "Problem": {"local_steps": None, "everyone": True, "participation": 1.0},
}


class NotOurs(ValueError):
    """A user's own code, which cannot be written into a file."""


def classes() -> dict[str, type]:
    """The classes that a file may name."""
    from cofed import (
        algorithms,
        batches,
        clocks,
        compressors,
        gossip,
        losses,
        means,
        metrics,
        mirrors,
        models,
        problem,
        regularizers,
        samplers,
    )
    from cofed.algorithms import compressed, private_rows, scheduled, server_optimizer

    rooms = (
        *(algorithms, compressed, private_rows, scheduled, server_optimizer, compressors, gossip, gossip.topologies),
        *(batches, clocks, losses, means, metrics, mirrors, models, problem, regularizers, samplers),
    )
    found = {}
    for room in rooms:
        for name, value in vars(room).items():
            if isinstance(value, type) and issubclass(value, eqx.Module) and value.__module__.startswith("cofed."):
                found[name] = value
    return found


def encode(value: object) -> Any:
    """A value as JSON; `NotOurs` is raised for a user's own code.

    >>> import cofed
    >>> from cofed.engine.serialization import encode
    >>> encode(cofed.L1(0.5))["type"]
    'L1'
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (tuple, list)):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encode(item) for key, item in value.items()}}
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        array = np.asarray(value)
        return {"array": array.tolist(), "dtype": str(array.dtype), "shape": list(array.shape)}
    if isinstance(value, eqx.Module) and classes().get(type(value).__name__) is type(value):
        fields = {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": type(value).__name__, "fields": fields | FORMER_FIELDS.get(type(value).__name__, {})}
    name = getattr(value, "__name__", "")
    if name and getattr(jax.nn, name, None) is value:
        return {"jax.nn": name}
    if name and getattr(value, "__module__", "").startswith("optax.") and getattr(optax(), name, None) is value:
        return {"optax": name}
    raise NotOurs(f"{value!r} is not a part of cofed")


def optax() -> ModuleType:
    """The library of optimizers, which is there where a user has given something of it."""
    return importlib.import_module("optax")


def encode_or_none(value: object) -> Any:
    """A value as JSON, or None where it is a user's own code."""
    try:
        return encode(value)
    except NotOurs:
        return None


def decode(value: object, source: str | Path = "the file") -> Any:
    """The value that `encode` wrote. The sentence that refuses anything else names the `source`.

    >>> import cofed
    >>> from cofed.engine.serialization import decode, encode
    >>> decode(encode(cofed.L1(0.5))).strength
    0.5
    """
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "tuple" in value:
        return tuple(decode(item, source) for item in value["tuple"])
    if "dict" in value:
        return {key: decode(item, source) for key, item in value["dict"].items()}
    if "array" in value:
        return np.asarray(value["array"], dtype=value["dtype"]).reshape(value["shape"])
    if "jax.nn" in value:
        return getattr(jax.nn, value["jax.nn"])
    if "optax" in value:
        return getattr(optax(), value["optax"])
    kind = classes().get(value.get("type", ""))
    if kind is None:
        raise ValueError(f"{source} names something that is not a part of cofed: {value.get('type')!r}")
    former = FORMER_FIELDS.get(kind.__name__, {})
    return make(kind, {name: decode(part, source) for name, part in value["fields"].items() if name not in former})


def make(kind: type, fields: Mapping[str, object]) -> Any:
    """An object of a class with these fields, made by its constructor, which may take one of them as `*args`."""
    parameters = inspect.signature(kind).parameters
    many = [name for name, p in parameters.items() if p.kind is inspect.Parameter.VAR_POSITIONAL]
    if not many:
        return kind(**fields)
    single = [fields[name] for name in parameters if name not in many]
    several = fields[many[0]]
    assert isinstance(several, Iterable)
    return kind(*single, *several)
