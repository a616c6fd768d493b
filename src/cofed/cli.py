"""The command line: `cofed demo`, `cofed algorithms`. JAX is imported inside the commands that need it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

HELP = """
Federated composite optimization: sparse, low-rank and constrained models from data that stays with its owners.

Try it:

- [bold]cofed demo[/bold]  the curse of primal averaging, in under a minute

- [bold]cofed demo --seed 1 --out seed1[/bold]  the same on other data

- [bold]cofed algorithms[/bold]  which methods there are, and what each needs

In Python: [bold]cofed.run(problem, federation, cofed.FedDualAvg(client_lr=0.01), rounds=100)[/bold],
and help(cofed.run) says more.
"""

app = typer.Typer(
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# The papers' symbols of hyperparameters; those that are not here go by their name.
SYMBOLS = {
    "client_lr": "η_c",
    "server_lr": "η_s",
    "mu": "μ",
    "working_set": "s",
    "eta": "η",
    "alpha": "α",  # noqa: RUF001
    "mirror": "h",
    "radius": "ε",
    "strengths": "λ_m",
    "radii": "ε_m",
    "sparsity": "Ψ², s",
    "radius_squared": "Q",
    "step": "a",
}
PAPERS = {
    "yuan2021": "Yuan et al. 2021",
    "bao2022": "Bao et al. 2022",
    "liang2023": "Liang et al. 2023",
    "zhang2025": "Zhang et al. 2025",
}


def say_version(asked: bool) -> bool:
    """Say the version and leave, where it is asked for."""
    if asked:
        from cofed import __version__

        print(f"cofed {__version__}")
        raise typer.Exit
    return asked


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=say_version, is_eager=True, help="Say the version and leave.")
    ] = False,
) -> None:
    """What comes before every command."""


def between(low: int, high: int | None = None) -> Callable[[int | None], int | None]:
    """A check that a number is in a range, in a sentence that says what was given."""
    wanted = f"at least {low}" if high is None else f"from {low} to {high}"

    def check(value: int | None) -> int | None:
        if value is not None and (value < low or (high is not None and value > high)):
            raise typer.BadParameter(f"it must be {wanted}, got {value}.")
        return value

    return check


def folder(path: Path) -> Path:
    """A folder to write into, made where it is missing; refused before anything is computed."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise typer.BadParameter(f"{path} or a part of it is a file; give the name of a folder.") from None
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be made: {error.strerror}.") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"nothing can be written into {path}; give another folder.")
    return path


@app.command()
def demo(
    rounds: Annotated[
        int | None,
        typer.Option(
            callback=between(1), help="Rounds of communication; by default 500, with --quick 100.", show_default=False
        ),
    ] = None,
    clients: Annotated[
        int, typer.Option(callback=between(1, 1024), help="Clients that hold data, 128 samples each.")
    ] = 64,
    seed: Annotated[
        int, typer.Option(callback=between(0, 2**31 - 1), help="Of the data, the sampling and the batches.")
    ] = 0,
    out: Annotated[
        Path, typer.Option(callback=folder, help="Folder for demo.png, history.csv and history.parquet.")
    ] = Path("cofed-demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer rounds, and no pooled solution to compare with.")
    ] = False,
) -> None:
    """Show the curse of primal averaging, in under a minute.

    FedAvg with subgradients, FedMiD and FedDualAvg solve the same federated LASSO, whose truth is half zeros.
    The first two average models, and an average of sparse models is not sparse; FedDualAvg averages in the dual.
    Ctrl-C stops early and shows what is done.
    """
    from cofed import demo as show

    screen = Console()
    try:
        done = show.run_demo(
            rounds=rounds or (show.QUICK_ROUNDS if quick else show.ROUNDS), clients=clients, seed=seed, pooled=not quick
        )
    except show.Stopped:
        screen.print("Stopped before the first method had begun; there is nothing to show.")
        raise typer.Exit(130) from None
    files = show.write(done, out)
    screen.print(show.table(done))
    screen.print(show.sentence(done.rows, done.rounds), highlight=False)
    screen.print("Written: " + ", ".join(str(file) for file in files), style="dim", highlight=False, soft_wrap=True)
    if done.interrupted:
        screen.print(f"Stopped by Ctrl-C; {', '.join(done.results)} until then.")
        raise typer.Exit(130)


