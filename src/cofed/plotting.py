"""Pictures of runs: one panel per column of the history, one fixed colour per algorithm.

Only matplotlib's figures are used, never pyplot: nothing global changes, and no screen is needed.
"""

import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from cofed._util import checks
from cofed._util.files import atomically
from cofed.engine.history import History, Result

__all__ = ["colour", "draw_graph", "plot_history", "save", "style"]

# Okabe and Ito's colours, and five of Paul Tol's: they stay apart for colour-blind readers. Kin without a server
# have the colour of their kin with one, in dashes.
COLOURS: dict[str, str] = {
    "FedAvg": "#000000",
    "FedMiD": "#D55E00",
    "FedDualAvg": "#0072B2",
    "FastFedDA": "#009E73",
    "CFedDA": "#56B4E9",
    "MCFedDA": "#CC79A7",
    "FedDecouple": "#E69F00",
    "Scaffold": "#999933",
    "FedDR": "#332288",
    "FedADMM": "#882255",
    "FedNewton": "#AA3377",
    "FedFISTA": "#44AA99",
    "DFedMiD": "#D55E00",
    "DFedDA": "#0072B2",
    "ReFedDAGT": "#E69F00",
    "MReFedDAGT": "#882255",
    "DASM": "#000000",
    "DScaffold": "#999933",
    "FedProx": "#009E73",
    "PureLocal": "#999933",
    "Alternative": "#CC79A7",
}
DASHED = {"DFedMiD", "DFedDA", "ReFedDAGT", "MReFedDAGT", "DASM", "DScaffold"}
REFERENCE = "#6B6B6B"  # the truth, a pooled solution: what runs are compared with

WORDS = {
    "objective": "objective",
    "loss": "loss",
    "prox_gradient": "norm of the prox-gradient",
    "density": "density",
    "rank": "rank",
    "accuracy": "accuracy",
    "test_loss": "test loss",
    "test_accuracy": "test accuracy",
    "f1": "F1 of the support",
    "precision": "precision",
    "recall": "recall",
    "round": "communication round",
    "bytes": "megabytes sent",
    "seconds": "seconds",
}
FRACTIONS = {"density", "accuracy", "test_accuracy", "f1", "precision", "recall"}  # drawn from 0 to 1
LARGEST = 1e250  # beyond it a logarithmic axis with its margins overflows
DECADES = 1.0  # a column that spans more powers of ten than this gets a logarithmic axis
SMALL, LARGE = 9.5, 11.0  # points: tick labels and the rest


def colour(label: str) -> str:
    """The colour of an algorithm, the same in every figure.

    A variant such as "FedMiD-OSP" or "FedMiD (OSP)" has its algorithm's colour; any other label has one of its own.

    >>> colour("FedDualAvg"), colour("FedMiD-OSP") == colour("FedMiD")
    ('#0072B2', True)
    """
    if not isinstance(label, str):
        raise TypeError(f"label must be a text, got {checks.shown(label)}")
    name = known(label)
    if name:
        return COLOURS[name]
    palette = list(dict.fromkeys(COLOURS.values()))
    return palette[zlib.crc32(label.encode()) % len(palette)]


def style(label: str) -> str:
    """The line of an algorithm: full; in dashes for variants and for methods without a server; dotted where unknown."""
    if not isinstance(label, str):
        raise TypeError(f"label must be a text, got {checks.shown(label)}")
    if label in COLOURS:
        return "--" if label in DASHED else "-"
    return "--" if known(label) else "-."


def known(label: str) -> str | None:
    """The algorithm that a label begins with."""
    first = re.match(r"\w*", label)
    return first.group() if first and first.group() in COLOURS else None


