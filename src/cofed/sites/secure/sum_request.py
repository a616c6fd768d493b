"""The part of a request that says over whom answers are added up, and how they are written as integers."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from cofed.sites.packing import Malformed
from cofed.sites.secure.cards import Card, is_signed_head, read_card, release_words
from cofed.sites.secure.keys import is_signed
from cofed.sites.secure.wide import FORMATS, MOST_SITES, WideFormat

FORMAT = 1
LEAST_SITES = 2  # with one site there is nothing to hide in


class SumRequest(BaseModel):
    """Over whom an answer is added up, the same for all of them.

    Attributes
    ----------
    format : int
        The version of the protocol.
    study, run : str
        Those of the cards.
    ticket : tuple of int
        The number of the exchange, and which attempt at it this is: each is asked in another request.
    limbs, fraction : int
        The kind of integers.
    cards : tuple of Card
        The sites of the sum, by name.
    releases : dict of str to str
        By site, its signature that sums with and without it may be told.
    heads : dict of str to str
        By site, the hash of the newest line of its log of what left, as far as the server has heard of it, and behind
        it the site's signature.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    study: str
    run: str
    ticket: tuple[int, int]
    limbs: int
    fraction: int
    cards: tuple[Card, ...]
    releases: dict[str, str]
    heads: dict[str, str]

    @property
    def kind(self) -> WideFormat:
        """The kind of integers."""
        return WideFormat(self.limbs, self.fraction)

    @property
    def names(self) -> list[str]:
        """The sites of the sum."""
        return [card.site for card in self.cards]

    def released(self, roster: Mapping[str, str]) -> frozenset[str]:
        """The sites that agree to sums with and without them, by the long-term keys of this roster."""
        given = {site: (roster.get(site, ""), words) for site, words in self.releases.items()}
        return frozenset(s for s, (key, words) in given.items() if is_signed(key, release_words(self.study, s), words))


def read_sum(head: object) -> SumRequest:
    """The sum that a request speaks of, refused where it does not make sense.

    Parameters
    ----------
    head : object
        What stands in the request's head.
    """
    try:
        request = SumRequest.model_validate(head)
    except ValidationError:
        raise Malformed("the request does not say over whom answers are added up, in a form that can be read") from None
    names = request.names
    if request.format != FORMAT or request.kind not in FORMATS:
        raise Malformed(f"the request is for sums of format {request.format} with {request.limbs} words")
    if not LEAST_SITES <= len(names) <= MOST_SITES or sorted(set(names)) != names:
        raise Malformed(f"the request is for a sum over {len(names)} sites: 2 to {MOST_SITES}, each once, by name")
    for card in request.cards:
        read_card(card.model_dump())
        if (card.study, card.run) != (request.study, request.run):
            raise Malformed(f"the card of {card.site!r} is of another study or fit")
    cards = {card.site: card for card in request.cards}
    for site, signed in request.heads.items():
        if site not in cards or not is_signed_head(cards[site], signed):
            raise Malformed(f"the newest line of the log of {site!r} is not signed by it")
    keys = [card.key for card in request.cards] + [card.identity for card in request.cards]
    if len(set(keys)) < len(keys):
        raise Malformed("two cards have the same key")
    return request
