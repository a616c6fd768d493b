"""`cofed fit`"""

import contextlib
import dataclasses
import importlib.util
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cofed.cli import values
from cofed.cli.fit_sites import ABSENT, KEPT, Placement, ending_in_words, is_flower_there, opened
from cofed.cli.messages import BAD_END, fail, refuse
from cofed.cli.options import (
    FAMILIES_HELP,
    MOST,
    SITES,
    Delta,
    Epsilon,
    Guesses,
    Missing,
    Patience,
    Plain,
    Policy,
    Watch,
    between,
    folds,
    is_drop,
    names,
    numbers_by_name,
    private_out_folder,
    targets,
    there,
)
from cofed.cli.private_fits import private, with_privacy

if TYPE_CHECKING:
    from cofed.fitting import FitEvents, FitJob, PreparedFit

    Begun = Callable[[FitEvents], contextlib.AbstractContextManager[FitJob]]

# The panels of the help page, beside those of options that other commands have, too.
HOW_STRONG, INTERVALS, COLUMNS, STUDY = "Penalty and its strength", "Intervals", "Rows and columns", "With a study file"


def fit(
    sites: Annotated[
        Path,
        typer.Argument(
            callback=there,
            help="A folder with a table per site (SITE.csv, .parquet, .feather, .xlsx); one table, with --client; or a "
            "study file, with --data.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            help="The column to predict; for cox, that of times; for mgaussian, several with commas.",
            show_default=False,
        ),
    ] = None,
    event: Annotated[
        str | None, typer.Option(help="For cox: the column that is 1 where a time ends with an event, else 0.")
    ] = None,
    entry: Annotated[
        str | None, typer.Option(help="For cox: the column of times from which on rows are at risk.")
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            help=f"{FAMILIES_HELP}; by default what the target suggests.",
            autocompletion=values.families,
        ),
    ] = None,
    penalty: Annotated[
        str,
        typer.Option(
            help="l1, elasticnet, or group: the columns of a factor together.",
            autocompletion=values.penalties,
            rich_help_panel=HOW_STRONG,
        ),
    ] = "l1",
    l1_ratio: Annotated[
        float | None,
        typer.Option(
            help="The part of elasticnet that is l1; by default 0.5.", show_default=False, rich_help_panel=HOW_STRONG
        ),
    ] = None,
    cv: Annotated[
        str | None,
        typer.Option(
            help="Folds of the cross-validation, by default 5; COLUMN or COLUMN:5, whose groups of rows (a person's) "
            "are each in one fold; or leave-one-site-out.",
            show_default=False,
            rich_help_panel=HOW_STRONG,
        ),
    ] = None,
    measure: Annotated[
        str,
        typer.Option(
            help="What is cross-validated: deviance, mse, mae, misclassification, auc or c_index.",
            autocompletion=values.measures,
            rich_help_panel=HOW_STRONG,
        ),
    ] = "deviance",
    select: Annotated[
        str | None,
        typer.Option(
            help="Choose the strength by min (the default), 1se, aic or bic.",
            autocompletion=values.ways_to_choose,
            show_default=False,
            rich_help_panel=HOW_STRONG,
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="The strength, instead of choosing it.", show_default=False, rich_help_panel=HOW_STRONG),
    ] = None,
    infer: Annotated[
        bool, typer.Option("--infer", help="Add intervals and p-values.", rich_help_panel=INTERVALS)
    ] = False,
    level: Annotated[float, typer.Option(help="The coverage of the intervals.", rich_help_panel=INTERVALS)] = 0.95,
    errors: Annotated[
        str,
        typer.Option(
            help="Standard errors: model; hc1 or hc3, robust; site: rows of a site are related; or a column: rows with "
            "the same value in it are.",
            rich_help_panel=INTERVALS,
        ),
    ] = "model",
    features: Annotated[
        str | None,
        typer.Option(help="The columns to predict from, with commas; by default all others.", rich_help_panel=COLUMNS),
    ] = None,
    penalty_factor: Annotated[
        str | None,
        typer.Option(
            help="How much single columns are penalised, age=0,bmi=2: 0 is not at all, so that they are always in the "
            "model.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    low: Annotated[
        str | None,
        typer.Option(
            help="The least coefficients of columns, at most 0: dose=0 is no less.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    high: Annotated[
        str | None,
        typer.Option(
            help="The largest coefficients of columns, at least 0.", show_default=False, rich_help_panel=COLUMNS
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            help="The column that says how much a row counts, >= 0.", show_default=False, rich_help_panel=COLUMNS
        ),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            help="The column that is added to a row's prediction: of counts, the logarithm of the time that they are "
            "of.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    guesses: Guesses = None,
    class_weight: Annotated[
        str | None,
        typer.Option(
            help="balanced: all classes count the same, all together.", show_default=False, rich_help_panel=COLUMNS
        ),
    ] = None,
    site_effects: Annotated[
        str,
        typer.Option(
            help="fixed: an intercept for every site, which no other learns where answers are masked.",
            rich_help_panel=COLUMNS,
        ),
    ] = "none",
    client: Annotated[
        str | None,
        typer.Option(help="The column that says which site a row of one table is of.", rich_help_panel=COLUMNS),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            callback=there, help="The folder with the tables that a study file is about.", rich_help_panel=STUDY
        ),
    ] = None,
    analysis: Annotated[
        str | None, typer.Option(help="Which analysis of a study file, where it has several.", rich_help_panel=STUDY)
    ] = None,
    missing_values: Annotated[
        str,
        typer.Option(
            help="refuse them, drop their rows, or impute the mean or most frequent level of all sites.",
            rich_help_panel=COLUMNS,
        ),
    ] = "refuse",
    seed: Annotated[
        int, typer.Option(callback=between(0, MOST), help="The seed of the folds.", rich_help_panel=HOW_STRONG)
    ] = 0,
    in_process: Annotated[
        bool,
        typer.Option(
            "--in-process", help="Read all tables in this process, and start none for the sites.", rich_help_panel=SITES
        ),
    ] = False,
    secure: Annotated[
        bool, typer.Option("--secure", help="Over TLS, with authenticated sites.", rich_help_panel=SITES)
    ] = False,
    plain: Plain = False,
    policy: Policy = None,
    patience: Patience = 600,
    missing: Missing = "end",
    watch: Watch = False,
    out: Annotated[
        Path, typer.Option(help="Folder for the model, the tables and the report; not the one with the sites' tables.")
    ] = Path("cofed-fit"),
) -> None:
    """Fit a sparse model to the tables of several sites as if they were one table, and certify how exact it is.

    No step sizes: the strength of the penalty is chosen by cross-validation with folds inside each site, or by --alpha.
    Every site is a process of its own on this machine, over Flower (the extra cofed\\[flower]), which reads its own
    table and answers questions with sums over its rows, masked so that only the sum over all sites can be known;
    --in-process does without. A fit that was broken off goes on by the same command.

    Written to --out: model.safetensors (cofed.estimators.load reads it), coefficients.csv, summary.txt and .csv,
    figures of the path and the cross-validation, exchanges.csv, and report.html, one page with all of it.

    Example: cofed fit hospitals --target ill --family binomial --select 1se --infer --out ill
    """
    from cofed.fitting import FitPlan, FitTables, prepare, prepare_study

    drop = is_drop(missing)
    given = {"--secure": secure, "--plain": plain, "--policy": policy is not None, "--missing drop": drop}
    option = next((name for name, is_given in given.items() if is_given), None)  # for sites in processes of their own
    if in_process and option is not None:
        refuse(f"{option} is for sites in processes of their own: leave out --in-process")
    study = sites.suffix == ".toml"
    if study and (data is None or target is not None):
        refuse(f"{sites} is a study, which says what to fit: give --data, the folder with the tables, and no --target")
    if study:
        texts = {"event": event, "entry": entry, "family": family, "cv": cv, "select": select, "features": features}
        texts |= {"weight": weight, "offset": offset, "class_weight": class_weight, "client": client}
        texts |= {"penalty_factor": penalty_factor, "low": low, "high": high}
        beside = {name: (value, None) for name, value in (texts | {"l1_ratio": l1_ratio, "alpha": alpha}).items()}
        beside |= {"penalty": (penalty, "l1"), "measure": (measure, "deviance"), "level": (level, 0.95)}
        beside |= {"errors": (errors, "model"), "site_effects": (site_effects, "none"), "seed": (seed, 0)}
        refuse_beside_study(sites, beside | {"infer": (infer, False), "missing_values": (missing_values, "refuse")})
    if not study and (data is not None or analysis is not None or target is None):
        refuse("--data and --analysis are for a study file" if target else "--target: give the column to predict")
    try:
        if study:
            assert data is not None
            ready = prepare_study(sites, data, analysis)
            assert ready.design is not None
            noise = private(epsilon, delta, guesses)
            ready = dataclasses.replace(ready, plan=with_privacy(ready.plan, ready.design, noise))
        else:
            assert target is not None
            intervals = level if infer else None
            of_classes = class_weight is not None or measure in ("misclassification", "auc")
            guess = "binomial" if of_classes else "gaussian"
            noise = private(epsilon, delta, guesses)
            group, count = folds(cv)
            chosen = l1_ratio, alpha, count, select, intervals, seed, errors, class_weight, site_effects, noise
            texts = {"penalty_factor": penalty_factor, "low": low, "high": high}
            single, least, most = (numbers_by_name(f"--{key.replace('_', '-')}", text) for key, text in texts.items())
            plan = FitPlan(guess if family is None else family, penalty, *chosen, group, measure, single, least, most)
            roles = {"weight": weight, "offset": offset, "event": event, "entry": entry}
            roles |= {"group": group, "cluster": plan.cluster}
            first, others = targets(target, family)
            choice = FitTables(sites, first, names(features), client, missing_values, **roles, responses=others)
            ready = prepare(plan, choice, guess=family is None)
        ready.choice.require_elsewhere(out)
    except (ValueError, FileNotFoundError, ImportError) as error:
        refuse(str(error))
    if family is None and not study:
        say(f"Family: {ready.plan.family}, as {target} suggests; --family changes it.")
    if not in_process and not is_flower_there():
        if option is not None:
            refuse(f"{option}: Flower is not installed; pip install 'cofed[flower]' brings it")
        say(f"{ABSENT}.")
        in_process = True
    require_watch(watch)
    private_out_folder(out)  # made when all checks have passed
    keep_study(ready, out / "study.toml")
    run(ready, Placement(in_process, secure, plain, policy, patience, drop), out, watch=watch)


def refuse_beside_study(study: Path, given: Mapping[str, tuple[object, object]]) -> None:
    """Refuse options, each with its default, that a study file would leave without effect."""
    option = next((name for name, (value, default) in given.items() if value != default), None)
    if option is not None:
        option = f"--{option.replace('_', '-')}"
        refuse(f"{study} is a study, which says what to fit: leave out {option}, or change the study")


def keep_study(ready: "PreparedFit", path: Path) -> None:
    """Write the study that a fit without one would be; where there can be none, none of an earlier fit stays."""
    if ready.design is not None:  # a study was given
        return
    from cofed.fitting import drafted
    from cofed.sites import TableMismatch
    from cofed.studies import write

    try:
        write(path, drafted(ready))
    except TableMismatch:  # a study is stricter: no linear model of zeros and ones
        path.unlink(missing_ok=True)
    except ValueError as error:
        refuse(str(error))
    except OSError as error:
        fail(f"{error}")


def run(ready: "PreparedFit", where: Placement, out: Path, *, watch: bool) -> None:
    """Do a fit over these tables."""

    @contextlib.contextmanager
    def begun(events: "FitEvents") -> "Iterator[FitJob]":
        if not where.in_process:
            events.tell("waiting", words=f"starting {len(ready.tables)} sites, a process for each")
        with opened(ready, out, where, events.tell) as sites:
            yield ready.job(sites, out, this_command(), where.drop)

    drafted = [path.name for path in (out / "study.toml",) if ready.design is None and path.exists()]
    perform(begun, out, watch=watch, resumable=not where.in_process, drafted=drafted)


def this_command() -> str:
    """The command that was given."""
    return shlex.join(["cofed", *sys.argv[1:]])


def perform(begun: "Begun", out: Path, *, watch: bool, resumable: bool, drafted: Sequence[str] = ()) -> None:
    """Do a fit, show how it goes and how it ended.

    `begun` opens the sites and gives the job, for as long as it lasts; `resumable` says whether the same command goes
    on from what was exchanged; `drafted` are names of files that were written before.
    """
    from cofed.fitting import FitEvents, run_fit
    from cofed.fitting.show import shown

    screen, progress = Console(stderr=True), out / "progress.jsonl"
    on = " The same command goes on from there." if resumable else ""
    stopped = f"Stopped. What was exchanged until then is in {out / 'exchanges.csv'}.{on}"
    with ending_in_words(stopped, KEPT), shown(screen) as hear, watched(progress, watch):
        events = FitEvents(progress, hear)
        with events.to_the_end(), begun(events) as job:
            done, files = run_fit(job, events)
    Console().print(done.summary(), highlight=False, soft_wrap=True, markup=False)
    for note in done.notes:
        screen.print(f"Note: {note}", highlight=False, soft_wrap=True, markup=False)
    say(f"Written to {out}: {', '.join([*(file.name for file in files), *drafted])}")
    if done.outcome == "not converged" or (done.plan.level and done.inferred is None):
        raise typer.Exit(BAD_END)


def say(sentence: str) -> None:
    """Say something beside the results."""
    Console(stderr=True).print(sentence, highlight=False, soft_wrap=True, markup=False)


def require_watch(asked: bool) -> None:
    """Refuse to serve a page where what it needs is not installed."""
    if asked and any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn")):
        refuse("--watch: the page needs starlette and uvicorn; pip install 'cofed[watch]' brings them")


@contextlib.contextmanager
def watched(events: Path, asked: bool) -> Iterator[None]:
    """Serve the page that follows a fit, where it is asked for, and open it where there is a screen."""
    if not asked:
        yield
        return
    require_watch(asked)
    from cofed.watch import WatchPage

    with WatchPage(events) as page:
        say(f"Watch it at {page.url}")
        page.show()
        yield
