"""A Grid in this process: real Flower messages, through Flower's own serialisation, to real ClientApps, one by one."""

import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.serverapp import Grid

import cofed
from cofed.flower import client_app, transport
from cofed.sites.policy import TRIAL


def over_the_wire(content: RecordDict) -> RecordDict:
    """What arrives of it."""
    return recorddict_from_proto(recorddict_to_proto(content))


class Loopback(Grid):
    """Nodes in this process. `fault(site, message, reply)` may change a reply, or drop it by giving None."""

    def __init__(self, fault: Callable[[str, Any, Any], Any] | None = None):
        self.nodes: dict[int, tuple[Any, Context]] = {}
        self.fault = fault or (lambda site, message, reply: reply)
        self.replies: dict[str, Message] = {}
        self.numbers = itertools.count(1)
        self.seen: list[tuple[str, Message, Message]] = []

    def add(self, app: Any, **config: Any) -> int:
        """A node with this configuration."""
        number = next(self.numbers)
        self.nodes[number] = (app, Context(1, number, config, RecordDict(), {}))
        return number

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def push_messages(self, messages: Any) -> list[str]:
        numbers = []
        for message in messages:
            number = f"message-{next(self.numbers)}"
            message.metadata.__dict__["_message_id"] = number
            message.content = over_the_wire(message.content)
            numbers.append(number)
            app, context = self.nodes[message.metadata.dst_node_id]
            site = str(context.node_config.get("site"))
            reply = self.fault(site, message, app(message, context))
            if reply is not None:
                if reply.has_content():
                    reply.content = over_the_wire(reply.content)
                self.seen.append((site, message, reply))
                self.replies[number] = reply
        return numbers

    def pull_messages(self, message_ids: Any) -> list[Message]:
        return [self.replies.pop(number) for number in list(message_ids) if number in self.replies]


transport.PAUSE = 0.01  # nothing here takes time
if importlib.util.find_spec("flwr.supercore.task_identity"):  # newer versions ask every process who it is
    identity = importlib.import_module("flwr.supercore.task_identity").TaskIdentity
    identity.task_id, identity.run_id, identity.node_id = 1, 1, 1


def network(problem: Any, algorithm: Any, federation: cofed.Federation, folder: Any = None, fault: Any = None):
    """A grid with a node for every client of a federation, and its one app, which answers plainly or under masks."""

    def load(node: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        return federation.client(node["site"])

    keep = None if folder is None else lambda node: folder / node["site"]
    grid = Loopback(fault)
    app = client_app(problem, algorithm, load, keep=keep, plain=True, policy=TRIAL)
    for name in federation.names:
        grid.add(app, site=name)
    return grid, app
