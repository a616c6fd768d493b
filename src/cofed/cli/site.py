"""`cofed site`"""

from pathlib import Path
from typing import Annotated

import typer

from cofed.cli.messages import refuse
from cofed.cli.options import private_out_folder


def site(
    data: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="This site's table.")],
    server: Annotated[str, typer.Option(help="The server's host and port, such as fl.example.org:9092.")],
    name: Annotated[str | None, typer.Option(help="This site's name; by default the table's.")] = None,
    root_certificates: Annotated[Path | None, typer.Option(help="ca")] = None,
    key: Annotated[Path | None, typer.Option(help="key")] = None,
    keep: Annotated[Path, typer.Option(callback=private_out_folder, help="A folder of this site's own.")] = Path("cofed-site"),
) -> None:
    """Be a site."""
    from cofed.flower.site_process import SiteOptions, run_site

    try:
        run_site(SiteOptions(data, server, name or data.stem, keep, root_certificates, key))
    except ValueError as error:
        refuse(str(error))
