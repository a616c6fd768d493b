"""`cofed serve`"""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cofed.cli.describe import show
from cofed.cli.fit import perform, say, this_command
from cofed.cli.fit_sites import KEPT, ending_in_words, is_flower_there
from cofed.cli.messages import refuse
from cofed.cli.options import (
    Delta,
    Epsilon,
    Guesses,
    Missing,
    Patience,
    Plain,
    Watch,
    between,
    is_drop,
    private_out_folder,
)
from cofed.cli.private_fits import private, with_privacy

if TYPE_CHECKING:
    from cofed.fitting import FitEvents, FitJob, FitPlan
    from cofed.sites import Design
    from cofed.sites.secure.invitation import Invitation
    from cofed.studies import Study


def serve(
    study: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A study file, which names the sites.")],
    analysis: Annotated[
        str | None, typer.Option(help="Which of its analyses; by default the only one.", show_default=False)
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "0.0.0.0",  # sites are elsewhere
    port: Annotated[int, typer.Option(callback=between(1, 65535), help="The port to listen at.")] = 9092,
    certificates: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="A folder with ca.crt, server.pem, server.key, SITE.key.pub."),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS: for trials on one machine.")] = False,
    patience: Patience = 600,
    missing: Missing = "end",
    plain: Plain = False,
    epsilon: Epsilon = None,
    delta: Delta = None,
    guesses: Guesses = None,
    release: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="A site's release (cofed study release): --missing drop goes on without it. May be repeated.",
        ),
    ] = None,
    describe: Annotated[
        bool, typer.Option("--describe", help="Describe the study's variables (table1.csv, .html), and fit nothing.")
    ] = False,
    watch: Watch = False,
    out: Annotated[
        Path, typer.Option(callback=private_out_folder, help="Folder for the model, the tables and the report.")
    ] = Path("cofed-serve"),
) -> None:
    """Be the server of a study: await its sites, each a cofed site elsewhere, and fit (the extra cofed\\[flower]).

    The study file says what is fitted; the sites that have approved it answer. A fit that was broken off goes on by the
    same command. What is written to --out is that of cofed fit. With --describe the sites describe the variables of the
    study instead, all together: its Table 1.

    python -m cofed.flower.certificates makes certificates and keys, for trials. Give it --host 127.0.0.1 beside the
    server's public name: the server also talks to itself.

    Example: cofed serve study.toml --certificates certificates --out ill
    """
    if not is_flower_there():
        refuse("Flower is not installed; pip install 'cofed[flower]' brings it")
    if (certificates is None) != insecure:
        refuse("give --certificates with a folder, or --insecure for a trial on one machine, and not both")
    drop = is_drop(missing)
    from cofed.fitting import FitTables, PreparedFit
    from cofed.flower.local_sites import await_sites
    from cofed.flower.processes import ending_in_order
    from cofed.sites import ChosenColumns
    from cofed.table_one import describe as table_one

    try:
        agreed, names, invitation = sites_of(study, plain, release or [])
        chosen = None if describe else chosen_fit(agreed, study, analysis)
        if chosen is not None:
            chosen = chosen._replace(plan=with_privacy(chosen.plan, chosen.design, private(epsilon, delta, guesses)))
    except (ValueError, ImportError) as error:
        refuse(str(error))
    about = ChosenColumns(design=agreed.description_design)
    listening = f"listening at {host}:{port} for {', '.join(names)}"
    awaited = functools.partial(
        await_sites,
        names,
        out / ("network-of-description" if chosen is None else "network"),
        about if chosen is None else ChosenColumns(target=chosen.target, design=chosen.design),
        at=(host, port),
        certificates=certificates,
        patience=float(patience),
        invitation=invitation,
        drop=drop,
    )
    if chosen is None:
        say(listening)
        stopped = "Stopped. The same command goes on from there."
        with ending_in_words(stopped, KEPT), ending_in_order(), awaited(hear=say_of_sites) as sites:
            found = table_one(sites)
        show(found, out / "table1.csv", out / "table1.html")
        return
    fit = chosen

    @contextlib.contextmanager
    def begun(events: "FitEvents") -> "Iterator[FitJob]":
        events.tell("waiting", words=listening)
        with ending_in_order(), awaited(hear=events.tell) as sites:
            ready = PreparedFit(fit.plan, FitTables(study, fit.target), {}, sites.infos)
            yield ready.job(sites, out, this_command(), drop)

    perform(begun, out, watch=watch, resumable=True)


def say_of_sites(kind: str, words: str = "", **details: object) -> None:
    """Say who is there, and what is wrong with a site."""
    if kind in ("waiting", "refused", "trouble"):
        say(words)


class ChosenFit(NamedTuple):
    """What an analysis of a study fits."""

    plan: "FitPlan"
    target: str
    design: "Design"


def chosen_fit(study: "Study", path: Path, name: str | None) -> ChosenFit:
    """What the analysis that was named, or the only one, fits."""
    from cofed.fitting import chosen_analysis, plan_of

    one = chosen_analysis(study, path, name)
    return ChosenFit(plan_of(one), one.target, study.design(one))


def sites_of(path: Path, plain: bool, releases: list[Path]) -> "tuple[Study, list[str], Invitation]":
    """A study, its sites' names, and what they are told."""
    from cofed.sites.secure.invitation import PLAIN
    from cofed.studies import invitation_to, load, read_release

    study = load(path)
    if not study.sites:
        raise ValueError(f"{path} names no sites: add [[sites]] with a name each")
    released = dict(read_release(release, study) for release in releases)
    if not plain and study.roster is None:
        raise ValueError(
            f"{path} does not name the key of every site, so that nobody could pose as one: each runs cofed study key, "
            'and its [[sites]] gets key = "..."; or give --plain, and the server sees each site\'s answers'
        )
    invitation = PLAIN if plain else invitation_to(study, released)
    return study, [site.name for site in study.sites], invitation
