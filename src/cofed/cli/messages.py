"""What the commands say when they end: one look for every error, whoever found it.

An error is a sentence on stderr after "Error:". Where the input was bad (exit code 2), the command's usage follows.
Where the input was fine and the command came to a bad end (exit code 1: a run diverged, a file could not be written),
the sentence stands alone.
"""

import sys
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperGroup

if TYPE_CHECKING:
    from click import Context, UsageError
else:
    # Recent versions of Typer carry their own copy of click: these are the classes from which its exported ones derive.
    Context, UsageError = typer.Context.__mro__[1], typer.BadParameter.__mro__[1]

BAD_END, STOPPED = 1, 130  # exit codes; bad input is 2, as everywhere on the command line


class BadEnd(Exception):
    """A command was asked for something sensible and could not do it."""


class CommandGroup(TyperGroup):
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
                show(error.format_message(), error.ctx)
            code = error.exit_code
        return sys.exit(code) if standalone_mode else code


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
    """End the command because it came to a bad end."""
    raise BadEnd(sentence)


def stop(sentence: str) -> NoReturn:
    """End the command after Ctrl-C, saying what is left of its work."""
    Console(stderr=True).print(sentence, highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(STOPPED)


def say_written(*paths: object) -> None:
    """Say which files or folders were written."""
    said = "Written: " + ", ".join(str(path) for path in paths)
    Console().print(said, style="dim", highlight=False, markup=False, soft_wrap=True)
