"""The picture of survival curves: steps with their limits, and the rows at risk below, as medical journals have it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cofed._util.figure_types import Axes, Figure, blank
from cofed.estimators.plots import COLOURS, GREY
from cofed.plotting import save
from cofed.plotting.styles import LARGE, SMALL
from cofed.statistics.survival import KaplanMeier, LogRank

MARKS = 40  # the most times at which leaving rows are marked


def plot_curves(curves: Mapping[str, KaplanMeier], test: LogRank | None = None, to: str | Path | None = None) -> Figure:
    """Draw the curves, with the rows at risk in a table below; `to` is a file for it."""
    from matplotlib.ticker import MaxNLocator

    lines = len(curves)
    figure = blank(7.2, 4.6 + 0.24 * lines)
    panel, below = figure.subplots(2, 1, sharex=True, height_ratios=[4.2, 0.3 + 0.28 * lines])
    shades = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(curves)}
    for name, curve in curves.items():
        draw(panel, name, curve, shades[name])
    panel.set_ylim(0, 1.02)
    panel.set_ylabel("survival", fontsize=LARGE)
    panel.grid(True, color="#E9E9E9", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(labelsize=SMALL, labelbottom=True)
    if lines > 1:
        panel.legend(fontsize=SMALL, frameon=False, loc="upper right")
    if test is not None and test.freedom:
        words = "p < 0.001" if test.p_value < 0.001 else f"p = {test.p_value:.3f}"
        panel.annotate(f"log-rank {words}", (0.02, 0.05), xycoords="axes fraction", fontsize=SMALL, color=GREY)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    end = max(float(curve.time[-1]) for curve in curves.values())
    panel.set_xlim(0, end * 1.02 if end > 0 else 1)
    panel.xaxis.set_major_locator(MaxNLocator(7))
    count(below, curves, shades)
    if to is not None:
        save(figure, to)
    return figure


def draw(panel: Axes, name: str, curve: KaplanMeier, shade: str) -> None:
    """A curve, its limits, and marks where rows leave without an event."""
    start = np.concatenate([[0.0], curve.time]) if curve.time[0] > 0 else curve.time
    stepped = lambda values: np.concatenate([[1.0], values]) if curve.time[0] > 0 else values  # noqa: E731
    panel.step(start, stepped(curve.survival), where="post", color=shade, linewidth=1.6, label=name)
    low, high = stepped(curve.low), stepped(curve.high)
    panel.fill_between(start, low, high, step="post", color=shade, alpha=0.15, linewidth=0)
    leaves = np.flatnonzero(curve.censored > 0)
    if len(leaves) <= MARKS:
        panel.plot(curve.time[leaves], curve.survival[leaves], "|", color=shade, markersize=6, markeredgewidth=1)


def count(below: Axes, curves: Mapping[str, KaplanMeier], shades: Mapping[str, str]) -> None:
    """The rows at risk of each group at the ticks."""
    below.set_ylim(len(curves) - 0.4, -0.9)
    below.annotate("rows at risk", (0, -0.65), xycoords=below.get_yaxis_transform(), fontsize=SMALL, color=GREY)
    low, high = below.get_xlim()
    for place, (name, curve) in enumerate(curves.items()):
        for tick in below.get_xticks():
            if low <= tick <= high:
                below.text(tick, place, f"{at_risk(curve, tick):,}", ha="center", va="center", fontsize=SMALL - 0.5)
        below.annotate(
            name if len(name) <= 16 else name[:15] + "…",
            (-0.035, place),
            xycoords=below.get_yaxis_transform(),
            ha="right",
            va="center",
            fontsize=SMALL,
            color=shades[name],
        )
    below.set_yticks([])
    below.tick_params(bottom=False, labelbottom=False)
    for spine in below.spines.values():
        spine.set_visible(False)
    below.set_xlabel("time", fontsize=LARGE)


def at_risk(curve: KaplanMeier, time: float) -> int:
    """How many rows are at risk at a time: those of the grid's next time."""
    place = int(np.searchsorted(curve.time, time, side="left"))
    return int(curve.at_risk[place]) if place < len(curve.time) else 0
