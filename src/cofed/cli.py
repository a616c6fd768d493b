"""The command line. JAX is imported inside the commands that need it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

if TYPE_CHECKING:
    from cofed.algorithms.base import AbstractAlgorithm

HELP = """
Federated composite optimization: sparse, low-rank and constrained models from data that stays with its owners.

Try it:

- [bold]cofed demo[/bold]  the curse of primal averaging, in under a minute

- [bold]cofed demo --seed 1 --out seed1[/bold]  the same on other data

- [bold]cofed advise patients.csv --target ill --client hospital[/bold]  one model for all sites, or a model each?

- [bold]cofed federate hospitals --target cost[/bold]  a file per site, a process per site, on this machine

- [bold]cofed algorithms[/bold]  which methods there are, and what each needs

- [bold]cofed reproduce --list[/bold]  the papers' figures, as experiments to run

- [bold]cofed reproduce yuan2021-fig3 --quick[/bold]  one of them, on a small setup

- [bold]cofed init[/bold]  an example of an experiment file of your own; [bold]cofed run experiment.toml[/bold] runs it

- [bold]cofed plan experiment.toml[/bold]  what it will cost: time, memory, bytes

- [bold]cofed report results[/bold]  all runs below a folder on one page to open in a browser

Exit codes: 0 all is well, 1 a bad end (a run diverged, a file could not be written), 2 refused, 130 stopped.

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
    "strength": "λ",
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
    "chen2021": "Chen et al. 2021",
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


def counted(value: int | None) -> int | None:
    """A check that a number counts something, and is not beyond the 32 bits of a counter."""
    if value is not None and value < 1:
        raise typer.BadParameter(f"it must be at least 1, got {value}.")
    if value is not None and value > 2**31 - 1:
        raise typer.BadParameter(f"it must be at most {2**31 - 1}, got {value}.")
    return value


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


def private(path: Path) -> Path:
    """A folder to write into, for its owner alone where it is made."""
    import contextlib

    from cofed._util.files import private_folder

    with contextlib.suppress(OSError):  # which `folder` words
        private_folder(path)
    return folder(path)


