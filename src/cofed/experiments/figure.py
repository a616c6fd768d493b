"""The figure of an experiment: the paper's panels in a row, one line per method, the spread over seeds as a band."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from cofed._util.pandas_types import Frame
from cofed.experiments.measurements import Measurements, together
from cofed.experiments.specification import Experiment, Sweep, View
from cofed.plotting import panels, save
from cofed.plotting import styles as looks

LINES = ("-", "--", "-.", ":")
MARKERS = {"-": "o", "--": "s", "-.": "^", ":": "D"}  # of a sweep's points, and of dots
WORDS = looks.WORDS | {"l1_error": "l1 error", "l2_error": "l2 error", "optimality": "optimality"}
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
WIDEST = 4  # panels in a row
MATTERS = 10  # values of runs that diverge are shown up to so many times the largest of the others
FEW = 8  # points of a sweep that can all have a tick
JITTER = 0.008  # of the vertical axis, so that dots on each other show


def write(experiment: Experiment, seen: Measurements, folder: Path, size: str) -> None:
    """The figure as PNG and SVG."""
    whole = draw(experiment, seen, size)
    for ending in ("png", "svg"):
        save(whole, folder / f"figure.{ending}")


def draw(experiment: Experiment, seen: Measurements, size: str) -> Figure:
    """All panels, under one legend."""
    there = set(seen.table["panel"])
    views = [view for view in experiment.views if view.over is not None or view.panel in there]
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
    table = seen.table[seen.table["panel"] == view.panel] if view.over is None else view.over(seen.table)
    shown: list[np.ndarray] = []
    bands: list[np.ndarray] = []
    ends: list[tuple[float, float, str]] = []
    for label in dict.fromkeys(table["algorithm"]):
        rows = table[table["algorithm"] == label]
        lost = [] if view.dots else seen.lost.get((label, str(rows["panel"].iloc[0])), [])
        own = finite(together(rows, seen.axis), view.column)
        if own.empty:  # a method that has no such column, or nothing finite in it
            continue
        columns = ["seed", seen.axis, view.column]
        if view.dots:
            shown.append(dots(place, own[columns], label, styles[label]))
        elif lost:
            first = float(rows[rows["seed"].isin(lost)].groupby("seed")[seen.axis].max().min())
            whole = finite(together(rows[~rows["seed"].isin(lost)], seen.axis), view.column)
            all_runs = own.loc[own[seen.axis] <= first, columns]
            ends.append((*curve(place, all_runs, label, styles[label], band=False)[-1, :2], label))
            shown.append(rest(place, whole[columns], first, styles[label]))
        else:
            drawn = curve(place, own[columns], label, styles[label])
            shown.append(drawn[:, 1])
            bands.append(drawn[:, 2])
    references = {
        name: values[view.column]
        for name, values in seen.references.get(view.panel, {}).items()
        if view.column in values and view.over is None
    }
    levels = list(references.values())
    axes(place, view, shown, view.x or x, table[seen.axis].unique(), levels)
    if ends:
        clip(place, [*shown, *bands], levels)
        crosses(place, ends, styles)
    if view.dots:
        around(place, view, seen)
    names: dict[float, list[str]] = {}
    for name, value in references.items():
        names.setdefault(float(f"{value:.3g}"), []).append(name)  # lines that cannot be told apart are one
    for value, equal in names.items():
        panels.level(place, "; ".join(equal), value, above=len(names) > 1 and value == max(names))


def finite(rows: Frame, column: str) -> Frame:
    """The rows in which a column is finite; none where there is no such column."""
    return rows[np.isfinite(rows[column].to_numpy(float))] if column in rows else rows[:0]


def curve(place: Axes, own: Frame, label: str, style: tuple[str, str], band: bool = True) -> np.ndarray:
    """The mean over seeds, and a band of one standard deviation (inside the positive numbers).

    `own` has the columns seed, the horizontal axis, and what is drawn. What was drawn is given: x, the mean, and the
    upper end of the band.
    """
    (colour, line), (_, axis, column) = style, own.columns
    by_x = own.assign(**{column: panels.drawable(own[column].to_numpy(float))}).groupby(axis)[column]
    mean, spread = by_x.mean(), by_x.std(ddof=0).fillna(0.0)
    # A sweep has few points, and some stand alone.
    points = {"marker": MARKERS[line], "markersize": 4.5} if axis == "x" else {}
    place.plot(mean.index, mean, line, color=colour, label=label, linewidth=1.9, **points)
    if band and own["seed"].nunique() > 1:
        low = np.maximum(mean - spread, by_x.min())  # never below what was seen: a log axis has no negative numbers
        place.fill_between(mean.index, low, mean + spread, color=colour, alpha=0.18, linewidth=0)
    return np.column_stack([mean.index.to_numpy(float), mean.to_numpy(float), (mean + spread).to_numpy(float)])


def rest(place: Axes, whole: Frame, first: float, style: tuple[str, str]) -> np.ndarray:
    """The mean of the runs that did not diverge, thin from where the first of the others did; given for all rounds."""
    (colour, line), (_, axis, column) = style, whole.columns
    mean = whole.groupby(axis)[column].mean()
    later = mean[mean.index >= first]
    place.plot(later.index, later, line, color=colour, linewidth=0.9, alpha=0.8)
    return mean.to_numpy(float)


def clip(place: Axes, shown: list[np.ndarray], levels: list[float]) -> None:
    """Limits for what runs that did not diverge have, and for the others while they are not far from it."""
    values = np.concatenate([*shown, np.asarray(levels, float)])
    most = MATTERS * float(np.max(np.abs(values), initial=0.0))
    if values.size and place.get_ylim()[1] > most:
        logarithmic = place.get_yscale() == "log"
        ends = np.log10([values[values > 0].min(), values.max()]) if logarithmic else [values.min(), values.max()]
        margin = 0.1 * (ends[1] - ends[0] or 1.0)
        limits = ends[0] - margin, ends[1] + 3 * margin
        place.set_ylim(*(10.0**end for end in limits) if logarithmic else limits)


def crosses(place: Axes, ends: list[tuple[float, float, str]], styles: dict[str, tuple[str, str]]) -> None:
    """A cross where the first of a method's runs diverges, at the edge of the panel where its mean is beyond."""
    low, high = place.get_ylim()
    for x, y, label in ends:
        at = float(np.clip(y, low, high))
        place.plot([x], [at], "x", color=styles[label][0], markersize=8, markeredgewidth=2, clip_on=False, zorder=5)


