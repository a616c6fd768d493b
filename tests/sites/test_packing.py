"""Bytes that carry a head and arrays."""

import json

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cofed.sites.packing import DTYPES, Malformed, pack, unpack

ARRAYS = st.dictionaries(
    st.text(max_size=8),
    st.sampled_from(sorted(DTYPES)).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    ),
    max_size=4,
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
HEADS = st.dictionaries(st.text(max_size=8), JSON, max_size=4)


@given(HEADS, ARRAYS)
def test_what_is_packed_comes_out(head, arrays):
    found, read = unpack(pack(head, arrays))
    assert found == head
    assert sorted(read) == sorted(arrays)
    for name, array in arrays.items():
        assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
        assert read[name].tobytes() == array.tobytes()  # NaN and signed zeros too


@given(HEADS, ARRAYS)
def test_the_bytes_are_the_same_in_any_order(head, arrays):
    turned = [dict(reversed(list(part.items()))) for part in (head, arrays)]
    assert pack(*turned) == pack(head, arrays)


@given(HEADS, ARRAYS, st.data())
def test_cut_or_longer_bytes_are_refused(head, arrays, data):
    whole = pack(head, arrays)
    with pytest.raises(Malformed):
        unpack(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(Malformed):
        unpack(whole + data.draw(st.binary(min_size=1, max_size=9)))


@given(st.binary(max_size=200))
@hypothesis.example(b"cofed\x00\x00\x01" + (2**40).to_bytes(8, "big"))
@hypothesis.example(b"cofed\x00\x00\x01" + (8).to_bytes(8, "big") + b"[[[[[[[[")
def test_garbage_is_refused(data):
    with pytest.raises(Malformed):
        unpack(data)


def test_another_format_is_named():
    data = bytearray(pack({}, {}))
    data[7] = 9
    with pytest.raises(Malformed, match="format 9, this is cofed's format 1"):
        unpack(bytes(data))


@pytest.mark.parametrize(
    "listed",
    [
        None,
        [["x", "float64", [2**62, 4]]],
        [["x", "object", [1]]],
        [["x", "float64", [-1]]],
        [["x", "float64", [True]]],
        [["x", "float64"]],
        [["x", "bool", [0]], ["x", "bool", [0]]],
    ],
)
def test_arrays_that_make_no_sense_are_refused(listed):
    text = json.dumps([{}, listed]).encode()
    text += b" " * (-len(text) % 8)
    with pytest.raises(Malformed):
        unpack(b"cofed\x00\x00\x01" + len(text).to_bytes(8, "big") + text)


def test_text_is_no_array():
    with pytest.raises(TypeError, match="no message carries"):
        pack({}, {"x": np.array(["a"])})
