"""How help pages look: paragraphs that flow, flags without a type, arguments in capitals."""

import inspect
import re
from collections.abc import Callable
from typing import Any

from typer.core import TyperCommand


def flowing(text: str) -> str:
    """A text whose paragraphs are one line each, so that they wrap where the terminal ends.

    >>> from cofed.cli.help_pages import flowing
    >>> flowing("One.\\n\\nTwo\\nthree.")
    'One.\\n\\nTwo three.'
    """
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(text))


def help_of(command: Callable[..., Any], argument: str) -> str | None:
    """What the function of a command says of an argument: recent versions of click lose it where Typer is older.

    >>> from cofed.cli.audit import audit
    >>> from cofed.cli.help_pages import help_of
    >>> help_of(audit, "files")
    'Logs of what left (audit.jsonl), or the folders in which sites keep them.'
    """
    annotation = inspect.unwrap(command).__annotations__[argument]
    return annotation.__metadata__[0].help


class PlainHelp:
    """A command whose usage line and options read as they do in other programs; mixed into Typer's classes."""

    def get_params(self, ctx: object) -> list[Any]:
        """Parameters: a flag shows no type, since it takes no value."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if param.param_type_name == "argument":
                param.metavar = param.metavar or param.name.upper()
                param.help = param.help or help_of(self.callback, param.name)  # type: ignore[attr-defined]
                if param.nargs != 1:  # recent versions of Typer would show Python's own words, such as list[Path]
                    param.display_type_rich = lambda ctx: ""
            elif param.is_flag:
                param.metavar = ""
        return params

    def collect_usage_pieces(self, ctx: object) -> list[str]:
        """Words of the usage line: braces would read as a choice."""
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [re.sub(r"(\.\.\.)+", "...", piece.replace("{", "").replace("}", "")) for piece in pieces]


class PlainCommand(PlainHelp, TyperCommand):
    """A command with such a help page."""
