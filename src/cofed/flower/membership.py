"""Which sites take part: nodes are asked who they are, let in or refused, and watched as they come and go.

Everything here is data: a function returns the new membership and the events to be told of it.
"""

import dataclasses
import json
from collections.abc import Mapping, Set

from cofed.flower import wire
from cofed.flower.agreement import Agreement, agreement
from cofed.flower.flwr_types import RecordDict
from cofed.flower.messages import SiteInfo
from cofed.flower.progress import Event
from cofed.flower.settings import NetworkSpec, ServerSettings
from cofed.flower.transport import Reply
from cofed.sites.packing import Malformed
from cofed.sites.secure.cards import Card
from cofed.sites.secure.invitation import Invitation

SETTLE = 10.0  # seconds without a new site after which a run of unknown size begins with those that are there


@dataclasses.dataclass(frozen=True)
class Membership:
    """The sites of a run, and the nodes of Flower at which they are.

    Parameters
    ----------
    spec : NetworkSpec
        The run.
    infos : mapping of str to SiteInfo
        What the sites have said of themselves, by name.
    agreed : Agreement, optional
        What the sites go by; None until it is settled which they are.
    resumed : bool
        Whether the sites are those of a run that goes on.
    nodes : mapping of str to int
        The node of each site.
    greeted : set of int
        The nodes that were asked who they are.
    online : set of int
        The nodes that Flower saw at the last look.
    run : str
        Which run it is.
    cards : mapping of str to Card
        The sites' signed cards, where updates are masked.
    """

    spec: NetworkSpec
    infos: Mapping[str, SiteInfo]
    agreed: Agreement | None = None
    resumed: bool = False
    nodes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    greeted: frozenset[int] = frozenset()
    online: frozenset[int] = frozenset()
    run: str = ""
    cards: Mapping[str, Card] = dataclasses.field(default_factory=dict)

    @classmethod
    def begin(cls, spec: NetworkSpec, infos: Mapping[str, SiteInfo], run: str = "") -> "Membership":
        """The membership at the start of the server; `infos` are those of a run that goes on."""
        if not infos:
            return cls(spec, infos, run=run)
        return cls(spec, infos, resumed=True, run=run).settle()

    def settle(self) -> "Membership":
        """The sites that have come are the sites of the run."""
        return dataclasses.replace(self, agreed=self.agreed or agreement(self.spec, self.infos))

    @property
    def agreement(self) -> Agreement:
        """What the sites go by, once it is settled which they are."""
        assert self.agreed is not None
        return self.agreed

    @property
    def settings(self) -> ServerSettings:
        """The settings, with the number of clients as far as it is known."""
        return self.spec.settings if self.agreed is None else self.agreed.settings

    @property
    def present(self) -> Set[str]:
        """The sites whose nodes are online."""
        return {site for site, node in self.nodes.items() if node in self.online and site in self.infos}

    @property
    def wanted(self) -> int:
        """How many sites a run waits for before it begins or goes on."""
        settings = self.settings
        return settings.quorum if self.resumed else settings.clients or settings.quorum

    def complete(self, seconds: float, quiet: float) -> bool:
        """Whether the run can begin, after so many seconds of which the last `quiet` brought nobody new.

        It begins with all sites; where they are named, at the deadline with the quorum; where not even their number is
        known, with those that have come when nobody new comes. To go on, it needs its quorum only.
        """
        settings, there = self.settings, len(self.present)
        if settings.clients == 0:
            return there >= settings.quorum and quiet > SETTLE
        if settings.names and seconds > settings.deadline:
            return there >= settings.settled(settings.clients).quorum
        return there >= self.wanted

    def look_around(self, online: frozenset[int]) -> tuple["Membership", frozenset[int]]:
        """The membership with these nodes online, and the new ones, which are to be asked who they are."""
        return dataclasses.replace(self, online=online, greeted=online), online - self.greeted

    def node_failed(self, node: int) -> "Membership":
        """The membership after Flower has reported that a node failed: it will be asked anew who it is."""
        return dataclasses.replace(self, greeted=self.greeted - {node})

    def introduce(self, reply: Reply) -> tuple["Membership", list[Event]]:
        """The membership after a node has answered who it is."""
        if reply.content is None:
            return self, [Event("refused", f"a node could not say who it is: {reply.trouble.words}")]
        try:
            info = SiteInfo.read(wire.head_of(reply.content))
            cards = self.cards if self.settings.plain else {**self.cards, info.site: self.card(info, reply.content)}
        except (wire.WireError, Malformed) as error:
            return self, [Event("refused", f"a node's card was refused: {error}")]
        site, node, events = {"site": info.site}, reply.request.node, []
        try:
            new = self.admit(info)
        except ValueError as error:
            return self, [Event("refused", f"{info.site} was refused: {error}", site)]
        old = self.nodes.get(info.site)
        if old is not None and old != node and old in self.online:
            # A node that was killed counts as online until its heartbeat is missed: the newer one is the living one.
            words = f"a second node calls itself {info.site}; the newer one is asked"
            events.append(Event("replaced", words, site))
        events.append(Event("joined", f"{info.site} is there, with {info.samples} samples", site))
        return dataclasses.replace(new, nodes={**self.nodes, info.site: node}, cards=cards), events

    def card(self, info: SiteInfo, content: RecordDict) -> Card:
        """The signed card in a site's reply, which must be of this site, run and data."""
        try:
            head = json.loads(str(wire.head_of(content).get("card")))
        except ValueError:
            raise wire.WireError(
                "it has no card to mask updates with; it may have an earlier version of cofed"
            ) from None
        card = Invitation(self.run).card(info.site, {"card": head})
        assert card is not None
        if card.rows != info.samples:
            raise wire.WireError(f"its card speaks of {card.rows} rows, and its info of {info.samples}")
        return card

    def admit(self, info: SiteInfo) -> "Membership":
        """Let a site in, or refuse it with a `ValueError`.

        Once the run has begun, its sites and their data are fixed, apart from named sites that come late.
        """
        named, known = info.site in self.settings.names, self.infos.get(info.site)
        if self.agreed is None:
            if self.settings.names and not named:
                raise ValueError("it is not one of the run's sites")
            return dataclasses.replace(self, infos={**self.infos, info.site: info})
        if known is not None:
            if known != info:
                raise ValueError("its data are not those of before")
            return self
        if not named:
            raise ValueError("it is not one of the run's sites")
        infos = {**self.infos, info.site: info}
        late = agreement(self.spec, infos)
        if late.outputs != self.agreed.outputs:
            raise ValueError(f"it has {info.outputs} classes, but the run has begun with {self.agreed.outputs}")
        return dataclasses.replace(self, infos=infos, agreed=late)
