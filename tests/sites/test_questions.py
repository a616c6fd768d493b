"""Questions and answers as bytes."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cofed
from cofed.losses import AbstractLoss, Huber, Logistic, Poisson, Softmax, Squared
from cofed.sites import Folds, Scaling
from cofed.sites.packing import Malformed, pack, unpack
from cofed.sites.queries import QUERIES, LookMessage, Message, MomentsMessage, gram, look, moments, sums
from cofed.sites.queries.base import AbstractQuery
from cofed.sites.questions import answer_arrays, question_bytes, question_hash, read_answer, read_question

LOSSES = st.sampled_from(
    [None, Squared(), Squared(half=False), Squared(responses=3), Logistic(), Poisson(), Softmax(3), Huber(0.5)]
)
FOLDS = st.none() | st.builds(Folds, st.integers(1, 9), st.integers(0, 2**31), st.booleans())
NUMBERS = st.floats(allow_nan=False)


@st.composite
def messages(draw):
    """A query of the list and a message of it."""
    p, models, k = draw(st.integers(1, 4)), draw(st.integers(0, 3)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    scaling = draw(st.booleans())
    given = {
        "folds": draw(FOLDS),
        "loss": draw(LOSSES),
        "scaling": Scaling(rng.normal(size=p), np.full(p, np.inf), draw(NUMBERS), draw(NUMBERS)) if scaling else None,
    }
    if draw(st.booleans()):
        return sums, Message(**given)
    arrays = rng.normal(size=(models, p, k)), rng.normal(size=(models, k)), rng.integers(-1, 3, models)
    return look, LookMessage(*arrays, rng.integers(0, 2, 2), rng.integers(0, p, (2, 3)), **given)


@given(messages())
def test_a_question_is_read_as_it_was_asked(asked):
    query, message = asked
    read = read_question(question_bytes(query, message, {"design": {"a": [1]}}))
    assert read.query is query
    assert read.view == {"design": {"a": [1]}}
    assert jax.tree.structure(read.message) == jax.tree.structure(message)
    for one, two in zip(jax.tree.leaves(read.message), jax.tree.leaves(message), strict=True):
        np.testing.assert_array_equal(one, two)
        assert np.asarray(one).dtype == np.asarray(two).dtype


@given(messages())
def test_the_hash_covers_every_part(asked):
    query, message = asked
    seen = {question_hash(question_bytes(query, message))}
    seen.add(question_hash(question_bytes(query, message, {"design": 1})))
    seen.add(question_hash(question_bytes(query, dataclasses.replace(message, folds=Folds(11)))))
    seen.add(question_hash(question_bytes(query, dataclasses.replace(message, loss=Huber(0.7)))))
    scaling = Scaling(np.zeros(1), np.ones(1), 0.5)
    seen.add(question_hash(question_bytes(query, dataclasses.replace(message, scaling=scaling))))
    if query is look:
        seen.add(question_hash(question_bytes(query, dataclasses.replace(message, where=message.where + 1))))
    assert len(seen) == (6 if query is look else 5)


def test_jax_and_numpy_arrays_are_the_same_question():
    jax.config.update("jax_enable_x64", True)
    centre = np.array([1.0, 2.0])
    assert question_bytes(moments, MomentsMessage(centre)) == question_bytes(
        moments, MomentsMessage(jnp.asarray(centre))
    )


class Own(AbstractLoss):
    """A user's own loss."""

    def __call__(self, prediction, y):
        return prediction - y


def test_no_code_travels():
    with pytest.raises(ValueError, match=r"the query sums cannot be sent with the loss Own.*no code travels"):
        question_bytes(sums, Message(loss=Own()))
    with pytest.raises(ValueError, match="no code travels"):
        question_bytes(sums, Message(loss=cofed.losses.FunctionLoss(lambda z, y: z)))


class Other(AbstractQuery[Message]):
    """A query that is not of the list."""

    name: ClassVar[str] = "other"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = Message

    def answer(self, table, message):
        return table.X


def test_only_queries_of_the_list_are_sent():
    with pytest.raises(ValueError, match="'other' is not one of the queries"):
        question_bytes(Other(), Message())
    with pytest.raises(TypeError, match="takes a GramMessage, got Message"):
        question_bytes(gram, Message())


def changed(**change):
    """A question with another head."""
    head, arrays = unpack(question_bytes(moments, MomentsMessage(np.ones(2), loss=Squared())))
    fields = {**head["fields"], **change.pop("fields", {})}
    return pack({**head, "fields": fields, **change}, arrays)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (changed(query="everything"), "the query 'everything' is not known here; known are sums"),
        (changed(query=["sums"]), "is not known here"),
        (changed(version=2), "the query moments is asked in version 2, here it is 1"),
        (changed(view=None), "no fields or no view"),
        (changed(fields={"extra": 1}), "unknown parts"),
        (changed(fields={"loss": {"type": "Popen", "fields": {}}}), "field 'loss' cannot be read"),
        (changed(fields={"loss": {"type": "L1", "fields": {"strength": 1.0}}}), "field 'loss' is L1"),
        (changed(fields={"folds": {"tuple": ["many", 0, False]}}), "folds are expected"),
        (changed(fields={"scaling": {"tuple": [0.0, 1.0]}}), "field 'scaling' cannot be read"),
        (changed(query="gram", version=2), "has no array 'label_centre'"),
    ],
)
def test_what_makes_no_sense_is_refused(data, sentence):
    with pytest.raises(Malformed, match=sentence):
        read_question(data)


@pytest.mark.parametrize("name", QUERIES)
def test_the_wire_knows_the_fields_of_every_query(name):
    # A field of a type that it does not know is found here, and not at a site.
    query = QUERIES[name]
    own = [field.name for field in dataclasses.fields(query.message) if field.default is dataclasses.MISSING]
    message = query.message(**{field: np.arange(3.0) for field in own})
    read = read_question(question_bytes(query, message)).message
    assert jax.tree.structure(read) == jax.tree.structure(message)
    assert len(jax.tree.leaves(read)) == len(own)


def test_an_answer_has_the_shapes_that_are_known_beforehand():
    jax.config.update("jax_enable_x64", True)
    shape = sums.shape(Message(loss=Squared()), 3)
    answer = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), shape)
    arrays = answer_arrays(answer)
    assert jax.tree.structure(read_answer(arrays, shape)) == jax.tree.structure(answer)
    name = sorted(arrays)[0]
    for wrong in (arrays[name][:0], arrays[name].astype(np.float32)):
        with pytest.raises(Malformed, match="expected float64"):
            read_answer({**arrays, name: wrong}, shape)
    with pytest.raises(Malformed, match="the answer has the arrays"):
        read_answer({"x": np.ones(1)}, shape)
