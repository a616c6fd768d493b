"""Questions and answers as bytes: what travels, what is logged, and what a hash is made of.

A question names its query and the query's version, and carries the message: numbers, cofed's own losses by name,
arrays. No code travels. What a site reads is checked against the query's own message class, and what a server reads
against the shapes that the query has (`AbstractQuery.shape`).
"""

import dataclasses
import hashlib
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from cofed._util import trees
from cofed.engine.serialization import NotOurs, decode, encode
from cofed.losses import AbstractLoss
from cofed.sites import folds
from cofed.sites.folds import Folds
from cofed.sites.packing import Head, Malformed, clipped, pack, unpack
from cofed.sites.queries import QUERIES
from cofed.sites.queries.base import AbstractQuery, Message
from cofed.sites.scaling import Scaling

PLAIN = (bool, int, float, str)


class Question(NamedTuple):
    """A question as a site reads it."""

    query: AbstractQuery
    message: Message
    view: Mapping[str, object]  # what of the site's table it is about

    @property
    def digest(self) -> str:
        """The hash of the question alone, whoever else is asked it, and whenever."""
        return question_hash(question_bytes(self.query, self.message, self.view))


def question_bytes(
    query: AbstractQuery,
    message: Message,
    view: Mapping[str, object] | None = None,
    total: Mapping[str, object] | None = None,
) -> bytes:
    """The one form of a question as bytes: query, version, every field and array of the message, and the view.

    Parameters
    ----------
    query : AbstractQuery
        One of `cofed.sites.queries.QUERIES`.
    message : Message
        What the question says.
    view : mapping, optional
        What of a site's table it is about, as JSON holds it.
    total : mapping, optional
        Over whom masked answers are added up, as JSON holds it.

    Returns
    -------
    bytes
        The same for the same question on any machine; `question_hash` makes a hash of them.

    Raises
    ------
    ValueError
        Where the message holds a user's own code, such as a loss that is not one of cofed's.

    Examples
    --------
    >>> import cofed
    >>> from cofed.sites.queries import Message, sums
    >>> from cofed.sites.questions import question_bytes, read_question
    >>> question = read_question(question_bytes(sums, Message(loss=cofed.Squared())))
    >>> question.query.name, question.message.loss
    ('sums', Squared())
    """
    if QUERIES.get(query.name) is not query:
        raise ValueError(f"{query.name!r} is not one of the queries that a site answers: {', '.join(QUERIES)}")
    if type(message) is not query.message:
        raise TypeError(f"the query {query.name} takes a {query.message.__name__}, got {type(message).__name__}")
    fields: dict[str, object] = {}
    arrays: dict[str, np.ndarray] = {}
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if isinstance(value, (np.ndarray, jax.Array)):
            arrays[field.name] = np.asarray(value)
        elif isinstance(value, Scaling):
            arrays |= {"scaling.centre": value.centre, "scaling.width": value.width}
            centre = value.label_centre
            own = tuple(map(float, centre)) if isinstance(centre, tuple) else float(centre)
            fields[field.name] = encode((own, float(value.label_size)))
        elif isinstance(value, Folds):
            fields[field.name] = encode(folds.written(value))
        else:
            fields[field.name] = encoded(query, field.name, value)
    head = {"kind": "question", "query": query.name, "version": query.version, "fields": fields, "view": view or {}}
    return pack(head if total is None else head | {"sum": total}, arrays)


def encoded(query: AbstractQuery, name: str, value: object) -> object:
    """A field of a message as JSON."""
    try:
        return encode(value)
    except NotOurs:
        raise ValueError(
            f"the query {query.name} cannot be sent with the {name} {clipped(value)}: no code travels to a site, "
            "so it must be one of cofed's own"
        ) from None


def question_hash(question: bytes) -> str:
    """The hash of a question's bytes, by which an answer says what it answers."""
    return hashlib.sha256(question).hexdigest()


def read_question(data: bytes) -> Question:
    """The question in bytes that `question_bytes` made; anything else is refused with a `Malformed`."""
    head, arrays = unpack(data)
    name, version = head.get("query"), head.get("version")
    query = QUERIES.get(name) if isinstance(name, str) else None
    if query is None:
        raise Malformed(f"the query {clipped(name)} is not known here; known are {', '.join(QUERIES)}")
    if version != query.version:
        raise Malformed(f"the query {query.name} is asked in version {clipped(version)}, here it is {query.version}")
    given, view = head.get("fields"), head.get("view")
    if not isinstance(given, dict) or not isinstance(view, dict):
        raise Malformed(f"the question {query.name} has no fields or no view")
    hints = typing.get_type_hints(query.message)
    fields: dict[str, Any] = {
        field.name: read_field(field.name, hints[field.name], given, arrays)
        for field in dataclasses.fields(query.message)
    }
    if given or arrays:
        raise Malformed(f"the question {query.name} has unknown parts: {clipped(sorted([*given, *arrays]))}")
    return Question(query, query.message(**fields), view)


