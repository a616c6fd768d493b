"""Progress for a person: a bar with the objective in it, silent where there is no terminal, and a gentle Ctrl-C."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """A progress bar, or nothing."""

    def __init__(self, label: str, total: int, done: int, show: bool, unit: str = "rounds"):
        self.progress: Progress | None = None
        if show:
            self.progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(unit + "  {task.fields[objective]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=sys.stderr.isatty(),  # in a log, the last state stays
            )
            self.task = self.progress.add_task(label, total=total, completed=done, objective="compiling")

    def __enter__(self) -> "Bar":
        if self.progress:
            self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.progress:
            self.progress.stop()

    def update(self, done: int, objective: float) -> None:
        """So much is done, and this is the objective."""
        if self.progress:
            self.progress.update(self.task, completed=done, objective=f"objective {objective:.6g}")


def wanted(progress: bool | None) -> bool:
    """Whether to show a bar: as asked, or where standard error is a terminal."""
    return sys.stderr.isatty() if progress is None else progress


class Asking:
    """A handler of Ctrl-C that sets an event, once, and tells the one whose place it has taken, where that is such."""

    def __init__(self, before: Any):
        self.before, self.event = before, threading.Event()

    def __call__(self, *_: object) -> None:
        self.event.set()
        signal.signal(signal.SIGINT, self.before)
        if isinstance(self.before, Asking):
            self.before()


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, so that the rounds under way are finished and kept; a second Ctrl-C stops at once."""
    before = signal.getsignal(signal.SIGINT)
    # Only the main thread may set handlers, elsewhere Ctrl-C is the caller's affair; it may be ignored on purpose, or
    # handled by something that is not Python's to restore.
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield threading.Event()
        return
    handler = Asking(before)
    signal.signal(signal.SIGINT, handler)
    try:
        yield handler.event
    finally:
        signal.signal(signal.SIGINT, before)
