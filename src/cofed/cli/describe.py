"""`cofed describe`"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cofed.cli.advise import check_file
from cofed.cli.messages import fail, refuse, say_written, stop


def describe(
    sites: Annotated[
        Path,
        typer.Argument(
            help="A folder with a table per site (SITE.csv, .parquet, .feather, .xlsx); or one table, with --client.",
            show_default=False,
        ),
    ],
    client: Annotated[
        str | None, typer.Option(help="The column that says which site a row of one table is of.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write all numbers to this CSV file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the page, with small pictures, to this HTML file.")] = None,
) -> None:
    """Describe the rows of all sites, per site and overall: Table 1 of a federated study.

    Rows, missing values, means and standard deviations, quartiles, counts of levels. Only sums and counts leave a
    site; quartiles come from histograms that are refined once, and are exact to the width of the last bin.

    Example: cofed describe hospitals --csv table1.csv --html table1.html
    """
    from cofed.sites import read_table
    from cofed.table_one import describe as ask
    from cofed.table_one import terminal, write_page

    check_file(csv, (".csv",), "--csv")
    check_file(html, (".html", ".htm"), "--html")
    try:
        given = sites if client is None else read_table(sites)
        found = ask(given, client)
    except (ValueError, TypeError, OSError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        stop("Stopped before there was anything to say.")
    Console().print(terminal(found))
    try:
        if csv is not None:
            found.to_csv(csv)
        if html is not None:
            write_page(found, html)
    except OSError as error:
        fail(str(error))
    if csv is not None or html is not None:
        say_written(*(path for path in (csv, html) if path is not None))
