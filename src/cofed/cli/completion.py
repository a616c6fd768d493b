"""`cofed --show-completion` and `cofed --install-completion`: what lets a shell complete words."""

import os
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import typer

from cofed.cli.messages import CommandGroup, fail, refuse

SHELLS = ("bash", "zsh", "fish")
PROGRAM, VARIABLE = "cofed", "_COFED_COMPLETE"  # also where it is started as `python -m cofed`
SHOW, INSTALL = "--show-completion", "--install-completion"
WANTED = f"{', '.join(SHELLS[:-1])} or {SHELLS[-1]}"


class CompletedGroup(CommandGroup):
    """The commands, whose words a shell completes."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command, or tell a shell how its words may go on."""
        if VARIABLE in os.environ:
            from typer.completion import completion_init  # pyright: ignore[reportPrivateImportUsage]

            completion_init()  # Typer's ways of asking, which its scripts use
        return super().main(*args, **options)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of a command line."""
        return super().parse_args(ctx, with_shell(args))


def with_shell(words: Sequence[str]) -> list[str]:
    """The words of a command, with the shell that it was started from where completion is asked for and none is named.

    >>> from cofed.cli.completion import with_shell
    >>> with_shell(["--show-completion", "zsh"])
    ['--show-completion', 'zsh']
    """
    if len(words) != 1 or words[0] not in (SHOW, INSTALL):
        return list(words)
    import shellingham

    try:
        return [*words, str(shellingham.detect_shell()[0])]
    except (shellingham.ShellDetectionFailure, OSError):
        refuse(f"{words[0]}: which shell this is cannot be found out; name it: {WANTED}")


def known(shell: str, option: str) -> str:
    """The shell, where there is a script for it."""
    if shell not in SHELLS:
        refuse(f"{option}: there is none for {shell!r}; expected {WANTED}")
    return shell


def show(ctx: Any, shell: str | None) -> None:
    """Print a shell's script, and end."""
    from typer.completion import get_completion_script  # pyright: ignore[reportPrivateImportUsage]

    if shell is None or ctx.resilient_parsing:
        return
    print(get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=known(shell, SHOW)))
    raise typer.Exit


def install(ctx: Any, shell: str | None) -> None:
    """Write a shell's script to where the shell finds it, and end."""
    from typer import completion

    if shell is None or ctx.resilient_parsing:
        return
    known(shell, INSTALL)
    try:
        _, path = completion.install(shell, PROGRAM, VARIABLE)  # pyright: ignore[reportPrivateImportUsage]
    except OSError as error:
        fail(f"{INSTALL}: {error}")
    print(f"Written: {path}. It holds in every {shell} that is started from now on.")
    raise typer.Exit


Show: TypeAlias = Annotated[
    str | None,
    typer.Option(
        SHOW, callback=show, is_eager=True, metavar="SHELL", help=f"Print what lets {WANTED} complete words, and exit."
    ),
]
Install: TypeAlias = Annotated[
    str | None,
    typer.Option(
        INSTALL,
        callback=install,
        is_eager=True,
        metavar="SHELL",
        help=f"Let {WANTED} complete words, and exit; without a name, the shell that this is.",
    ),
]