def read_field(name: str, hint: object, given: Head, arrays: dict[str, np.ndarray]) -> object:
    """A field of a message, which is taken out of what was given and must be of the field's own type."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if np.ndarray in kinds:
        if name not in arrays:
            raise Malformed(f"the question has no array {name!r}")
        return arrays.pop(name)
    if name not in given:
        raise Malformed(f"the question has no field {name!r}")
    try:
        value = decode(given.pop(name), "the question")
        if value is not None and Scaling in kinds:
            centre, width = arrays.pop("scaling.centre"), arrays.pop("scaling.width")
            return Scaling(centre, width, *label_units(value))
        if value is not None and Folds in kinds:
            found = folds.read(value)
            if found is None:
                raise Malformed(f"the question has {clipped(value)} where folds are expected")
            return found
    except Malformed:
        raise
    except Exception as error:  # what was given is foreign: whatever is wrong with it, it is refused
        raise Malformed(f"the question's field {name!r} cannot be read ({type(error).__name__})") from None
    if not is_of(value, kinds):
        raise Malformed(f"the question's field {name!r} is {clipped(value)}")
    return value


def is_of(value: object, kinds: tuple[object, ...]) -> bool:
    """Whether a value is of one of these types: None, a loss of cofed's, a number or a text, or a tuple of those."""
    if isinstance(value, AbstractLoss):
        return AbstractLoss in kinds
    if isinstance(value, tuple):
        return tuple in map(typing.get_origin, kinds) and all(type(one) in PLAIN for one in value)
    return (value is None or type(value) in PLAIN) and type(value) in kinds


def typed(value: object, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """A tuple of numbers of these types."""
    if not isinstance(value, tuple) or tuple(map(type, value)) != kinds:
        raise Malformed(f"the question has {clipped(value)} where numbers are expected")
    return value


def label_units(value: object) -> tuple[float | tuple[float, ...], float]:
    """The centre of the labels, or one for each of several responses, and their size."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], tuple):
        return typed(value[0], (float,) * len(value[0])), typed(value[1:], (float,))[0]
    centre, size = typed(value, (float, float))
    return centre, size


def answer_arrays(answer: PyTree) -> dict[str, np.ndarray]:
    """The arrays of an answer, by name."""
    return dict(zip(leaf_names(answer), map(np.asarray, jax.tree.leaves(answer)), strict=True))


def flat(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The numbers of an answer's arrays one after another; float64, since whole numbers below 2^53 are exact in it."""
    return np.concatenate([np.asarray(array, np.float64).ravel() for array in arrays.values()])


def unflat(numbers: np.ndarray, shape: PyTree) -> dict[str, np.ndarray]:
    """The arrays of an answer of these shapes, from its numbers one after another."""
    found, start = {}, 0
    for name, leaf in zip(leaf_names(shape), jax.tree.leaves(shape), strict=True):
        stop = start + math.prod(leaf.shape)
        found[name] = numbers[start:stop].reshape(leaf.shape).astype(leaf.dtype)
        start = stop
    return found


def read_answer(arrays: Mapping[str, np.ndarray], shape: PyTree) -> PyTree:
    """The answer in arrays that came over the wire, which must be of these shapes."""
    names, leaves = leaf_names(shape), jax.tree.leaves(shape)
    if sorted(arrays) != sorted(names):
        raise Malformed(f"the answer has the arrays {clipped(sorted(arrays))}, expected {clipped(sorted(names))}")
    for name, leaf in zip(names, leaves, strict=True):
        array = arrays[name]
        if (array.dtype, array.shape) != (np.dtype(leaf.dtype), tuple(leaf.shape)):
            found, wanted = f"{array.dtype}{list(array.shape)}", f"{leaf.dtype}{list(leaf.shape)}"
            raise Malformed(f"the answer's {name} is {found}, expected {wanted}")
    return jax.tree.unflatten(jax.tree.structure(shape), [arrays[name] for name in names])


def leaf_names(tree: PyTree) -> list[str]:
    """The names of an answer's arrays, unique even where it is a single one."""
    return [f"{place} {name}" for place, name in enumerate(trees.names(tree))]