def plot_history(
    results: Mapping[str, Result | History],
    columns: str | Sequence[str] = ("objective",),
    x: str = "round",
    path: str | Path | None = None,
    ax: Any = None,
    *,
    references: Mapping[str, Mapping[str, float]] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw columns of the histories of several runs, one panel per column.

    results: the runs by label; a label that names an algorithm gets that algorithm's colour.
    columns: columns of the history, such as "objective", "density" or an own metric.
    x: "round", "bytes" (both ways, in megabytes) or "seconds" (without compilation).
    path: write the figure there too, as PNG, SVG or PDF by its ending; the file is whole or not there.
    ax: draw into these axes, one per column, instead of a new figure.
    references: horizontal lines by column, such as {"density": {"truth": 0.5}}.
    title: stands above the legend.

    >>> import numpy as np, cofed
    >>> federation = cofed.Federation.from_arrays([(np.eye(3), np.ones(3)), (2 * np.eye(3), np.ones(3))])
    >>> result = cofed.run(cofed.Problem(), federation, cofed.FedAvg(0.1), rounds=5)
    >>> figure = plot_history({"FedAvg": result}, columns=("objective", "prox_gradient"))
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
    histories = {label: history_of(label, result) for label, result in results.items()}
    check(histories, columns, x)
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
        figure = whole(panels[0])
    for panel, column in zip(panels, columns, strict=True):
        draw(panel, histories, column, x, (references or {}).get(column, {}))
    legend(figure, panels, own, title)
    if path is not None:
        save(figure, path)
    return figure


def history_of(label: str, result: Any) -> History:
    """The history of a run."""
    history = result.history if isinstance(result, Result) else result
    if not isinstance(history, History):
        raise TypeError(
            f"plot_history: {label!r} of results must be a Result or a History, got {type(history).__name__}"
        )
    if not isinstance(label, str):
        raise TypeError(f"plot_history: the labels of results must be texts, got {checks.shown(label)}")
    return history


def check(histories: Mapping[str, History], columns: Iterable[str], x: str) -> None:
    """Refuse what cannot be drawn, in a sentence."""
    if not histories:
        raise ValueError("plot_history needs at least one result, and results is empty")
    if not isinstance(x, str) or x not in ("round", "bytes", "seconds"):
        raise ValueError(f'plot_history: x must be "round", "bytes" or "seconds", got {checks.shown(x)}')
    for label, history in histories.items():
        table = history.rows[0] if history.rows else {}
        for column in columns:
            if column not in table:
                raise ValueError(
                    f"plot_history: the history of {label!r} has no column {column!r}; it has {list(table)}"
                )


def drawable(values: np.ndarray) -> np.ndarray:
    """The values that an axis has room for: of a run that blew up, those before the end of what floats can hold."""
    return np.where(np.abs(values) < LARGEST, values, np.nan)


def draw(panel: Axes, histories: Mapping[str, History], column: str, x: str, references: Mapping[str, float]) -> None:
    """One panel: the column of every run, and the lines to compare with."""
    for label, history in histories.items():
        panel.plot(
            across(history, x),
            drawable(history[column]),
            style(label),
            color=colour(label),
            label=label,
            linewidth=1.9,
            solid_capstyle="round",
        )
    panel.margins(x=0.02, y=0.1 if references else 0.05)
    decades = spread([drawable(history[column]) for history in histories.values()])
    if column in FRACTIONS:
        from_zero(panel, [history[column] for history in histories.values()])
    elif decades > DECADES:
        logarithmic(panel, decades)
    for label, value in references.items():
        level(panel, label, value)
    dress(panel, WORDS[x], WORDS.get(column, column.replace("_", " ")))


def from_zero(panel: Axes, fractions: Iterable[Any]) -> None:
    """An axis for fractions: from 0 to 1, or to what is there where all are small."""
    values = np.concatenate([np.ravel(np.asarray(f, float)) for f in fractions] or [np.ones(1)])
    most = float(np.max(values, where=np.isfinite(values), initial=0.0))
    top = 1.2 * most if 0 < most < 0.3 else 1.0
    panel.set_ylim(-0.02 * top, 1.03 * top)


def level(panel: Axes, label: str, value: float) -> None:
    """A horizontal line to compare with, and its name; a logarithmic axis has no room for zero."""
    if panel.get_yscale() == "log" and value <= 0:
        return
    panel.axhline(value, color=REFERENCE, linestyle=":", linewidth=1.5, zorder=1)
    place = panel.transData + panel.transAxes.inverted()
    low = place.transform((panel.get_xlim()[0], value))[1] < 0.1  # below it is no room, but the axis and its numbers
    panel.annotate(
        label,
        (1.0, value),
        xycoords=panel.get_yaxis_transform(),
        xytext=(-2, 4 if low else -4),
        textcoords="offset points",
        ha="right",
        va="bottom" if low else "top",
        fontsize=SMALL,
        color=REFERENCE,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5},  # legible on top of a curve
    )


def logarithmic(panel: Axes, decades: float) -> None:
    """A logarithmic vertical axis for values that span so many powers of ten."""
    panel.set_yscale("log")
    if decades < 3:  # powers of ten alone would be too few
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.yaxis.set_minor_formatter(NullFormatter())


