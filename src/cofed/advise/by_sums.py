"""Show what the sites' own fits say of sharing a model: in the terminal, as an HTML page, as a figure and as JSON."""

import html
import io
import json
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from cofed._util.files import atomically
from cofed._util.pandas_types import Frame
from cofed.advise.show import rows_of, table
from cofed.plotting.styles import COLOURS, LARGE, REFERENCE, SMALL
from cofed.statistics.heterogeneity import Heterogeneity

VERDICTS = {
    "share": "Share one model.",
    "separate": "Fit a model for each site.",
    "between": "The sites' own fits do not settle it.",
}
REMARK = (
    "No row was pooled: each site gave sums about its own rows, and so its own fit. A ratio is the square of how far a "
    "site's fit is from the average of all, over what chance alone would make of it; cross-validation of one model, a "
    "model each and what is between takes a table of all rows (cofed advise TABLE --client COLUMN)."
)


def sites_of(found: Heterogeneity) -> Frame:
    """A row for each site with a fit of its own, the most unlike first."""
    own = found.table.sort_values("ratio", ascending=False, kind="stable")
    return pd.DataFrame(
        {
            "site": [str(name) for name in own.index],
            "rows": [f"{int(rows):,}" for rows in own["samples"]],
            "distance": [f"{value:.3g}" for value in own["distance"]],
            "by chance": [f"{value:.3g}" for value in own["expected"]],
            "ratio": [f"{value:.2f}" for value in own["ratio"]],
        }
    )


def left_out_of(found: Heterogeneity) -> Frame:
    """The sites without a fit of their own, and why."""
    return pd.DataFrame({"left out": list(found.left_out), "because": list(found.left_out.values())})


def resting(found: Heterogeneity) -> str:
    """On how many sites the verdict rests."""
    return f"This rests on {len(found.table)} of {len(found.table) + len(found.left_out)} sites."


def terminal(found: Heterogeneity) -> Group:
    """The verdict for a terminal."""
    left = left_out_of(found)
    heading = lambda text: Padding(Text(text, style="bold"), (0, 1))  # noqa: E731
    words = Group(Text(VERDICTS[found.verdict], style="bold green"), Text("\n" + reason(found)))
    return Group(
        Panel(words, title="Recommendation", title_align="left", border_style="green"),
        heading("Site by site"),
        table(sites_of(found)),
        *((heading("Sites that are left out"), table(left)) if len(left) else ()),
        Padding(Text(REMARK, style="dim"), (0, 1)),
    )


def reason(found: Heterogeneity) -> str:
    """What the verdict is made of, in words."""
    low, high = found.interval
    return (
        f"The sites differ by R² = {found.R_squared:.3g} ({found.level:.0%} interval {low:.3g} to {high:.3g}); one "
        f"model for all is better than a model each where that is below {found.threshold:.3g}, the error that sites "
        f"make when they fit alone. {resting(found)}"
    )


def figure(found: Heterogeneity) -> Figure:
    """How far each site's fit is from the average, beside what chance would make of it."""
    own = found.table.sort_values("ratio", kind="stable")
    at = np.arange(len(own))
    fig = Figure(figsize=(7.2, 1.4 + 0.24 * len(own)), layout="constrained")
    axes = fig.add_subplot()
    axes.hlines(at, own["expected"], own["distance"], color="#D0D0D0", lw=1.5)
    axes.plot(own["expected"], at, "|", color=REFERENCE, ms=11, label="by chance alone")
    axes.plot(own["distance"], at, "o", color=COLOURS["PureLocal"], ms=5, label="the site's own fit")
    axes.set_yticks(at, [str(name) for name in own.index])
    axes.set_xlim(left=0)
    axes.set_xlabel("distance from the average of all sites", fontsize=LARGE)
    axes.tick_params(labelsize=SMALL)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=SMALL, frameon=False, loc="lower right")
    return fig


def save_figure(found: Heterogeneity, path: Path) -> None:
    """Write the figure as PNG, SVG or PDF, by the ending of its name."""
    kind = path.suffix.removeprefix(".").lower()
    atomically(path, lambda f: figure(found).savefig(f, format=kind, dpi=160), shown=True)


def page(found: Heterogeneity) -> str:
    """The verdict as one self-contained HTML page."""
    drawing = io.StringIO()
    figure(found).savefig(drawing, format="svg")
    svg = drawing.getvalue()
    svg = svg[svg.index("<svg") :]
    say, style = html.escape, resources.files("cofed.advise").joinpath("page.css").read_text()
    left = left_out_of(found)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>One model for all sites, or a model each</title><style>{style}</style></head><body>
<h1>One model for all sites, or a model each</h1>
<div class="card"><strong>{say(VERDICTS[found.verdict])}</strong><p>{say(reason(found))}</p></div>
<h2>How unlike the others each site is</h2>
<figure role="img" aria-label="distance of each site's own fit from the average, beside chance">{svg}</figure>
<h2>Site by site</h2>
{rows_of(sites_of(found))}
{f"<h2>Sites that are left out</h2>{rows_of(left)}" if len(left) else ""}
<p class="soft">{say(REMARK)}</p>
</body></html>
"""


def save_page(found: Heterogeneity, path: Path) -> None:
    """Write the HTML page to a file."""
    text = page(found)
    atomically(path, lambda name: Path(name).write_text(text, encoding="utf-8"), shown=True)


def as_json(found: Heterogeneity) -> str:
    """The results as JSON."""
    own = found.table.rename(columns={"samples": "rows"}, index=str)
    return json.dumps(
        {
            "verdict": found.verdict,
            "R_squared": found.R_squared,
            "interval": list(found.interval),
            "level": found.level,
            "threshold": found.threshold,
            "sites": own.to_dict(orient="index"),
            "left_out": found.left_out,
        },
        indent=2,
    )
