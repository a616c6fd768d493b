"""Requests to sites over Flower's Grid, whoever comes, goes, fails or keeps silent."""

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from cofed.flower import wire
from cofed.flower.flwr_types import Grid, Message, RecordDict
from cofed.flower.progress import Event, ProgressLog
from cofed.sites.base import SiteRefused
from cofed.sites.columns import TableInfo
from cofed.sites.exchanges import Exchanges
from cofed.sites.link import AbstractLink, CardsChanged, Replies, SitesMissing
from cofed.sites.packing import Malformed, clipped, pack, unpack
from cofed.sites.policy import advice
from cofed.sites.questions import question_hash
from cofed.sites.replies import opened, read_info
from cofed.sites.secure.cards import Card
from cofed.sites.secure.invitation import Invitation
from cofed.sites.secure.site_end import StaleCard

T = TypeVar("T")
PART = "cofed-sites"  # of a message
PAUSE = 0.1  # seconds between two looks for replies
LOOK_AROUND = 1.0  # seconds between two looks for nodes
AGAIN = 3.0  # seconds before a site that answered badly is asked again
REFUSED = 30.0  # seconds before a site that did not say who it is, by a rule of its own, is asked again
SILENCE = 60.0  # seconds before a silent site is asked again, the first time
FAREWELL = 5.0  # seconds in which sites may say that they have heard of the end
MOST_BAD = 3  # bad answers of a site to one request
LONGEST_NAME = 200  # characters


class Sent(NamedTuple):
    """A request that a reply is awaited to."""

    node: int
    site: str  # empty: the node is asked who it is
    mark: str  # the request's hash


@dataclasses.dataclass
class Waiting:
    """What one exchange knows of a site that has not answered yet."""

    node: int = -1  # where it was asked last
    again: float = -math.inf  # when it is asked again
    interval: float = SILENCE
    bad: int = 0  # answers that did not count
    words: str = "it did not answer"


