"""The page: what the runs hold as JSON, in one file with its own style and script."""

import base64
import dataclasses
import hashlib
import json
import math
import string
from collections.abc import Sequence
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from cofed._util.files import atomically
from cofed.report.curves import axes_of, columns_of, labels_of, log_by_default, panels_of, references, styled, words
from cofed.report.runs import Run, UnreadableRun, find_runs, read_run
from cofed.report.tables import final_values, hyperparameters, tuning

NUMBERS = 1_000_000  # on one page: about 8 MB
FEWEST, MOST = 50, 1000  # points of a curve
CHARTS = 4  # as many as a run shows at first


@dataclasses.dataclass(frozen=True)
class Report:
    """What was written: the page, the folders of the runs on it, and why others could not be read."""

    path: Path
    runs: list[Path]
    unreadable: dict[Path, str]


def write_report(folders: Sequence[str | Path], out: str | Path = "report.html") -> Report:
    """Write one page for all runs at or below the folders; it opens from disk, without a network.

    A run is a folder with a config.json and a numbers.parquet. A run that cannot be read is listed with the reason.

    >>> import tempfile
    >>> empty = tempfile.mkdtemp()
    >>> write_report([empty])  # doctest: +ELLIPSIS
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
    runs: list[Run] = []
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


def page(runs: Sequence[Run], unreadable: dict[Path, str]) -> str:
    """The whole page as text. Its policy allows the page's own style and scripts, and nothing from anywhere else."""
    files = resources.files("cofed.report")
    style, chart, script = ((files / name).read_text("utf-8") for name in ("page.css", "chart.js", "page.js"))
    points = points_per_curve(runs)
    content = {
        "created": datetime.now().astimezone().isoformat(timespec="minutes"),
        "runs": [described(run, points) for run in runs],
        "unreadable": [{"folder": str(folder), "why": why} for folder, why in unreadable.items()],
    }
    return string.Template((files / "page.html").read_text("utf-8")).substitute(
        policy=f"default-src 'none'; style-src {digest(style)}; script-src {digest(chart)} {digest(script)}",
        style=style,
        chart=chart,
        script=script,
        data=embedded(content),
    )


def described(run: Run, points: int) -> dict[str, Any]:
    """All that the page shows of a run."""
    config, columns = run.config, columns_of(run)
    panels = panels_of(run, points)
    name = text(config.get("id")) or run.folder.resolve().name
    return {
        "id": name,
        "title": text(config.get("title")) or name,
        "folder": str(run.folder),
        "config": finite(config),
        "claims": finite(run.claims),
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


def text(value: Any) -> str:
    """A value of the configuration that is meant to be text."""
    return "" if value is None else str(value)


def points_per_curve(runs: Sequence[Run]) -> int:
    """As many points as the page can hold: all runs share its numbers."""
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


def embedded(content: Any) -> str:
    r"""JSON that can stand in a page: no text in it can end its element.

    >>> print(embedded({"label": "</script><b>"}))
    {"label":"\u003c/script\u003e\u003cb\u003e"}
    """
    encoded = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def finite(value: Any) -> Any:
    """The same, with numbers that JSON does not have as text.

    >>> finite({"a": [float("nan"), 1.0]})
    {'a': ['nan', 1.0]}
    """
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def digest(source: str) -> str:
    """What a content security policy calls a source by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
