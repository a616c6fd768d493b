"""`cofed report`"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cofed.cli.messages import refuse


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders with runs in them or below.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one page for any set of runs: interactive curves, tables, configurations, claims with their verdicts.

    A run is any folder with config.json and numbers.parquet. One that cannot be read is listed with the reason.

    The page is a single file that opens from disk, without a network.

    Example: cofed report cofed-results --out report.html
    """
    from cofed.report import write_report

    if out.is_dir():
        refuse(f"--out: {out} is a folder; give the name of a file such as {out / 'report.html'}")
    try:
        done = write_report(folders, out)
    except ValueError as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"--out: {out} cannot be written: {error.strerror}")
    screen = Console()
    for unread, why in done.unreadable.items():
        screen.print(f"Not shown: {unread}: {why}.", highlight=False, soft_wrap=True, markup=False)
    shown = f"{len(done.runs)} run{'' if len(done.runs) == 1 else 's'}"
    screen.print(f"{done.path} shows {shown}; open it in a browser.", highlight=False, soft_wrap=True, markup=False)
