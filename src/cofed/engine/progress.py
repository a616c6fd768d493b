"""Progress for a person: a bar with the objective in it, silent where there is no terminal, and a gentle Ctrl-C."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

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


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, so that the rounds under way are finished and kept; a second Ctrl-C stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread may set signal handlers; elsewhere Ctrl-C is the caller's affair
        return
    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None):  # ignored on purpose, or not Python's to restore
        yield asked
        return

    def handler(*_: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, handler)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