@app.command()
def demo(
    rounds: Annotated[
        int | None,
        typer.Option(
            callback=counted,
            help="Rounds of communication; by default 500, with --quick 100.",
            show_default=False,
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
    screen.print(show.table(done))
    screen.print(show.sentence(done.rows, done.rounds), highlight=False)
    try:
        files = show.write(done, out)
    except OSError as error:
        refuse(str(error), 1)
    screen.print("Written: " + ", ".join(str(file) for file in files), style="dim", highlight=False, soft_wrap=True)
    if done.interrupted:
        screen.print(f"Stopped by Ctrl-C; {', '.join(done.results)} until then.")
        raise typer.Exit(130)


@app.command()
def advise(
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet file with the rows of all sites.", show_default=False)],
    target: Annotated[str, typer.Option(help="The column to predict.", show_default=False)],
    client: Annotated[str, typer.Option(help="The column that says which site a row is of.", show_default=False)],
    group: Annotated[
        str | None,
        typer.Option("--group", "--split-by", help="Rows with one value here, such as a person, stay together."),
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="The columns to predict from, with commas; by default all others.")
    ] = None,
    drop: Annotated[str | None, typer.Option(help="Columns not to use, with commas.")] = None,
    model: Annotated[
        str | None, typer.Option(help="linear, logistic, multinomial or poisson; by default what the target suggests.")
    ] = None,
    folds: Annotated[int, typer.Option(callback=between(2, 50), help="Parts of the cross-validation.")] = 5,
    seed: Annotated[int, typer.Option(callback=between(0, 2**31 - 1), help="Of the cross-validation's parts.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write the page, with a figure, to this HTML file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Write the figure to this .png, .svg or .pdf file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, for programs.")] = False,
) -> None:
    """Should the sites share one model, have a model each, or something between?

    Every choice is trained and judged inside the sites by cross-validation: one model for all, a model each, and
    FedProx, which holds the sites' models together with a strength between the two. The page says how different the
    sites are, what each choice gives, overall and site by site, what to choose, and how sure that is.

    Example: cofed advise patients.csv --target ill --client hospital --group patient --html advice.html
    """
    from rich.progress import Progress

    from cofed.advise import show
    from cofed.advise.advice import advise as judge
    from cofed.advise.table import prepare, read

    names = lambda text: None if text is None else [name.strip() for name in text.split(",") if name.strip()]  # noqa: E731
    for path, endings in ((html, (".html", ".htm")), (figure, (".png", ".svg", ".pdf"))):
        if path is not None and path.suffix.lower() not in endings:
            raise typer.BadParameter(f"{path} must end in {' or '.join(endings)}.")
        if path is not None and path.is_dir():
            raise typer.BadParameter(f"{path} is a folder; give the name of a file.")
        if path is not None:
            folder(path.parent)
    try:
        ready = prepare(read(data, client), target, client, group, names(features), names(drop), model, folds)
        with Progress(console=Console(stderr=True), transient=True, disable=as_json) as bar:
            task = bar.add_task("comparing", total=None)
            found = judge(ready, folds, seed, lambda done, total: bar.update(task, completed=done, total=total))
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(f"{error}".rstrip(".") + ".") from None
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped before there was anything to say.")
        raise typer.Exit(130) from None
    written, unwritten = [], []
    for path, save in ((html, show.save_page), (figure, show.save_figure)):
        if path is not None:
            try:
                save(found, path)
                written.append(str(path))
            except OSError as error:
                unwritten.append(f"{path} cannot be written: {error.strerror}")
    if as_json:
        print(show.as_json(found))
    else:
        screen = Console()
        screen.print(show.terminal(found, screen.width))
        if written:
            screen.print("Written: " + ", ".join(written), style="dim", highlight=False, soft_wrap=True)
    if unwritten:
        refuse("; ".join(unwritten), 1)


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


@app.command()
def reproduce(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Experiments, such as yuan2021-fig3.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All experiments.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Say which experiments there are, and leave.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="The small setup: a minute or less for each.")] = False,
    seeds: Annotated[int, typer.Option(callback=between(1, 1000), help="Repetitions; mean and spread are drawn.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; by default cofed-results/quick or /full.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with MNIST, FEMNIST or Haxby's scans; by default that of COFED_DATA.", show_default=False
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Run also what is finished.")] = False,
    judge: Annotated[bool, typer.Option("--judge", help="Run nothing; judge and draw again what is finished.")] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            help="Copy figures and claims of what is finished there, with a page that shows all.", show_default=False
        ),
    ] = None,
) -> None:
    """Reproduce the papers' figures, and check their claims.

    Each experiment writes a folder: the figure (PNG, SVG), the numbers (Parquet, CSV), the exact configuration, and
    claims.json with each claim, what was measured, and whether it holds. What is finished is not run again; an
    interrupted experiment goes on where it was.
    """
    from cofed import experiments
    from cofed._util import programs
    from cofed.experiments import page as pages
    from cofed.experiments import reproduce as work

    known = experiments.everything()
    screen = Console()
    if listed:
        screen.print(work.listing(list(known.values())))
        return
    if everything and ids:
        refuse(f"give --all or names of experiments, not both (got {', '.join(ids)})")
    wanted = list(known) if everything else list(dict.fromkeys(ids or []))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        near = nearest(unknown[0], list(known))
        refuse(f"there is no experiment {unknown[0]!r}{near}; `cofed reproduce --list` lists them")
    if not wanted:
        refuse("name at least one experiment, or give --all; `cofed reproduce --list` lists them")
    if data is not None:
        if not data.is_dir():
            refuse(f"--data: there is no folder {data}")
        os.environ["COFED_DATA"] = str(data)
    elif (named := os.environ.get("COFED_DATA")) and not Path(named).expanduser().is_dir():
        refuse(f"COFED_DATA: there is no folder {named}")
    if quick:
        programs.compile_sooner()
    size = "quick" if quick else "full"
    target = out or Path("cofed-results") / size
    if judge and not target.is_dir():
        refuse(f"--judge: there is no folder {target} with results to judge")
    target = folder(target)
    chosen = [known[name] for name in wanted]
    try:
        became = work.judge_again(chosen, target) if judge else work.reproduce(chosen, target, size, seeds, again)
    except KeyboardInterrupt:
        screen.print(
            f"Stopped. What is done is kept in {target}; the same command goes on from there.", highlight=False
        )
        raise typer.Exit(130) from None
    except ValueError as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"{error}; what is done is kept, and the same command goes on from there", 1)
    screen.print(work.claims_table(chosen, target, became))
    screen.print(f"Written: {target}", style="dim", highlight=False, soft_wrap=True)
    if page is not None:
        try:
            shown = pages.publish(target, folder(page), list(known.values()))
        except OSError as error:
            refuse(str(error), 1)
        screen.print(f"Page: {shown}", style="dim", highlight=False)
    if len(chosen) == 1 and became[chosen[0].id] not in ("done", "kept"):
        raise typer.Exit(1)


