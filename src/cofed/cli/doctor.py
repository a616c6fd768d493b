"""`cofed doctor`: what is installed here, what this machine has, and what to do about what is missing."""

import os
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from cofed.cli.messages import BAD_END

FINE, MISSING, WRONG = "fine", "missing", "wrong"
ABSENT = "not installed"
DATA = 'the page "data" of the documentation'
# What each extra is for; those for developers of cofed are not looked at.
PURPOSES = {
    "flower": "fits and algorithms over a network",
    "privacy": "the accounting of differential privacy",
    "formulas": "formulas as a step of a pipeline",
    "optimizers": "optimizers of optax at the server",
    "watch": "the page of cofed fit --watch",
    "data": "brain scans and HDF5 files",
    "excel": "tables as .xlsx",
    "tensorboard": "curves in TensorBoard",
    "mlflow": "runs in MLflow",
}


class Finding(NamedTuple):
    """Something that was looked at."""

    what: str
    found: str
    state: str = FINE
    advice: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs and for reports of bugs.")] = False,
) -> None:
    """Say what is installed, which extras there are, what this machine has, and what to do about what is wrong.

    Nothing is changed, and nothing leaves this machine. Exit code 1 where something is wrong; an extra that is not
    installed is not.

    Example: cofed doctor
    """
    findings = [*versions(), *extras(), *this_machine(), program_cache(), data_files()]
    if as_json:
        import json

        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        show(findings)
    if any(finding.state == WRONG for finding in findings):
        raise typer.Exit(BAD_END)


def show(findings: list[Finding]) -> None:
    """The findings as a table."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    marks = {FINE: "[green]✓[/green]", MISSING: "[dim]–[/dim]", WRONG: "[red]✗[/red]"}  # noqa: RUF001
    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    for finding in findings:
        advice = f"\n[dim]{escape(finding.advice)}[/dim]" if finding.advice else ""
        table.add_row(marks[finding.state], finding.what, escape(finding.found) + advice)
    Console().print(table)


def versions() -> Iterator[Finding]:
    """cofed, Python, and what cofed always needs."""
    yield Finding("cofed", metadata.version("cofed"))
    yield Finding("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for requirement in metadata.requires("cofed") or ():
        name, wanted, extra = parts(requirement)
        if extra is None:
            yield installed(name, wanted)


def parts(requirement: str) -> tuple[str, str, str | None]:
    """The name of a required package, the versions that will do, and the extra that asks for it.

    >>> from cofed.cli.doctor import parts
    >>> parts("flwr<1.43,>=1.40; extra == 'flower'")
    ('flwr', '<1.43,>=1.40', 'flower')
    >>> parts("jax>=0.7")
    ('jax', '>=0.7', None)
    """
    from packaging.requirements import Requirement

    told = Requirement(requirement)
    extra = re.search(r"""extra\s*==\s*['"]([\w-]+)['"]""", str(told.marker))
    return told.name, str(told.specifier), extra[1] if extra else None


def installed(name: str, wanted: str) -> Finding:
    """Whether a package is there, in a version that will do: another installation may have brought another one."""
    from packaging.specifiers import SpecifierSet

    advice = f"pip install '{name}{wanted}'"
    try:
        there = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, ABSENT, WRONG, advice)
    if not SpecifierSet(wanted).contains(there, prereleases=True):
        return Finding(name, f"{there}, which is not {wanted}", WRONG, advice)
    return Finding(name, f"{there} (asked for: {wanted})")


def extras() -> Iterator[Finding]:
    """The extras, and what each lacks."""
    needed: dict[str, list[Finding]] = {}
    for requirement in metadata.requires("cofed") or ():
        name, wanted, extra = parts(requirement)
        if extra in PURPOSES and name != "cofed":
            needed.setdefault(extra, []).append(installed(name, wanted))
    for extra, purpose in PURPOSES.items():
        lacks = [one for one in needed.get(extra, []) if one.state != FINE]
        if lacks:
            told = [one.what if one.found == ABSENT else f"{one.what} ({one.found})" for one in lacks]
            advice = f"for {purpose}: pip install 'cofed[{extra}]'"
            yield Finding(f"extra {extra}", f"without {', '.join(told)}", MISSING, advice)
        else:
            yield Finding(f"extra {extra}", purpose)


def this_machine() -> Iterator[Finding]:
    """Cores, memory, and JAX's devices."""
    from cofed._util import machine

    cores = machine.cores()
    advice = "runs take as many as pay; COFED_CORES=1 leaves them one" if cores > 1 else ""
    yield Finding("cores", str(cores), advice=advice)
    there, whole = machine.available(), machine.memory()
    if there is not None:
        low = there < 2**31
        advice = "clients on disk take less: Federation.from_parquet(..., on_disk=True)" if low else ""
        of_all = f" of {machine.size(whole)}" if whole else ""
        yield Finding("memory", f"{machine.size(there)}{of_all} available", advice=advice)
    try:
        import jax

        devices = jax.devices()
        yield Finding("JAX's devices", f"{len(devices)} x {devices[0].platform}")
    except Exception as error:  # whatever a broken installation raises is what the user must see
        yield Finding("JAX's devices", f"{type(error).__name__}: {error}", WRONG, "pip install --upgrade jax jaxlib")


def program_cache() -> Finding:
    """Where compiled programs are kept."""
    import jax

    from cofed._util import programs

    if os.environ.get("COFED_CACHE", "on").lower() in programs.OFF:
        return Finding("compiled programs", "not kept: COFED_CACHE is off", advice="every new process compiles anew")
    folder = programs.keep_programs()
    settings: Any = jax.config
    own = settings.jax_compilation_cache_dir
    if folder is None and own is not None:
        return Finding("compiled programs", f"{own}, as JAX was told")
    if folder is None:
        advice = "set COFED_CACHE to a folder of your own with some room; until then every new process compiles anew"
        return Finding("compiled programs", "the cache folder cannot be used", WRONG, advice)
    taken = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Finding("compiled programs", f"{folder} ({taken / 1e6:.0f} MB)")


def data_files() -> Finding:
    """The folder of data sets."""
    folder = os.environ.get("COFED_DATA")
    if not folder:
        return Finding("data sets", "COFED_DATA is not set", MISSING, f"{DATA} says what goes there")
    if not Path(folder).is_dir():
        return Finding("data sets", f"COFED_DATA names {folder}, which is no folder", WRONG, DATA)
    return Finding("data sets", folder)
