"""What goes over the wire: pytrees as Flower ArrayRecords, under a head that both ends check.

    cofed   ConfigRecord: format, run, algorithm, definition (a hash of problem and algorithm), round, and the terms
    down    ArrayRecord: what the algorithm broadcasts     up     ArrayRecord: what it sends back
    start   ArrayRecord: where a client without a state begins (only to those)
    model   ArrayRecord: a model to evaluate (only in rounds that ask for it)

Nothing is unpickled. Before an array's numbers are read, its name, dtype, shape and size must be those that the
algorithm makes on its own (`jax.eval_shape`), in Flower's description and in the array's own head.
"""

import hashlib
import io
import json
import math
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from cofed._util import trees
from cofed.engine.serialization import NotOurs, encode

FORMAT = 1
HEAD = 4096  # the most bytes of an array's own head


class WireError(ValueError):
    """A message that is not what was agreed, in a sentence."""


def names(tree: PyTree) -> list[str]:
    """Names for the leaves, unique also where a tree is a single leaf."""
    return [f"{i}/{name}" for i, name in enumerate(trees.names(tree))]


def pack(tree: PyTree) -> Any:
    """A pytree of arrays as a Flower ArrayRecord."""
    from flwr.app import Array, ArrayRecord

    leaves = [np.asarray(leaf, order="C") for leaf in jax.tree.leaves(tree)]
    return ArrayRecord({name: Array(leaf) for name, leaf in zip(names(tree), leaves, strict=True)})


def unpack(content: Any, part: str, template: PyTree) -> PyTree:
    """The pytree in a part of a message, which must have the template's names, dtypes and shapes (the template may be
    one of shapes only)."""
    records = content.array_records
    if part not in records:
        raise WireError(f"the message has no arrays {part!r}")
    record, expected = records[part], names(template)
    if list(record.keys()) != expected:
        raise WireError(f"the arrays {part!r} are {clipped(list(record.keys()))}, expected {clipped(expected)}")
    leaves = [
        read(record[name], leaf.shape, np.dtype(leaf.dtype), f"{part}:{name}")
        for name, leaf in zip(expected, jax.tree.leaves(template), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def read(array: Any, shape: tuple[int, ...], dtype: np.dtype, what: str) -> np.ndarray:
    """One array, whose description, head and size are checked before its numbers are looked at."""
    if (array.stype, array.dtype, tuple(array.shape)) != ("numpy.ndarray", str(dtype), tuple(shape)):
        found = f"{array.dtype}{list(array.shape)} ({array.stype})"
        raise WireError(f"{what} is {clipped(found)}, expected {dtype}{list(shape)}")
    size = math.prod(shape) * dtype.itemsize
    if not size < len(array.data) <= size + HEAD:
        raise WireError(f"{what} has {len(array.data)} bytes, expected {size} and a head")
    file = io.BytesIO(array.data)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise WireError(f"{what} is not an array of NumPy's format 1.0")
        head = np.lib.format.read_array_header_1_0(file, max_header_size=HEAD)
    except WireError:
        raise
    except Exception as error:  # the head is foreign text: whatever is wrong with it, it is refused
        raise WireError(f"{what} has a head that cannot be read ({type(error).__name__})") from None
    if head != (tuple(shape), False, dtype) or len(array.data) - file.tell() != size:
        raise WireError(f"{what} has a head that says {clipped(head)}, expected {dtype}{list(shape)}")
    return np.frombuffer(array.data, dtype, offset=file.tell()).reshape(shape)


def head_of(content: Any) -> dict[str, Any]:
    """The head of a message, of this format."""
    records = content.config_records
    if "cofed" not in records:
        raise WireError("the message has no head 'cofed'")
    head = dict(records["cofed"])
    if head.get("format") != FORMAT:
        raise WireError(f"the message is of format {clipped(head.get('format'))}, this is cofed's format {FORMAT}")
    return head


def check_head(content: Any, **expected: Any) -> dict[str, Any]:
    """The head of a message, in which these entries must be as expected."""
    head = head_of(content)
    for name, value in expected.items():
        if type(head.get(name)) is not type(value) or head[name] != value:
            raise WireError(f"the message is of {name} {clipped(head.get(name))}, expected {value!r}")
    return head


def definition(problem: Any, algorithm: Any) -> str:
    """A hash of problem and algorithm, by which both ends see that they run the same; empty for a user's own code,
    which no file describes.

    >>> import cofed
    >>> one, two = cofed.FedAvg(0.1), cofed.FedAvg(0.2)
    >>> definition(cofed.Problem(), one) == definition(cofed.Problem(), two)
    False
    """
    try:
        text = json.dumps([encode(problem), encode(algorithm)], sort_keys=True)
    except NotOurs:
        return ""
    return hashlib.sha256(text.encode()).hexdigest()


def clipped(value: Any, most: int = 120) -> str:
    """Foreign text, short enough for a sentence."""
    text = repr(value)
    return text if len(text) <= most else text[:most] + "..."
