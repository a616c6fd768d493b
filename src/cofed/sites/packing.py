"""A head and arrays as bytes, the same bytes for the same content, and back. Nothing is unpickled.

8 bytes      the letters "cofed" and the format
8 bytes      the length of the head
head         JSON: what the sender says, and the name, dtype and shape of each array
arrays       their numbers one after another, little-endian, in C order, each filled up to a multiple of 8 bytes
"""

import json
import math
from collections.abc import Mapping

import numpy as np

FORMAT = 1
MARK = b"cofed" + FORMAT.to_bytes(3, "big")
MOST_HEAD = 1 << 24  # bytes
DTYPES = {"float64": "<f8", "float32": "<f4", "int64": "<i8", "int32": "<i4", "bool": "|b1"}

Head = dict[str, object]  # of a message: its values are foreign until they are checked


class Malformed(ValueError):
    """A message that is not what was agreed on."""


def pack(head: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a head, which JSON can hold, and of arrays.

    >>> import numpy as np
    >>> from cofed.sites.packing import pack, unpack
    >>> unpack(pack({"a": 1}, {"x": np.array([0.5, 2.0])}))
    ({'a': 1}, {'x': array([0.5, 2. ])})
    """
    listed, parts = [], []
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        if array.dtype.name not in DTYPES:
            raise TypeError(f"{name} is of dtype {array.dtype}, which no message carries")
        data = array.astype(DTYPES[array.dtype.name], copy=False).tobytes()
        listed.append([name, array.dtype.name, list(array.shape)])
        parts += [data, bytes(-len(data) % 8)]
    text = json.dumps([head, listed], sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((MARK, len(text).to_bytes(8, "big"), text, *parts))


def unpack(data: bytes) -> tuple[Head, dict[str, np.ndarray]]:
    """The head and the arrays in bytes that `pack` made; anything else is refused.

    >>> from cofed.sites.packing import unpack
    >>> unpack(b"garbage")
    Traceback (most recent call last):
    cofed.sites.packing.Malformed: the message is not one of cofed's
    """
    if data[:5] != MARK[:5] or len(data) < 16:
        raise Malformed("the message is not one of cofed's")
    if data[5:8] != MARK[5:]:
        found = int.from_bytes(data[5:8], "big")
        raise Malformed(f"the message is of format {found}, this is cofed's format {FORMAT}")
    size = int.from_bytes(data[8:16], "big")
    if not 0 < size <= min(MOST_HEAD, len(data) - 16):
        raise Malformed(f"the message has {len(data)} bytes, and its head would have {size}")
    try:
        content = json.loads(data[16 : 16 + size])
    except (ValueError, RecursionError):
        raise Malformed("the message's head is not JSON") from None
    if not (isinstance(content, list) and len(content) == 2 and isinstance(content[0], dict)):
        raise Malformed("the message's head is not one of cofed's")
    return content[0], read_arrays(data, 16 + size, content[1])


def read_arrays(data: bytes, start: int, listed: object) -> dict[str, np.ndarray]:
    """The arrays from a place in the data on, which must be as long as the list says."""
    if not isinstance(listed, list):
        raise Malformed("the message does not list its arrays")
    found: dict[str, np.ndarray] = {}
    for entry in listed:
        name, dtype, shape = described(entry)
        count = math.prod(shape)
        stop = start + count * dtype.itemsize
        if name in found or stop > len(data):
            raise Malformed(f"the message's array {clipped(name)} is given twice or cut off")
        # A copy: what was read does not keep the message, and its numbers are in the machine's own order.
        found[name] = np.frombuffer(data, dtype, count, start).reshape(shape).astype(dtype.newbyteorder("="))
        start = stop + -stop % 8
    if start != len(data):
        raise Malformed(f"the message has {len(data)} bytes, but its head speaks of {start}")
    return found


def described(entry: object) -> tuple[str, np.dtype, tuple[int, ...]]:
    """The name, dtype and shape of an array, from its entry in a head."""
    if isinstance(entry, list) and len(entry) == 3:
        name, dtype, shape = entry
        named = isinstance(name, str) and isinstance(dtype, str) and dtype in DTYPES
        if named and isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape):
            return name, np.dtype(DTYPES[dtype]), tuple(shape)
    raise Malformed(f"the message describes an array as {clipped(entry)}")


def clipped(value: object, most: int = 120) -> str:
    """Foreign text, cut short enough for a sentence."""
    text = repr(value)
    return text if len(text) <= most else text[:most] + "..."
