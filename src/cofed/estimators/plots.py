"""Pictures of paths and of cross-validation, as users of glmnet know them: strong penalties left, weak ones right."""

import dataclasses
from pathlib import Path

import numpy as np

from cofed._util.figure_types import Axes, Figure, blank
from cofed.estimators.fitted_path import RegularizationPath
from cofed.plotting import save
from cofed.plotting.styles import LARGE, SMALL

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999933", "#332288", "#000000")
NAMED = 10  # the largest coefficients of the last model are named
ERROR = "#D55E00"
GREY = "#6B6B6B"


@dataclasses.dataclass(frozen=True)
class CrossValidation:
    """A measure of the strengths of a path on held-out rows, and the two usual choices."""

    path: RegularizationPath
    mean: np.ndarray
    se: np.ndarray
    chosen: dict[str, float]  # strengths by the names of the choices
    words: str | None = None  # what was measured, where it is not the deviance


def plot_path(path: RegularizationPath, to: str | Path | None = None, mark: dict[str, float] | None = None) -> Figure:
    """Coefficients (of the standardised features, if they were) by strength; `mark` names strengths."""
    figure = blank(7.2, 4.6)
    panel = figure.subplots()
    lines = (path.coefs * path.scale).reshape(len(path.alphas), -1)  # in units that can be compared
    used = np.flatnonzero(np.any(lines != 0, axis=0)).tolist()
    shades = {column: COLOURS[rank % len(COLOURS)] for rank, column in enumerate(used)}
    for column, shade in shades.items():
        panel.plot(path.alphas, lines[:, column], color=shade, linewidth=1.4)
    name_ends(panel, path, lines, shades)
    panel.axhline(0, color="#BBBBBB", linewidth=0.8, zorder=0)
    standardised = np.any(path.scale != 1)
    finish(panel, path, "coefficient x standard deviation" if standardised else "coefficient")
    marked(panel, mark or {})
    if to is not None:
        save(figure, to)
    return figure


def name_ends(panel: Axes, path: RegularizationPath, lines: np.ndarray, shades: dict[int, str]) -> None:
    """The names of the largest coefficients at the right end, moved apart where they would cover each other."""
    largest = [column for column in np.argsort(-np.abs(lines[-1]))[:NAMED] if lines[-1, column] != 0]
    gap = 0.045 * (lines.max() - lines.min())
    place = -np.inf
    for column in sorted(largest, key=lambda c: lines[-1, c]):
        place = max(place + gap, lines[-1, column])
        panel.annotate(
            path.feature_names[column % len(path.feature_names)],
            (path.alphas[-1], lines[-1, column]),
            xytext=(1.015, place),
            textcoords=panel.get_yaxis_transform(),
            fontsize=SMALL - 1,
            va="center",
            color=shades[column],
            annotation_clip=False,
        )


def plot_cv(found: CrossValidation, to: str | Path | None = None) -> Figure:
    """The cross-validated measure by strength, with its standard error and the two usual choices."""
    figure = blank(7.2, 4.6)
    panel = figure.subplots()
    panel.errorbar(
        found.path.alphas,
        found.mean,
        yerr=found.se,
        fmt="o",
        markersize=3.2,
        color=ERROR,
        ecolor="#B9B9B9",
        elinewidth=0.9,
        capsize=1.8,
    )
    gaussian = found.path.gaussian
    finish(panel, found.path, found.words or ("mean squared error" if gaussian else "deviance per row"))
    marked(panel, found.chosen)
    if to is not None:
        save(figure, to)
    return figure


def marked(panel: Axes, mark: dict[str, float]) -> None:
    """Vertical lines with a word each."""
    for k, (word, alpha) in enumerate(mark.items()):
        panel.axvline(alpha, color=GREY, linestyle=":", linewidth=1.4, zorder=1)
        panel.annotate(
            word,
            (alpha, 0.97 - 0.06 * k),
            xycoords=panel.get_xaxis_transform(),
            xytext=(-3, 0),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=SMALL,
            color=GREY,
        )


def finish(panel: Axes, path: RegularizationPath, words: str) -> None:
    """Axes: strength to the right ever weaker, the number of coefficients in use above."""
    panel.set_xscale("log")
    panel.set_xlim(path.alphas[0] * 1.05, path.alphas[-1] / 1.05)
    panel.set_xlabel("alpha", fontsize=LARGE)
    panel.set_ylabel(words, fontsize=LARGE)
    panel.tick_params(labelsize=SMALL)
    panel.grid(True, color="#E9E9E9", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines["right"].set_visible(False)
    top = panel.twiny()
    top.set_xscale("log")
    top.set_xlim(panel.get_xlim())
    ticks = np.linspace(0, len(path.alphas) - 1, min(9, len(path.alphas))).round().astype(int)
    top.set_xticks(path.alphas[ticks], labels=[str(path.nonzero[i]) for i in ticks], minor=False)
    top.minorticks_off()
    top.tick_params(labelsize=SMALL)
    top.set_xlabel("coefficients in use", fontsize=SMALL)
    top.spines["right"].set_visible(False)
