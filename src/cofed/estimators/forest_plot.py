"""The forest plot: the estimates of sites with their limits, and below them what they are together."""

from pathlib import Path

import numpy as np
from scipy.stats import norm

from cofed._util.figure_types import Axes, Figure, blank
from cofed._util.pandas_types import Frame, Series
from cofed.estimators.plots import COLOURS, GREY
from cofed.plotting import save
from cofed.plotting.styles import LARGE, SMALL

WIDE = 3  # panels beside each other
NOTE = {"ha": "center", "va": "center", "fontsize": SMALL, "color": GREY}
TOGETHER = (
    ("fixed", "fixed_se", "fixed effect"),
    ("random", "se", "random effects"),
    ("pooled", "pooled_se", "pooled"),
)


def plot_forest(table: Frame, sites: Frame, chosen: list[str], level: float, to: str | Path | None = None) -> Figure:
    """Draw a panel for each of these coefficients; `to` is a file for it."""
    names = [str(name) for name in dict.fromkeys(sites.site)]
    across = min(WIDE, len(chosen))
    down = -(-len(chosen) // across)
    tall = 1.0 + 0.24 * (len(names) + len(TOGETHER) + 1)
    figure = blank(1.4 + 2.9 * across, tall * down)
    panels = figure.subplots(down, across, squeeze=False)
    width = float(norm.ppf(0.5 + level / 2))
    for place, panel in enumerate(panels.ravel()):
        if place >= len(chosen):
            panel.set_visible(False)
            continue
        own = sites[sites.coefficient == chosen[place]]
        draw(panel, own, table.loc[chosen[place]], width)
        finish(panel, chosen[place], table.loc[chosen[place]])
        name_lines(panel, names, place % across == 0)
    if to is not None:
        save(figure, to)
    return figure


def draw(panel: Axes, own: Frame, together: Series, width: float) -> None:
    """A square for each site, the larger the more it counts among random effects, and a diamond for all together."""
    estimate, se = own.estimate.to_numpy(), own.se.to_numpy()
    tau2 = float(together["tau2"])
    weight = 1 / (se**2 + (tau2 if np.isfinite(tau2) else 0.0))
    there = np.flatnonzero(np.isfinite(estimate) & np.isfinite(weight))
    for place in there:
        ends = estimate[place] + width * se[place] * np.array([-1, 1])
        panel.plot(ends, [place, place], color=COLOURS[0], linewidth=1.1)
    share = weight[there] / weight[there].max(initial=1e-300)
    panel.scatter(estimate[there], there, s=12 + 38 * share, marker="s", color=COLOURS[0], zorder=3)
    for place in np.setdiff1d(np.arange(len(own)), there):
        panel.annotate("no estimate", (0.5, place), xycoords=("axes fraction", "data"), **NOTE)
    for line, (value, error, _) in enumerate(TOGETHER):
        at, half = len(own) + 1 + line, width * float(together[error])
        shape = float(together[value]) + half * np.array([-1, 0, 1, 0])
        panel.fill(shape, at + 0.3 * np.array([0, -1, 0, 1]), color=COLOURS[1 + line], linewidth=0)
    if np.isfinite(together["random"]):
        panel.axvline(together["random"], color=COLOURS[2], linewidth=0.8, linestyle=":", zorder=0)


def name_lines(panel: Axes, names: list[str], shown: bool) -> None:
    """The names of the sites, and of what is below them, at the left."""
    many, short = len(names), [name if len(name) <= 18 else name[:17] + "…" for name in names]
    lines = [*range(many), *(many + 1 + line for line in range(len(TOGETHER)))]
    panel.set_yticks(lines, [*short, *(words for _, _, words in TOGETHER)] if shown else [""] * len(lines))
    panel.set_ylim(many + len(TOGETHER) + 0.6, -0.8)
    panel.axhline(many, color="#E0E0E0", linewidth=0.8, zorder=0)
    panel.tick_params(labelsize=SMALL, length=0, axis="y")


def finish(panel: Axes, name: str, together: Series) -> None:
    """The coefficient's name above, the test of heterogeneity below, and a line at 0."""
    panel.axvline(0, color="#BBBBBB", linewidth=0.8, zorder=0)
    panel.tick_params(labelsize=SMALL, axis="x")
    panel.set_title(name, fontsize=LARGE)
    p_value = float(together["p_value"])
    words = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"
    if np.isfinite(p_value):
        panel.set_xlabel(f"I² = {100 * float(together['I2']):.0f} %, heterogeneity {words}", fontsize=SMALL, color=GREY)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
