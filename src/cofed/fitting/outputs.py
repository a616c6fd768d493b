"""The files of a fit: each whole or not there, and only its owner can read them."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from cofed._util.files import atomically
from cofed.estimators.held_out_curves import HeldOutCurves
from cofed.estimators.plots import plot_path
from cofed.fitting.finished import FinishedFit, exchange_table
from cofed.fitting.page import content
from cofed.plotting import save
from cofed.report.assembly import assembled

PICTURES = (".png", ".svg")
DRAWN = ("path", "cv", "curves")  # the names of all pictures, of which a fit has some


def write_fit(done: FinishedFit, folder: Path) -> list[Path]:
    """Write everything that a fit gives into a folder; the model first, since it is dearest.

    Pictures of an earlier fit in the same folder, which this one does not draw, are removed.

    Parameters
    ----------
    done : FinishedFit
        The fit.
    folder : Path
        Where the files go.

    Returns
    -------
    list of Path
        The files.
    """
    written = [folder / "model.safetensors"]
    done.model.save(written[0])
    tables = {"coefficients": done.coefficients(), "summary": done.summary_table()}
    for name, table in (tables | {"exchanges": exchange_table(done.exchanges)}).items():
        written.append(write_table(folder / f"{name}.csv", table))
    written.append(write_text(folder / "summary.txt", f"{done.summary()}\n"))
    for name, figure in figures(done).items():
        for ending in PICTURES:
            written.append(save(figure, folder / f"{name}{ending}"))
    for stale in {folder / f"{name}{ending}" for name in DRAWN for ending in PICTURES}.difference(written):
        stale.unlink(missing_ok=True)
    page = assembled("fit.html", ("page.css", "fit.css"), "fit.js", content(done))
    written.append(write_text(folder / "report.html", page))
    return written


def figures(done: FinishedFit) -> dict[str, Figure]:
    """The pictures that there are: a path where the strength was chosen, a curve where there were folds."""
    held = vars(done.model)
    if "path_" not in held:
        return {}
    drawn = {"path": plot_path(held["path_"], mark={"chosen": held["alpha_"]})}
    if "cv_mean_" in held:
        draw: Callable[[], Figure] = done.model.plot  # type: ignore[attr-defined]
        drawn["cv"] = draw()
    curves: HeldOutCurves | None = held.get("curves_")
    return drawn if curves is None else drawn | {"curves": curves.plot()}


def write_table(path: Path, table: pd.DataFrame) -> Path:
    """Write a table as CSV, numbers to the last bit."""
    return write_text(path, table.to_csv(index=False))


def write_text(path: Path, text: str) -> Path:
    """Write a text."""
    atomically(path, lambda name: Path(name).write_text(text, encoding="utf-8"))
    return path
