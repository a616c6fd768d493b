"""How well two classes are told apart on held-out rows, and how well chances are calibrated: from counts in bins."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import ndtri

from cofed._util.figure_types import Axes, Figure, blank
from cofed._util.types import Given
from cofed.estimators.checks import check_count, check_number
from cofed.plotting import save
from cofed.plotting.styles import LARGE, SMALL

LINE, GREY = "#0072B2", "#6B6B6B"
PARTS = 10  # of the calibration curve


@dataclasses.dataclass(frozen=True)
class HeldOutCurves:
    """Predictions for held-out rows of two classes, counted in bins: each by the model that has not learnt from it.

    Attributes
    ----------
    edges : ndarray of shape (bins - 1,)
        Between the bins, as log odds, ascending.
    rows : ndarray of shape (bins,)
        The rows (or their weights) of each bin, over all sites and folds.
    ones : ndarray of shape (bins,)
        Those of the second class.
    expected : ndarray of shape (bins,)
        How many of them the models expect.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import HeldOutCurves
    >>> counts = np.array([4.0, 4.0, 2.0]), np.array([1.0, 2.0, 2.0]), np.array([0.8, 2.0, 1.8])
    >>> curves = HeldOutCurves(np.array([-1.0, 1.0]), *counts)
    >>> round(curves.auc, 2), round(curves.auc_bound, 2), curves.calibration(3)["observed"].tolist()
    (0.78, 0.14, [0.25, 0.5, 1.0])
    """

    edges: np.ndarray
    rows: np.ndarray
    ones: np.ndarray
    expected: np.ndarray

    @property
    def roc(self) -> pd.DataFrame:
        """The ROC curve: a row per edge, from the strictest on, with the parts of both classes above it."""
        ones, zeros = self.ones[::-1], (self.rows - self.ones)[::-1]
        return pd.DataFrame(
            {
                "threshold": np.concatenate([[np.inf], chance(self.edges[::-1]), [0.0]]),
                "false_positive": np.append(0.0, np.cumsum(zeros)) / zeros.sum(),
                "true_positive": np.append(0.0, np.cumsum(ones)) / ones.sum(),
            }
        )

    @property
    def auc(self) -> float:
        """The area under the curve, whose points are joined by straight lines."""
        found = self.roc
        return float(np.trapezoid(found["true_positive"], found["false_positive"]))

    @property
    def auc_bound(self) -> float:
        """By how much the area may be off, as the order of rows within a bin is not known."""
        ones, zeros = self.ones, self.rows - self.ones
        return float(ones @ zeros / (ones.sum() * zeros.sum()) / 2)

    def calibration(self, parts: Given[int] = PARTS, level: Given[float] = 0.95) -> pd.DataFrame:
        """What is observed beside what is expected, of rows with like predictions.

        Parameters
        ----------
        parts : int, default=10
            Into how many parts of about as many rows the bins are put together.
        level : float, default=0.95
            The coverage of the intervals.

        Returns
        -------
        pandas.DataFrame
            A row per part: rows, the mean chance of the second class, how often it was observed, and Wilson's interval
            of that (of rows that count alike).
        """
        check_count("calibration", "parts", parts)
        check_number("calibration", "level", level, low=0, high=1, strict=True)
        middle = np.cumsum(self.rows) - self.rows / 2
        part = np.minimum((int(parts) * middle / self.rows.sum()).astype(int), int(parts) - 1)
        rows, ones, expected = (np.bincount(part, one) for one in (self.rows, self.ones, self.expected))
        some = rows > 0
        n, share, z = rows[some], ones[some] / rows[some], float(ndtri((1 + float(level)) / 2))
        centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
        return pd.DataFrame(
            {
                "rows": n,
                "expected": expected[some] / n,
                "observed": share,
                "low": np.maximum(centre - half, 0),
                "high": np.minimum(centre + half, 1),
            }
        )

    def plot(self, path: str | Path | None = None) -> Figure:
        """Both curves, side by side.

        Parameters
        ----------
        path : str or Path, optional
            A file to write the figure to.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        figure = blank(9.2, 4.6)
        left, right = figure.subplots(1, 2)
        found, table = self.roc, self.calibration()
        left.plot(found["false_positive"], found["true_positive"], color=LINE, linewidth=1.6)
        left.annotate(
            f"area {self.auc:.3f} ± {self.auc_bound:.3f}",
            (0.97, 0.05),
            xycoords="axes fraction",
            ha="right",
            color=GREY,
        )
        finish(left, "false positives", "true positives")
        size = np.abs(table[["low", "high"]].to_numpy().T - table["observed"].to_numpy())
        right.errorbar(
            *(table["expected"], table["observed"], size),
            fmt="o",
            color=LINE,
            ecolor="#B9B9B9",
            markersize=4,
            capsize=2,
        )
        finish(right, "expected", "observed")
        if path is not None:
            save(figure, path)
        return figure


def finish(panel: Axes, x: str, y: str) -> None:
    """Axes from 0 to 1 with the diagonal."""
    panel.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1.2, zorder=0)
    panel.set_xlim(-0.02, 1.02)
    panel.set_ylim(-0.02, 1.02)
    panel.set_aspect("equal")
    panel.set_xlabel(x, fontsize=LARGE)
    panel.set_ylabel(y, fontsize=LARGE)
    panel.tick_params(labelsize=SMALL)
    panel.grid(True, color="#E9E9E9", linewidth=0.6)
    panel.set_axisbelow(True)


def chance(log_odds: np.ndarray) -> np.ndarray:
    """Probabilities."""
    return 1 / (1 + np.exp(-log_odds))
