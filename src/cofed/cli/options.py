"""Checks of single options. An option that is refused is named in the sentence."""

import contextlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from cofed.cli.messages import refuse

MOST = 2**31 - 1  # counters and seeds have 32 bits (the same number is in cofed._util.checks, which loads NumPy)
FAMILIES_HELP = (
    "gaussian, mgaussian (several targets), binomial, multinomial, poisson, negbin, gamma, tweedie(power), "
    "huber(delta), quantile(level, width) or cox"
)
MOST_FOLDS = (2, 100)
BY_SITE = "leave-one-site-out"  # the same words are in cofed.estimators, which loads NumPy
YEAR = 366 * 86_400  # seconds: longer than anybody waits


def between(low: int, high: int | None = None) -> Callable[[int | None], int | None]:
    """A check that a number is in a range."""
    wanted = f"at least {low}" if high is None else f"from {low} to {high}"

    def check(value: int | None) -> int | None:
        if value is not None and (value < low or (high is not None and value > high)):
            raise typer.BadParameter(f"it must be {wanted}, got {value}.")
        return value

    return check


def count(value: int | None) -> int | None:
    """A check that a number counts something: it is at least 1 and fits into a counter of 32 bits."""
    if value is not None and value < 1:
        raise typer.BadParameter(f"it must be at least 1, got {value}.")
    if value is not None and value > MOST:
        raise typer.BadParameter(f"it must be at most {MOST}, got {value}.")
    return value


def there(ctx: Any, param: Any, path: Path | None) -> Path | None:
    """A check that a file or folder to read is there: the sentence names the argument or option, and what it takes."""
    if path is None or ctx.resilient_parsing or path.exists():
        return path
    name = param.opts[0] if param.param_type_name == "option" else str(param.name).upper()
    wanted = str(getattr(param, "help", "")).rstrip(".")
    refuse(f"{name}: there is no file or folder {path}; expected: {wanted[:1].lower()}{wanted[1:]}")


def writable_folder(path: Path, option: str = "--out") -> Path:
    """The folder, made where it is missing; refused before anything is computed where nothing can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        refuse(f"{option}: {path} or a part of it is a file; give the name of a folder")
    except OSError as error:
        refuse(f"{option}: {path} cannot be made: {error.strerror}")
    if not os.access(path, os.W_OK | os.X_OK):
        refuse(f"{option}: nothing can be written into {path}; give another folder")
    return path


def out_folder(path: Path) -> Path:
    """The folder of `--out`, as a check that Typer calls."""
    return writable_folder(path)


def private_out_folder(path: Path) -> Path:
    """The folder of `--out`; where it is made, only its owner can look into it."""
    return own_folder(path, "--out")


def private_keep_folder(path: Path) -> Path:
    """The folder of `--keep`; where it is made, only its owner can look into it."""
    return own_folder(path, "--keep")


def own_folder(path: Path, option: str) -> Path:
    """The folder of an option, made for its owner alone where it is missing."""
    from cofed._util.files import private_folder

    with contextlib.suppress(OSError):  # writable_folder says what is wrong
        private_folder(path)
    return writable_folder(path, option)


def names(text: str | None) -> list[str] | None:
    """Names that were given with commas between them."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def numbers_by_name(option: str, text: str | None) -> dict[str, float]:
    """Columns with a number each: age=0,bmi=2."""
    found: dict[str, float] = {}
    for pair in names(text) or []:
        name, equals, number = (part.strip() for part in pair.rpartition("="))
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not equals or not name or math.isnan(value):
            raise ValueError(f"{option} must be columns with a number each, such as age=0,bmi=2, got {pair!r}")
        if name in found:
            raise ValueError(f"{option} has {name!r} twice")
        found[name] = value
    return found


def targets(text: str, family: str | None) -> tuple[str, tuple[str, ...]]:
    """The column to predict, and those that are predicted with it: of mgaussian, with commas between them."""
    first, *others = (names(text) if family == "mgaussian" else None) or [text]
    return first, tuple(others)


def folds(text: str | None) -> tuple[str | None, int | str | None]:
    """The column of groups and the folds that --cv names: 5, patient, patient:5 or leave-one-site-out."""
    if text is None or text == BY_SITE:
        return None, text
    column, colon, tail = text.rpartition(":")
    count = tail if colon or is_number(tail) else ""
    if not is_number(count):
        return text, None
    if not MOST_FOLDS[0] <= int(count) <= MOST_FOLDS[1]:
        raise ValueError(f"--cv must be from {MOST_FOLDS[0]} to {MOST_FOLDS[1]} folds, got {count}")
    return column or None, int(count)


def is_number(text: str) -> bool:
    """Whether a text is a whole number."""
    return text.removeprefix("-").isdecimal()


# Options that several commands have, and the panels of help pages in which they stand.
SITES, PRIVACY = "Where the sites are, and how they answer", "Differential privacy of each row"
Patience = Annotated[
    int, typer.Option(callback=between(1, YEAR), help="Seconds to wait for a silent site.", rich_help_panel=SITES)
]
Missing = Annotated[
    str,
    typer.Option(
        help="Then end the fit, or drop a site that does not come, falls silent or may not answer: go on without it, "
        "and say so.",
        rich_help_panel=SITES,
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        help="Differential privacy of each row: the privacy loss of the whole fit, 1 is strong, 10 is weak (the extra "
        "cofed\\[privacy]). For gaussian, and binomial with a given alpha; without intervals or certificate.",
        show_default=False,
        rich_help_panel=PRIVACY,
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(
        help="The probability that goes with --epsilon; by default 1e-6.", show_default=False, rich_help_panel=PRIVACY
    ),
]
Guesses = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="With --epsilon: a table with column, centre and spread, guesses of means and standard deviations that "
        "must not come from the rows; 0 and 1 for columns without. The target is one of them.",
        rich_help_panel=PRIVACY,
    ),
]
Plain = Annotated[
    bool,
    typer.Option(
        "--plain",
        help="Do not mask: the server then sees each site's answers, and the report says so.",
        rich_help_panel=SITES,
    ),
]
Processes = Annotated[
    bool,
    typer.Option(
        "--processes", help="A process for each site, over Flower (the extra cofed\\[flower]).", rich_help_panel=SITES
    ),
]
Policy = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="A policy.toml that every site goes by, to rehearse a study.",
        rich_help_panel=SITES,
    ),
]
Watch = Annotated[bool, typer.Option("--watch", help="Follow the fit on a page in the browser.")]


def is_drop(missing: str) -> bool:
    """Whether `--missing` says that a site which does not answer is dropped; else it ends the fit."""
    if missing not in ("end", "drop"):
        refuse(f"--missing must be end or drop, got {missing!r}")
    return missing == "drop"
