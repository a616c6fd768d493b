"""Show the advice: in the terminal, as an HTML page, as a figure and as JSON."""

import html
import io
import json
from importlib import resources
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cofed._util.files import atomically
from cofed._util.pandas_types import Frame, Series
from cofed.advise import words
from cofed.advise.advice import Advice
from cofed.plotting.styles import COLOURS, LARGE, REFERENCE, SMALL
from cofed.statistics.heterogeneity import Heterogeneity

WIDE = 106  # a terminal of at least this many columns has room for bars
NARROW = 12  # characters that a name has at least
BARS = 24  # characters of the longest bar


def terminal(advice: Advice, width: int) -> Group:
    """The advice for a terminal of this width."""
    left = words.left_out(advice)
    headline = Text(words.recommendation(advice), style="bold green")
    body = Text("\n\n".join(["", *words.reasons(advice)]).removeprefix("\n"))
    paragraph = lambda text: Padding(Text(text), (0, 1, 1, 1))  # noqa: E731
    heading = lambda text: Padding(Text(text, style="bold"), (0, 1))  # noqa: E731
    return Group(
        Padding(Text(words.title(advice), style="bold"), (1, 1, 0, 1)),
        paragraph(words.data(advice)),
        Panel(Group(headline, body), title="Recommendation", title_align="left", border_style="green"),
        heading("How different the sites are"),
        paragraph(words.difference(advice)),
        heading(f"What each choice gives ({words.LOSSES[advice.prepared.kind]} on held-out rows, lower is better)"),
        table(
            words.choices(advice).drop(columns="best"),
            bars(advice) if width >= WIDE else None,
            mark=words.choices(advice)["best"],
        ),
        heading("Site by site"),
        table(words.sites(advice) if width >= WIDE else words.sites(advice).drop(columns="best here")),
        *((heading("Sites that are left out"), table(left)) if len(left) else ()),
        Padding(Text("\n".join(f"- {remark}" for remark in words.remarks(advice)), style="dim"), (0, 1)),
        Padding(Text("To train it:\n" + words.how_to(advice), style="dim"), (1, 1)),
    )


def table(rows: Frame, drawn: list[str] | None = None, mark: Series | None = None) -> Table:
    """A table for the terminal, optionally with a bar (`drawn`) beside each row and some rows highlighted (`mark`)."""
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, column in enumerate(map(str, rows)):
        # Numbers are never cut: names and sentences wrap instead, and a heading has a line for each word.
        text = column in ("best here", "left out of", "because") or place == 0
        head = column if text else column.replace(" ", "\n").replace("\n±\n", " ±\n")
        least = min(NARROW, max(map(len, rows[column].astype(str)), default=0)) if text else None
        out.add_column(head, no_wrap=not text, overflow="fold", min_width=least, justify="left" if text else "right")
    if drawn is not None:
        out.add_column("", no_wrap=True)
    for i, row in enumerate(rows.itertuples(index=False)):
        style = "bold green" if mark is not None and mark.iloc[i] else ""
        texts = [Text(str(value)) for value in row]  # no markup: a site may be called "[red]"
        out.add_row(*texts, *([drawn[i]] if drawn is not None else []), style=style)
    return out


def bars(advice: Advice) -> list[str]:
    """A bar for each choice: how much worse it is than the best."""
    excess = (advice.risks - advice.risks.min())[::-1]
    longest = excess.max()
    return ["█" * round(BARS * value / longest) if longest > 0 else "" for value in excess]


def figure(advice: Advice) -> Figure:
    """Plot the held-out loss against the strength, with both extremes marked."""
    fig = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = fig.add_subplot()
    inner = np.array(advice.strengths[1:-1])
    low, high = inner[0] / 8, inner[-1] * 8
    risks, errors = advice.risks, advice.errors
    axes.axhline(risks[-1], color=COLOURS["FedAvg"], lw=1, ls=":")
    axes.axhline(risks[0], color=COLOURS["PureLocal"], lw=1, ls=":")
    axes.fill_between(
        inner, risks[1:-1] - errors[1:-1], risks[1:-1] + errors[1:-1], color=COLOURS["FedProx"], alpha=0.18, lw=0
    )
    axes.plot(
        inner,
        risks[1:-1],
        "o-",
        color=COLOURS["FedProx"],
        ms=4,
        label="FedProx (band: ± 1 s.e. of the difference to one model)",
    )
    axes.errorbar(
        [low],
        [risks[0]],
        [errors[0]],
        fmt="s",
        color=COLOURS["PureLocal"],
        ms=8,
        capsize=4,
        label="a model each (strength 0)",
    )
    axes.plot([high], [risks[-1]], "D", color=COLOURS["FedAvg"], ms=8, label="one model for all (strength ∞)")
    axes.plot(
        [advice.strengths[advice.best]], [risks[advice.best]], "o", mfc="none", color=COLOURS["FedProx"], ms=13, mew=2
    )
    axes.set_xscale("log")
    ticks = [low, *(10.0**k for k in range(-3, 3)), high]
    axes.set_xticks(ticks, ["0", *(f"{tick:g}" for tick in ticks[1:-1]), "∞"], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("strength λ: how firmly the sites' models are held together", fontsize=LARGE)
    axes.set_ylabel(f"held-out loss ({words.LOSSES[advice.prepared.kind]})", fontsize=LARGE)
    axes.tick_params(labelsize=SMALL)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=REFERENCE, alpha=0.15)
    axes.legend(frameon=False, fontsize=SMALL, loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=2)
    return fig