def refuse(sentence: str, code: int = 2) -> NoReturn:
    """Say what is wrong and leave."""
    from rich.markup import escape

    Console(stderr=True).print(f"[red]Error:[/] {escape(sentence)}", highlight=False, soft_wrap=True)
    raise typer.Exit(code)


def nearest(word: str, known: list[str]) -> str:
    """What somebody may have meant, as a question."""
    import difflib

    found = difflib.get_close_matches(word, known, 1)
    return f" (did you mean {found[0]}?)" if found else ""


EXPERIMENT = Annotated[Path, typer.Argument(help="An experiment file; `cofed init` writes an example.")]


@app.command()
def run(
    experiment: EXPERIMENT,
    out: Annotated[Path, typer.Option(help="Folder for the results, one folder per experiment file.")] = Path(
        "cofed-results"
    ),
    seeds: Annotated[
        int | None,
        typer.Option(callback=between(1, 1000), help="Repetitions; by default the file's.", show_default=False),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Run it also where it is finished.")] = False,
) -> None:
    """Run a comparison of your own, from an experiment file.

    Algorithms with several values for a hyperparameter are tuned first. The folder has the figure, the numbers, the
    tuning and the configuration; `cofed report` makes a page of it. What is finished is not run again, unless the file
    or its data have changed: the old results are then kept beside the new ones.

    Exit codes: 0 all runs completed; 1 one diverged, or a file could not be written; 2 refused; 130 stopped by Ctrl-C.
    """
    from cofed.experiments import experiment_file as work
    from cofed.experiments import schema

    try:
        target = work.run_file(experiment, folder(out), seeds, again)
    except (schema.FileError, ValueError, TypeError, FileNotFoundError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        Console().print(
            f"Stopped. What is done is kept in {out}; the same command goes on from there.", highlight=False
        )
        raise typer.Exit(130) from None
    except OSError as error:
        refuse(f"{error}; what is done is kept, and the same command goes on from there", 1)
    screen = Console()
    screen.print(work.summary(target))
    screen.print(f"Written: {target}", style="dim", highlight=False, soft_wrap=True)
    if badly := work.bad_ends(target):
        refuse(f"{'; '.join(badly)}. Smaller steps (client_lr, server_lr) usually help", 1)


@app.command()
def tune(
    experiment: EXPERIMENT,
    out: Annotated[Path | None, typer.Option(help="Write the whole table there, as CSV.", show_default=False)] = None,
) -> None:
    """Search the grids of an experiment file, each as one program, and say which values are best."""
    from cofed.experiments import experiment_file as work
    from cofed.experiments import schema

    try:
        table, stopped = work.tune_file(experiment)
    except (schema.FileError, ValueError, TypeError, FileNotFoundError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        Console().print("Stopped before a grid was done.")
        raise typer.Exit(130) from None
    screen = Console()
    screen.print(work.ranking(table))
    if out is not None:
        from cofed._util.spreadsheets import to_csv

        try:
            to_csv(table, out)
        except OSError as error:
            refuse(str(error), 1)
        screen.print(f"Written: {out}", style="dim", highlight=False, soft_wrap=True)
    if stopped:
        screen.print("Stopped before all grids were done; those that were are shown.")
        raise typer.Exit(130)
    if without := work.all_diverged(table):
        refuse(f"every configuration of {', '.join(without)} diverged; add smaller learning rates", 1)


@app.command()
def plan(
    experiment: EXPERIMENT,
    seeds: Annotated[
        int | None,
        typer.Option(callback=between(1, 1000), help="Repetitions; by default the file's.", show_default=False),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="To time each program in, beside compiling it; more is more precise.")
    ] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs: seconds and bytes.")] = False,
) -> None:
    """Say what an experiment file will cost, before it runs: time, memory, bytes, and where this machine ends.

    Makes the file's data, compiles each algorithm's own program and times a few of its rounds and evaluations, so it
    takes some seconds for each algorithm. `cofed run` then takes the compiled programs from disk.

    a round, an evaluation: seconds of one. compile: to trace, and to take the program from disk (where COFED_CACHE is
    off: to compile). tuning: the whole grid as one program. down/up each: bytes to and from one client in one round.
    memory: of the whole process at its peak.

    Example: cofed init && cofed plan experiment.toml && cofed run experiment.toml
    """
    from cofed.experiments import plan, schema
    from cofed.experiments.reproduce import following

    if not seconds > 0:
        raise typer.BadParameter(f"--seconds must be > 0, got {seconds:g}.")
    try:
        with following(experiment.stem, Console(stderr=True)) as tick:
            outlook = plan.look_ahead(experiment, seeds, seconds, tick)
    except (schema.FileError, ValueError, TypeError, FileNotFoundError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped before there was anything to say.")
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(plan.as_json(outlook), indent=2))
        return
    screen = Console()
    screen.print(plan.table(outlook))
    for sentence in plan.words(outlook):
        screen.print(sentence, highlight=False)


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("experiment.toml"),
) -> None:
    """Write a commented example of an experiment file."""
    from cofed.experiments import experiment_file as work

    if path.exists():
        refuse(f"{path} exists already; give another name")
    try:
        work.write_example(path)
    except OSError as error:
        refuse(str(error), 1)
    Console().print(f"Written: {path}. Run it with: cofed run {path}", highlight=False, soft_wrap=True)


@app.command()
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders with runs in them or below.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one page for any set of runs: interactive curves, tables, configurations, claims with their verdicts.

    A run is any folder with config.json and numbers.parquet. One that cannot be read is listed with the reason.

    The page is a single file that opens from disk, without a network.
    """
    from cofed.report import write_report

    if out.is_dir():
        raise typer.BadParameter(f"{out} is a folder; give the name of a file such as {out / 'report.html'}.")
    try:
        done = write_report(folders, out)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None
    except OSError as error:
        raise typer.BadParameter(f"{out} cannot be written: {error.strerror}.") from None
    screen = Console()
    for unread, why in done.unreadable.items():
        screen.print(f"Not shown: {unread}: {why}.", highlight=False, soft_wrap=True, markup=False)
    shown = f"{len(done.runs)} run{'' if len(done.runs) == 1 else 's'}"
    screen.print(f"{done.path} shows {shown}; open it in a browser.", highlight=False, soft_wrap=True, markup=False)


@app.command()
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
    seed: Annotated[int, typer.Option(callback=between(0, 2**31 - 1), help="Of the batches and the start.")] = 0,
    secure: Annotated[bool, typer.Option("--secure", help="Over TLS, with authenticated nodes.")] = False,
    out: Annotated[
        Path, typer.Option(callback=private, help="Folder for the model, the history, the logs and the sites' states.")
    ] = Path("cofed-federate"),
) -> None:
    """Run a federation of real processes on this machine, over Flower (the extra cofed\\[flower]).

    Starts a SuperLink and a SuperNode per site on loopback, runs, shows every round and site, and stops all that it
    has started, also on Ctrl-C and on errors. Started again with the same --out, it goes on where it was.

    Example: cofed federate hospitals --target cost --algorithm "FedDualAvg(client_lr=0.05)" --rounds 5
    """
    import importlib.util

    if importlib.util.find_spec("flwr") is None or importlib.util.find_spec("psutil") is None:
        raise typer.BadParameter("Flower is not installed; pip install 'cofed[flower]' brings it.")
    from cofed.flower import show

    settings = {
        "rounds": rounds,
        "local_steps": local_steps,
        "batch_size": batch_size,
        "quorum": quorum,
        "deadline": float(deadline),
        "patience": float(patience),
        "weights": weights,
        "seed": seed,
    }
    try:
        code = show.federate(sites, target, algorithm, loss, regularizer, intercept, settings, secure, out)
    except ValueError as error:
        raise typer.BadParameter(f"{error}") from None
    except RuntimeError as error:  # a process of Flower's failed
        Console(stderr=True).print(f"{error}", markup=False, highlight=False, soft_wrap=True)
        code = 1
    if code:
        raise typer.Exit(code)


def default(entry: dict[str, Any]) -> str:
    """A hyperparameter's default, as it is written in a call."""
    return "" if entry["required"] else f" = {entry['default']}"


def describe_all() -> list[dict[str, Any]]:
    """All methods, in words: those with a server, then those by gossip.

    >>> [method["name"] for method in describe_all()][:2]
    ['Alternative', 'CFedDA']
    """
    import cofed
    from cofed import algorithms, gossip

    names = [*algorithms.__all__, *(name for name in gossip.__all__ if name != "topologies")]
    return [describe(getattr(cofed, name)) for name in names]


def describe(method: "type[AbstractAlgorithm]") -> dict[str, Any]:
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
    given = [entry["name"] for entry in entries if entry["required"] or entry["name"] == "client_lr"]
    example = method(**{name: one.get(name, 1.0) for name in given})
    # What stands in brackets in a docstring's first line or in a trait is for its reader there.
    plain = lambda text: re.sub(r"\s+\([^)]*\)", "", text).strip()  # noqa: E731
    needs = [plain(TRAITS[need].words) for need in example.needs]
    if method.equal_steps:
        needs.append("the same number of local steps on all clients")
    talks = ["a server"] * example.has_server + ["a topology"] * example.has_gossip
    down, up = vectors(example)
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


def vectors(algorithm: "AbstractAlgorithm") -> tuple[int, int]:
    """How many vectors of the model's size go down to and up from one client in one round, by the engine's count; by
    gossip, how many go to each neighbour."""
    import numpy as np

    import cofed
    from cofed.engine.job import Settings, prepare

    candidates = algorithm.candidates(cofed.Problem())
    if candidates is not None:  # it trains them all
        each = [vectors(one) for one in (candidates.shared, candidates.local)]
        return sum(down for down, _ in each), sum(up for _, up in each)
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
    topology = None if algorithm.has_server else cofed.topologies.ring(2)
    stage = prepare(problem, federation, algorithm, settings, "uniform", None, None, topology).stages[0]
    size = d * federation.dtype.itemsize
    return round(stage.down / size), round(stage.up / size)


if __name__ == "__main__":
    app()