def dots(place: Axes, own: Frame, label: str, style: tuple[str, str]) -> np.ndarray:
    """A dot for each row, moved up or down a little, so that equal ones show."""
    (colour, line), (_, axis, column) = style, own.columns
    moved = JITTER * np.random.default_rng(0).uniform(-1, 1, len(own))
    marker = {"-": "o", "--": "x"}.get(line, "s")
    x, y = own[axis].to_numpy(float), own[column].to_numpy(float)
    place.plot(x, y + moved, marker, color=colour, label=label, markersize=4, alpha=0.4)
    return y


def around(place: Axes, view: View, seen: Measurements) -> None:
    """What panels of dots share: the limits of x, and the corner that a claim is about."""
    x = seen.table[seen.axis].to_numpy(float)
    low, high = np.nanmin(x), np.nanmax(x)
    margin = 0.03 * (high - low or 1.0)
    place.set_xlim(low - margin, high + margin)
    if view.corner is not None:
        left, right, bottom, top = view.corner(seen)
        frame = Rectangle(
            (left, bottom), right - left, top - bottom, fill=False, edgecolor=looks.REFERENCE, linestyle=":"
        )
        place.add_patch(frame)


def axes(place: Axes, view: View, shown: list[np.ndarray], x: str, at: np.ndarray, levels: list[float]) -> None:
    """Scales, limits and names."""
    place.margins(x=0.02, y=0.06)
    decades = panels.spread(shown) if shown else 0.0
    if view.log_x:
        logarithmic_x(place, at)
    elif len(at) <= FEW and not view.dots and np.array_equal(at, np.round(at)):  # stages, for instance
        place.set_xticks(at)
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
        if at.max() / at.min() < 1e3:  # powers of ten alone would be too few, and all between them too many
            place.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            place.xaxis.set_major_formatter(PLAIN)
            place.xaxis.set_minor_formatter(NullFormatter())
    else:
        place.set_xscale("symlog", linthresh=at[at > 0].min(), linscale=0.5)
        if len(at) <= FEW:
            place.set_xticks(at)
            place.xaxis.set_major_formatter(PLAIN)
            place.xaxis.set_minor_locator(NullLocator())
