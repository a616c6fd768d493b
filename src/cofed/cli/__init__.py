"""The command line: a module per command, or per group of commands that share their input.

Commands import what they need when they are called, so that `cofed --help` answers without loading JAX.
"""

from typing import Annotated

import typer

from cofed.cli.advise import advise
from cofed.cli.algorithms import algorithms
from cofed.cli.audit import audit
from cofed.cli.completion import CompletedGroup, Install, Show
from cofed.cli.demo import demo
from cofed.cli.describe import describe
from cofed.cli.doctor import doctor
from cofed.cli.experiment_files import init, plan, run, tune
from cofed.cli.federate import federate
from cofed.cli.fit import fit
from cofed.cli.help_pages import PlainCommand, flowing
from cofed.cli.race import race
from cofed.cli.report import report
from cofed.cli.reproduce import reproduce
from cofed.cli.serve import serve
from cofed.cli.site import site
from cofed.cli.study import study
from cofed.cli.survival import survival

HELP = """
Federated composite optimization: sparse, low-rank and constrained models from data that stays with its owners.

Begin with one of these; the help of every command has an example.

- [bold]cofed demo[/bold]  the curse of primal averaging, in under a minute

- [bold]cofed fit hospitals --target ill --infer[/bold]  one sparse model of all sites' tables, with intervals

- [bold]cofed study check study.toml --data patients.csv[/bold]  at a site: does our table fit the study?

- [bold]cofed reproduce yuan2021-fig3 --quick[/bold]  a paper's figure and its claims, on a small setup

Exit codes: 0 success, 1 failure (a run diverged, a file could not be written), 2 bad input, 130 interrupted.

Completion of words in your shell: [bold]cofed --install-completion[/bold].

In Python: [bold]cofed.run(problem, federation, cofed.FedDualAvg(client_lr=0.01), rounds=100)[/bold],
and help(cofed.run) says more.
"""

app = typer.Typer(
    cls=CompletedGroup,
    help=flowing(HELP),
    no_args_is_help=True,
    add_completion=False,  # Typer's own option ignores the shell that is named
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# As --help lists them, by what brings a user here.
COMMANDS = {
    "First steps": (demo, doctor),
    "Models of several sites' tables": (describe, fit, survival, advise),
    "Sites and servers (a site begins with study check)": (site, serve, audit, federate),
    "Algorithms and experiments": (algorithms, race, reproduce, init, plan, run, tune, report),
}
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(cls=PlainCommand, help=flowing(command.__doc__ or ""), rich_help_panel=panel)(command)
app.add_typer(study, name="study", rich_help_panel="Models of several sites' tables")


def print_version(asked: bool) -> bool:
    """Print the version and exit, where it is asked for."""
    if asked:
        from cofed import __version__

        print(f"cofed {__version__}")
        raise typer.Exit
    return asked


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    install_completion: Install = None,
    show_completion: Show = None,
) -> None:
    """What comes before every command."""
