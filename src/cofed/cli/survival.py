"""`cofed survival`"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cofed.cli.fit_sites import check_processes, ending_in_words, of_processes
from cofed.cli.messages import fail, refuse, say_written
from cofed.cli.options import Plain, Policy, Processes, names, private_out_folder, there

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Mapping

    from cofed.sites import AbstractSites, SiteTable


def survival(
    sites: Annotated[
        Path,
        typer.Argument(
            callback=there,
            help="A folder with a table per site (SITE.csv, .parquet, .feather, .xlsx); or one table, with --client.",
            show_default=False,
        ),
    ],
    time: Annotated[str, typer.Option(help="The column with times to an event.", show_default=False)],
    event: Annotated[
        str, typer.Option(help="The column with 1 for an event, 0 for a row without one.", show_default=False)
    ],
    group: Annotated[str | None, typer.Option(help="The column that tells groups apart, such as an arm.")] = None,
    entry: Annotated[str | None, typer.Option(help="The column with times from which on rows are at risk.")] = None,
    client: Annotated[
        str | None, typer.Option(help="The column that says which site a row of one table is of.")
    ] = None,
    times: Annotated[
        str | None, typer.Option(help="Times to count between, with commas; by default they are looked for.")
    ] = None,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave out rows with missing values; by default they are refused.")
    ] = False,
    processes: Processes = False,
    plain: Plain = False,
    policy: Policy = None,
    out: Annotated[
        Path, typer.Option(callback=private_out_folder, help="A folder for curves.csv, curves.png and summary.txt.")
    ] = Path("survival"),
) -> None:
    """Survival curves of all sites together (Kaplan and Meier), and the log-rank test between groups.

    Only counts leave a site: how many rows of a group have an event, or leave without one, between times. The test is
    given for all sites taken together, and with each site a stratum, which compares rows of one site only. With
    --processes every site is a process of its own, as for cofed fit, and its counts are masked.

    Example: cofed survival hospitals --time days --event dead --group arm --out curves
    """
    from cofed._util.files import atomically
    from cofed.estimators.survival_curves import survival_curves
    from cofed.sites import read_table
    from cofed.sites.table_sites import as_tables, tables_of_frame

    check_processes(processes, plain, policy)
    try:
        given = sites if client is None else read_table(sites)
    except (ValueError, TypeError, OSError) as error:
        refuse(str(error))
    grid = None if times is None else [number(one) for one in names(times) or []]
    missing = "drop" if drop_missing else "refuse"
    about = {"group": group, "entry": entry, "times": grid, "missing": missing}
    with ending_in_words("Stopped before there was anything to say."):
        try:
            if processes:
                tables = as_tables(given) if isinstance(given, Path) else tables_of_frame(given, client)
                named = {"time": time, "event": event, "group": group, "entry": entry}
                chosen = {what: name for what, name in named.items() if name is not None}
                with by_processes(tables, chosen, missing, plain, policy) as far:
                    found = survival_curves(far, time, event, **about)
            else:
                found = survival_curves(given, time, event, client=client, **about)
        except (TypeError, FileNotFoundError) as error:
            refuse(str(error))
    print(found.summary())
    try:
        found.to_csv(out / "curves.csv")
        found.plot(out / "curves.png")
        text = found.summary() + "\n"
        atomically(out / "summary.txt", lambda name: Path(name).write_text(text, encoding="utf-8"), shown=True)
    except OSError as error:
        fail(str(error))
    say_written(*(out / name for name in ("curves.csv", "curves.png", "summary.txt")))


def number(text: str) -> float:
    """One of the numbers of `--times`."""
    try:
        return float(text)
    except ValueError:
        refuse(f"--times: {text!r} is no number; give numbers with commas between them, such as 30,90,365")


def by_processes(
    tables: "Mapping[str, SiteTable]", chosen: dict[str, str], missing: str, plain: bool, policy: Path | None
) -> "contextlib.AbstractContextManager[AbstractSites]":
    """Processes of their own that answer from these tables about the chosen columns.

    Where a policy asks for a study, they approve one that these curves are of, as for `cofed fit`.
    """
    from cofed.estimators.survival_curves import agreed
    from cofed.sites import ChosenColumns
    from cofed.studies import draft_of_times

    design = agreed({site: table.info() for site, table in tables.items()}, chosen, missing)
    columns = ChosenColumns(design=design)
    return of_processes(tables, lambda _: columns, plain, policy, draft_of_times(design, tables))
