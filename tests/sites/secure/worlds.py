"""Sites in this process, reached by bytes alone, whose answers are masked."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from cofed.sites import ChosenColumns, Exchanges, SiteTable
from cofed.sites.guard import AbstractGuard, OpenGuard
from cofed.sites.link import AbstractLink, CardsChanged, Replies, SitesMissing
from cofed.sites.local import Consent, LocalSite
from cofed.sites.network import NetworkSites
from cofed.sites.packing import Malformed
from cofed.sites.questions import question_hash
from cofed.sites.replies import opened, read_info
from cofed.sites.secure.invitation import Invitation
from cofed.sites.secure.site_end import StaleCard


def table(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Rows with numbers, a factor and three kinds of targets."""
    X = rng.normal(size=(n, 3)) * [1.0, 30.0, 1e-3] + [0.0, 1e4, 5.0]
    ill = (X[:, 0] + rng.normal(size=n) > 0).astype(int)
    return pd.DataFrame(
        {
            "a": X[:, 0],
            "b": X[:, 1],
            "c": X[:, 2],
            "ward": rng.choice(["x", "y"], n),
            "cost": X[:, 0] + 0.1 * X[:, 1] + rng.normal(size=n),
            "ill": ill,
            "visits": rng.poisson(np.exp(0.3 * X[:, 0])),
        }
    )


def tables(seed: int = 0, sizes: tuple[int, ...] = (40, 23, 31, 57)) -> dict[str, pd.DataFrame]:
    """A table for each of some sites."""
    rng = np.random.default_rng(seed)
    return {name: table(rng, n) for name, n in zip(("oslo", "rome", "bern", "cork"), sizes, strict=False)}


class MaskedLink(AbstractLink):
    """A server's link to sites in this process.

    `tamper(site, request)` is what the server sends to a site instead of the request, and what went both ways is kept.
    """

    def __init__(
        self,
        tables: dict[str, pd.DataFrame],
        keep: Path | None = None,
        invitation: Invitation | None = None,
        guard: Callable[[str], AbstractGuard] = lambda site: OpenGuard(),
        consent: Callable[[str], Consent] = lambda site: Consent(),
    ):
        self.tables, self.keep, self.guard, self.consent = tables, keep, guard, consent
        self.invitation = invitation or Invitation.masked()
        self.exchanges = Exchanges()
        self.sites = {name: self.started(name) for name in tables}
        self.tamper = lambda site, request: request
        self.requests: list[bytes] = []
        self.replies: dict[str, list[bytes]] = {name: [] for name in tables}
        self.cards = {}

    def started(self, name: str) -> LocalSite:
        """A new process of a site."""
        keep = None if self.keep is None else self.keep / name
        return LocalSite(
            name, lambda: SiteTable(self.tables[name], name), self.consent(name), self.guard(name), keep=keep
        )

    def hear(self, name: str):
        """Ask a site who it is."""
        hello = self.invitation.hello
        head, _ = opened(name, question_hash(hello), self.sites[name].answer(hello))
        card = self.invitation.card(name, head)
        if card is not None:
            self.cards[name] = card
        return read_info(head)

    def gather(self, wanted):
        return {name: self.hear(name) for name in (wanted if not isinstance(wanted, int) else self.tables)}

    def ask_all(self, request, sites, read):
        found, up = {}, 0
        self.requests.append(request)
        for site in sites:
            reply = self.sites[site].answer(self.tamper(site, request))
            self.replies[site].append(reply)
            up += len(reply)
            try:
                found[site] = read(site, reply)
            except StaleCard:
                self.hear(site)
                raise CardsChanged(f"the keys of {site} are new") from None
            except Malformed as error:
                raise SitesMissing(f"{site}: {error}", {site: str(error)}) from None
        return Replies(found, len(request) * len(sites), up)


@dataclasses.dataclass
class Pinned(Consent):
    """A site that has approved a study with these keys of its sites."""

    keys: Mapping[str, str]

    def roster(self, study: str) -> Mapping[str, str]:
        return self.keys


def pin(link: MaskedLink) -> MaskedLink:
    """Let every site know the long-term keys of all."""
    keys = {name: site.masks.keys.public for name, site in link.sites.items()}
    for site in link.sites.values():
        site.consent = Pinned(keys)
    return link


def over(link: MaskedLink, log: Path | None = None, **columns) -> NetworkSites:
    """The sites of a link."""
    return NetworkSites.open(link, list(link.tables), ChosenColumns(**columns), log)
