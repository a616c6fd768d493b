"""Messages between the server and its sites over Flower's Grid: who is there, who was asked, who answered what."""

import dataclasses
import time
from typing import Any

from cofed.flower import wire

PAUSE = 0.3  # seconds between two looks for replies; Flower's own loop waits for 3


@dataclasses.dataclass(frozen=True)
class Asked:
    """A message under way."""

    node: int
    site: str | None  # None: a node that is asked for its name
    round: int


@dataclasses.dataclass(frozen=True)
class Reply:
    """What came back: contents, or the reason why there are none."""

    asked: Asked
    content: Any = None
    trouble: str = ""
    kind: str = ""  # of the trouble: NotFinite and Lost are told apart from all others


class Exchange:
    """The server's side of the wire."""

    def __init__(self, grid: Any, run: str, identity: dict[str, Any]):
        self.grid, self.run, self.identity = grid, run, identity
        self.nodes: dict[str, int] = {}  # site -> its node
        self.greeted: set[int] = set()
        self.waiting: dict[str, Asked] = {}  # message id -> what was asked

    def online(self) -> set[int]:
        """The nodes that Flower sees."""
        return set(self.grid.get_node_ids())

    def greet(self, node: int, ttl: float) -> None:
        """Ask a node who it is."""
        self.greeted.add(node)
        self.send("query", Asked(node, None, -1), {}, {}, ttl)

    def ask(self, site: str, round: int, head: dict[str, Any], arrays: dict[str, Any], ttl: float) -> None:
        """Ask a site for its work in a round."""
        self.send("train", Asked(self.nodes[site], site, round), head, arrays, ttl)

    def send(self, kind: str, asked: Asked, head: dict[str, Any], arrays: dict[str, Any], ttl: float) -> None:
        """Send one message."""
        from flwr.app import ConfigRecord, Message, RecordDict

        head = self.identity | {"run": self.run, "round": asked.round} | head
        content = RecordDict({"cofed": ConfigRecord(head), **arrays})
        message = Message(content, dst_node_id=asked.node, message_type=kind, ttl=ttl, group_id=str(asked.round))
        for number in self.grid.push_messages([message]):
            if number:  # Flower gives an empty one for a message that it could not take
                self.waiting[number] = asked

    def asked(self, site: str, round: int) -> bool:
        """Whether a reply of this site in this round is still awaited."""
        return any(one.site == site and one.round == round for one in self.waiting.values())

    def replies(self) -> list[Reply]:
        """What has come back since the last look."""
        if not self.waiting:
            return []
        found = []
        for message in self.grid.pull_messages(list(self.waiting)):
            asked = self.waiting.pop(message.metadata.reply_to_message_id, None)
            if asked is None:
                continue
            if message.has_error():
                self.greeted.discard(asked.node)
                found.append(Reply(asked, trouble=f"its node failed: {wire.clipped(message.error.reason, 300)}"))
                continue
            try:
                found.append(Reply(asked, *self.checked(asked, message.content)))
            except wire.WireError as error:
                found.append(Reply(asked, trouble=str(error)))
        return found

    def checked(self, asked: Asked, content: Any) -> tuple[Any, str, str]:
        """The contents of a reply, or its own words on why there are none; a reply that is not ours is refused."""
        head = wire.head_of(content)
        trouble, kind = head.get("trouble"), head.get("kind")
        if not isinstance(trouble, str) or not isinstance(kind, str):
            raise wire.WireError("the reply does not say whether it went well")
        if trouble:
            return None, trouble[:300] if trouble.isprintable() else wire.clipped(trouble, 300), kind
        expected = dict(self.identity)
        if asked.site is not None:
            expected |= {"run": self.run, "round": asked.round, "site": asked.site}
        wire.check_head(content, **expected)
        return content, "", ""

    def forget(self, round: int) -> None:
        """Wait no longer for replies of rounds before this one."""
        self.waiting = {number: one for number, one in self.waiting.items() if one.site is None or one.round >= round}

    def pause(self) -> None:
        """Wait a little."""
        time.sleep(PAUSE)