class FlowerLink(AbstractLink):
    """The sites of a Grid.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The Grid that a ServerApp is given.
    patience : float
        Seconds to wait for a site.
    progress : ProgressLog
        Where it is told what happens.
    invitation : Invitation
        What sites are told at the beginning.
    check : callable, optional
        Called now and then while one waits, with the nodes of the sites that have joined. It gives the sites that were
        started anew, and what was sent to them is sent again; it may raise an error.
    is_final : bool
        Whether nobody changes a site's rules, or what it has approved, while one waits: then a site that does not even
        say who it is ends the waiting. Else it is asked again now and then.
    """

    def __init__(
        self,
        grid: Grid,
        patience: float,
        progress: ProgressLog,
        invitation: Invitation,
        check: Callable[[Mapping[str, int]], Collection[str]] = lambda joined: (),
        is_final: bool = False,
    ):
        self.grid, self.patience, self.progress, self.check = grid, patience, progress, check
        self.invitation, self.is_final = invitation, is_final
        self.cards: dict[str, Card] = {}
        self.refused: dict[str, str] = {}  # by site, why it could not say who it is
        self.changed: set[str] = set()  # sites whose cards are new since a request was made
        self.nodes: dict[str, int] = {}  # of each site
        self.infos: dict[str, TableInfo] = {}
        self.online: frozenset[int] = frozenset()
        self.greeted: set[int] = set()
        self.closed: dict[int, float] = {}  # by node that keeps silent by a rule: when it is asked again
        self.awaited: dict[str, Sent] = {}  # by Flower's message id
        self.renewed: set[str] = set()  # sites that have lost what was sent to them
        self.looked = -math.inf
        self.exchanges = Exchanges()

    @property
    def number(self) -> int:
        """Of the present exchange."""
        return len(self.exchanges) + 1

    # Who is there

    def gather(self, wanted: Sequence[str] | int) -> dict[str, TableInfo]:
        began, names = time.monotonic(), None if isinstance(wanted, int) else set(wanted)
        while True:
            self.look_around()
            for sent, message in self.replies():
                if not sent.site:
                    self.introduced(sent, message)
            here = [site for site in self.nodes if names is None or site in names]
            if len(here) >= (wanted if isinstance(wanted, int) else len(wanted)):
                return {site: self.infos[site] for site in here}
            missing = sorted(names - set(here)) if names is not None else []
            words = f"{present(here)}; waiting for {', '.join(missing) if missing else f'{wanted} in all'}"
            if time.monotonic() - began > self.patience:
                why = {site: self.refused.get(site, "it did not come") for site in missing}
                said = "".join(f"; {self.refused[site]}" for site in missing if site in self.refused)
                raise SitesMissing(f"after {self.patience:g} s, {words}{said}", why)
            self.remind("sites", words)
            time.sleep(PAUSE)

    def look_around(self) -> None:
        """Ask nodes that are new who they are."""
        clock = time.monotonic()
        if clock - self.looked < LOOK_AROUND:
            return
        self.renewed |= set(self.check(self.nodes))
        self.looked, self.online = clock, frozenset(self.grid.get_node_ids())
        due = {node for node, again in self.closed.items() if again <= clock}
        self.greeted -= due
        self.closed = {node: again for node, again in self.closed.items() if node not in due}
        new, hello = self.online - self.greeted, self.invitation.hello
        self.greeted = set(self.online)
        for node in new:
            self.send(Sent(node, "", question_hash(hello)), hello)

    def introduced(self, sent: Sent, message: Message) -> None:
        """Take in who a node says it is."""
        name = ""
        try:
            reply = payload(message)
            name = site_in(reply)
            head = opened(name, sent.mark, reply)[0]
            info, card = read_info(head), self.invitation.card(name, head)
        except SiteRefused as error:
            self.closed[sent.node] = time.monotonic() + REFUSED
            if self.is_final:
                raise
            words = f"{error}. {advice(error)}"
            if self.refused.get(name) != words:
                self.tell("refused", words, name)
            self.refused[name] = words
            return
        except ValueError as error:
            self.refused[name] = str(error)
            self.tell("refused", f"{name or 'a node'} could not say who it is: {error}")
            return
        self.refused.pop(name, None)
        if name in self.infos and self.infos[name] != info:
            self.tell("refused", f"{name} was refused: its data are not those of before", name)
            return
        if self.nodes.get(name, sent.node) != sent.node and self.nodes[name] in self.online:
            # A node that was killed counts as online until its heartbeat is missed: the newer one is the living one.
            self.tell("replaced", f"a second node calls itself {name}; the newer one is asked", name)
        self.nodes[name], self.infos[name] = sent.node, info
        if card is not None:
            if name in self.cards and self.cards[name] != card:
                self.changed.add(name)
            self.cards[name] = card
        self.renewed.add(name)  # it may be a new process at the same node
        self.tell("joined", f"{name} is there, with {info.rows} rows", name)

    # Questions

    def ask_all(self, request: bytes, sites: Sequence[str], read: Callable[[str, bytes], T]) -> Replies[T]:
        began, mark = time.monotonic(), question_hash(request)
        waiting, found, up, down = {site: Waiting() for site in sites}, {}, 0, 0
        self.awaited = {key: sent for key, sent in self.awaited.items() if not sent.site}  # others are of the past
        self.changed.clear()
        while waiting:
            self.look_around()
            if self.changed & set(sites):
                raise CardsChanged(f"the keys of {', '.join(sorted(self.changed))} are new")
            down += len(request) * sum(self.ask_where_due(site, one, request, mark) for site, one in waiting.items())
            for sent, message in self.replies():
                if not sent.site:
                    self.introduced(sent, message)
                    continue
                if sent.mark != mark or sent.site not in waiting:
                    continue
                try:
                    reply = payload(message)
                    up += len(reply)
                    found[sent.site] = read(sent.site, reply)
                except Malformed as error:
                    unknown = message.has_error() or isinstance(error, StaleCard)
                    self.troubled(sent, waiting[sent.site], str(error), unknown)
                    continue
                del waiting[sent.site]
                self.tell("heard", f"exchange {self.number}: {sent.site} has answered", sent.site)
            self.check_patience(waiting, time.monotonic() - began)
            if waiting:
                time.sleep(PAUSE)
        self.tell("round", f"exchange {self.number}: all {len(sites)} sites have answered")
        return Replies(found, down, up)

    def ask_where_due(self, site: str, waiting: Waiting, request: bytes, mark: str) -> bool:
        """Ask a site that is there, and is new, at another node than before, or silent for long; whether it was asked.

        A silent site is asked anew since the message may have died with its node; at growing intervals, since it may
        only be slow. Answering twice does no harm.
        """
        node, clock = self.nodes.get(site, -1), time.monotonic()
        same = node == waiting.node and site not in self.renewed
        if node not in self.online or (same and clock < waiting.again):
            return False
        if same:
            waiting.interval *= 2
        self.renewed.discard(site)
        waiting.node, waiting.again = node, clock + waiting.interval
        self.send(Sent(node, site, mark), request)
        self.tell("asked", f"exchange {self.number}: asked {site}", site)
        return True

    def troubled(self, sent: Sent, waiting: Waiting, words: str, ask_who: bool) -> None:
        """Take in that a site answered badly: it is asked again soon, and where that is due, who it is."""
        if waiting.words != words:
            self.tell("trouble", f"exchange {self.number}: {sent.site}: {words}", sent.site)
        waiting.words, waiting.again = words, time.monotonic() + AGAIN
        if ask_who:
            self.greeted.discard(sent.node)
        else:
            waiting.bad += 1

    def check_patience(self, waiting: Mapping[str, Waiting], seconds: float) -> None:
        """End the exchange where a site has been silent for too long, or has answered badly too often."""
        bad = {site: one.words for site, one in waiting.items() if one.bad >= MOST_BAD}
        lost = bad or ({site: one.words for site, one in waiting.items()} if seconds > self.patience else {})
        if lost:
            why = "; ".join(f"{site}: {words}" for site, words in lost.items())
            sentence = f"exchange {self.number} ended without {', '.join(lost)} after {seconds:.0f} s ({why})"
            self.tell("stopped", sentence)
            raise SitesMissing(sentence, lost)
        if waiting and seconds > 10:
            self.remind("silent", f"exchange {self.number}: waiting for {', '.join(waiting)}")

    def end(self, sites: Sequence[str]) -> None:
        invitation = self.invitation
        if invitation.is_masked:
            words = pack({"kind": "end", "study": invitation.study, "run": invitation.run}, {})
            self.awaited.clear()
            for site in sites:
                if self.nodes.get(site, -1) in self.online:
                    self.send(Sent(self.nodes[site], site, question_hash(words)), words)
            until = time.monotonic() + FAREWELL
            while self.awaited and time.monotonic() < until:
                self.replies()
                time.sleep(PAUSE)

    # The wire

    def send(self, sent: Sent, request: bytes) -> None:
        """Send a request to a node; Flower drops it where nobody takes it for long enough."""
        from flwr.app import Message

        message = Message(content(request), dst_node_id=sent.node, message_type="query", ttl=max(self.patience, 60.0))
        for message_id in self.grid.push_messages([message]):
            if message_id:  # Flower gives an empty one for a message that it could not take
                self.awaited[message_id] = sent

    def replies(self) -> list[tuple[Sent, Message]]:
        """What has come back since the last look."""
        if not self.awaited:
            return []
        found = []
        for message in self.grid.pull_messages(list(self.awaited)):
            sent = self.awaited.pop(message.metadata.reply_to_message_id, None)
            if sent is not None:
                found.append((sent, message))
        return found

    def remind(self, topic: str, words: str) -> None:
        """Tell now and then what is waited for."""
        if self.progress.remind(self.number, topic, words):
            self.exchanges.tell("waiting", words=words)

    def tell(self, kind: str, words: str, site: str | None = None) -> None:
        """Tell what happened."""
        details = {} if site is None else {"site": site}
        self.progress.tell(self.number, [Event(kind, words, details)])
        self.exchanges.tell(kind, words=words, **details)


