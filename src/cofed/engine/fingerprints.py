"""Outlines and hashes of what a run is made of, so that a resumed run can be compared with what it was."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jaxtyping import PyTree

from cofed.engine.serialization import FORMER_FIELDS, NotOurs, encode
from cofed.federation import AbstractFederation, DiskFederation, Federation
from cofed.problem import Problem

LARGE = 64  # an array with more entries than this is represented by its hash


def outline(value: object) -> Any:
    """A value as JSON: cofed's own objects completely, a user's own code by its name and fields.

    >>> import cofed
    >>> from cofed.engine.fingerprints import outline
    >>> outline(cofed.Problem(loss=lambda p, y: p - y, regularizer=cofed.L1(0.5)))["fields"]["regularizer"]["type"]
    'L1'
    """
    if isinstance(value, (jax.Array, np.ndarray)) and value.size > LARGE:
        content = hashlib.sha256(single(value).tobytes()).hexdigest()
        return {"array": content, "shape": list(value.shape)}
    try:
        return encode(value)
    except NotOurs:
        pass
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: outline(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": type(value).__qualname__, "fields": fields | FORMER_FIELDS.get(type(value).__name__, {})}
    if isinstance(value, (tuple, list)):
        return {"tuple": [outline(item) for item in value]}
    if isinstance(value, Mapping):
        return {"dict": {str(key): outline(item) for key, item in value.items()}}
    return {"code": getattr(value, "__qualname__", type(value).__qualname__)}


def differences(before: object, now: object, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Where two outlines differ: the name of each such part, what it was and what it is.

    >>> import cofed
    >>> from cofed.engine.fingerprints import differences, outline
    >>> list(differences(outline(cofed.FedAvg(0.1)), outline(cofed.FedAvg(0.2)), "algorithm"))
    [('algorithm.client_lr', 0.1, 0.2)]
    """
    if before == now or same_array(before, now):
        return
    if isinstance(before, dict) and isinstance(now, dict) and before.get("type") == now.get("type"):
        for inner in ("fields", "dict"):
            if isinstance(before.get(inner), dict) and isinstance(now.get(inner), dict):
                for key in before[inner] | now[inner]:
                    yield from differences(before[inner].get(key), now[inner].get(key), f"{name}.{key}")
                return
    yield name, before, now


def single(array: npt.ArrayLike) -> np.ndarray:
    """An array in single precision, since a problem may be made before or after JAX is set to double precision."""
    values = np.asarray(array)
    return values.astype(np.float32) if np.issubdtype(values.dtype, np.floating) else values


def same_array(before: object, now: object) -> bool:
    """Whether two outlines are of the same array, up to its precision.

    >>> import numpy as np
    >>> from cofed.engine.fingerprints import outline, same_array
    >>> same_array(outline(np.float32([0.1, 2])), outline(np.array([0.1, 2]))), same_array(outline(np.ones(2)), None)
    (True, False)
    """
    if not (isinstance(before, dict) and isinstance(now, dict) and "array" in before and "array" in now):
        return False
    if before["shape"] != now["shape"] or isinstance(before["array"], str) or isinstance(now["array"], str):
        return False
    return np.array_equal(single(before["array"]), single(now["array"]))


def words(value: object) -> str:
    """A part of an outline, short enough for a sentence.

    >>> import cofed
    >>> from cofed.engine.fingerprints import outline, words
    >>> words(outline(cofed.L1(0.5))), words(0.1), words(None)
    ('L1', '0.1', 'nothing')
    """
    if value is None:
        return "nothing"
    if not isinstance(value, dict):
        return repr(value)
    if "array" in value:
        short = isinstance(value["array"], list) and len(value["array"]) <= 8
        return f"an array {value['array']}" if short else f"an array of shape {value.get('shape')}"
    return str(next((value[key] for key in ("type", "code", "float", "jax.nn", "tuple") if key in value), "something"))


def contradiction(before: object, now: object, name: str) -> str | None:
    """The first difference between two outlines in words, or None where there is none."""
    first = next(differences(before, now, name), None)
    return None if first is None else f"{first[0]} was {words(first[1])} and is now {words(first[2])}"


def fingerprint(federation: AbstractFederation) -> str:
    """A hash of the data, and of the clients' names in their order."""
    if isinstance(federation, DiskFederation):
        measured = None if federation.measured is None else federation.measured.tolist()
        return hashlib.sha256(json.dumps([federation.index.identity, measured]).encode()).hexdigest()
    assert isinstance(federation, Federation)
    hashed = hashlib.sha256(json.dumps(federation.names).encode())
    for name in ("X", "y", "sizes"):
        hashed.update(np.ascontiguousarray(federation.stored()[name]).data)
    return hashed.hexdigest()


def code_of(function: Callable, *shapes: PyTree) -> str:
    """A hash of what a function computes: of the operations that JAX traces, and of the arrays in its closure."""
    # In a new lambda every time: of the function itself JAX would give the trace that it has cached.
    seen = jax.make_jaxpr(lambda *given: function(*given))(*shapes)
    hashed = hashlib.sha256(re.sub("0x[0-9a-f]+", "", str(seen.jaxpr)).encode())
    for array in seen.consts:
        hashed.update(np.asarray(array).tobytes())
    return hashed.hexdigest()


def code_of_problem(problem: Problem, federation: AbstractFederation, start: PyTree) -> str:
    """A hash of what the loss of a sample and the regularizer's proximal operator compute."""
    x, y = (jax.ShapeDtypeStruct(part.shape, part.dtype) for part in federation.example())

    def computed(w, x, y):
        return problem.loss(problem.model(w, x), y), problem.regularizer.prox(w, 1.0)

    def trained(w, x, y):
        return *computed(w, x, y), problem.model.train(w, x, jax.random.key(0))

    return code_of(trained if problem.model.is_random else computed, start, x, y)
