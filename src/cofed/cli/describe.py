"""`cofed describe`"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cofed.cli.advise import check_file
from cofed.cli.fit_sites import check_processes, ending_in_words, of_processes
from cofed.cli.messages import fail, refuse, say_written
from cofed.cli.options import Plain, Policy, Processes, there

if TYPE_CHECKING:
    from cofed.sites import SiteTable
    from cofed.table_one import Description


def describe(
    sites: Annotated[
        Path,
        typer.Argument(
            callback=there,
            help="A folder with a table per site (SITE.csv, .parquet, .feather, .xlsx); or one table, with --client.",
            show_default=False,
        ),
    ],
    client: Annotated[
        str | None, typer.Option(help="The column that says which site a row of one table is of.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write all numbers to this CSV file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the page, with small pictures, to this HTML file.")] = None,
    processes: Processes = False,
    plain: Plain = False,
    policy: Policy = None,
) -> None:
    """Describe the rows of all sites, per site and overall: Table 1 of a federated study.

    Rows, missing values, means and standard deviations, quartiles, counts of levels. Only sums and counts leave a
    site; quartiles come from histograms that are refined once, and are exact to the width of the last bin.

    The tables are read in this process; with --processes every site is one of its own, as for cofed fit, whose answers
    are masked: all sites are described together, and no site by itself. The sites of a study that are elsewhere are
    described by cofed serve --describe.

    Example: cofed describe hospitals --csv table1.csv --html table1.html
    """
    from cofed.sites import read_table
    from cofed.sites.table_sites import as_tables, tables_of_frame
    from cofed.table_one import describe as ask

    check_file(csv, (".csv",), "--csv")
    check_file(html, (".html", ".htm"), "--html")
    check_processes(processes, plain, policy)
    with ending_in_words("Stopped before there was anything to say."):
        try:
            require_apart(csv, sites)
            tables = as_tables(sites) if client is None else tables_of_frame(read_table(sites), client)
        except (TypeError, OSError) as error:
            refuse(str(error))
        found = (
            by_processes(tables, plain, policy)
            if processes
            else ask({site: table.frame for site, table in tables.items()})
        )
    show(found, csv, html)


def require_apart(csv: Path | None, sites: Path) -> None:
    """Refuse a file that would replace a table that is described, or be taken for one the next time."""
    from cofed.sites.reading import site_files

    if csv is None or not sites.exists():  # which is said where it is read
        return
    here = csv.resolve()
    if here == sites.resolve():
        refuse(f"--csv: {csv} is the table that is described; give another file")
    files = site_files(sites).values() if sites.is_dir() else ()
    if files and here.parent in {sites.resolve(), *(file.resolve().parent for file in files)}:
        refuse(f"--csv: {csv} would be among the tables of the sites in {sites}; give a file in another folder")


def by_processes(tables: "Mapping[str, SiteTable]", plain: bool, policy: Path | None) -> "Description":
    """The description of tables that processes of their own answer from."""
    from cofed.sites import ChosenColumns
    from cofed.studies import draft
    from cofed.table_one import describe

    drafted = draft({site: table.info() for site, table in tables.items()})
    columns = ChosenColumns(design=drafted.study.description_design)
    with of_processes(tables, lambda _: columns, plain, policy, drafted.study) as far:
        return dataclasses.replace(describe(far), left_out=drafted.left_out)


def show(found: "Description", csv: Path | None, html: Path | None) -> None:
    """Print a description, and write it to the files that are asked for."""
    from cofed.table_one import terminal, write_page

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