def dress(panel: Axes, x: str, y: str) -> None:
    """Names of the axes, a quiet grid."""
    panel.set_xlabel(x, fontsize=LARGE)
    panel.set_ylabel(y, fontsize=LARGE)
    panel.tick_params(labelsize=SMALL)
    panel.grid(True, color="#E3E3E3", linewidth=0.7)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def across(history: History, x: str) -> np.ndarray:
    """The horizontal axis."""
    return (history["bytes_down"] + history["bytes_up"]) / 1e6 if x == "bytes" else history[x]


def spread(columns: Iterable[np.ndarray]) -> float:
    """How many powers of ten the values span; 0 where they are not all positive."""
    values = np.concatenate([column[np.isfinite(column)] for column in columns])
    if values.size == 0 or values.min() <= 0:
        return 0.0
    return math.log10(values.max()) - math.log10(values.min())


def legend(figure: Figure, panels: Sequence[Axes], own: bool, title: str | None) -> None:
    """One legend above the panels of an own figure, under the title, without repetitions; else one in the first axes.

    The title is the legend's, because matplotlib would draw a figure's own title into such a legend.
    """
    entries: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if own:
        # A line and its spaces are about as wide as five letters, and a letter 0.6 of its height.
        inches = LARGE / 72 * (5 + 0.6 * max(map(len, entries), default=0))
        rows = math.ceil(len(entries) / max(1, int(figure.get_figwidth() / inches)))
        columns = math.ceil(len(entries) / max(1, rows))
        figure.legend(
            entries.values(),
            entries.keys(),
            loc="outside upper center",
            ncols=columns,
            frameon=False,
            fontsize=LARGE,
            title=title,
            title_fontsize=LARGE + 1,
        )
    else:
        panels[0].legend(entries.values(), entries.keys(), frameon=False, fontsize=SMALL, title=title)


def whole(panel: Axes) -> Figure:
    """The figure that the axes are in, also within subfigures."""
    figure = panel.get_figure(root=True)
    if figure is None:
        raise ValueError("plot_history: the axes belong to no figure")
    return figure


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure, as PNG, SVG or PDF by its ending; the same figure gives the same bytes.

    >>> import tempfile
    >>> figure = Figure()
    >>> save(figure, tempfile.mkdtemp() + "/empty.png").read_bytes()[1:4]
    b'PNG'
    """
    if not isinstance(figure, Figure):
        raise TypeError(f"figure must be a matplotlib Figure, got {checks.shown(figure)}")
    path = check_picture("path", path)
    kind = path.suffix.lower().removeprefix(".")
    undated = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else {}
    with matplotlib.rc_context({"svg.hashsalt": "cofed"}):
        atomically(path, lambda name: figure.savefig(name, format=kind, metadata=undated), shown=True)
    return path


def check_picture(name: str, path: Any) -> Path:
    """The name of a picture's file, by its ending."""
    file = checks.path(name, path)
    if file.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"{name}: a figure is written as .png, .svg or .pdf, got {file.name!r}")
    return file


def check_references(references: Any) -> None:
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


def draw_graph(graph: Any, title: str, path: str | Path | None = None) -> Figure:
    """A picture of a networkx graph: round where it is small, by springs where it is not.

    >>> import networkx as nx
    >>> figure = draw_graph(nx.path_graph(3), "a chain")
    """
    import networkx as nx

    if not isinstance(graph, nx.Graph) or graph.number_of_nodes() == 0:
        raise TypeError(f"graph must be a networkx graph with nodes, got {checks.shown(graph)}")
    if not isinstance(title, str):
        raise TypeError(f"title must be a text, got {checks.shown(title)}")
    if path is not None:
        check_picture("path", path)
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    many = graph.number_of_nodes() > 60
    place = nx.spring_layout(graph, seed=0) if many else nx.kamada_kawai_layout(graph)
    size = 30 if many else 320
    nx.draw_networkx_edges(graph, place, ax=axes, edge_color="0.6")
    nx.draw_networkx_nodes(graph, place, ax=axes, node_size=size, node_color=COLOURS["FedDualAvg"])
    if not many:
        nx.draw_networkx_labels(graph, place, ax=axes, font_size=9, font_color="white")
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()
    if path is not None:
        save(figure, path)
    return figure
