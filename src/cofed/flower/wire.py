"""What goes over the wire: pytrees as Flower ArrayRecords, under a head that both ends check.

    cofed   ConfigRecord: format, run, algorithm, definition (a hash of problem and algorithm), round, instructions
    down    ArrayRecord: what the algorithm broadcasts     up     ArrayRecord: what it sends back
    start   ArrayRecord: where a client without a state begins (sent to such clients only)
    model   ArrayRecord: a model to evaluate (sent in rounds that ask for it only)
    masked  ArrayRecord: in the place of `up` and of what a site says of the model, where updates are masked

Nothing is unpickled. Before an array's numbers are read, its name, dtype, shape and size must be those that the
algorithm makes on its own (`jax.eval_shape`), both in Flower's description and in the array's own header.
"""

import hashlib
import io
import json
import math

import jax
import numpy as np
from jaxtyping import PyTree

from cofed._util import trees
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.serialization import NotOurs, encode
from cofed.flower.flwr_types import ArrayRecord, FlowerArray, RecordDict
from cofed.problem import Problem
from cofed.sites.secure.keys import joined

FORMAT = 1  # of messages; both ends must speak the same
MOST_HEADER = 4096  # bytes of an array's own header

Head = dict[str, object]  # of a message: its values are foreign until they are checked


class WireError(ValueError):
    """A message that is not what was agreed on."""


def leaf_names(tree: PyTree) -> list[str]:
    """Names of the leaves, unique even where a tree is a single leaf."""
    return [f"{i}/{name}" for i, name in enumerate(trees.names(tree))]


def pack(tree: PyTree) -> ArrayRecord:
    """A pytree of arrays as a Flower ArrayRecord."""
    from flwr.app import Array, ArrayRecord

    leaves = [np.asarray(leaf, order="C") for leaf in jax.tree.leaves(tree)]
    return ArrayRecord({name: Array(leaf) for name, leaf in zip(leaf_names(tree), leaves, strict=True)})


def unpack(content: RecordDict, part: str, template: PyTree) -> PyTree:
    """The pytree in one part of a message.

    It must have the names, dtypes and shapes of the template, which may be one of shapes only.
    """
    records = content.array_records
    if part not in records:
        raise WireError(f"the message has no arrays {part!r}")
    record, expected = records[part], leaf_names(template)
    if list(record.keys()) != expected:
        raise WireError(f"the arrays {part!r} are {clipped(list(record.keys()))}, expected {clipped(expected)}")
    leaves = [
        read(record[name], leaf.shape, np.dtype(leaf.dtype), f"{part}:{name}")
        for name, leaf in zip(expected, jax.tree.leaves(template), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def read(array: FlowerArray, shape: tuple[int, ...], dtype: np.dtype, what: str) -> np.ndarray:
    """One array, whose description, header and size are checked before its numbers are looked at."""
    if (array.stype, array.dtype, tuple(array.shape)) != ("numpy.ndarray", str(dtype), tuple(shape)):
        found = f"{array.dtype}{list(array.shape)} ({array.stype})"
        raise WireError(f"{what} is {clipped(found)}, expected {dtype}{list(shape)}")
    size = math.prod(shape) * dtype.itemsize
    if not size < len(array.data) <= size + MOST_HEADER:
        raise WireError(f"{what} has {len(array.data)} bytes, expected {size} and a head")
    file = io.BytesIO(array.data)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise WireError(f"{what} is not an array of NumPy's format 1.0")
        header = np.lib.format.read_array_header_1_0(file, max_header_size=MOST_HEADER)
    except WireError:
        raise
    except Exception as error:  # the header is foreign text: whatever is wrong with it, it is refused
        raise WireError(f"{what} has a head that cannot be read ({type(error).__name__})") from None
    if header != (tuple(shape), False, dtype) or len(array.data) - file.tell() != size:
        raise WireError(f"{what} has a head that says {clipped(header)}, expected {dtype}{list(shape)}")
    return np.frombuffer(array.data, dtype, offset=file.tell()).reshape(shape)


def digest(content: RecordDict) -> str:
    """A hash of all that a message says: every entry of its heads, and every array with its name, dtype and shape."""
    whole = hashlib.sha256()
    for name, record in sorted(content.config_records.items()):
        try:
            text = json.dumps(dict(record), sort_keys=True)
        except TypeError:
            raise WireError(f"the head {clipped(name)} holds what no message of cofed's does") from None
        whole.update(joined(b"head", name.encode(), text.encode()))
    for name, record in sorted(content.array_records.items()):
        for leaf, array in record.items():
            about = json.dumps([leaf, array.stype, array.dtype, list(array.shape)])
            whole.update(joined(b"array", name.encode(), about.encode(), array.data))
    return whole.hexdigest()


def array_bytes(record: ArrayRecord) -> int:
    """The bytes of a record's numbers, without their headers."""
    return sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in record.values())


def head_of(content: RecordDict) -> Head:
    """The head of a message, which must be of this version's format."""
    records = content.config_records
    if "cofed" not in records:
        raise WireError("the message has no head 'cofed'")
    head: Head = {**records["cofed"]}
    if head.get("format") != FORMAT:
        raise WireError(f"the message is of format {clipped(head.get('format'))}, this is cofed's format {FORMAT}")
    return head


def check_head(content: RecordDict, **expected: object) -> Head:
    """The head of a message, after checking that these entries are as expected."""
    head = head_of(content)
    for name, value in expected.items():
        if type(head.get(name)) is not type(value) or head[name] != value:
            raise WireError(f"the message is of {name} {clipped(head.get(name))}, expected {value!r}")
    return head


def definition(problem: Problem, algorithm: AbstractAlgorithm) -> str:
    """A hash of problem and algorithm, by which both ends see that they run the same.

    It is empty where one of them has a user's own code, which no file can describe.

    >>> import cofed
    >>> from cofed.flower.wire import definition
    >>> one, two = cofed.FedAvg(0.1), cofed.FedAvg(0.2)
    >>> definition(cofed.Problem(), one) == definition(cofed.Problem(), two)
    False
    """
    try:
        text = json.dumps([encode(problem), encode(algorithm)], sort_keys=True)
    except NotOurs:
        return ""
    return hashlib.sha256(text.encode()).hexdigest()


def clipped(value: object, most: int = 120) -> str:
    """Foreign text, cut short enough for a sentence."""
    text = repr(value)
    return text if len(text) <= most else text[:most] + "..."
