"""What comes over the wire is checked before it is read."""

import io
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

import cofed
from cofed.flower import wire
from cofed.flower.terms import Card, Terms
from tests import worlds
from tests.flower.loopback import over_the_wire

TREES = [
    jnp.arange(6.0),
    {"a": jnp.ones((2, 3), jnp.float32), "b": (jnp.zeros(()), jnp.arange(3, dtype=jnp.int32))},
    (),
    cofed.Linear().init(jax.random.key(0), jnp.ones(4), None),
]


@pytest.mark.parametrize("tree", TREES)
def test_trees_come_back_as_they_were(tree):
    content = over_the_wire(RecordDict({"up": wire.pack(tree)}))
    back = wire.unpack(content, "up", jax.eval_shape(lambda: tree))
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def npy(array, **changes):
    """A Flower Array of an ndarray, with its description changed."""
    good = Array(array)
    parts = {"dtype": good.dtype, "shape": good.shape, "stype": good.stype, "data": good.data} | changes
    return Array(**parts)


def pickled():
    """Objects, as NumPy would pickle them."""
    file = io.BytesIO()
    np.save(file, np.array([{"code": 1}] * 20, object), allow_pickle=True)
    return file.getvalue()


GOOD = np.zeros(20)
HUGE = Array(np.zeros(20)).data.replace(b"(20,), }  ", b"(2000000,)")  # the head lies, to make the reader allocate
BAD = {
    "shape": Array(np.zeros(3)),
    "dtype": Array(np.zeros(20, np.float32)),
    "kind": npy(GOOD, stype="pickle"),
    "no bytes": npy(GOOD, data=b""),
    "cut": npy(GOOD, data=Array(GOOD).data[:-8]),
    "too long": npy(GOOD, data=Array(GOOD).data + b"x" * 5000),
    "a lying head": npy(GOOD, data=HUGE.ljust(len(Array(GOOD).data), b"\0")),
    "a head of another dtype": npy(GOOD, data=Array(np.zeros(20, np.int64)).data),
    "objects": npy(GOOD, data=pickled().ljust(200, b"\0")),
    "a pickle": npy(GOOD, data=pickle.dumps(list(range(60)))),
    "noise": npy(GOOD, data=bytes(range(256))),
}


@pytest.mark.parametrize("name", BAD)
def test_arrays_that_are_not_what_was_agreed_are_refused(name):
    with pytest.raises(wire.WireError):
        wire.unpack(RecordDict({"up": ArrayRecord({"0/": BAD[name]})}), "up", GOOD)


@given(st.binary(max_size=400))
def test_no_bytes_do_anything_but_give_an_array_or_a_refusal(data):
    try:
        found = wire.read(npy(GOOD, data=data), (20,), np.dtype(float), "x")
    except wire.WireError:
        return
    assert found.shape == (20,)


def test_other_names_and_missing_parts_are_refused():
    with pytest.raises(wire.WireError, match="no arrays 'up'"):
        wire.unpack(RecordDict({}), "up", GOOD)
    with pytest.raises(wire.WireError, match="expected"):
        wire.unpack(RecordDict({"up": ArrayRecord({"0/x": Array(GOOD)})}), "up", GOOD)


@pytest.mark.parametrize("head", [{}, {"format": 2}, {"format": "1"}, {"format": 1, "round": True}, {"format": 1}])
def test_other_heads_are_refused(head):
    with pytest.raises(wire.WireError):
        wire.check_head(RecordDict({"cofed": ConfigRecord(head)}), round=1)
    with pytest.raises(wire.WireError, match="no head"):
        wire.head_of(RecordDict({}))


def test_a_card_says_nothing_of_the_samples():
    federation = worlds.linear(sizes=(5,), names=["rome"])
    card = Card.of("rome", worlds.problem(), federation)
    assert Card.read(dict(over_the_wire(RecordDict({"c": ConfigRecord(card.entries())}))["c"])) == card
    assert [value for value in card.entries().values() if isinstance(value, int)] == [5, 0, 0]
    assert [value for value in card.entries().values() if isinstance(value, list)] == [[6], []]


@pytest.mark.parametrize(
    ("entry", "value"),
    [("samples", 0), ("samples", "9"), ("site", ""), ("site", "a\n"), ("features", [0]), ("dtype", "object")],
)
def test_cards_that_make_no_sense_are_refused(entry, value):
    good = Card.of("rome", worlds.problem(), worlds.linear(sizes=(5,), names=["rome"])).entries()
    with pytest.raises(wire.WireError):
        Card.read(good | {entry: value})
    with pytest.raises(wire.WireError, match="expected int"):
        Terms.read({})
