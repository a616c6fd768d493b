"""`cofed study init`, `check`, `key`, `approve`, `policy` and `release`: what sites agree on, as files."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer.core import TyperGroup

from cofed.cli import values
from cofed.cli.help_pages import PlainCommand, PlainHelp, flowing
from cofed.cli.messages import fail, refuse
from cofed.cli.options import FAMILIES_HELP, private_keep_folder, targets, there

if TYPE_CHECKING:
    from cofed.sites import SiteTable
    from cofed.studies import Study

StudyFile = Annotated[Path, typer.Argument(help="A study file; `cofed study init` drafts one.", show_default=False)]
Data = Annotated[
    Path,
    typer.Option(callback=there, help="The site's table: .csv, .parquet, .feather or .xlsx.", show_default=False),
]
Keep = Annotated[
    Path, typer.Option(callback=private_keep_folder, help="The folder in which the site keeps its keys and approvals.")
]
PolicyFile = Annotated[
    Path | None, typer.Option("--policy", help="The site's rules, a policy.toml; by default the strict ones.")
]
SiteName = Annotated[str | None, typer.Option("--site", help="The site's name; by default the table's.")]


class PlainGroup(PlainHelp, TyperGroup):
    """A group of commands with our own look of help pages."""


def init(
    table: Annotated[Path, typer.Argument(callback=there, help="A site's table, or a folder with a table per site.")],
    target: Annotated[
        str | None, typer.Option(help="The column to predict (for mgaussian, several with commas): drafts an analysis.")
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(help=f"{FAMILIES_HELP}; by default what the target suggests.", autocompletion=values.families),
    ] = None,
    event: Annotated[
        str | None, typer.Option(help="For cox: the column that is 1 where a time (the target) ends with an event.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("study.toml"),
) -> None:
    """Draft a study file from a table: its columns as variables, with comments on what to add.

    The draft holds names of columns and levels of factors, but no value of a number. Dates, free text and columns with
    one value are left out, and a comment says which.

    Example: cofed study init oslo.csv --target ill
    """
    from cofed.sites import Target, read_sites
    from cofed.studies import draft, write
    from cofed.studies.analysis import PREDICTS

    if out.exists():
        refuse(f"--out: {out} exists already; give another name")
    if family is not None and family.split("(")[0] not in PREDICTS:
        refuse(f"--family must be {', '.join(PREDICTS)}, got {family!r}")
    with input_checked():
        tables = read_sites(table) if table.is_dir() else {table.stem: site_table(table, None)}
        infos = {site: one.info() for site, one in tables.items()}
        if event is not None and target is None:
            raise ValueError("--event: give --target, too, the column of times")
        asked = None
        if target is not None:
            first, others = targets(target, family)
            asked = first if event is None and not others else Target(name=first, event=event, responses=others)
        drafted = draft(infos, asked, family, out.stem)  # type: ignore[arg-type]
    try:
        write(out, drafted.study, drafted.left_out)
    except OSError as error:
        fail(f"{error}")
    for column, why in drafted.left_out.items():
        say(f"Left out: {column}: {why}.")
    say(f"Written: {out}. Agree on it with all sites; then: cofed study check {out} --data TABLE")


def check(study: StudyFile, data: Data, site: SiteName = None, policy: PolicyFile = None) -> None:
    """Say what of a site's table does not fit a study, and what the site's own rules would refuse of it.

    All of it, before anything leaves the site. Without --policy the strict rules are those of the site.

    Exit codes: 0 it fits, 1 it does not, or would be refused, 2 bad input.

    Example: cofed study check study.toml --data oslo.csv
    """
    _, refused = checked(study, data, site, policy)
    if refused:
        fail("\n".join(refused))


def approve(
    study: StudyFile,
    data: Annotated[
        Path | None, typer.Option(callback=there, help="The site's table; not needed to withdraw.", show_default=False)
    ] = None,
    site: SiteName = None,
    keep: Keep = Path("cofed-site"),
    policy: PolicyFile = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take the approval back instead.")] = False,
) -> None:
    """Approve a study at a site: from then on, it answers questions that the study contains, and no others.

    The site's table must fit. What is kept is the study and its hash; another word in it is another study. Where the
    study names keys, this site's must be its own, and the others' fingerprints are shown: compare them with those that
    cofed study key prints there.

    Example: cofed study approve study.toml --data oslo.csv --keep cofed-site
    """
    from cofed import studies
    from cofed.sites.policy import Policy, load_policy

    if withdraw:
        with input_checked():
            wanted = studies.load(study)
        try:
            there = studies.withdraw(keep, wanted)
        except OSError as error:
            fail(f"{error}")
        say("Withdrawn." if there else f"It was not approved in {keep}.")
        return
    if data is None:
        refuse("--data: give the site's table, which is held against the study")
    wanted, refused = checked(study, data, site, policy)
    with input_checked():
        rules = Policy() if policy is None else load_policy(policy)
    for one in (*refused, *studies.check_sites(wanted, studies.approved_studies(keep), rules)):
        say(f"Note: {one}.")
    show_keys(wanted, keep, site or data.name.split(".")[0])
    try:
        path = studies.approve(keep, wanted)
    except OSError as error:
        fail(f"{error}")
    say(f"Approved: {wanted.name}, {wanted.digest[:12]}, in {path}.")


def key(keep: Keep = Path("cofed-site")) -> None:
    """Print this site's public key, which the study file names; the key is made where there is none yet.

    Read the fingerprint to the other sites over the telephone: where all compare it with cofed study approve's, nobody
    can pose as a site. The private half stays in --keep.

    Example: cofed study key --keep cofed-site
    """
    from cofed.sites.secure.keys import SiteKeys, fingerprint

    with input_checked():
        public = SiteKeys.of_folder(keep).public
    Console().print(f'key = "{public}"', highlight=False, soft_wrap=True, markup=False)
    say(f"Fingerprint: {fingerprint(public)}")


def release(
    study: StudyFile,
    site: Annotated[str, typer.Option("--site", help="This site's name in the study.")],
    keep: Annotated[Path, typer.Option(help="The folder in which the site keeps its keys.")] = Path("cofed-site"),
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; by default SITE.release.json.")
    ] = None,
) -> None:
    """Let a study's fits go on without this site, by a signed file for the server.

    Sums with and without a site tell what it has added, so the others answer without it only where it agrees: by this
    file, or by releasable = true in the study.

    Example: cofed study release study.toml --site oslo
    """
    from cofed import studies
    from cofed._util.files import NotWritten

    path = out or Path(f"{site}.release.json")
    with input_checked():
        try:
            studies.write_release(path, keep, studies.load(study), site)
        except NotWritten as error:
            fail(f"{error}")
    say(f"Written: {path}. Whoever has it can begin fits without {site}, and learn what it had added to earlier sums.")


def policy(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("policy.toml"),
) -> None:
    """Write the rules that a site goes by where it has no others, with comments: a first draft of its own.

    Example: cofed study policy, then cofed site --policy policy.toml ...
    """
    from cofed._util.files import atomically
    from cofed.sites.policy import default_policy_toml

    if out.exists():
        refuse(f"--out: {out} exists already; give another name")
    try:
        atomically(out, lambda name: Path(name).write_text(default_policy_toml(), encoding="utf-8"), shown=True)
    except OSError as error:
        fail(f"{error}")
    say(f"Written: {out}, with the strict rules. A rule that is deleted from it holds as it stands there now.")


def checked(study: Path, data: Path, site: str | None, policy: Path | None) -> "tuple[Study, tuple[str, ...]]":
    """The study, which the site's table fits, and what the site's rules would refuse of it.

    Where the table does not fit, the command ends with all that does not.
    """
    from cofed import studies
    from cofed.sites.policy import Policy, load_policy

    with input_checked():
        wanted = studies.load(study)
        table = site_table(data, site)
        rules = Policy() if policy is None else load_policy(policy)
    found = studies.check(wanted, table)
    for note in found.notes:
        say(f"Note: {note}.")
    if not found.fits:
        fail("\n".join(found.findings))
    foreseen = studies.check_rules(wanted, table, rules)
    for note in foreseen.notes:
        say(f"Note: {note}.")
    many = len(wanted.variables)
    say(f"{data} fits the study '{wanted.name}': {len(table.frame)} rows, {many} variable{'s' if many > 1 else ''}.")
    return wanted, foreseen.findings


def show_keys(study: "Study", keep: Path, site: str) -> None:
    """Show the fingerprints of the sites' keys, once it is known that this site's own is right."""
    from cofed.sites.secure.keys import SiteKeys, fingerprint
    from cofed.studies import require_own_key

    named = [one.name for one in study.sites]
    if named and site not in named:
        say(f"Note: {site!r} is not one of the study's sites: {', '.join(named)}; --site says which one this is.")
    if study.roster is None:
        say("Note: the study does not name the key of every site, so the strict rules of a site refuse its fits.")
        return
    with input_checked():
        require_own_key(study, site, SiteKeys.found_in(keep).public)
    for name, public in study.roster.items():
        say(f"Key of {name}: {fingerprint(public)}")


def site_table(path: Path, site: str | None) -> "SiteTable":
    """A site's table, from its file."""
    from cofed.sites import SiteTable, read_table

    return SiteTable(read_table(path), site or path.name.split(".")[0])


@contextlib.contextmanager
def input_checked() -> Iterator[None]:
    """Refuse a file in the words of the check that found it bad."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        refuse(str(error))


def say(sentence: str) -> None:
    """Say how it went."""
    Console().print(sentence, highlight=False, soft_wrap=True, markup=False)


HELP = """
A study is a file that all sites agree on: variables, sites, analyses.

- [bold]cofed study init oslo.csv --target ill[/bold]  draft it from one site's table

- [bold]cofed study check study.toml --data rome.csv[/bold]  at each site: what does not fit

- [bold]cofed study key[/bold]  at each site: the key that the study file names

- [bold]cofed study approve study.toml --data rome.csv[/bold]  the site answers what it has approved

- [bold]cofed study policy[/bold]  at a site: a draft of its own rules

- [bold]cofed study release study.toml --site rome[/bold]  fits may go on without the site
"""
study = typer.Typer(cls=PlainGroup, help=flowing(HELP), no_args_is_help=True, rich_markup_mode="rich")
for command in (init, check, key, approve, policy, release):
    study.command(cls=PlainCommand, help=flowing(command.__doc__ or ""))(command)
