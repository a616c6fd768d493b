"""A site's card in one fit: how many rows it has, and the key from which its masks are made, signed by itself."""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cofed.sites.packing import Head, Malformed
from cofed.sites.secure.keys import SiteKeys, is_signed, joined

KEY = re.compile(r"[0-9a-f]{64}")  # a public key of 32 bytes
DIGITS = 64  # of a hash
RUN = re.compile(r"[0-9a-f]{32}")


class Card(BaseModel):
    """What a site signs at the beginning of a fit.

    Attributes
    ----------
    site : str
        Its name.
    rows : int
        How many rows its table has.
    study : str
        The hash of the study; empty where there is none.
    run : str
        Which fit it is: 32 hexadecimal digits.
    key : str
        The public half of its key for this fit (X25519).
    identity : str
        The public half of its long-term key (Ed25519).
    constant : tuple of str
        The columns of its table that have one value, so that sums about them tell of other sites.
    signature : str
        Of all that, by the long-term key.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    site: str
    rows: int
    study: str
    run: str
    key: str
    identity: str
    constant: Annotated[tuple[str, ...], Field(strict=False)] = ()
    signature: str = ""

    @property
    def words(self) -> bytes:
        """What is signed."""
        texts = (self.study, self.run, self.site, str(self.rows), self.key, self.identity, *self.constant)
        return joined(b"cofed/card/1", *(text.encode() for text in texts))

    def signed(self, keys: SiteKeys) -> "Card":
        """The card with the site's signature."""
        return self.model_copy(update={"signature": keys.sign(self.words)})

    def is_sound(self) -> bool:
        """Whether its parts are what they should be, and it is signed by the key that it names."""
        whole = KEY.fullmatch(self.key) and KEY.fullmatch(self.identity) and RUN.fullmatch(self.run)
        return bool(whole) and 0 < self.rows < 2**40 and is_signed(self.identity, self.words, self.signature)


def read_card(head: object) -> Card:
    """A card in the head of a message; refused where it is not sound.

    Parameters
    ----------
    head : object
        What stands there.
    """
    try:
        card = Card.model_validate(head)
    except ValidationError:
        raise Malformed("the message has no card of a site that can be read") from None
    if not card.is_sound():
        raise Malformed(f"the card of {card.site!r} is not signed by the key that it names")
    return card


def require_roster(card: Card, roster: Mapping[str, str]) -> None:
    """Refuse a card whose long-term key is not the one that the study names for the site.

    Parameters
    ----------
    card : Card
        A sound card.
    roster : mapping of str to str
        The sites' long-term keys by name.
    """
    known = roster.get(card.site)
    if known is None:
        raise Malformed(f"{card.site!r} is not one of the study's sites, or the study names no key for it")
    if known != card.identity:
        raise Malformed(f"the card of {card.site!r} is signed by another key than the study names")


def log_words(run: str, site: str, head: str) -> bytes:
    """What a site signs of the newest line of its log of what left."""
    return joined(b"cofed/log/1", run.encode(), site.encode(), head.encode())


def is_signed_head(card: Card, signed: object) -> bool:
    """Whether this is the hash of a line of a site's log, with the signature of the site with this card behind it."""
    text = str(signed)
    return is_signed(card.identity, log_words(card.run, card.site, text[:DIGITS]), text[DIGITS:])


def release_words(study: str, site: str) -> bytes:
    """What a site signs that agrees to sums with and without it."""
    return joined(b"cofed/release/1", study.encode(), site.encode())


def as_head(card: Card) -> Head:
    """The card as the head of a message holds it."""
    return card.model_dump()
