"""How the answers of sites elsewhere become one sum: seen one by one, or masked, so that only the sum is learnt."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import PyTree

from cofed.sites.packing import Head, Malformed
from cofed.sites.queries.base import AbstractQuery, Message
from cofed.sites.questions import answer_arrays, question_bytes, read_answer, unflat
from cofed.sites.secure.cards import Card, is_signed_head
from cofed.sites.secure.invitation import Invitation
from cofed.sites.secure.server_end import read_masked, sum_request, unmasked
from cofed.sites.secure.site_end import LANES
from cofed.sites.secure.wide import RAW, SCALED, WideFormat


@dataclasses.dataclass(frozen=True)
class Posed:
    """A question to sites.

    Attributes
    ----------
    query, message
        What is asked.
    view : mapping
        What of the tables it is about.
    shape : pytree
        The shapes of the answer.
    """

    query: AbstractQuery
    message: Message
    view: Mapping[str, object]
    shape: PyTree

    @property
    def bytes(self) -> bytes:
        """The question alone, which is the same whenever it is asked."""
        return question_bytes(self.query, self.message, self.view)


class AbstractAddition(ABC):
    """How answers become a sum.

    Attributes
    ----------
    is_masked : bool
        Whether nobody sees a site's own answer.
    """

    is_masked: ClassVar[bool]

    @abstractmethod
    def request(self, posed: Posed, ticket: tuple[int, int]) -> bytes:
        """What is sent to every site, in the exchange with this number and in this attempt at it."""

    @abstractmethod
    def read(self, posed: Posed, site: str, mark: str, reply: tuple[Head, Mapping[str, np.ndarray]]) -> PyTree:
        """A site's reply to the request with this hash."""

    @abstractmethod
    def total(self, posed: Posed, answers: Sequence[PyTree]) -> dict[str, np.ndarray]:
        """The sum of what was read of all sites, as arrays of the answer's shapes."""


class PlainAddition(AbstractAddition):
    """The server sees each site's answer, and adds them up."""

    is_masked: ClassVar[bool] = False

    def request(self, posed: Posed, ticket: tuple[int, int]) -> bytes:
        return posed.bytes

    def read(self, posed: Posed, site: str, mark: str, reply: tuple[Head, Mapping[str, np.ndarray]]) -> PyTree:
        return read_finite(*reply, posed.shape)

    def total(self, posed: Posed, answers: Sequence[PyTree]) -> dict[str, np.ndarray]:
        found = answers[0]
        for answer in answers[1:]:
            found = jax.tree.map(np.add, found, answer)
        return answer_arrays(found)


@dataclasses.dataclass(frozen=True)
class MaskedAddition(AbstractAddition):
    """The server sees masked answers, whose sum it learns.

    Parameters
    ----------
    invitation : Invitation
        What the sites were told at the beginning.
    cards : mapping of str to Card
        The cards of the sites of the sum.
    heads : mapping of str to str
        The newest lines of the sites' logs of what left, as they are heard of.
    """

    invitation: Invitation
    cards: Mapping[str, Card]
    heads: dict[str, str] = dataclasses.field(default_factory=dict)

    is_masked: ClassVar[bool] = True

    def request(self, posed: Posed, ticket: tuple[int, int]) -> bytes:
        asked = sum_request(self.invitation, self.cards, ticket, kind_of(posed.message), self.heads)
        return question_bytes(posed.query, posed.message, posed.view, asked.model_dump(mode="json"))

    def read(self, posed: Posed, site: str, mark: str, reply: tuple[Head, Mapping[str, np.ndarray]]) -> PyTree:
        head, arrays = reply
        count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(posed.shape))
        planes = read_masked(self.cards[site], mark, head, arrays, (kind_of(posed.message).limbs, count + LANES))
        newest = head.get("log")
        if newest is not None:
            if not is_signed_head(self.cards[site], newest):
                raise Malformed(f"the newest line of the log of {site} is not signed by it")
            self.heads[site] = str(newest)
        return planes

    def total(self, posed: Posed, answers: Sequence[PyTree]) -> dict[str, np.ndarray]:
        numbers = unmasked(kind_of(posed.message), answers, posed.query.name)
        return unflat(numbers, posed.shape)


def kind_of(message: Message) -> WideFormat:
    """The kind of integers for the answer to a message: numbers in the tables' own units may be of any size."""
    return RAW if message.scaling is None else SCALED


def read_finite(head: Head, arrays: Mapping[str, np.ndarray], shape: PyTree) -> PyTree:
    """A site's answer, which says itself whether it is finite."""
    finite = all(np.isfinite(array).all() for array in arrays.values())
    if head.get("finite") is not finite:  # a site says so where a model is so far off that a sum overflows
        raise Malformed(f"the answer {'says that it is not' if finite else 'is not'} finite")
    return read_answer(arrays, shape)
