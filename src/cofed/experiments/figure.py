"""The figure of an experiment: the paper's panels in a row, one line per method, the spread over seeds as a band."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cofed._util.pandas_types import Frame
from cofed.experiments.measurements import Measurements, together
from cofed.experiments.specification import Experiment, Sweep, View
from cofed.plotting import panels, save
from cofed.plotting import styles as looks

LINES = ("-", "--", "-.", ":")
WORDS = looks.WORDS | {"l1_error": "l1 error", "l2_error": "l2 error", "optimality": "optimality"}
WIDEST = 4  # panels in a row


def write(experiment: Experiment, seen: Measurements, folder: Path, size: str) -> None:
    """The figure as PNG and SVG."""
    whole = draw(experiment, seen, size)
    for ending in ("png", "svg"):
        save(whole, folder / f"figure.{ending}")


def draw(experiment: Experiment, seen: Measurements, size: str) -> Figure:
    """All panels, under one legend."""
    there = set(seen.table["panel"])
    views = [view for view in experiment.views if view.panel in there]
    rows = math.ceil(len(views) / WIDEST)
    across = math.ceil(len(views) / rows)
    whole = Figure(figsize=(max(6.0, 3.7 * across), 0.9 + 3.3 * rows), dpi=110, layout="constrained")
    places = list(whole.subplots(rows, across, squeeze=False).flat)
    whole.get_layout_engine().set(wspace=0.06, hspace=0.06)  # type: ignore[union-attr]
    labels = list(dict.fromkeys(seen.table["algorithm"]))
    styles = distinct(labels, seen.beside)
    x = experiment.measure.x if isinstance(experiment.measure, Sweep) else looks.WORDS["round"]
    for place, view in zip(places, views, strict=False):
        panel(place, view, seen, styles, x)
    said = [f"{name}: {text}" for name, text in (("Data", seen.source), ("Diverged", seen.diverged)) if text]
    if said:
        whole.supxlabel("\n".join(said), fontsize=looks.SMALL, color=looks.REFERENCE)
    for place in places[len(views) :]:
        place.set_visible(False)
    sizes = {"quick": ", quick size", "full": "", "user": ""}
    title = f"{experiment.title}  [{experiment.id}{sizes[size]}]" if size != "user" else experiment.title
    letters = int(whole.get_figwidth() / (0.6 * looks.LARGE / 72))  # a letter is 0.6 times as wide as high
    panels.legend(whole, places[: len(views)], True, textwrap.fill(title, letters))
    return whole


def distinct(labels: Sequence[str], beside: Mapping[str, str] | None = None) -> dict[str, tuple[str, str]]:
    """A colour and a line for each method: its own everywhere; kin of the same colour differ in their lines.

    `beside` has the labels of further configurations, each with that of its method.

    >>> distinct(["DFedDA", "DFedDA-GT"])
    {'DFedDA': ('#0072B2', '--'), 'DFedDA-GT': ('#0072B2', '-')}
    """
    taken: dict[str, tuple[str, str]] = {}
    for label in labels:
        colour = looks.colour((beside or {}).get(label, label))
        wanted = [looks.style(label), *LINES]
        line = next((line for line in wanted if (colour, line) not in taken.values()), LINES[0])
        taken[label] = (colour, line)
    return taken


def panel(place: Axes, view: View, seen: Measurements, styles: dict[str, tuple[str, str]], x: str) -> None:
    """One panel: lines (or dots), the baselines' levels, its axes."""
    table = seen.table[seen.table["panel"] == view.panel]
    shown: list[np.ndarray] = []
    for label in dict.fromkeys(table["algorithm"]):
        own = together(table[table["algorithm"] == label], seen.axis)
        own = own[own[view.column].map(np.isfinite)]
        if own.empty:  # a method that has no such column, or nothing finite in it
            continue
        colour, line = styles[label]
        if view.dots:
            marker = {"-": "o", "--": "x"}.get(line, "s")
            place.plot(own[seen.axis], own[view.column], marker, color=colour, label=label, markersize=5, alpha=0.75)
            shown.append(own[view.column].to_numpy())
        else:
            shown.append(curve(place, own[["seed", seen.axis, view.column]], label, styles[label]))
    references = {
        name: values[view.column]
        for name, values in seen.references.get(view.panel, {}).items()
        if view.column in values
    }
    axes(place, view, shown, x, table[seen.axis].unique(), list(references.values()))
    names: dict[float, list[str]] = {}
    for name, value in references.items():
        names.setdefault(float(f"{value:.3g}"), []).append(name)  # lines that cannot be told apart are one
    for value, equal in names.items():
        panels.level(place, "; ".join(equal), value, above=len(names) > 1 and value == max(names))


def curve(place: Axes, own: Frame, label: str, style: tuple[str, str]) -> np.ndarray:
    """The mean over seeds, and a band of one standard deviation (inside the positive numbers).

    `own` has the columns seed, the horizontal axis, and what is drawn.
    """
    (colour, line), (_, axis, column) = style, own.columns
    by_x = own.assign(**{column: panels.drawable(own[column].to_numpy(float))}).groupby(axis)[column]
    mean, spread = by_x.mean(), by_x.std(ddof=0).fillna(0.0)
    dots = {"marker": "o", "markersize": 4} if axis == "x" else {}  # a sweep has few points, and some stand alone
    place.plot(mean.index, mean, line, color=colour, label=label, linewidth=1.9, **dots)
    if own["seed"].nunique() > 1:
        low = np.maximum(mean - spread, by_x.min())  # never below what was seen: a log axis has no negative numbers
        place.fill_between(mean.index, low, mean + spread, color=colour, alpha=0.18, linewidth=0)
    return mean.to_numpy()


def axes(place: Axes, view: View, shown: list[np.ndarray], x: str, at: np.ndarray, levels: list[float]) -> None:
    """Scales, limits and names."""
    place.margins(x=0.02, y=0.06)
    decades = panels.spread(shown) if shown else 0.0
    if view.log_x:
        logarithmic_x(place, at)
    if view.column in looks.FRACTIONS and view.log is None:
        panels.from_zero(place, [*shown, levels])
    elif view.log or (view.log is None and decades > panels.DECADES):
        panels.logarithmic(place, decades)
    if view.limits is not None:
        place.set_ylim(*view.limits)
    panels.dress(place, x, view.label or WORDS.get(view.column, view.column.replace("_", " ")))
    if view.title:
        place.set_title(view.title, fontsize=looks.LARGE)


def logarithmic_x(place: Axes, at: np.ndarray) -> None:
    """A logarithmic axis for these points; 0, which has no logarithm, stands shortly before the first of the others."""
    if at.min() > 0:
        place.set_xscale("log")
    else:
        place.set_xscale("symlog", linthresh=at[at > 0].min(), linscale=0.5)
