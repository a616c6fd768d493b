"""Performance profiles (Dolan and More 2002): on which part of the problems a method is within a factor of the best."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from cofed import plotting
from cofed.plotting import panels
from cofed.plotting.styles import LARGE, SMALL

WORDS = {"rounds": "rounds", "bytes": "bytes", "gradients": "gradients", "seconds": "simulated seconds"}
SHOWN = 9  # methods with a colour and a name in a figure: those with the most area; the others are grey
WIDEST = 1000.0  # the largest factor that is drawn


def ratios(costs: pd.DataFrame, cost: str) -> pd.DataFrame:
    """Each method's cost over the best one's: problems as rows, methods as columns; infinite where it did not arrive.

    >>> import pandas as pd
    >>> from cofed.race.profiles import ratios
    >>> costs = pd.DataFrame({"problem": ["a", "a"], "algorithm": ["X", "Y"], "rounds": [10.0, 30.0]})
    >>> ratios(costs, "rounds").to_dict("records")
    [{'X': 1.0, 'Y': 3.0}]
    """
    table = costs.pivot(index="problem", columns="algorithm", values=cost).astype(float)
    best = table.min(axis=1)
    ratio = table.div(best, axis=0).fillna(np.inf).rename_axis(index=None, columns=None)
    return ratio.loc[best.notna().to_numpy(), :]


def profile(values: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """The part of the problems on which a method's ratio is at most each factor.

    >>> import numpy as np
    >>> from cofed.race.profiles import profile
    >>> profile(np.array([1.0, 3.0, np.inf]), np.array([1.0, 2.0, 4.0])).round(2).tolist()
    [0.33, 0.33, 0.67]
    """
    return np.mean(values[None, :] <= factors[:, None] * (1 + 1e-12), axis=1)


def area(values: np.ndarray) -> float:
    """The area under a profile, over the logarithm of the factor: 1 where a method is the best on every problem.

    >>> import numpy as np
    >>> from cofed.race.profiles import area
    >>> area(np.array([1.0, np.inf]))
    0.5
    """
    finite = np.where(np.isfinite(values), np.log(np.minimum(values, WIDEST)), np.log(WIDEST))
    return float(1 - np.mean(finite) / np.log(WIDEST))


def draw(costs: pd.DataFrame, gaps: Sequence[float], chosen: Sequence[str], title: str, path: Path) -> None:
    """Draw the profiles: a row of panels for each gap, a column for each cost."""
    figure, axes = plt.subplots(
        len(gaps), len(chosen), figsize=(4.1 * len(chosen), 3.1 * len(gaps) + 1.2), layout="constrained", squeeze=False
    )
    named = leaders(costs, gaps, chosen)
    for row, gap in zip(axes, gaps, strict=True):
        for panel, cost in zip(row, chosen, strict=True):
            draw_panel(panel, ratios(costs.loc[costs["gap"] == gap, :], cost), named)
            panels.dress(panel, f"{WORDS[cost]}, over the best" if gap == gaps[-1] else "", "")
        row[0].set_ylabel(f"part of the problems\nwithin {gap:g}", fontsize=LARGE)
    panels.legend(figure, list(axes.flat), True, title)
    plotting.save(figure, path)
    plt.close(figure)


def leaders(costs: pd.DataFrame, gaps: Sequence[float], chosen: Sequence[str]) -> list[str]:
    """The methods with the most area under their profiles, the best first."""
    found: dict[str, float] = {}
    for gap in gaps:
        for cost in chosen:
            table = ratios(costs.loc[costs["gap"] == gap, :], cost)
            for method in table:
                found[str(method)] = found.get(str(method), 0.0) + (area(table[method].to_numpy()) if len(table) else 0)
    return sorted(found, key=lambda method: -found[method])[:SHOWN]


def draw_panel(panel: Axes, table: pd.DataFrame, named: Sequence[str]) -> None:
    """Draw the profiles of one cost and gap."""
    factors = np.geomspace(1, WIDEST, 400)
    panel.set_xscale("log")
    panel.set_xlim(1, WIDEST)
    panel.set_ylim(-0.02, 1.02)
    if not len(table):
        panel.text(30, 0.5, "no method arrived", ha="center", fontsize=SMALL)
        return
    for method in table:
        if method not in named:
            panel.plot(factors, profile(table[method].to_numpy(), factors), color="#D0D0D0", linewidth=0.9, zorder=1)
    for method in named:
        if method in table:
            # A method and its variant have one colour.
            colour, style = plotting.colour(method), ":" if "(" in method else plotting.style(method)
            values = profile(table[method].to_numpy(), factors)
            panel.plot(factors, values, style, color=colour, linewidth=1.7, label=method)
