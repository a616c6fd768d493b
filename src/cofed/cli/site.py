"""`cofed site`"""

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer

from cofed.cli.messages import refuse
from cofed.cli.options import private_keep_folder


def site(
    data: Annotated[
        Path,
        typer.Option(exists=True, dir_okay=False, help="This site's table: CSV, Parquet, Feather or Excel."),
    ],
    server: Annotated[str, typer.Option(help="The server's host and port, such as fl.example.org:9092.")],
    name: Annotated[
        str | None, typer.Option(help="This site's name; by default that of the file.", show_default=False)
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="The certificate of the authority that vouches for the server."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="This site's private key, whose public half the server knows."),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS: for trials on one machine.")] = False,
    once: Annotated[
        bool, typer.Option("--once", help="End where the server is another one by now, and do not start again.")
    ] = False,
    keep: Annotated[
        Path,
        typer.Option(callback=private_keep_folder, help="This site's folder: keys, approved studies, log."),
    ] = Path("cofed-site"),
    policy: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="This site's rules, a policy.toml (cofed study policy); without one the strict defaults hold.",
        ),
    ] = None,
) -> None:
    """Be a site: answer a server's questions from this site's table, which stays here (the extra cofed\\[flower]).

    It runs until Ctrl-C: it waits for the server where that is not there, and for the next one where it is gone. It
    answers a fixed list of questions with sums over its rows; no code comes from the server, and what the server sends
    to be run is never opened. Once `cofed study approve` has put a study into --keep, only what approved studies
    contain is answered. By default its answers are masked, so that only the sum over the sites of an approved study can
    be known; --policy changes the rules. What left is in the log --keep/audit.jsonl, which cofed audit shows.

    Example: cofed site --data patients.csv --server fl.example.org:9092 --ca ca.crt --key oslo.key --name oslo
    """
    if importlib.util.find_spec("flwr") is None or importlib.util.find_spec("psutil") is None:
        refuse("Flower is not installed; pip install 'cofed[flower]' brings it")
    if (ca is None) != insecure:
        refuse("give --ca with the authority's certificate, or --insecure for a trial on one machine, and not both")
    from cofed.flower.site_process import SiteOptions, keep_running, run_site, server_address
    from cofed.sites.policy import Policy, load_policy

    try:
        server_address(server)
        rules = Policy() if policy is None else load_policy(policy)
    except ValueError as error:
        refuse(str(error))
    if rules.silence:
        refuse(f"{policy}: {rules.silence}")
    if not once:
        raise typer.Exit(keep_running([sys.executable, "-m", "cofed", *sys.argv[1:], "--once"], server))
    try:
        run_site(SiteOptions(data, server, name or data.name.partition(".")[0], keep, rules, ca, key))
    except ValueError as error:
        refuse(str(error))
