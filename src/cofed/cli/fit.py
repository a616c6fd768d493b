"""`cofed fit`"""

import contextlib
import importlib.util
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cofed.cli.messages import BAD_END, fail, refuse, stop
from cofed.cli.options import MOST, between, names, private_out_folder

if TYPE_CHECKING:
    from cofed.fitting import PreparedFit


def fit(
    sites: Annotated[
        Path,
        typer.Argument(
            help="A folder with a table per site (SITE.csv, .parquet, .feather, .xlsx); or one table, with --client.",
            show_default=False,
        ),
    ],
    target: Annotated[str, typer.Option(help="The column to predict.", show_default=False)],
    family: Annotated[
        str | None,
        typer.Option(help="gaussian, binomial, multinomial or poisson; by default what the target suggests."),
    ] = None,
    penalty: Annotated[str, typer.Option(help="l1, elasticnet, or group: the columns of a factor together.")] = "l1",
    l1_ratio: Annotated[
        float | None, typer.Option(help="The part of elasticnet that is l1; by default 0.5.", show_default=False)
    ] = None,
    cv: Annotated[
        int | None,
        typer.Option(callback=between(2, 100), help="Folds of the cross-validation; by default 5.", show_default=False),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(help="Choose the strength by min (the default), 1se, aic or bic.", show_default=False),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="The strength, instead of choosing it.", show_default=False)
    ] = None,
    infer: Annotated[bool, typer.Option("--infer", help="Add intervals and p-values.")] = False,
    level: Annotated[float, typer.Option(help="The coverage of the intervals.")] = 0.95,
    features: Annotated[
        str | None, typer.Option(help="The columns to predict from, with commas; by default all others.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="The column that says which site a row of one table is of.")
    ] = None,
    missing_values: Annotated[
        str, typer.Option(help="refuse them, drop their rows, or impute the mean or most frequent level of all sites.")
    ] = "refuse",
    seed: Annotated[int, typer.Option(callback=between(0, MOST), help="Of the folds.")] = 0,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the fit on a page in the browser.")] = False,
    out: Annotated[
        Path, typer.Option(callback=private_out_folder, help="Folder for the model, the tables and the report.")
    ] = Path("cofed-fit"),
) -> None:
    """Fit a sparse model to the tables of several sites as if they were one table, and certify how exact it is.

    No step sizes: the strength of the penalty is chosen by cross-validation with folds inside each site, or by --alpha.
    What is computed of a site's rows are sums, and of these the totals over all sites are used.

    Written to --out: model.safetensors (cofed.estimators.load reads it), coefficients.csv, summary.txt and .csv,
    figures of the path and the cross-validation, exchanges.csv, and report.html, one page with all of it.

    Example: cofed fit hospitals --target ill --family binomial --select 1se --infer --out ill
    """
    from cofed.fitting import FitPlan, FitTables, prepare

    try:
        chosen = (family or "gaussian", penalty, l1_ratio, alpha, cv, select, level if infer else None, seed)
        plan = FitPlan(*chosen)
        tables = FitTables(sites, target, names(features), client, missing_values)
        ready = prepare(plan, tables, guess=family is None)
    except (ValueError, FileNotFoundError) as error:
        refuse(str(error))
    if family is None:
        say(f"Family: {ready.plan.family}, as {target} suggests; --family changes it.")
    run(ready, out, watch)


def run(ready: "PreparedFit", out: Path, watch: bool) -> None:
    """Do a fit, show how it goes and how it ended."""
    from cofed.fitting import FitEvents, run_fit
    from cofed.fitting.show import shown

    screen, progress = Console(stderr=True), out / "progress.jsonl"
    command = shlex.join(["cofed", *sys.argv[1:]])
    try:
        with shown(screen) as hear, watched(progress, watch):
            done, files = run_fit(ready.job(ready.in_process(), out, command), FitEvents(progress, hear))
    except KeyboardInterrupt:
        stop(f"Stopped. What was exchanged until then is in {out / 'exchanges.csv'}.")
    except ValueError as error:
        refuse(str(error))
    except OSError as error:
        fail(f"{error}")
    Console().print(done.model.summary(), highlight=False, soft_wrap=True, markup=False)
    for note in done.notes:
        screen.print(f"Note: {note}", highlight=False, soft_wrap=True, markup=False)
    say(f"Written to {out}: {', '.join(file.name for file in files)}")
    if done.model.certificate_.outcome == "not converged":
        raise typer.Exit(BAD_END)


def say(sentence: str) -> None:
    """Say something beside the results."""
    Console(stderr=True).print(sentence, highlight=False, soft_wrap=True, markup=False)


@contextlib.contextmanager
def watched(events: Path, asked: bool) -> Iterator[None]:
    """Serve the page that follows a fit, where it is asked for, and open it where there is a screen."""
    if not asked:
        yield
        return
    if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None:
        refuse("--watch: the page needs starlette and uvicorn; pip install 'cofed[watch]' brings them")
    from cofed.watch import WatchPage

    with WatchPage(events) as page:
        say(f"Watch it at {page.url}")
        page.show()
        yield
