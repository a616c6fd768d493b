"""`cofed survival`"""

from pathlib import Path
from typing import Annotated

import typer

from cofed.cli.messages import fail, refuse, say_written, stop
from cofed.cli.options import names, private_out_folder


def survival(
    sites: Annotated[
        Path,
        typer.Argument(
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
    out: Annotated[
        Path, typer.Option(callback=private_out_folder, help="A folder for curves.csv, curves.png and summary.txt.")
    ] = Path("survival"),
) -> None:
    """Survival curves of all sites together (Kaplan and Meier), and the log-rank test between groups.

    Only counts leave a site: how many rows of a group have an event, or leave without one, between times. The test is
    given for all sites taken together, and with each site a stratum, which compares rows of one site only.

    Example: cofed survival hospitals --time days --event dead --group arm --out curves
    """
    from cofed._util.files import atomically
    from cofed.estimators.survival_curves import survival_curves
    from cofed.sites import read_table

    try:
        given = sites if client is None else read_table(sites)
        grid = None if times is None else [float(one) for one in names(times) or []]
    except (ValueError, TypeError, OSError) as error:
        refuse(f"--times: {error}" if "could not convert" in str(error) else str(error))
    try:
        missing = "drop" if drop_missing else "refuse"
        found = survival_curves(
            *(given, time, event), group=group, entry=entry, client=client, times=grid, missing=missing
        )
    except (ValueError, TypeError, OSError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        stop("Stopped before there was anything to say.")
    print(found.summary())
    try:
        found.to_csv(out / "curves.csv")
        found.plot(out / "curves.png")
        text = found.summary() + "\n"
        atomically(out / "summary.txt", lambda name: Path(name).write_text(text, encoding="utf-8"), shown=True)
    except OSError as error:
        fail(str(error))
    say_written(*(out / name for name in ("curves.csv", "curves.png", "summary.txt")))
