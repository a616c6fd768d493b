"""Requests from the server to nodes over Flower's Grid, and the replies to them."""

import dataclasses
import time
from collections.abc import Mapping
from typing import NamedTuple

from cofed.flower import wire
from cofed.flower.flwr_types import ArrayRecord, Grid, RecordDict
from cofed.flower.messages import Identity

PAUSE = 0.3  # seconds between two looks for replies; Flower's own loop waits for 3


class Trouble(NamedTuple):
    """Why a site's work did not count."""

    kind: str  # of the site's error; "NotFinite" and "Lost" are treated in ways of their own
    words: str


NONE = Trouble("", "")


@dataclasses.dataclass(frozen=True)
class Request:
    """A message that a reply is awaited to."""

    node: int
    site: str | None = None  # None: the node is asked who it is
    round: int = -1
    kind: str = "query"  # Flower's message type
    mark: str = ""  # the hash of the whole message, where updates are masked


@dataclasses.dataclass(frozen=True)
class Reply:
    """What came back: its content, or why there is none."""

    request: Request
    content: RecordDict | None = None
    trouble: Trouble = NONE
    node_failed: bool = False  # Flower itself answered: the node may have been started anew


class Transport:
    """The server's side of the wire.

    It remembers which replies are awaited, and nothing else about a run.
    """

    def __init__(self, grid: Grid, identity: Identity, run: str):
        self.grid, self.identity, self.run = grid, identity, run
        self.awaited: dict[str, Request] = {}  # by Flower's message id

    def online(self) -> frozenset[int]:
        """The nodes that Flower sees."""
        return frozenset(self.grid.get_node_ids())

    def send(self, request: Request, head: wire.Head, arrays: Mapping[str, ArrayRecord], seconds: float) -> None:
        """Send one message, which Flower drops where nobody has taken it in so many seconds."""
        from flwr.app import Message

        message = Message(
            self.content(request.round, head, arrays),
            dst_node_id=request.node,
            message_type=request.kind,
            ttl=seconds,
            group_id=str(request.round),
        )
        for message_id in self.grid.push_messages([message]):
            if message_id:  # Flower gives an empty one for a message that it could not take
                self.awaited[message_id] = request

    def content(self, round: int, head: wire.Head, arrays: Mapping[str, ArrayRecord]) -> RecordDict:
        """What a message of a round says."""
        from flwr.app import ConfigRecord, RecordDict

        head = self.identity.entries() | {"run": self.run, "round": round} | head
        return RecordDict({"cofed": ConfigRecord(head), **arrays})  # pyright: ignore[reportArgumentType]

    def replies(self) -> list[Reply]:
        """What has come back since the last look."""
        if not self.awaited:
            return []
        found = []
        for message in self.grid.pull_messages(list(self.awaited)):
            request = self.awaited.pop(message.metadata.reply_to_message_id, None)
            if request is None:
                continue
            if message.has_error():
                words = f"its node failed: {wire.clipped(message.error.reason, 300)}"
                found.append(Reply(request, trouble=Trouble("", words), node_failed=True))
                continue
            try:
                found.append(self.checked(request, message.content))
            except wire.WireError as error:
                found.append(Reply(request, trouble=Trouble("", str(error))))
        return found

    def checked(self, request: Request, content: RecordDict) -> Reply:
        """The reply with this content; one that does not answer the request is refused."""
        head = wire.head_of(content)
        trouble, kind = head.get("trouble"), head.get("kind")
        if not isinstance(trouble, str) or not isinstance(kind, str):
            raise wire.WireError("the reply does not say whether it went well")
        if trouble:
            words = trouble[:300] if trouble.isprintable() else wire.clipped(trouble, 300)
            return Reply(request, trouble=Trouble(kind, words))
        expected = self.identity.entries()
        if request.site is not None:
            expected |= {"run": self.run, "round": request.round, "site": request.site}
        wire.check_head(content, **expected)
        return Reply(request, content)

    def forget(self, round: int) -> None:
        """Stop waiting for replies to requests of rounds before this one."""
        self.awaited = {key: one for key, one in self.awaited.items() if one.site is None or one.round >= round}


def pause() -> None:
    """Wait a little before the next look for replies."""
    time.sleep(PAUSE)