def save_figure(advice: Advice, path: Path) -> None:
    """Write the figure as PNG, SVG or PDF, by the ending of its name."""
    kind = path.suffix.removeprefix(".").lower()
    atomically(path, lambda f: figure(advice).savefig(f, format=kind, dpi=160), shown=True)


def page(advice: Advice) -> str:
    """The advice as one self-contained HTML page."""
    drawing = io.StringIO()
    figure(advice).savefig(drawing, format="svg")
    svg = drawing.getvalue()
    svg = svg[svg.index("<svg") :]
    say, style = html.escape, resources.files("cofed.advise").joinpath("page.css").read_text()
    seen = "held-out loss for strengths from 0, a model each, to infinity, one model for all"
    choices, left = words.choices(advice), words.left_out(advice)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{say(words.title(advice))}</title><style>{style}</style></head><body>
<h1>{say(words.title(advice))}</h1>
<p class="soft">{say(words.data(advice))}</p>
<div class="card"><strong>{say(words.recommendation(advice))}</strong>
{"".join(f"<p>{say(text)}</p>" for text in words.reasons(advice))}</div>
<h2>Held-out loss against the strength</h2>
<figure role="img" aria-label="{seen}">{svg}</figure>
<h2>How different the sites are</h2>
<p>{say(words.difference(advice))}</p>
<h2>What each choice gives</h2>
{rows_of(choices.drop(columns="best"), choices["best"])}
<h2>Site by site</h2>
{rows_of(words.sites(advice))}
{f"<h2>Sites that are left out</h2>{rows_of(left)}" if len(left) else ""}
<h2>What was left out, and how to read this</h2>
<ul class="soft">{"".join(f"<li>{say(text)}</li>" for text in words.remarks(advice))}</ul>
<h2>To train it</h2>
<code>{say(words.how_to(advice))}</code>
</body></html>
"""


def rows_of(table: Frame, mark: Series | None = None) -> str:
    """A table in HTML, with some rows highlighted (`mark`)."""
    head = "".join(f"<th>{html.escape(str(column))}</th>" for column in table)
    body = ""
    for i, row in enumerate(table.itertuples(index=False)):
        best = ' class="best"' if mark is not None and mark.iloc[i] else ""
        body += f"<tr{best}>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row) + "</tr>\n"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def save_page(advice: Advice, path: Path) -> None:
    """Write the HTML page to a file."""
    text = page(advice)
    atomically(path, lambda name: Path(name).write_text(text, encoding="utf-8"), shown=True)


def as_json(advice: Advice) -> str:
    """The results as JSON; an infinite strength is null."""
    found, ready = advice.different, advice.prepared
    rows = np.asarray(ready.federation.sizes)
    return json.dumps(
        {
            "recommendation": advice.recommendation,
            "sure": advice.sure,
            "strength": advice.strengths[advice.best] if advice.recommendation == "prox" else None,
            "strengths": [None if np.isinf(s) else s for s in advice.strengths],
            "held_out_loss": advice.risks.tolist(),
            "standard_error_of_difference_to_one_model": advice.errors.tolist(),
            "loss_without_features": advice.baseline,
            "shared_minus_local": {
                "difference": advice.apart.difference,
                "standard_error": advice.apart.standard_error,
            },
            "sites": {
                name: {"rows": int(rows[m]), "held_out_loss": advice.by_site[m].tolist()}
                for m, name in enumerate(ready.federation.names)
            },
            "heterogeneity": {
                "R_squared": found.R_squared,
                "interval": list(found.interval),
                "threshold": found.threshold,
                "verdict": found.verdict,
                "left_out": found.left_out,
            }
            if isinstance(found, Heterogeneity)
            else {"reason": found},
            "excluded_sites": ready.excluded,
            "notes": ready.notes,
            "model": ready.kind,
        },
        indent=2,
    )
