"""The parts of a panel: its axes, reference levels and legend. Shared by all figures of runs."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from cofed.plotting.styles import LARGE, REFERENCE, SMALL

LARGEST = 1e250  # beyond it a logarithmic axis with its margins overflows
DECADES = 1.0  # a column that spans more powers of ten than this gets a logarithmic axis


def drawable(values: np.ndarray) -> np.ndarray:
    """The values, with NaN in place of those of a run that blew up beyond what an axis can show."""
    return np.where(np.abs(values) < LARGEST, values, np.nan)


def from_zero(panel: Axes, fractions: Iterable[npt.ArrayLike]) -> None:
    """Set the vertical axis for fractions: from 0 to 1, or to a little above the largest where all are small."""
    values = np.concatenate([np.ravel(np.asarray(f, float)) for f in fractions] or [np.ones(1)])
    most = float(np.max(values, where=np.isfinite(values), initial=0.0))
    top = 1.2 * most if 0 < most < 0.3 else 1.0
    panel.set_ylim(-0.02 * top, 1.03 * top)


def level(panel: Axes, label: str, value: float, above: bool = False) -> None:
    """Draw a horizontal line to compare with, and its name, unless a logarithmic axis has no place for it.

    The name stands below the line; above it where it is asked for or below is no room.
    """
    if panel.get_yscale() == "log" and value <= 0:
        return
    panel.axhline(value, color=REFERENCE, linestyle=":", linewidth=1.5, zorder=1)
    place = panel.transData + panel.transAxes.inverted()
    height = place.transform((panel.get_xlim()[0], value))[1]
    low = height < 0.1 or (above and height < 0.9)  # there is room for the name on that side of the line
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
    """Make the vertical axis logarithmic, with ticks that suit values spanning so many powers of ten."""
    panel.set_yscale("log")
    if decades < 3:  # powers of ten alone would be too few
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.yaxis.set_minor_formatter(NullFormatter())


def dress(panel: Axes, x: str, y: str) -> None:
    """Label the axes, and draw a light grid."""
    panel.set_xlabel(x, fontsize=LARGE)
    panel.set_ylabel(y, fontsize=LARGE)
    panel.tick_params(labelsize=SMALL)
    panel.grid(True, color="#E3E3E3", linewidth=0.7)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def spread(columns: Iterable[np.ndarray]) -> float:
    """How many powers of ten the values span; 0 where some are not positive."""
    values = np.concatenate([column[np.isfinite(column)] for column in columns])
    if values.size == 0 or values.min() <= 0:
        return 0.0
    return math.log10(values.max()) - math.log10(values.min())


def legend(figure: Figure, panels: Sequence[Axes], own: bool, title: str | None) -> None:
    """Draw one legend for all panels: above them in a figure of our `own`, else inside the first axes.

    The title is that of the legend, because matplotlib would draw a figure's own title over such a legend.
    """
    entries: dict[str, Artist] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if own:
        # The line in a legend with its spaces is about as wide as five letters, and a letter 0.6 times as wide as high.
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
