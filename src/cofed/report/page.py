"""The page: the runs as JSON, in one HTML file with its own style and scripts."""

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from cofed._util.files import atomically, without_nonfinite
from cofed.report.assembly import assembled
from cofed.report.curves import axes_of, columns_of, labels_of, log_by_default, panels_of, references, styled, words
from cofed.report.runs import ReportedRun, UnreadableRun, find_runs, read_run
from cofed.report.tables import final_values, hyperparameters, tuning

NUMBERS = 1_000_000  # at most so many numbers on one page, about 8 MB
FEWEST, MOST = 50, 1000  # points of a curve
CHARTS = 4  # the charts that a run shows at first


@dataclasses.dataclass(frozen=True)
class Report:
    """What `write_report` has written.

    Parameters
    ----------
    path : Path
        The page.
    runs : list of Path
        The folders of the runs on it.
    unreadable : dict
        The folders of runs that could not be read, with the reason.
    """

    path: Path
    runs: list[Path]
    unreadable: dict[Path, str]


def write_report(folders: Sequence[str | Path], out: str | Path = "report.html") -> Report:
    """Write one page for all runs at or below the folders; it opens from disk, without a network.

    Parameters
    ----------
    folders : sequence of str or Path
        Where to look for runs. A run is a folder with a config.json and a numbers.parquet.
    out : str or Path
        The file to write.

    Returns
    -------
    Report
        What is on the page; a run that cannot be read is listed there with the reason.

    Raises
    ------
    ValueError
        Where a folder does not exist, or no run can be read.

    Examples
    --------
    >>> import tempfile
    >>> import cofed
    >>> empty = tempfile.mkdtemp()
    >>> cofed.report.write_report([empty])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: there is no run in or below ...: a run is a folder with config.json and numbers.parquet
    """
    missing = [str(folder) for folder in folders if not Path(folder).is_dir()]
    if missing:
        raise ValueError(f"{', '.join(missing)} is not a folder; give a folder with runs in or below it")
    found = find_runs(folders)
    if not found:
        where = ", ".join(map(str, folders))
        raise ValueError(f"there is no run in or below {where}: a run is a folder with config.json and numbers.parquet")
    runs: list[ReportedRun] = []
    unreadable: dict[Path, str] = {}
    for folder in found:
        try:
            runs.append(read_run(folder))
        except UnreadableRun as error:
            unreadable[folder] = str(error)
    if not runs:
        first, why = next(iter(unreadable.items()))
        raise ValueError(f"none of the {len(found)} runs found can be read; {first}: {why}")
    text = page(runs, unreadable)
    atomically(out, lambda name: Path(name).write_text(text, encoding="utf-8"), shown=True)
    return Report(Path(out), [run.folder for run in runs], unreadable)


def page(runs: Sequence[ReportedRun], unreadable: dict[Path, str]) -> str:
    """The whole page as text."""
    points = points_per_curve(runs)
    content = {
        "created": datetime.now().astimezone().isoformat(timespec="minutes"),
        "runs": [described(run, points) for run in runs],
        "unreadable": [{"folder": str(folder), "why": why} for folder, why in unreadable.items()],
    }
    return assembled("page.html", ("page.css",), "page.js", content)


def described(run: ReportedRun, points: int) -> dict[str, Any]:
    """What the page shows of a run."""
    config, columns = run.config, columns_of(run)
    panels = panels_of(run, points)
    name = text(config.get("id")) or run.folder.resolve().name
    return {
        "id": name,
        "title": text(config.get("title")) or name,
        "folder": str(run.folder),
        "config": without_nonfinite(config, str),
        "claims": without_nonfinite(run.claims, str),
        "notes": [*([text(config["note"])] if config.get("note") else []), *run.notes],
        "sweep": run.sweep,
        "dots": config.get("dots") is True,
        "x_log": run.sweep and log_by_default(run.numbers["x"].to_numpy(), "x"),
        "axes": axes_of(run),
        "columns": [{"key": column, "words": words(column)} for column in columns],
        "shown": columns[: max(1, CHARTS // len(panels))],
        "references": references(panels),
        "series": styled(labels_of(run)),
        "seeds": int(run.numbers["seed"].nunique()),
        "panels": panels,
        "final": final_values(run),
        "hyperparameters": hyperparameters(run),
        "tuning": tuning(run),
    }


def text(value: object) -> str:
    """A value of the configuration that should be text."""
    return "" if value is None else str(value)


def points_per_curve(runs: Sequence[ReportedRun]) -> int:
    """How many points a curve may have so that all runs together fit the page."""
    curves: list[tuple[int, int]] = []  # points measured, numbers per point
    for run in runs:
        axes = axes_of(run)
        each = len(axes) + len(columns_of(run)) * (3 if run.numbers["seed"].nunique() > 1 else 1)
        lengths = run.numbers.groupby(["panel", "algorithm"])[axes[0]].nunique()
        curves += [(int(length), each) for length in lengths]
    fits = (
        points for points in range(MOST, FEWEST, -10) if sum(min(n, points) * each for n, each in curves) <= NUMBERS
    )
    return next(fits, FEWEST)