def present(sites: Sequence[str]) -> str:
    """Who is there, in words.

    >>> from cofed.flower.link import present
    >>> present([]), present(["oslo"]), present(["rome", "oslo"])
    ('no site is there', '1 site is there (oslo)', '2 sites are there (oslo, rome)')
    """
    if not sites:
        return "no site is there"
    many = "1 site is" if len(sites) == 1 else f"{len(sites)} sites are"
    return f"{many} there ({', '.join(sorted(sites))})"


def content(data: bytes) -> RecordDict:
    """Bytes as the content of a message of Flower, which sends large arrays in pieces."""
    from flwr.app import Array, ArrayRecord, RecordDict

    return RecordDict({PART: ArrayRecord({"bytes": Array(np.frombuffer(data, np.uint8))})})


def payload(message: Message) -> bytes:
    """The bytes in a message of Flower; one that holds no such thing is refused."""
    if message.has_error():
        raise Malformed(f"its node failed: {clipped(message.error.reason, 300)}")
    record = message.content.array_records.get(PART, {})
    if list(record) != ["bytes"] or len(record["bytes"].shape) != 1:
        raise Malformed("the message is not one of cofed's")
    array = record["bytes"]
    try:
        return wire.read(array, tuple(array.shape), np.dtype(np.uint8), "the message").tobytes()
    except wire.WireError as error:
        raise Malformed(str(error)) from None


def site_in(reply: bytes) -> str:
    """The name of the site that a reply is of."""
    name = unpack(reply)[0].get("site")
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise Malformed(f"the site's name is {clipped(name)}")
    return name
