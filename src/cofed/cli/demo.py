"""`cofed demo`"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cofed.cli.messages import STOPPED, fail, say_written, stop
from cofed.cli.options import MOST, between, count, out_folder


def demo(
    rounds: Annotated[
        int | None,
        typer.Option(
            callback=count,
            help="Rounds of communication; by default 500, with --quick 100.",
            show_default=False,
        ),
    ] = None,
    clients: Annotated[
        int, typer.Option(callback=between(1, 1024), help="Clients that hold data, 128 samples each.")
    ] = 64,
    seed: Annotated[
        int, typer.Option(callback=between(0, MOST), help="Of the data, the sampling and the batches.")
    ] = 0,
    out: Annotated[
        Path, typer.Option(callback=out_folder, help="Folder for demo.png, history.csv and history.parquet.")
    ] = Path("cofed-demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer rounds, and no pooled solution to compare with.")
    ] = False,
) -> None:
    """Show the curse of primal averaging, in under a minute.

    FedAvg with subgradients, FedMiD and FedDualAvg solve the same federated LASSO, whose truth is half zeros.
    The first two average models, and an average of sparse models is not sparse; FedDualAvg averages in the dual.
    Ctrl-C stops early and shows what is done.

    Example: cofed demo --quick --seed 1 --out seed1
    """
    from cofed import demo as show

    screen = Console()
    rounds = rounds or (show.QUICK_ROUNDS if quick else show.ROUNDS)
    try:
        done = show.run_demo(rounds=rounds, clients=clients, seed=seed, pooled=not quick)
    except show.Stopped:
        stop("Stopped before the first method had begun; there is nothing to show.")
    screen.print(show.table(done))
    screen.print(show.sentence(done.rows, done.rounds), highlight=False)
    try:
        files = show.write(done, out)
    except OSError as error:
        fail(str(error))
    say_written(*files)
    if done.interrupted:
        screen.print(f"Stopped by Ctrl-C; {', '.join(done.results)} until then.")
        raise typer.Exit(STOPPED)
