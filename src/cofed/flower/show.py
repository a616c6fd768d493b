"""What `cofed federate` shows: a live table of the sites, or plain lines where there is no terminal."""

import contextlib
import sys
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from cofed.flower.federate import LocalFederation, follow, prepare, started
from cofed.flower.lock import exclusive
from cofed.flower.processes import TerminationSignal, ending_in_order
from cofed.flower.run_folder import SavedRun, read_saved
from cofed.flower.settings import ServeOptions

STATES = {"joined": "there", "asked": "working", "heard": "answered", "left out": "left out", "trouble": "in trouble"}
# Kinds of events that stay on the screen: above the live table, and without a terminal, where lines replace the table.
LASTING = ("trouble", "left out", "evaluated", "resumed", "stopped", "refused", "replaced")
PLAIN = (*LASTING, "joined", "waiting", "round", "end")
MASKED = "Updates were masked: the server saw sums over sites, and no update or evaluation of a site alone."
UNMASKED = "Updates were not masked (--plain): the server saw each site's own."


class Board:
    """A table of the sites and what each is doing."""

    def __init__(self, sites: list[str]):
        self.states = dict.fromkeys(sites, "starting")
        self.words = dict.fromkeys(sites, "")
        self.line = "starting Flower"

    def update(self, event: dict[str, Any]) -> None:
        """Update the table by an event."""
        site = event.get("site")
        if site in self.states and event["kind"] in STATES:
            self.states[site] = STATES[event["kind"]]
            self.words[site] = event["words"] if event["kind"] in ("left out", "trouble") else ""
        if event["kind"] in ("round", "waiting", "evaluated", "resumed"):
            self.line = event["words"]

    def __rich__(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, title=self.line, title_justify="left")
        table.add_column("site", style="bold")
        table.add_column("state")
        table.add_column("")
        for site, state in self.states.items():
            table.add_row(site, state, self.words[site])
        return table


def federate(federation: LocalFederation) -> int:
    """Run a federation, show how it goes, and say how it ended; gives the exit code."""
    screen, out = Console(stderr=True), federation.out
    try:
        with ending_in_order(), exclusive(out):
            files = prepare(federation)
            screen.print(f"Starting a SuperLink and {len(files)} SuperNodes on this machine; logs in {out / 'logs'}")
            watch(federation, files, screen)
    except KeyboardInterrupt as end:
        why = str(end) if isinstance(end, TerminationSignal) else "Ctrl-C"
        screen.print(f"Stopped by {why}; all processes are ended. The same command goes on from {out / 'run'}.")
        return 130
    return report(read_saved(out / "run"), out)


def watch(federation: LocalFederation, files: dict[str, Path], screen: Console) -> None:
    """Run what was prepared, and show it until it ends."""
    board = Board(list(files))
    live = Live(board, console=screen, transient=True) if sys.stderr.isatty() else None
    needed = ServeOptions(**federation.settings).quorum or len(files)  # pyright: ignore[reportArgumentType]
    with started(federation, files) as processes, live or contextlib.nullcontext():
        for event in follow(processes, federation.out, needed):
            board.update(event)
            if event["kind"] in (LASTING if live else PLAIN):
                screen.print(event["words"], highlight=False, soft_wrap=True, markup=False)
            if live:
                live.refresh()


def report(saved: SavedRun, out: Path) -> int:
    """Say how it ended."""
    screen, last = Console(), saved.history.iloc[-1]
    screen.print(MASKED if saved.is_masked else UNMASKED, highlight=False, soft_wrap=True)
    model = {name: array.shape for name, array in saved.model.items()}
    screen.print(
        f"{saved.outcome.lower()} after {int(last['round'])} rounds, objective {last['objective']:.6g}; "
        f"model {model} in {out / 'run' / 'model.safetensors'}",
        highlight=False,
        soft_wrap=True,
    )
    for event in saved.left_out:
        screen.print(f"  round {event.round}: without {event.client}: {event.why}", highlight=False, soft_wrap=True)
    return 0 if saved.outcome == "COMPLETED" else 1
