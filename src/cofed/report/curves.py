"""The curves of a run, ready to draw: the mean and range over seeds, thinned to what a screen can show."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cofed._util.pandas_types import Frame
from cofed.plotting.panels import DECADES, spread
from cofed.plotting.styles import FRACTIONS, REFERENCE, WORDS, colour, style
from cofed.report.runs import ReportedRun

NEVER = {"panel", "algorithm", "seed", "round", "x", "x_name", "stage", "participants", "left_out"}  # never drawn
COSTS = {"bytes_down", "bytes_up", "megabytes", "seconds"}  # horizontal axes of curves, but columns of a sweep
DETAILS = ("_min", "_max", "_mean")  # of the nodes' own models
COMMON = ("objective", "density", "rank", "test_accuracy", "accuracy", "loss", "prox_gradient", "test_loss")
PARTS = ("precision", "recall")  # what F1 is made of
DIGITS = 6  # significant digits of a number on the page
LARGEST = 1e300  # a larger number counts as infinite, so that a browser can still compute with it
DASHES = ("", "7 4", "2 3", "9 3 2 3", "14 4", "5 2 1 2 1 2", "1 4", "12 3 5 3")
LEVELS = ("2 4", "8 5", "2 3 8 3", "1 2")  # dashes of the horizontal reference lines
STYLES = {"-": "", "--": "7 4", "-.": "9 3 2 3"}  # matplotlib's line styles as SVG dashes
DARK = "#16191d"  # the background of the page's dark theme
CONTRAST = 3.3  # of a line against the background; WCAG asks for 3


def columns_of(run: ReportedRun) -> list[str]:
    """The columns that can be drawn, in the order in which the page offers them."""
    hidden = NEVER if run.sweep else NEVER | COSTS
    numbers = run.numbers.select_dtypes(float)
    return in_order([name for name in numbers if name not in hidden and numbers[name].notna().any()])


def in_order(columns: Sequence[str]) -> list[str]:
    """The run's own metrics first, then the common ones, then details and costs.

    >>> from cofed.report.curves import in_order
    >>> in_order(["objective", "loss", "consensus_max", "seconds", "density", "f1"])
    ['f1', 'objective', 'density', 'loss', 'consensus_max', 'seconds']
    """
    late = [name for name in columns if name.endswith(DETAILS) or name in COSTS]
    own = [name for name in columns if name not in (*COMMON, *PARTS, *late)]
    return own + [name for name in (*COMMON, *PARTS) if name in columns] + late


def words(column: str) -> str:
    """The label of a column, as in the figures."""
    return WORDS.get(column, column.replace("_", " "))


def log_by_default(values: np.ndarray, column: str) -> bool:
    """Whether a column is first drawn on a logarithmic axis, by the same rule as in the figures."""
    values = values[np.isfinite(values)]
    return column not in FRACTIONS and values.size > 0 and spread([values]) > DECADES


def styled(labels: Iterable[str]) -> list[dict[str, str]]:
    """A line style for every label: the figures' colours and dashes, and other dashes where two would look the same.

    >>> from cofed.report.curves import styled
    >>> [line["dash"] for line in styled(["FedMiD", "FedMiD (K=1)", "FedMiD (K=5)"])]
    ['', '7 4', '2 3']
    """
    lines, taken = [], set()
    for label in labels:
        wanted = [STYLES[style(label)], *DASHES]
        dash = next((dash for dash in wanted if (colour(label), dash) not in taken), wanted[0])
        taken.add((colour(label), dash))
        lines.append({"label": label, "light": colour(label), "dark": on_dark(colour(label)), "dash": dash})
    return lines


def on_dark(shade: str) -> str:
    """A colour that stands out on a dark background: black turns white, dark colours become lighter, others stay.

    >>> from cofed.report.curves import on_dark
    >>> on_dark("#000000"), on_dark("#E69F00"), on_dark("#332288")
    ('#f2f2f2', '#E69F00', '#7064ac')
    """
    if shade == "#000000":
        return "#f2f2f2"
    parts = channels(shade)
    ground = luminance(channels(DARK)) + 0.05
    mixes = (parts + lighter * (255 - parts) for lighter in np.linspace(0, 1, 41))
    mixed = next(mix for mix in mixes if (luminance(mix) + 0.05) / ground >= CONTRAST)
    return shade if (mixed == parts).all() else "#" + "".join(f"{round(part):02x}" for part in mixed)


def channels(shade: str) -> np.ndarray:
    """Red, green and blue of a colour such as #0072B2."""
    return np.array([int(shade[i : i + 2], 16) for i in (1, 3, 5)], float)


