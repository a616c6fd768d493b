"""Plot the histories of runs: one panel per column, one line per run, or the median of several seeds with a band."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cofed._util import checks
from cofed._util.types import Given
from cofed.engine.history import History, Result
from cofed.engine.replicate import Replicates
from cofed.plotting.files import check_picture, save
from cofed.plotting.panels import DECADES, drawable, dress, from_zero, legend, level, logarithmic, spread
from cofed.plotting.styles import FRACTIONS, WORDS, colour, style


def plot_history(
    results: Given[Mapping[str, Result | History | Replicates]],
    columns: Given[str | Sequence[str]] = ("objective",),
    x: Given[str] = "round",
    path: Given[str | Path | None] = None,
    ax: Given[Axes | Sequence[Axes] | None] = None,
    *,
    references: Given[Mapping[str, Mapping[str, float]] | None] = None,
    title: Given[str | None] = None,
) -> Figure:
    """Plot columns of the histories of several runs, one panel per column.

    Parameters
    ----------
    results : mapping of str to Result, History or Replicates
        The runs by label; a label that names an algorithm gets that algorithm's colour. Of several seeds (see
        `cofed.replicate`) the median is drawn, and a band from the first to the last tenth of them.
    columns : str or sequence of str
        Columns of the history, such as "objective", "density" or a metric of your own.
    x : {"round", "bytes", "seconds", "simulated_seconds"}
        The horizontal axis: rounds, megabytes sent both ways, seconds without compilation, or those of a clock.
    path : str or Path, optional
        Write the figure there too, as PNG, SVG or PDF by the ending; the file is whole or not there.
    ax : matplotlib.axes.Axes or sequence of them, optional
        Draw into these axes, one per column, instead of a new figure.
    references : mapping, optional
        Horizontal lines by column and label, such as {"density": {"truth": 0.5}}.
    title : str, optional
        Stands above the legend.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, which is that of `ax` where these are given.

    Raises
    ------
    TypeError, ValueError
        Where an argument is of the wrong kind, or a history lacks a column.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> import cofed
    >>> federation = cofed.Federation.from_arrays([(np.eye(3), np.ones(3)), (2 * np.eye(3), np.ones(3))])
    >>> result = cofed.run(cofed.Problem(), federation, cofed.FedAvg(0.1), rounds=5)
    >>> figure = cofed.plotting.plot_history({"FedAvg": result}, columns=("objective", "prox_gradient"))
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['objective', 'norm of the prox-gradient']
    """
    columns = (columns,) if isinstance(columns, str) else tuple(checks.items("columns", columns, "columns"))
    for column in columns or (None,):
        checks.text("each of columns", column)
    if not isinstance(results, Mapping):
        raise TypeError(f"results must be a mapping from labels to runs, got {checks.shown(results)}")
    check_references(references)
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be a text, got {checks.shown(title)}")
    if path is not None:
        check_picture("path", path)
    runs = {label: runs_of(label, result) for label, result in results.items()}
    check(runs, columns, x)
    own = ax is None
    if ax is None:
        figure = Figure(figsize=(max(5.0, 3.9 * len(columns)), 3.9), dpi=110, layout="constrained")
        panels = list(figure.subplots(1, len(columns), squeeze=False)[0])
        figure.get_layout_engine().set(wspace=0.06)  # type: ignore[union-attr]
    else:
        panels = [ax] if isinstance(ax, Axes) else checks.items("ax", ax, "matplotlib axes")
        if not all(isinstance(panel, Axes) for panel in panels):
            raise TypeError(f"ax must be matplotlib axes, one per column, got {checks.shown(ax)}")
        if len(panels) != len(columns):
            raise ValueError(
                f"plot_history: ax must have one axes per column: {len(columns)} columns, {len(panels)} axes"
            )
        figure = figure_of(panels[0])
    for panel, column in zip(panels, columns, strict=True):
        draw(panel, runs, column, x, (references or {}).get(column, {}))
    legend(figure, panels, own, title)
    if path is not None:
        save(figure, path)
    return figure


def runs_of(label: object, result: object) -> History | Replicates:
    """What is drawn of a label: the history of a run, or the runs of several seeds."""
    history = result.history if isinstance(result, Result) else result
    if not isinstance(history, (History, Replicates)):
        raise TypeError(
            f"plot_history: {label!r} of results must be a Result, a History or Replicates, got "
            f"{type(history).__name__}"
        )
    if not isinstance(label, str):
        raise TypeError(f"plot_history: the labels of results must be texts, got {checks.shown(label)}")
    return history


def check(runs: Mapping[str, History | Replicates], columns: Iterable[str], x: str) -> None:
    """Refuse what cannot be plotted: no runs, an unknown axis, a missing column."""
    if not runs:
        raise ValueError("plot_history needs at least one result, and results is empty")
    checks.one_of("plot_history: x", x, ("round", "bytes", "seconds", "simulated_seconds"))
    columns = [*columns, x] if x == "simulated_seconds" else columns  # which runs without a clock do not have
    for label, run in runs.items():
        histories = [run] if isinstance(run, History) else [result.history for result in run.results.values()]
        for history in histories:
            table = history.rows[0] if history.rows else {}
            for column in columns:
                if column not in table:
                    raise ValueError(
                        f"plot_history: the history of {label!r} has no column {column!r}; it has {list(table)}"
                    )


class Curve(NamedTuple):
    """A line, and the ends of the band around it, where there is one."""

    x: np.ndarray
    y: np.ndarray
    band: tuple[np.ndarray, np.ndarray] | None = None


def curve_of(run: History | Replicates, column: str, x: str) -> Curve:
    """What is drawn of a column."""
    if isinstance(run, History):
        return Curve(across(run.__getitem__, x), drawable(run[column]))
    bands = run.bands(column)
    low, high = (drawable(bands[end].to_numpy(float)) for end in ("low", "high"))
    middle = lambda name: run.bands(name)["median"].to_numpy(float)  # noqa: E731
    return Curve(across(middle, x), drawable(bands["median"].to_numpy(float)), (low, high))


def draw(
    panel: Axes,
    runs: Mapping[str, History | Replicates],
    column: str,
    x: str,
    references: Mapping[str, float],
) -> None:
    """Draw one panel: the column of every run, and the lines to compare with."""
    curves = {label: curve_of(run, column, x) for label, run in runs.items()}
    for label, curve in curves.items():
        panel.plot(
            curve.x,
            curve.y,
            style(label),
            color=colour(label),
            label=label,
            linewidth=1.9,
            solid_capstyle="round",
        )
        if curve.band is not None:
            panel.fill_between(curve.x, *curve.band, color=colour(label), alpha=0.18, linewidth=0)
    panel.margins(x=0.02, y=0.1 if references else 0.05)
    decades = spread([curve.y for curve in curves.values()])
    if column in FRACTIONS:
        from_zero(panel, [curve.y for curve in curves.values()])
    elif decades > DECADES:
        logarithmic(panel, decades)
    for label, value in references.items():
        level(panel, label, value)
    dress(panel, WORDS[x], WORDS.get(column, column.replace("_", " ")))


def across(column: Callable[[str], np.ndarray], x: str) -> np.ndarray:
    """The values on the horizontal axis, from columns by name."""
    return (column("bytes_down") + column("bytes_up")) / 1e6 if x == "bytes" else column(x)


def figure_of(panel: Axes) -> Figure:
    """The figure that the axes are part of, also by way of subfigures."""
    figure = panel.get_figure(root=True)
    if figure is None:
        raise ValueError("plot_history: the axes belong to no figure")
    return figure


def check_references(references: object) -> None:
    """Refuse what is not a mapping from columns to mappings from labels to numbers."""
    right = references is None or (
        isinstance(references, Mapping)
        and all(isinstance(lines, Mapping) for lines in references.values())
        and all(checks.is_real(level) for lines in references.values() for level in lines.values())
    )
    if not right:
        raise TypeError(
            'references must be a mapping such as {"density": {"truth": 0.5}}, got ' + checks.shown(references)
        )
