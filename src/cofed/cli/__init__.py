"""The command line: a module per command, or per group of commands that share their input.

Commands import what they need when they are called, so that `cofed --help` answers without loading JAX.
"""

from typing import Annotated

import typer

from cofed.cli.advise import advise
from cofed.cli.algorithms import algorithms
from cofed.cli.audit import audit
from cofed.cli.demo import demo
from cofed.cli.describe import describe
from cofed.cli.doctor import doctor
from cofed.cli.experiment_files import init, plan, run, tune
from cofed.cli.federate import federate
from cofed.cli.fit import fit
from cofed.cli.help_pages import PlainCommand, flowing
from cofed.cli.messages import CommandGroup
from cofed.cli.race import race
from cofed.cli.report import report
from cofed.cli.reproduce import reproduce
from cofed.cli.serve import serve
from cofed.cli.site import site
from cofed.cli.study import study
from cofed.cli.survival import survival

HELP = """
Federated composite optimization: sparse, low-rank and constrained models from data that stays with its owners.

Try it:

- [bold]cofed demo[/bold]  the curse of primal averaging, in under a minute

- [bold]cofed demo --seed 1 --out seed1[/bold]  the same on other data

- [bold]cofed doctor[/bold]  what is installed here, and what to do about what is missing

- [bold]cofed fit hospitals --target ill --infer[/bold]  a sparse model of all sites' tables, with intervals

- [bold]cofed advise patients.csv --target ill --client hospital[/bold]  one model for all sites, or a model each?

- [bold]cofed federate hospitals --target cost[/bold]  a file per site, a process per site, on this machine

- [bold]cofed describe hospitals[/bold]  a file per site: rows, missing values, means, quartiles, levels

- [bold]cofed survival hospitals --time days --event dead --group arm[/bold]  curves of all sites, and the log-rank test

- [bold]cofed study init oslo.csv --target ill[/bold]  draft the file that all sites of a study agree on

- [bold]cofed audit cofed-site/audit.jsonl[/bold]  check a site's log of what left, and show it

- [bold]cofed algorithms[/bold]  which methods there are, and what each needs

- [bold]cofed reproduce --list[/bold]  the papers' figures, as experiments to run

- [bold]cofed reproduce yuan2021-fig3 --quick[/bold]  one of them, on a small setup

- [bold]cofed race --quick[/bold]  every algorithm on a few small problems: which one wins when?

- [bold]cofed init[/bold]  an example of an experiment file of your own; [bold]cofed run experiment.toml[/bold] runs it

- [bold]cofed plan experiment.toml[/bold]  what it will cost: time, memory, bytes

- [bold]cofed report results[/bold]  all runs below a folder on one page to open in a browser

Exit codes: 0 success, 1 failure (a run diverged, a file could not be written), 2 bad input, 130 interrupted.

Completion of words in your shell: [bold]cofed --install-completion[/bold].

In Python: [bold]cofed.run(problem, federation, cofed.FedDualAvg(client_lr=0.01), rounds=100)[/bold],
and help(cofed.run) says more.
"""

app = typer.Typer(
    cls=CommandGroup,
    help=flowing(HELP),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# As --help lists them, by what brings a user here.
COMMANDS = {
    "First steps": (demo, doctor),
    "Models of several sites' tables": (describe, fit, survival, advise),
    "Sites and servers": (site, serve, audit, federate),
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
) -> None:
    """What comes before every command."""
