"""A fit in a terminal: a table of the sites while it runs, or now and then a line where there is no terminal."""

import contextlib
import math
import sys
import time
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from cofed.fitting.events import JSON, Hearer
from cofed.fitting.page import size

STATES = {
    "joined": "there",
    "replaced": "there",
    "asked": "working",
    "heard": "answered",
    "trouble": "in trouble",
    "refused": "refused",
    "left out": "left out",
}
OFTEN = 1.0  # seconds between two lines where there is no terminal
LASTING = ("trouble", "refused", "left out", "replaced")  # kinds of events whose words stay on the screen


class FitBoard:
    """The sites, what each is doing, and how far the fit is."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.line = "starting"
        self.exchanges = 0

    def update(self, event: dict[str, JSON]) -> None:
        """Take in an event."""
        kind = event["kind"]
        if kind == "begin":
            gone = {site: state for site, state in self.states.items() if state == "left out"}
            self.states = {str(site["name"]): "there" for site in event["sites"]} | gone  # type: ignore[index, union-attr]
        elif kind == "exchange":
            self.exchanges += 1
            self.line = line(self.exchanges, event)
            self.states = {site: state if state == "left out" else "answered" for site, state in self.states.items()}
        elif kind == "gap":
            self.line = f"{self.line.partition(';')[0]}; gap {event['gap']:.1e}, to be {event['target']:.0e}"
        elif kind == "waiting":
            self.line = str(event["words"])
        elif kind in STATES and event.get("site") is not None:
            self.states[str(event["site"])] = STATES[str(kind)]

    def __rich__(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, title=self.line, title_justify="left")
        table.add_column("site", style="bold")
        table.add_column("state")
        for site, state in self.states.items():
            table.add_row(site, state)
        return table


def line(number: int, event: dict[str, JSON]) -> str:
    """An exchange in a line.

    >>> from cofed.fitting.show import line
    >>> line(3, {"what": "look", "down": 2048, "up": 40960, "seconds": 0.25})
    'exchange 3: look, 2.05 kB to the sites and 41 kB back in 0.25 s'
    """
    down, up, seconds = (float(event[key]) for key in ("down", "up", "seconds"))  # type: ignore[arg-type]
    return f"exchange {number}: {event['what']}, {size(down)} to the sites and {size(up)} back in {seconds:.2g} s"


@contextlib.contextmanager
def shown(screen: Console) -> Iterator[Hearer]:
    """What to call with every event: a table that changes in a terminal, lines elsewhere."""
    board, said = FitBoard(), -math.inf
    live = Live(board, console=screen, transient=True) if sys.stderr.isatty() else None

    def hear(event: dict[str, JSON]) -> None:
        nonlocal said
        board.update(event)
        due = live is None and event["kind"] in ("exchange", "waiting") and time.monotonic() - said >= OFTEN
        if due or event["kind"] in LASTING:
            said = time.monotonic()
            words = event.get("words", board.line)
            screen.print(str(words), highlight=False, soft_wrap=True, markup=False)
        if live is not None:
            live.refresh()

    with live or contextlib.nullcontext():
        yield hear
