"""The description as one HTML file, with the report's style and small pictures."""

import base64
import hashlib
from html import escape
from importlib import resources
from pathlib import Path

import numpy as np

from cofed._util.files import atomically
from cofed.table_one.description import DescribedVariable, Description
from cofed.table_one.show import labels, lines, notes

WIDTH, HEIGHT = 132, 36  # of a picture
STYLE = """
.one { overflow-x: auto; }
.one table { border-collapse: collapse; min-width: 100%; }
.one th, .one td { padding: 0.15rem 0.9rem; text-align: right; white-space: nowrap; }
.one thead th { border-bottom: 1px solid var(--line); }
.one th[scope="row"] { text-align: left; font-weight: 400; padding-left: 2rem; }
.one .variable th[scope="row"] { font-weight: 650; padding-left: 0.9rem; }
.one .variable td, .one .variable th { border-top: 1px solid var(--faint); padding-top: 0.5rem; }
.one svg { fill: var(--accent); vertical-align: bottom; }
"""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src {policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body class="alone">
<div class="frame"><main>
<div class="title"><h1>{title}</h1><p class="facts">{facts}</p></div>
<section class="sheet one"><table>
<thead><tr><td></td><td></td>{heads}</tr></thead>
{body}
</table></section>
<section class="sheet">{notes}</section>
</main></div>
</body>
</html>
"""


def write_page(description: Description, path: str | Path, title: str = "Description of the sites") -> None:
    """Write the description as an HTML file that opens from disk, without a network.

    Parameters
    ----------
    description : Description
        What `describe` found.
    path : str or Path
        The file.
    title : str
        Its heading.
    """
    text = page(description, title)
    atomically(path, lambda name: Path(name).write_text(text, encoding="utf-8"), shown=True)


def page(description: Description, title: str) -> str:
    """The page as text."""
    told = any(variable.by_site for variable in description.variables)
    sites = list(description.sites) if told else []
    style = (resources.files("cofed.report") / "page.css").read_text("utf-8") + STYLE
    total, many = sum(description.sites.values()), len(description.sites)
    return PAGE.format(
        policy=f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'",
        title=escape(title),
        style=style,
        facts=f"{total} rows at {many} site{'' if many == 1 else 's'}",
        heads="".join(f'<th scope="col">{escape(site)}</th>' for site in ("All", *sites)),
        body="\n".join([rows_of_sites(description, sites), *(body(one, sites) for one in description.variables)]),
        notes="".join(f'<p class="hint">{escape(note)}</p>' for note in notes(description, True)),
    )


def rows_of_sites(description: Description, sites: list[str]) -> str:
    """The first line: the rows of each site."""
    counts = [sum(description.sites.values()), *(description.sites[site] for site in sites)]
    cells = "".join(f"<td>{count}</td>" for count in counts)
    return f'<tbody><tr class="variable"><th scope="row">rows</th><td></td>{cells}</tr></tbody>'


def body(variable: DescribedVariable, sites: list[str]) -> str:
    """The lines of a variable."""
    columns = [lines(variable, own) for own in (variable.everywhere, *(variable.by_site[site] for site in sites))]
    names, drawn = labels(variable), picture(variable)
    out = []
    for place, name in enumerate(names):
        cells = "".join(f"<td>{escape(column[place])}</td>" for column in columns)
        first = f'<td rowspan="{len(names)}">{drawn}</td>' if place == 0 else ""
        kind = ' class="variable"' if place == 0 else ""
        out.append(f'<tr{kind}><th scope="row">{escape(name.strip())}</th>{first}{cells}</tr>')
    return f"<tbody>{''.join(out)}</tbody>"


def picture(variable: DescribedVariable) -> str:
    """A small picture of how the values are spread over all sites, with words for those who cannot see it."""
    if variable.levels is not None or variable.binary:
        counts, words = np.array(variable.everywhere.counts, float), "counts of the levels"
    elif variable.bars is not None:
        edges, counts = variable.bars
        words = f"histogram from {edges[0]:.4g} to {edges[-1]:.4g}"
    else:
        return ""
    top, step = max(counts.max(initial=0.0), 1.0), WIDTH / max(len(counts), 1)
    bars = "".join(
        f'<rect x="{place * step + 0.5:.1f}" y="{HEIGHT * (1 - count / top):.1f}" width="{max(step - 1, 0.5):.1f}" '
        f'height="{HEIGHT * count / top:.1f}"/>'
        for place, count in enumerate(counts)
        if count > 0
    )
    label = escape(f"{variable.name}: {words}")
    return f'<svg role="img" aria-label="{label}" width="{WIDTH}" height="{HEIGHT}">{bars}</svg>'
