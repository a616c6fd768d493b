"""Progress bars, and a Ctrl-C that lets a run finish what it is doing."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """A progress bar on standard error that shows the objective; a context manager.

    Parameters
    ----------
    label
        Stands before the bar.
    total, done
        How many units there are, and how many are done already.
    show
        Whether there is a bar at all.
    unit
        What is counted.
    """

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
                transient=sys.stderr.isatty(),  # in a log file, the last state stays
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
        """Show how many units are done, and the present objective."""
        if self.progress:
            self.progress.update(self.task, completed=done, objective=f"objective {objective:.6g}")


def wanted(progress: bool | None) -> bool:
    """Whether to show a bar: as the user said, or where standard error is a terminal."""
    return sys.stderr.isatty() if progress is None else progress


Handler = Callable[[int, FrameType | None], object] | int | None  # what `signal.getsignal` gives


class StopRequest:
    """A handler of Ctrl-C that sets an event and restores the previous handler, so that a second Ctrl-C acts as usual.

    Where handlers are nested, as by a run inside of an experiment, the outer one is told as well.
    """

    def __init__(self, before: Handler):
        self.before, self.event = before, threading.Event()

    def __call__(self, *_: object) -> None:
        self.event.set()
        signal.signal(signal.SIGINT, self.before)
        if isinstance(self.before, StopRequest):
            self.before()


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Give an event that the first Ctrl-C sets, so that the rounds under way can be finished and kept.

    A second Ctrl-C stops at once.
    """
    before = signal.getsignal(signal.SIGINT)
    # Only the main thread may set handlers; in others, Ctrl-C is left to the caller. So it is where it is ignored on
    # purpose, or where its handler was not set from Python and could not be restored.
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield threading.Event()
        return
    handler = StopRequest(before)
    signal.signal(signal.SIGINT, handler)
    try:
        yield handler.event
    finally:
        signal.signal(signal.SIGINT, before)
