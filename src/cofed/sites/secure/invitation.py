"""What a server tells sites at the beginning of a fit: which study and fit it is, and whether answers are masked."""

import dataclasses
import secrets
from collections.abc import Iterable, Mapping

from cofed.sites.packing import Head, Malformed, pack
from cofed.sites.secure.cards import Card, read_card, require_roster


@dataclasses.dataclass(frozen=True)
class Invitation:
    """The server's first words to a site.

    Parameters
    ----------
    run : str
        Which fit it is, 32 hexadecimal digits that are never used again; empty where answers are not masked, and so the
        server sees each site's own.
    study : str
        The hash of the study; empty where there is none.
    roster : mapping of str to str, optional
        The sites' long-term keys, as the study names them. None: each site brings its own, and nobody vouches for it.
    releases : mapping of str to str
        By site, its signature that sums with and without it may be told (`cofed study release`).
    releasable : frozenset of str
        The sites of which the study itself says so.

    Examples
    --------
    >>> from cofed.sites.secure.invitation import PLAIN, Invitation
    >>> Invitation.masked().is_masked, PLAIN.is_masked
    (True, False)
    """

    run: str = ""
    study: str = ""
    roster: Mapping[str, str] | None = None
    releases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    releasable: frozenset[str] = frozenset()

    @classmethod
    def masked(
        cls,
        study: str = "",
        roster: Mapping[str, str] | None = None,
        releases: Mapping[str, str] | None = None,
        releasable: frozenset[str] = frozenset(),
    ) -> "Invitation":
        """An invitation to a new fit whose server learns sums over all sites only."""
        return cls(secrets.token_hex(16), study, roster, releases or {}, releasable)

    def unreleased(self, sites: Iterable[str]) -> list[str]:
        """Which of these sites have not agreed that sums with and without them may be told.

        Where there is no study that names keys, nobody could say so for a site.
        """
        agreed = self.releasable | set(self.releases)
        return [] if self.roster is None else [site for site in sites if site not in agreed]

    @property
    def is_masked(self) -> bool:
        """Whether answers are masked."""
        return bool(self.run)

    @property
    def hello(self) -> bytes:
        """The first request to a site."""
        return pack({"kind": "hello", "study": self.study, "run": self.run}, {})

    def card(self, site: str, head: Head) -> Card | None:
        """The card in a site's reply to that, checked; None where answers are not masked."""
        if not self.is_masked:
            return None
        card = read_card(head.get("card"))
        if (card.site, card.study, card.run) != (site, self.study, self.run):
            raise Malformed("the card is of another site, study or fit")
        if self.roster is not None:
            require_roster(card, self.roster)
        return card


PLAIN = Invitation()
