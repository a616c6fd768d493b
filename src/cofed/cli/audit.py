"""`cofed audit`"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cofed.cli.advise import check_file
from cofed.cli.messages import fail, refuse, say_written

if TYPE_CHECKING:
    from cofed.sites.audit.verification import LogOnDisk


def audit(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Logs of what left (audit.jsonl), or the folders in which sites keep them.",
            show_default=False,
        ),
    ],
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="The site's public key, as in the study file, to check signatures; one for each file, in their order.",
            show_default=False,
        ),
    ] = None,
    study: Annotated[
        Path | None, typer.Option(help="A study file that names the sites' keys, instead of --key.", show_default=False)
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the page, with every line, to this HTML file.")] = None,
) -> None:
    """Check a site's log of what left, and show it.

    The chain of hashes shows a line that was changed or taken out; signatures (--study or --key), that the site itself
    wrote it; the logs of other sites, which hold this one's hashes, that none was cut off or written anew: give them,
    too.

    Exit codes: 0 every log holds, 1 one does not, 2 bad input.

    Example: cofed audit oslo/audit.jsonl rome/audit.jsonl --study study.toml --html audit.html
    """
    from cofed.sites.audit.show import content, terminal
    from cofed.sites.audit.verification import judge

    check_file(html, (".html", ".htm"), "--html")
    logs = [read(path) for path in files]
    keys = checked_keys(key, len(files)) if study is None else keys_in(study, key, logs)
    try:
        verdicts = [judge(log, own, logs) for log, own in zip(logs, keys, strict=True)]
    except ImportError as error:
        fail(str(error))
    screen = Console()
    for found in verdicts:
        screen.print(terminal(found))
    if html is not None:
        write_page(html, content(verdicts))
        say_written(html)
    broken = [f"{found.path} does not hold: {found.problems[0]}" for found in verdicts if not found.holds]
    if broken:
        fail("\n".join(broken))


def read(path: Path) -> "LogOnDisk":
    """A log, from its file or from the folder that holds it."""
    from cofed.sites.audit import AUDIT_LOG
    from cofed.sites.audit.verification import read_lines

    file = path / AUDIT_LOG if path.is_dir() else path
    try:
        log = read_lines(file)
    except (OSError, ValueError) as error:  # a name with a zero byte in it is a ValueError
        refuse(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}")
    if not log.lines and not log.problem:
        refuse(f"{file} has no whole line: it is not a log of what left")
    return log


def checked_keys(given: list[str] | None, many: int) -> list[str | None]:
    """A key for each file, or none for all."""
    if not given:
        return [None] * many
    for one in given:
        if not re.fullmatch("[0-9a-f]{64}", one):
            refuse(f"--key must be 64 hexadecimal digits (0-9, a-f), as in the study file, got {one!r}")
    if len(given) != many:
        refuse(f"--key: {len(given)} given for {many} file{'' if many == 1 else 's'}; one for each, in their order")
    return list(given)


def keys_in(study: Path, given: list[str] | None, logs: "list[LogOnDisk]") -> list[str | None]:
    """The keys that a study names for the sites of these logs."""
    from cofed import studies

    if given:
        refuse("--key and --study both say which keys sign; give one of them")
    try:
        known = {site.name: site.key for site in studies.load(study).sites}
    except (ValueError, OSError) as error:
        refuse(str(error))
    for log in logs:
        if known.get(log.site) is None:
            refuse(f"--study: {study} names no key for the site {log.site!r}, whose log is {log.path}")
    return [known[log.site] for log in logs]


def write_page(path: Path, shown: object) -> None:
    """Write the page, which opens from disk, without a network."""
    from cofed._util.files import atomically
    from cofed.report.assembly import assembled

    text = assembled("audit.html", ("page.css", "fit.css"), "audit.js", shown)
    try:
        atomically(path, lambda name: Path(name).write_text(text, encoding="utf-8"), shown=True)
    except OSError as error:
        fail(str(error))
