"""What the papers' experiments would take on this machine: `cofed reproduce --plan`."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cofed._util import machine
from cofed._util.files import write_json
from cofed.engine.forecast import duration
from cofed.experiments import plan, results
from cofed.experiments.reproduce import progress_bar
from cofed.experiments.specification import Comparison, Experiment

FILE = "plan.json"  # in an experiment's folder
TIMING = 2.0  # seconds to time each program in


def expect(
    experiments: Sequence[Experiment], out: Path, size: str, seeds: int, screen: Console | None = None
) -> dict[str, str]:
    """Forecast experiments, and write what was found into their folders below `out`, for the page.

    Returns
    -------
    dict
        What each will take, in words, or why that is not known.
    """
    screen, found = screen or Console(stderr=True), {}
    for experiment in experiments:
        if not isinstance(experiment.measure, Comparison):
            found[experiment.id] = "not known: it has no rounds that could be timed"
            continue
        with progress_bar(experiment.id, screen) as tick:
            try:
                ahead = plan.outlooks(experiment, size, seeds, TIMING, tick)
            except FileNotFoundError as error:
                found[experiment.id] = str(error)
                continue
        told = record(experiment, size, ahead)
        write_json(out / experiment.id / FILE, told, shown=True)
        found[experiment.id] = words(told)
    return found


def record(experiment: Experiment, size: str, ahead: Sequence[plan.Outlook]) -> dict[str, Any]:
    """What was found, as plan.json has it."""
    return {
        "id": experiment.id,
        "size": size,
        "seeds": ahead[0].seeds,
        "seconds": round(sum(panel.seconds for panel in ahead), 1),
        "peak_bytes": max(panel.peak_bytes for panel in ahead),
        "hardware": results.hardware(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def words(told: dict[str, Any]) -> str:
    """What an experiment will take.

    >>> words({"seconds": 9000.0, "peak_bytes": 2e9, "seeds": 5})
    'about 2 h 30 min and 2 GB of memory for 5 seeds'
    """
    seeds = f"{told['seeds']} seed" + "s" * (told["seeds"] != 1)
    return f"about {duration(told['seconds'])} and {machine.size(told['peak_bytes'])} of memory for {seeds}"


def table(found: dict[str, str]) -> Table:
    """What each experiment will take."""
    shown = Table()
    shown.add_column("experiment", style="bold", no_wrap=True)
    shown.add_column("takes on this machine")
    for name, said in found.items():
        shown.add_row(name, said)
    return shown
