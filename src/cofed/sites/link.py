"""What carries a server's requests to sites elsewhere, and what can go wrong on the way."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from cofed.sites.base import SiteRefused
from cofed.sites.columns import TableInfo
from cofed.sites.exchanges import Exchanges
from cofed.sites.secure.cards import Card
from cofed.sites.secure.invitation import PLAIN, Invitation
from cofed.sites.secure.sum_request import LEAST_SITES

T = TypeVar("T")
OF_ALL_SITES = ("site sets", "sites", "masked")  # rules about who takes part, and how: another site less mends nothing


class SitesMissing(RuntimeError):
    """Sites did not answer, or answered badly, for as long as one was ready to wait; an exact sum needs them all.

    Attributes
    ----------
    sites : dict of str to str
        What is wrong with each of them.
    """

    def __init__(self, sentence: str, sites: Mapping[str, str]):
        super().__init__(sentence)
        self.sites = dict(sites)


def going_on(invitation: Invitation, sites: Sequence[str], missing: SitesMissing) -> list[str]:
    """The sites that a fit goes on with where others of them are missing; `SitesMissing` where it cannot."""
    others = [site for site in sites if site not in missing.sites]
    unreleased = invitation.unreleased(missing.sites)
    if unreleased:
        who = ", ".join(unreleased)
        why = f"{who} must agree to that first, by a file that cofed study release writes there, for --release here"
    elif not others:
        why = "no site would be left"
    elif invitation.is_masked and len(others) < LEAST_SITES:
        why = f"{others[0]} would be left, and the answers of a single site cannot be masked"
    else:
        return others
    raise SitesMissing(f"{missing}. It cannot go on without {', '.join(missing.sites)}: {why}", missing.sites) from None


def left_out_after(error: SitesMissing | SiteRefused, invitation: Invitation, sites: Sequence[str]) -> dict[str, str]:
    """The sites to leave out, each with the reason, so that a fit goes on; the error where it cannot go on."""
    if isinstance(error, SitesMissing):
        going_on(invitation, sites, error)
        return error.sites
    if not error.site or error.rule in OF_ALL_SITES:
        raise error
    reason = {error.site: str(error)}
    try:
        going_on(invitation, sites, SitesMissing(str(error), reason))
    except SitesMissing as ended:
        raise SiteRefused(str(ended), error.site, error.rule) from None
    return reason


@dataclasses.dataclass(frozen=True)
class Replies(Generic[T]):
    """What all sites have answered to one request."""

    by_site: dict[str, T]
    down: int  # bytes to all sites
    up: int  # bytes from all sites


class AbstractLink(ABC):
    """What carries requests to sites and their replies back.

    Attributes
    ----------
    exchanges : Exchanges
        Where those listen who want to know what the sites do.
    invitation : Invitation
        What it tells sites at the beginning.
    cards : mapping of str to Card
        The sites' cards, where answers are masked.
    """

    exchanges: Exchanges
    invitation: Invitation = PLAIN
    cards: dict[str, Card]

    @abstractmethod
    def gather(self, wanted: Sequence[str] | int) -> dict[str, TableInfo]:
        """Wait for these sites, or for so many, and hear what each tells of its table.

        Raises `SitesMissing` where they do not all come.
        """

    @abstractmethod
    def ask_all(self, request: bytes, sites: Sequence[str], read: Callable[[str, bytes], T]) -> Replies[T]:
        """Send a request to these sites until each has given a reply that `read` takes.

        A reply for which `read` raises a `Malformed` does not count. Any other error of it ends the exchange.
        Raises `SitesMissing` where one gives no such reply for long enough, `CardsChanged` where one has a new card.
        """

    def end(self, sites: Sequence[str]) -> None:
        """Tell these sites, as far as they hear it, that the fit is over."""
        return


class NumbersChanged(Exception):
    """A site would answer the same request with other numbers than before, which the same masks must not cover."""


class CardsChanged(Exception):
    """A site has a new card, since its keys are gone: it cannot answer a request that holds the old one."""
