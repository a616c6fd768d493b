"""The description as a table for people: "Table 1" of a paper."""

import numpy as np
from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cofed.table_one.description import Described, DescribedVariable, Description

MOST_SITES = 6  # with more, a terminal shows all sites together only
MISSING = "-"


def number(value: float, sd: float) -> str:
    """A number with the digits that its spread warrants.

    >>> import numpy as np
    >>> from cofed.table_one.show import number
    >>> number(61.2345, 10.0), number(0.0012345, 0.0002), number(1234567.0, 5000.0), number(np.nan, 1.0)
    ('61.2', '0.001234', '1234567', '-')
    """
    if not np.isfinite(value):
        return MISSING
    size = sd if np.isfinite(sd) and sd > 0 else abs(value) or 1.0
    digits = int(np.clip(2 - np.floor(np.log10(size)), 0, 12))
    return f"{value:.{digits}f}"


def lines(variable: DescribedVariable, own: Described | None) -> list[str]:
    """What a column of the table says of a variable, line by line: see `labels`."""
    if own is None:
        return [""] * len(labels(variable))
    missing = [str(own.missing)] if shows_missing(variable) else []
    if variable.levels is not None:
        return ["", *(share(count, own.n) for count in own.counts), *missing]
    if variable.binary:
        return ["", share(own.counts[1], own.n), *missing]
    spread = number(own.sd, own.sd)
    low, middle, high = [quartile(own, k) for k in range(3)]
    return ["", f"{number(own.mean, own.sd)} ({spread})", f"{middle} [{low}, {high}]", *missing]


def share(count: int, n: int) -> str:
    """A count and its share, in per cent as the label of the line says.

    >>> from cofed.table_one.show import share
    >>> share(3, 8), share(0, 0)
    ('3 (37.5)', '-')
    """
    return f"{count} ({100 * count / n:.1f})" if n else MISSING


def quartile(own: Described, which: int) -> str:
    """A quartile in words: exact ones as they are."""
    if not own.quantiles:
        return MISSING
    one = own.quantiles[which]
    return f"{one.value:g}" if one.width == 0 else number(one.value, own.sd)


def labels(variable: DescribedVariable) -> list[str]:
    """What the lines of a variable are."""
    missing = ["  missing"] if shows_missing(variable) else []
    if variable.levels is not None:
        return [variable.name, *(f"  {level}, n (%)" for level in variable.levels), *missing]
    if variable.binary:
        return [variable.name, "  1, n (%)", *missing]
    return [variable.name, "  mean (sd)", "  median [quartiles]", *missing]


def shows_missing(variable: DescribedVariable) -> bool:
    """Whether a value is missing at some site."""
    return variable.everywhere.missing > 0


def resolution(description: Description) -> str:
    """How exact the quartiles are, in words."""
    widths = [
        one.width / variable.everywhere.sd
        for variable in description.variables
        for own in (variable.everywhere, *variable.by_site.values())
        for one in own.quantiles
        if one.width > 0 and variable.everywhere.sd > 0
    ]
    if not widths:
        return "Quartiles are exact."
    return (
        f"Quartiles are exact to the last bin of a histogram: here to {max(widths):.1g} standard deviations or better."
    )


def terminal(description: Description) -> Group:
    """The description for a terminal.

    Parameters
    ----------
    description : Description
        What `describe` found.
    """
    sites = list(description.sites) if len(description.sites) <= MOST_SITES else []
    if not any(variable.by_site for variable in description.variables):
        sites = []
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    out.add_column("", no_wrap=True)
    out.add_column("All", justify="right")
    for site in sites:
        out.add_column(Text(site), justify="right")
    out.add_row("rows", str(sum(description.sites.values())), *(str(description.sites[site]) for site in sites))
    for variable in description.variables:
        columns = [labels(variable), lines(variable, variable.everywhere)]
        columns += [lines(variable, variable.by_site.get(site)) for site in sites]
        for place, cells in enumerate(zip(*columns, strict=True)):
            name = Text(cells[0], style="bold" if place == 0 else "")
            out.add_row(name, *(Text(cell) for cell in cells[1:]))
    return Group(out, *(Padding(Text(note, style="dim"), (0, 1)) for note in notes(description, bool(sites))))


def notes(description: Description, with_sites: bool) -> list[str]:
    """What is to be said below the table."""
    said = [resolution(description)]
    said += [f"Not described: {column}: {why}." for column, why in description.left_out.items()]
    if not with_sites and len(description.sites) > 1:
        said.append(f"{len(description.sites)} sites; what each of them has is in the CSV file, where they allow it.")
    rounds = sum(one.rounds for one in description.exchanges)
    sent = sum(one.up for one in description.exchanges)
    said.append(f"{rounds} exchanges, {sent / 1e3:.0f} kB from all sites.")
    return said
