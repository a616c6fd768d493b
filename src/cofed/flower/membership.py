"""Who is there: nodes are asked for their names, let in or refused, and counted."""

import time
from collections.abc import Callable

from cofed.flower import wire
from cofed.flower.agreement import Agreement
from cofed.flower.exchange import Exchange, Reply
from cofed.flower.messages import Card
from cofed.flower.progress import Diary
from cofed.flower.settings import Settings

SETTLE = 10.0  # seconds without a new site, after which those that are there are all, where nobody said how many


class Roll:
    """The run's sites; `agree` makes of their cards what they go by, `write` is called when one comes late.

    `cards` are those of a run that goes on.
    """

    def __init__(
        self,
        exchange: Exchange,
        diary: Diary,
        settings: Settings,
        agree: Callable[[Settings, dict[str, Card]], Agreement],
        write: Callable[[], None],
        cards: dict[str, Card],
    ):
        self.exchange, self.diary, self.settings = exchange, diary, settings
        self.agree, self.write, self.cards = agree, write, cards
        self.agreed: Agreement  # once the sites are there
        self.fixed, self.known = False, bool(cards)
        if self.known:
            self.fix()

    def fix(self) -> None:
        """These are the sites."""
        self.settings = self.settings.settled(self.settings.clients or len(self.cards))
        self.agreed = self.agree(self.settings, self.cards)
        self.fixed = True

    def gather(self) -> None:
        """Wait until the sites have told their names and sizes: see `complete`."""
        began = news = time.monotonic()
        known: set[str] = set()
        while True:
            self.look_around()
            for reply in self.exchange.replies():
                self.introduce(reply)
            there, clock = self.present(), time.monotonic()
            news = news if there == known else clock
            known = there
            if self.complete(there, clock - began, clock - news):
                break
            wanted = self.wanted()
            if clock - began > self.settings.patience:
                raise RuntimeError(
                    f"only {len(there)} of {wanted} sites have told their names within {self.settings.patience:g} s "
                    f"({', '.join(sorted(there)) or 'none'}); start the others, or give a smaller clients="
                )
            if len(there) < wanted:
                self.diary.now_and_then("sites", f"{len(there)} of {wanted} sites are there; waiting for the others")
            self.exchange.pause()
        if not self.known:
            self.fix()

    def wanted(self) -> int:
        """How many sites a run waits for before it begins or goes on."""
        return self.settings.quorum if self.known else self.settings.clients or self.settings.quorum

    def complete(self, there: set[str], seconds: float, quiet: float) -> bool:
        """Whether a run can begin: with all sites; if they are named, at the deadline with the quorum; if not even
        their number is known, with those that have come when nobody new comes. To go on, it needs its quorum only."""
        settings = self.settings
        if settings.clients == 0:
            return len(there) >= settings.quorum and quiet > SETTLE
        if settings.names and seconds > settings.deadline:
            return len(there) >= settings.settled(settings.clients).quorum
        return len(there) >= self.wanted()

    def look_around(self) -> None:
        """Ask nodes that are new who they are."""
        online = self.exchange.online()
        for node in online - self.exchange.greeted:
            self.exchange.greet(node, self.settings.patience)
        self.exchange.greeted &= online

    def introduce(self, reply: Reply) -> None:
        """Take in a node's answer to who it is."""
        if reply.content is None:
            self.diary.tell("refused", f"a node could not say who it is: {reply.trouble}")
            return
        try:
            card = Card.read(wire.head_of(reply.content))
        except wire.WireError as error:
            self.diary.tell("refused", f"a node's card was refused: {error}")
            return
        try:
            self.admit(card)
        except ValueError as error:
            self.diary.tell("refused", f"{card.site} was refused: {error}", site=card.site)
            return
        node, old = reply.asked.node, self.exchange.nodes.get(card.site)
        if old is not None and old != node and old in self.exchange.online():
            # A node that was killed counts as there until its heartbeat is missed: the newer one is the living one.
            self.diary.tell(
                "replaced", f"a second node calls itself {card.site}; the newer one is asked", site=card.site
            )
        self.exchange.nodes[card.site] = node
        self.diary.tell("joined", f"{card.site} is there, with {card.samples} samples", site=card.site)

    def admit(self, card: Card) -> None:
        """Let a site in, or say why not; once the run has begun its sites and their data are fixed, but for those that
        were named and have not come before."""
        named, known = card.site in self.settings.names, self.cards.get(card.site)
        if not self.fixed:
            if self.settings.names and not named:
                raise ValueError("it is not one of the run's sites")
            self.cards[card.site] = card
        elif known is not None:
            if known != card:
                raise ValueError("its data are not those of before")
        elif not named:
            raise ValueError("it is not one of the run's sites")
        else:
            cards = self.cards | {card.site: card}
            late = self.agree(self.settings, cards)
            if late.outputs != self.agreed.outputs:
                raise ValueError(f"it has {card.outputs} classes, but the run has begun with {self.agreed.outputs}")
            self.cards, self.agreed = cards, late
            self.write()

    def present(self) -> set[str]:
        """The sites whose nodes are there."""
        online = self.exchange.online()
        return {site for site, node in self.exchange.nodes.items() if node in online and site in self.cards}
