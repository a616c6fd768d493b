"""The server's end of a sum: masked answers in, their sum out, and nothing if one of them is missing."""

from collections.abc import Mapping, Sequence

import numpy as np

from cofed.sites.base import SiteRefused
from cofed.sites.packing import Head, Malformed
from cofed.sites.secure.cards import Card, is_signed_head
from cofed.sites.secure.invitation import Invitation
from cofed.sites.secure.keys import is_signed
from cofed.sites.secure.site_end import LANES, reply_words
from cofed.sites.secure.sum_request import SumRequest
from cofed.sites.secure.wide import WideFormat, add


def sum_request(
    invitation: Invitation,
    cards: Mapping[str, Card],
    ticket: tuple[int, int],
    kind: WideFormat,
    heads: Mapping[str, str],
) -> SumRequest:
    """What a request says of the sum over the sites with these cards.

    Parameters
    ----------
    invitation : Invitation
        What the sites were told at the beginning.
    cards : mapping of str to Card
        Their cards, by name.
    ticket : tuple of int
        The number of the exchange, and of the attempt at it.
    kind : WideFormat
        The kind of integers.
    heads : mapping of str to str
        The newest lines of the sites' logs.
    """
    return SumRequest(
        study=invitation.study,
        run=invitation.run,
        ticket=ticket,
        limbs=kind.limbs,
        fraction=kind.fraction,
        cards=tuple(cards[name] for name in sorted(cards)),
        releases=dict(invitation.releases),
        # One that was signed with a key that a site has lost since is of no use any more.
        heads={site: head for site, head in heads.items() if site in cards and is_signed_head(cards[site], head)},
    )


def read_masked(
    card: Card, mark: str, head: Head, arrays: Mapping[str, np.ndarray], shape: tuple[int, int]
) -> np.ndarray:
    """A site's masked answer to the request with this hash, which must be of this shape and signed by the site."""
    planes = arrays.get("masked")
    if planes is None or len(arrays) > 1 or planes.dtype != np.int64 or planes.shape != shape:
        found = "none" if planes is None else f"{planes.dtype}{list(planes.shape)}"
        raise Malformed(f"the masked answer is {found}, expected int64{list(shape)}")
    planes = planes.view(np.uint64)
    if not is_signed(card.identity, reply_words(mark, planes), head.get("signature")):
        raise Malformed(f"the answer is not signed by {card.site}")
    return planes


def unmasked(kind: WideFormat, answers: Sequence[np.ndarray], what: str) -> np.ndarray:
    """The sum of the answers of all sites.

    Parameters
    ----------
    kind : WideFormat
        The kind of integers.
    answers : sequence of ndarray
        The masked answers of all sites.
    what : str
        What was asked, for sentences.

    Raises
    ------
    SiteRefused
        Where some sites could not answer. Nobody knows which, and there is no sum.
    """
    numbers, ones, failed = summed(kind, answers)
    if ones != len(answers):
        raise RuntimeError(
            f"the masks of the {len(answers)} answers to {what} do not cancel: the sites were asked different things, "
            "or one of them does not follow the protocol"
        )
    if failed:
        many = "one site" if failed == 1 else f"{int(failed)} sites"
        raise SiteRefused(f"{many} of {len(answers)} could not answer the question {what}; its own log says why")
    return numbers


def summed(kind: WideFormat, answers: Sequence[np.ndarray]) -> tuple[np.ndarray, float, float]:
    """The sum of masked answers, how many sites it is of, and how many of these could not answer.

    Where the number of sites is not that of the answers, their masks do not cancel, and the sum tells nothing. Where
    some could not answer, the sum is noise.

    Parameters
    ----------
    kind : WideFormat
        The kind of integers.
    answers : sequence of ndarray
        The masked answers of all sites.
    """
    total = answers[0]
    for answer in answers[1:]:
        total = add(total, answer)
    numbers = kind.decode(total)
    ones, failed = numbers[-LANES:]
    return numbers[:-LANES], float(ones), float(failed)
