"""`cofed federate`"""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from cofed.cli.messages import fail, refuse
from cofed.cli.options import MOST, between, private_out_folder


def federate(
    sites: Annotated[
        Path,
        typer.Argument(
            exists=True,
            file_okay=False,
            help="A folder with a table per site: SITE.csv or SITE.parquet, or a folder SITE with one.",
        ),
    ],
    target: Annotated[str, typer.Option(help="The column to predict; all others are features.")],
    algorithm: Annotated[str, typer.Option(help="The method, see cofed algorithms.")] = "FedDualAvg(client_lr=0.01)",
    loss: Annotated[str, typer.Option(help="Squared, Logistic, Softmax, Huber or Poisson.")] = "Squared()",
    regularizer: Annotated[str, typer.Option(help="Such as L1(0.01), Nuclear(0.1) or Zero().")] = "L1(0.01)",
    intercept: Annotated[bool, typer.Option(help="Whether the linear model has one; it is not penalised.")] = True,
    rounds: Annotated[int, typer.Option(callback=between(1), help="Rounds of communication.")] = 10,
    local_steps: Annotated[int, typer.Option(callback=between(1), help="Local steps in a round.")] = 20,
    batch_size: Annotated[
        int | None, typer.Option(callback=between(1), help="Samples per batch; by default all.", show_default=False)
    ] = None,
    quorum: Annotated[
        int | None,
        typer.Option(callback=between(1), help="Updates that a round needs; by default all.", show_default=False),
    ] = None,
    deadline: Annotated[int, typer.Option(callback=between(1), help="Seconds that a round waits for a site.")] = 120,
    patience: Annotated[
        int, typer.Option(callback=between(1), help="Seconds to wait for the quorum; then it stops with all it has.")
    ] = 600,
    weights: Annotated[str, typer.Option(help="uniform: sites count alike; samples: by their sizes.")] = "samples",
    seed: Annotated[int, typer.Option(callback=between(0, MOST), help="Of the batches and the start.")] = 0,
    secure: Annotated[bool, typer.Option("--secure", help="Over TLS, with authenticated nodes.")] = False,
    cohorts: Annotated[
        str | None,
        typer.Option(
            help='Sites whose updates are masked together, at least 3 each, such as "a b c; d e f"; by default all.',
            show_default=False,
        ),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Without masks: the server sees each site's own updates.")
    ] = False,
    robust: Annotated[
        str | None,
        typer.Option(help="median or trimmed, instead of the mean of updates; needs --plain.", show_default=False),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            callback=private_out_folder, help="Folder for the model, the history, the logs and the sites' states."
        ),
    ] = Path("cofed-federate"),
) -> None:
    """Run a federation of real processes on this machine, over Flower (the extra cofed\\[flower]).

    Starts a SuperLink and a SuperNode per site on loopback, runs, shows every round and site, and stops all that it
    has started, also on Ctrl-C and on errors. Started again with the same --out, it goes on where it was.

    Example: cofed federate hospitals --target cost --algorithm "FedDualAvg(client_lr=0.05)" --rounds 5
    """
    if importlib.util.find_spec("flwr") is None or importlib.util.find_spec("psutil") is None:
        refuse("Flower is not installed; pip install 'cofed[flower]' brings it")
    from cofed.flower import show
    from cofed.flower.federate import LocalFederation
    from cofed.flower.parsing import parse, parse_problem

    settings = {
        "rounds": rounds,
        "local_steps": local_steps,
        "batch_size": batch_size,
        "quorum": quorum,
        "deadline": float(deadline),
        "patience": float(patience),
        "weights": weights,
        "seed": seed,
        "cohorts": cohorts,
        "plain": plain,
        "robust": robust,
    }
    try:
        problem, method = parse_problem(loss, regularizer, intercept), parse(algorithm, "an algorithm")
        code = show.federate(LocalFederation(sites, target, problem, method, settings, out, secure))
    except ValueError as error:
        refuse(str(error))
    except RuntimeError as error:  # a process of Flower's failed
        fail(str(error))
    if code:
        raise typer.Exit(code)
