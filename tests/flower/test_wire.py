"""What comes over the wire is checked before it is read."""

import io
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

import cofed
from cofed.flower import Privacy, serve, wire
from cofed.flower.messages import RoundInstructions, SiteInfo
from tests import worlds
from tests.flower.loopback import network, over_the_wire

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


@pytest.mark.parametrize(
    ("compressor", "expected"),
    [
        (cofed.TopK(0.02), {"float32": [(20,), ()], "uint16": [(20,)]}),
        (cofed.RandomK(0.05), {"float32": [(50,), ()], "uint32": [()]}),
        (cofed.Quantised(1), {"float32": [(), ()], "uint8": [(125,)]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_compressed_updates_travel_compressed(compressor, expected, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2, 5, 1000)).astype(np.float32)
    federation = cofed.Federation.from_arrays({"a": (X[0], X[0, :, 0]), "b": (X[1], X[1, :, 0])})
    problem, method = worlds.problem(cofed.L1(0.1)), cofed.FedDualAvg(1e-4)
    wrapped = cofed.Compressed(method, compressor)
    grid, _ = network(problem, wrapped, federation, tmp_path)
    result = serve(grid, problem, wrapped, clients=2, rounds=3, local_steps=2, deadline=20.0, patience=20.0, plain=True)
    assert result.outcome is cofed.Outcome.COMPLETED
    size, replies = 0, [reply for _, message, reply in grid.seen if "up" in reply.content.array_records]
    assert len(replies) == 6
    for reply in replies:
        found: dict = {}
        for array in reply.content["up"].values():
            found.setdefault(array.dtype, []).append(tuple(array.shape))
            assert len(array.data) <= array.numpy().nbytes + 128  # the numbers and NumPy's head
            size += array.numpy().nbytes
        assert {dtype: sorted(shapes, reverse=True) for dtype, shapes in found.items()} == expected
    assert size == result.communication.up == 6 * result.communication.up_per_client
    assert result.communication.up_per_client < 0.06 * 4004
    same = cofed.run(problem, federation, wrapped, rounds=3, local_steps=2)
    assert same.communication.up == result.communication.up
    np.testing.assert_allclose(result.model.coef, same.model.coef, rtol=0, atol=1e-6)


def test_a_compressed_update_of_another_size_is_refused(tmp_path):
    """A site that keeps more than was agreed is left out, before its numbers are read."""
    federation = worlds.linear(sizes=(5, 5), names=["a", "b"])
    problem, method = worlds.problem(cofed.L1(0.1)), cofed.Compressed(cofed.FedDualAvg(0.01), cofed.TopK(0.3))

    def larger(site, message, reply):
        if site == "b" and reply.content.array_records:
            arrays = {name: Array(np.resize(array.numpy(), 4)) for name, array in reply.content["up"].items()}
            reply.content["up"] = ArrayRecord(arrays)
        return reply

    grid, _ = network(problem, method, federation, tmp_path, larger)
    result = serve(
        grid, problem, method, clients=2, quorum=1, rounds=2, local_steps=2, deadline=0.5, patience=5.0, plain=True
    )
    assert {event.client for event in result.history.left_out} == {"b"}
    assert result.outcome is cofed.Outcome.COMPLETED


def test_privacy_is_for_whole_updates():
    method = cofed.Compressed(cofed.FedDualAvg(0.01), cofed.TopK(0.3))
    with pytest.raises(ValueError, match="does not go with compressed"):
        serve(None, worlds.problem(), method, clients=2, rounds=1, privacy=Privacy(1.0, 1.0))


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
    card = SiteInfo.of("rome", worlds.problem(), federation)
    assert SiteInfo.read(dict(over_the_wire(RecordDict({"c": ConfigRecord(card.entries())}))["c"])) == card
    assert [value for value in card.entries().values() if isinstance(value, int)] == [5, 0, 0]
    assert [value for value in card.entries().values() if isinstance(value, list)] == [[6], []]


@pytest.mark.parametrize(
    ("entry", "value"),
    [("samples", 0), ("samples", "9"), ("site", ""), ("site", "a\n"), ("features", [0]), ("dtype", "object")],
)
def test_cards_that_make_no_sense_are_refused(entry, value):
    good = SiteInfo.of("rome", worlds.problem(), worlds.linear(sizes=(5,), names=["rome"])).entries()
    with pytest.raises(wire.WireError):
        SiteInfo.read(good | {entry: value})
    with pytest.raises(wire.WireError, match="expected int"):
        RoundInstructions.read({})
