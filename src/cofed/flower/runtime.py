"""This process as an app of Flower's: it claims the tasks of a SuperNode or a SuperLink, and does them itself.

Flower's own way is a new process for every message, which imports the app that came with the run. Here one process
stays: a site's rows are loaded once and its programs compiled once, a notebook can hold the Grid, and code that came
over the network is never opened. Everything that cofed takes from inside Flower is in this file.
"""

import contextlib
import dataclasses
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cofed.flower.flwr_types import ClientApp, Grid

if TYPE_CHECKING:
    from flwr.supercore.runtime import RuntimeHttpClient

log = logging.getLogger("flwr")
POLL = 0.1  # seconds between two looks for a task, and of a SuperNode for a message; Flower's own wait for 1 and 3
QUIET, SELDOM = 300.0, 2.0  # after so many seconds without a message, looks are so many seconds apart
METHODS = frozenset({"/flwr.proto.Runtime/AcquireTask"})  # that the secret is needed for


@dataclasses.dataclass(frozen=True)
class Runtime:
    """The Runtime API of a SuperNode or a SuperLink.

    Parameters
    ----------
    address : str
        Host and port.
    secret : bytes
        What lets a process claim tasks.
    root_certificates : Path, optional
        The authority's certificate; None is no TLS.
    """

    address: str
    secret: bytes
    root_certificates: Path | None = None

    @property
    def certificates(self) -> bytes | None:
        """The content of the authority's certificate."""
        return None if self.root_certificates is None else self.root_certificates.read_bytes()

    def client(self, token: str | None = None) -> "RuntimeHttpClient":
        """A connection: of a task with this token, or to claim one."""
        from flwr.supercore.interceptors import (
            RuntimeTokenHttpInterceptor,
            RuntimeVersionHttpInterceptor,
            SuperExecAuthHttpInterceptor,
        )
        from flwr.supercore.retry import make_simple_http_retry_invoker
        from flwr.supercore.runtime import RuntimeHttpClient

        if token is None:
            own = SuperExecAuthHttpInterceptor(master_secret=self.secret, protected_methods=METHODS)
        else:
            own = RuntimeTokenHttpInterceptor(token)
        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=self.root_certificates is None,
            root_certificates=self.certificates,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="cofed"), own],
            retry_invoker=make_simple_http_retry_invoker(),
        )

    def claimed(self, client: "RuntimeHttpClient", kind: str) -> str | None:
        """The token of a task of this kind that nobody else has claimed; None where there is none."""
        from flwr.proto.runtime_pb2 import AcquireTaskRequest

        found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
        return found.token or None


@contextlib.contextmanager
def heartbeat(client: "RuntimeHttpClient") -> Iterator[None]:
    """Tell Flower while the block runs that its task is being worked on."""
    from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest
    from flwr.supercore.heartbeat import HeartbeatSender

    def beat() -> bool:
        try:
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        except Exception as error:  # the task goes on: whoever awaits its end will say what is wrong
            log.warning("cofed: a heartbeat failed: %s", type(error).__name__)
        return True

    sender = HeartbeatSender(beat)
    sender.start()
    try:
        yield
    finally:
        sender.stop()


class Pace:
    """How long to wait between two looks for work: not for long, unless there has been none for a while."""

    def __init__(self):
        self.latest = time.monotonic()

    def worked(self) -> None:
        """There was work."""
        self.latest = time.monotonic()

    def sleep(self, seconds: float = SELDOM) -> None:
        """Wait until the next look, at most for so many seconds."""
        idle = time.monotonic() - self.latest > QUIET
        time.sleep(min(seconds, SELDOM if idle else POLL))


def answer_messages(runtime: Runtime, app: ClientApp, pace: Pace) -> None:
    """Answer the messages that come to a SuperNode with this app, for ever."""
    client = None
    while True:
        try:
            client = client or runtime.client()
            token = runtime.claimed(client, "flwr-clientapp")
            if token is not None:
                pace.worked()
                answer_one(runtime, token, app)
        except Exception:  # the SuperNode has not started yet, or a reply could not be given: the server asks again
            log.debug("cofed: no message could be answered", exc_info=True)
            client = None
            time.sleep(1)
        pace.sleep()


def answer_one(runtime: Runtime, token: str, app: ClientApp) -> None:
    """Answer the message of a claimed task."""
    from flwr.common.constant import SubStatus
    from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

    client = runtime.client(token)
    try:
        with heartbeat(client):
            message, context, _, _ = pull_task_input(client)
            status, details = SubStatus.FAILED, "the app failed"
            try:
                push_message(client, app(message, context), context)
                status, details = SubStatus.COMPLETED, ""
            finally:
                push_task_output(client, context, status, details)
    finally:
        client.close()


def be_supernode(arguments: list[str], runtime: Runtime, app: ClientApp) -> None:
    """Be a SuperNode, with these arguments of `flower-supernode`, and answer its messages, until a signal ends it."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    pace = Pace()
    start_client_internal.__dict__["time"] = pace  # of which its loop uses `sleep`
    threading.Thread(target=answer_messages, args=(runtime, app, pace), name="cofed-site", daemon=True).start()
    sys.argv = ["flower-supernode", *arguments]
    flower_supernode()


@contextlib.contextmanager
def grid_of_run(runtime: Runtime, patience: float, check: Callable[[], None]) -> Iterator[Grid]:
    """The Grid of the run that was last started at a SuperLink, for this process alone.

    `check` is called while one waits for the run, and raises an error where it cannot come.
    """
    from flwr.common.constant import SubStatus
    from flwr.common.serde import run_from_proto
    from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid import HttpGrid

    client, began = runtime.client(), time.monotonic()
    while (token := runtime.claimed(client, "flwr-serverapp")) is None:
        if time.monotonic() - began > patience:
            raise RuntimeError(f"no run has begun at the SuperLink {runtime.address} in {patience:g} s")
        check()
        time.sleep(POLL)
    client.close()
    client = runtime.client(token)
    status, details = SubStatus.FAILED, "the fit did not end well"
    try:
        with heartbeat(client):
            task = client.PullTaskInput(PullTaskInputRequest())
            TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
            TaskIdentity.node_id = task.context.node_id
            grid = HttpGrid(runtime.address, runtime.root_certificates is None, runtime.certificates, token=token)
            grid.set_run(run_from_proto(task.run))
            try:
                yield grid
                status, details = SubStatus.COMPLETED, ""
            finally:
                grid.close()
    finally:
        with contextlib.suppress(Exception):  # the SuperLink may be gone
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
        client.close()
