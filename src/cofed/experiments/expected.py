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
from cofed.experiments.specification import Comparison, Experiment, Sweep

FILE = "plan.json"  # in an experiment's folder
TIMING = 2.0  # seconds to time each program in


def expect(
    experiments: Sequence[Experiment], out: Path, size: str, seeds: int, screen: Console | None = None
) -> dict[str, str]:
    """Forecast experiments, and write what was found into their folders below `out`, for the page.

    Returns
    -------
    dict
        What each will take, in words, or why that is not known; a sweep is not timed.
    """
    screen, found = screen or Console(stderr=True), {}
    for experiment in experiments:
        if not isinstance(experiment.measure, Comparison):
            told = not_forecast(experiment, experiment.measure, size, seeds)
            write_json(out / experiment.id / FILE, told, shown=True)
            found[experiment.id] = words(told)
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


def not_forecast(experiment: Experiment, sweep: Sweep, size: str, seeds: int) -> dict[str, Any]:
    """What plan.json says of a sweep, whose points may be anything and so are not timed: how many there are."""
    points = sum(len(sweep.points(experiment.numbers(size, panel))) for panel in experiment.panels)
    return {
        "id": experiment.id,
        "size": size,
        "seeds": seeds,
        "seconds": None,
        "points": points,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


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
    >>> words({"seconds": None, "points": 12, "seeds": 5})
    'a time that is not forecast: it is a sweep, of 12 points with 5 seeds each (--quick takes fewer or smaller ones)'
    """
    seeds = f"{told['seeds']} seed" + "s" * (told["seeds"] != 1)
    if told["seconds"] is None:
        each = f"{told['points']} points with {seeds} each"
        return f"a time that is not forecast: it is a sweep, of {each} (--quick takes fewer or smaller ones)"
    return f"about {duration(told['seconds'])} and {machine.size(told['peak_bytes'])} of memory for {seeds}"


def table(found: dict[str, str]) -> Table:
    """What each experiment will take."""
    shown = Table()
    shown.add_column("experiment", style="bold", no_wrap=True)
    shown.add_column("takes on this machine")
    for name, said in found.items():
        shown.add_row(name, said)
    return shown