def luminance(parts: np.ndarray) -> float:
    """The relative luminance of red, green and blue, as WCAG defines it."""
    linear = np.where(parts <= 0.04045 * 255, parts / 255 / 12.92, ((parts / 255 + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def labels_of(run: ReportedRun) -> list[str]:
    """The labels of the algorithms, in the order of the configuration, then in that of the numbers."""
    present = list(dict.fromkeys(run.numbers["algorithm"]))
    listed = [str(entry.get("label")) for entry in run.entries]
    return list(dict.fromkeys([label for label in listed if label in present] + present))


def axes_of(run: ReportedRun) -> list[str]:
    """The horizontal axes that the run's numbers allow."""
    numbers = run.numbers.select_dtypes(float)
    return ["x"] if run.sweep else [axis for axis in ("round", "megabytes", "seconds") if axis in numbers]


def panels_of(run: ReportedRun, points: int) -> list[dict[str, Any]]:
    """Every panel with its curves, of about `points` points each."""
    columns, labels = columns_of(run), labels_of(run)
    panels = []
    for name, panel in run.numbers.groupby("panel", sort=False):
        panels.append(
            {
                "name": name,
                "x_name": str(panel["x_name"].iloc[0]) if "x_name" in panel else "x",
                "references": levels(run, str(name), columns),
                "log": [column for column in columns if log_by_default(panel[column].to_numpy(), column)],
                "curves": [
                    {"series": labels.index(str(label)), **curve(part, columns, axes_of(run), points)}
                    for label, part in panel.groupby("algorithm")
                ],
            }
        )
    return panels


def levels(run: ReportedRun, panel: str, columns: list[str]) -> dict[str, dict[str, float | int | None]]:
    """The reference levels of a panel, such as that of a pooled solution, by column and name."""
    found: dict[str, dict[str, float | int | None]] = {}
    for name, values in entries_of(entries_of(run.config.get("references")).get(panel)).items():
        for column, value in entries_of(values).items():
            if column in columns and isinstance(value, int | float):
                found.setdefault(column, {})[name] = short(float(value))
    return found


def references(panels: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """A line style for every reference level of the panels."""
    names = dict.fromkeys(name for panel in panels for column in panel["references"].values() for name in column)
    shades = {"light": REFERENCE, "dark": on_dark(REFERENCE)}
    return [{"label": name, **shades, "dash": LEVELS[place % len(LEVELS)]} for place, name in enumerate(names)]


def entries_of(value: object) -> dict[str, Any]:
    """A value of the configuration that should be an object; an empty one where it is something else."""
    return value if isinstance(value, dict) else {}


def curve(rows: Frame, columns: list[str], axes: list[str], points: int) -> dict[str, Any]:
    """One algorithm's curve: the mean of every column over seeds, and its range where there are several seeds.

    The entry `of` is the number of points that were measured, of which about `points` are kept.
    """
    seeds = rows.groupby(axes[0], sort=True)
    mean = seeds[axes[1:] + columns].mean().reset_index()
    ends = {"mean": mean}
    if rows["seed"].nunique() > 1:
        ends |= {"low": seeds[columns].min().reset_index(), "high": seeds[columns].max().reset_index()}
    kept = thin(mean[columns].to_numpy(), points)
    return {
        "x": {axis: compact(mean[axis].to_numpy()[kept]) for axis in axes},
        "y": {
            column: {end: compact(table[column].to_numpy()[kept]) for end, table in ends.items()} for column in columns
        },
        "of": len(mean),
    }


def thin(values: np.ndarray, points: int) -> np.ndarray:
    """Which rows of a long curve to keep: evenly spaced, evenly spaced on a log axis, and every column's extremes.

    >>> import numpy as np
    >>> from cofed.report.curves import thin
    >>> thin(np.zeros((3, 1)), points=10)
    array([0, 1, 2])
    >>> spike = np.zeros((1000, 1))
    >>> spike[777] = 1
    >>> kept = thin(spike, points=10)
    >>> len(kept) < 15, 777 in kept, 999 in kept
    (True, True, True)
    """
    count = len(values)
    if count <= points:
        return np.arange(count)
    even = np.linspace(0, count - 1, points // 2)
    logarithmic = np.geomspace(1, count, points // 2) - 1
    finite = values[:, np.isfinite(values).any(axis=0)]
    extremes = np.concatenate([np.nanargmin(finite, axis=0), np.nanargmax(finite, axis=0)]) if finite.size else []
    return np.unique(np.concatenate([even, logarithmic, extremes]).round().astype(int))


def compact(values: np.ndarray) -> list[float | int | None]:
    """Numbers as the page holds them: rounded, and None where they are not finite or larger than `LARGEST`.

    >>> import numpy as np
    >>> from cofed.report.curves import compact
    >>> compact(np.array([0.123456789, np.nan, 1e-20])), compact(np.array([1.0, 100.0]))
    ([0.123457, None, 1e-20], [1, 100])
    """
    if (np.abs(values) < 1e9).all() and (values == values.round()).all():
        return values.astype(int).tolist()
    return [float(f"{value:.{DIGITS}g}") if abs(value) < LARGEST else None for value in values.tolist()]


def short(value: float | int) -> float | int | None:
    """One number as the page holds it."""
    return compact(np.array([value], float))[0]
