"""What the commands say when they end: one look for every error, whoever found it.

An error is a sentence on stderr after "Error:". Where the input was bad (exit code 2), the command's usage follows.
Where the input was fine and the command failed (exit code 1: a run diverged, a file could not be written),
the sentence stands alone.
"""

import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperGroup

from cofed.cli.help_pages import PlainHelp

if TYPE_CHECKING:
    from click import Context, UsageError
else:
    # Recent versions of Typer carry their own copy of click: these are the classes from which its exported ones derive.
    Context, UsageError = typer.Context.__mro__[1], typer.BadParameter.__mro__[1]

BAD_END, STOPPED = 1, 130  # exit codes; bad input is 2, as everywhere on the command line


class BadEnd(Exception):
    """A command was asked for something sensible and could not do it."""


class CommandGroup(PlainHelp, TyperGroup):
    """The commands, with our own look of errors in place of Typer's boxes."""

    def main(self, *args: Any, standalone_mode: bool = True, **options: Any) -> Any:
        """Run a command and leave the process with its exit code."""
        try:
            code = super().main(*args, standalone_mode=False, **options)
        except BadEnd as error:
            show(str(error))
            code = BAD_END
        except UsageError as error:
            if type(error).__name__ != "NoArgsIsHelpError":  # the help has been shown already
                show(in_our_words(error), error.ctx)
            code = error.exit_code
        return sys.exit(code) if standalone_mode else code


def in_our_words(error: UsageError) -> str:
    """What Typer or pydantic says of bad input, worded as our own checks word it."""
    said = error.format_message()
    reported = getattr(error.__cause__, "errors", None)  # recent versions of Typer let pydantic check values
    if reported is not None:
        mistake = reported()[0]
        wanted = {"int": "a whole number", "float": "a number"}.get(mistake["type"].partition("_")[0])
        if wanted is not None:
            said = said.replace(error.message, f"it must be {wanted}, got {mistake['input']!r}")
    # Versions of Typer word it in their own ways, and some say it twice.
    for kind, wanted in (("integer", "a whole number"), ("float", "a number")):
        said = re.sub(rf"('[^']*') is not a valid {kind}\b", rf"it must be {wanted}, got \1", said)
    said = re.sub(r"^No such option '(.+?)'", r"No such option: \1", said)
    said, *hints = re.split(r"\.?\s+\(?(?:Did you mean (?:one of: )?|Possible options: )", said)
    return f"{said} (did you mean {hints[0].rstrip('.?)').replace(', ', ' or ')}?)" if hints else said


def show(sentences: str, usage_of: Context | None = None) -> None:
    """Print an error, a line for each sentence, and the usage of the command that was called wrongly."""
    screen = Console(stderr=True)
    lines = [f"{line.rstrip().removesuffix('.')}." for line in sentences.splitlines() if line.strip()]
    screen.print("[red]Error:[/] ", end="")
    screen.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    if usage_of is not None:
        usage = f"{usage_of.get_usage()} (see {usage_of.command_path} --help)"
        screen.print(usage, style="dim", highlight=False, markup=False, soft_wrap=True)


def refuse(sentence: str) -> NoReturn:
    """End the command because its input is bad."""
    raise UsageError(sentence)


def fail(sentence: str) -> NoReturn:
    """End the command because it failed."""
    raise BadEnd(sentence)


def stop(sentence: str) -> NoReturn:
    """End the command after Ctrl-C, saying what is left of its work."""
    Console(stderr=True).print(sentence, highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(STOPPED)


def say_written(*paths: object) -> None:
    """Say which files or folders were written."""
    said = "Written: " + ", ".join(str(path) for path in paths)
    Console().print(said, style="dim", highlight=False, markup=False, soft_wrap=True)