@app.command()
def algorithms(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """List the methods: what each does, its hyperparameters, what it needs, what it sends."""
    methods = describe_all()
    if as_json:
        print(json.dumps(methods, indent=2, ensure_ascii=False))
        return
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, caption_justify="left", show_lines=True)
    table.caption = (
        "Vectors: what one client receives and sends in one round (by gossip: sends to each neighbour), in sizes of "
        "the model, where everybody takes part.\n"
        "Example: cofed.FedDualAvg(client_lr=0.01, server_lr=1.0). More: help(cofed.FedDualAvg)."
    )
    table.add_column("method", style="bold", no_wrap=True)
    table.add_column("what it does, what it needs, paper", ratio=5)
    table.add_column("hyperparameters", ratio=4)
    table.add_column("vectors\ndown/up", justify="center", no_wrap=True)
    for method in methods:
        needs = "; ".join(method["needs"])
        options = [
            entry["name"] + (f" ({entry['symbol']})" if entry["symbol"] else "") + default(entry)
            for entry in method["hyperparameters"]
        ]
        table.add_row(
            method["name"],
            method["description"]
            + (f"\nNeeds {needs}." if needs else "")
            + f"\n[dim]{method['paper']}; through {' or '.join(method['talks'])}[/dim]",
            "\n".join(options),
            f"{method['vectors_down']}/{method['vectors_up']}",
        )
    Console().print(table)


def default(entry: dict[str, Any]) -> str:
    """A hyperparameter's default, as it is written in a call."""
    return "" if entry["required"] else f" = {entry['default']}"


def describe_all() -> list[dict[str, Any]]:
    """All methods, in words: those with a server, then those by gossip.

    >>> [method["name"] for method in describe_all()][:2]
    ['CFedDA', 'FastFedDA']
    """
    import cofed
    from cofed import algorithms, gossip

    names = [*algorithms.__all__, *(name for name in gossip.__all__ if name != "topologies")]
    return [describe(getattr(cofed, name)) for name in names]


def describe(method: type) -> dict[str, Any]:
    """One method in words.

    >>> import cofed
    >>> about = describe(cofed.FedAvg)
    >>> about["description"], about["vectors_up"], about["needs"]
    ('Local subgradient steps, averaged.', 1, ['a finite regularizer with a subgradient'])
    """
    import dataclasses
    import inspect
    import re

    from cofed.algorithms.base import TRAITS

    entries = []
    for field in dataclasses.fields(method):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        entries.append(
            {
                "name": field.name,
                "symbol": SYMBOLS.get(field.name),
                "required": required,
                "default": None if required else repr(value),
            }
        )
    one = {"sparsity": 1}  # the hyperparameters that count something
    example = method(**{entry["name"]: one.get(entry["name"], 1.0) for entry in entries if entry["required"]})
    # What stands in brackets in a docstring's first line or in a trait is for its reader there.
    plain = lambda text: re.sub(r"\s+\([^)]*\)", "", text).strip()  # noqa: E731
    needs = [plain(TRAITS[need].words) for need in example.needs]
    if method.equal_steps:
        needs.append("the same number of local steps on all clients")
    form = getattr(method, "stage_form", method)
    talks = [words for name, words in (("local", "a server"), ("local_node", "a topology")) if hasattr(form, name)]
    down, up = vectors(example, form)
    return {
        "name": method.__name__,
        "description": plain((inspect.getdoc(method) or "").splitlines()[0]),
        "hyperparameters": entries,
        "needs": needs,
        "talks": talks,
        "vectors_down": down,
        "vectors_up": up,
        "paper": PAPERS.get(method.paper, method.paper),
    }


def vectors(algorithm: Any, form: type) -> tuple[int, int]:
    """How many vectors of the model's size go down to and up from one client in one round, by the engine's count; by
    gossip, how many go to each neighbour."""
    import numpy as np

    import cofed
    from cofed.engine.job import Settings, prepare

    d = 1000
    federation = cofed.Federation.from_arrays([(np.ones((1, d), np.float32), np.ones(1, np.float32))] * 2)
    regularizer = cofed.Zero() if "zero" in algorithm.needs else cofed.L1(1.0)
    problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), regularizer)
    settings = Settings(
        rounds=10,
        local_steps=1,
        local_epochs=None,
        batch_size=None,
        clients_per_round=None,
        seed=0,
        evaluate_every=1,
        keep_models=False,
        per_client=False,
    )
    topology = None if hasattr(form, "local") else cofed.topologies.ring(2)
    stage = prepare(problem, federation, algorithm, settings, "uniform", None, None, topology).stages[0]
    size = d * federation.X.dtype.itemsize
    return round(stage.down / size), round(stage.up / size)


if __name__ == "__main__":
    app()
