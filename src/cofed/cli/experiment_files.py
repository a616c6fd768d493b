"""`cofed run`, `tune`, `plan` and `init`: the commands that work on experiment files."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cofed.cli.messages import STOPPED, fail, refuse, say_written, stop
from cofed.cli.options import between, writable_folder

ExperimentFile = Annotated[Path, typer.Argument(help="An experiment file; `cofed init` writes an example.")]
Seeds = Annotated[
    int | None, typer.Option(callback=between(1, 1000), help="Repetitions; by default the file's.", show_default=False)
]


@contextlib.contextmanager
def input_checked() -> Iterator[None]:
    """Refuse the file, its data or its values in the words of the check that found them bad."""
    try:
        yield
    except (ValueError, TypeError, FileNotFoundError) as error:
        refuse(str(error))


def run(
    experiment: ExperimentFile,
    out: Annotated[Path, typer.Option(help="Folder for the results, one folder per experiment file.")] = Path(
        "cofed-results"
    ),
    seeds: Seeds = None,
    again: Annotated[bool, typer.Option("--again", help="Run it also where it is finished.")] = False,
) -> None:
    """Run a comparison of your own, from an experiment file.

    Algorithms with several values for a hyperparameter are tuned first. The folder has the figure, the numbers, the
    tuning and the configuration; `cofed report` makes a page of it. What is finished is not run again, unless the file
    or its data have changed: the old results are then kept beside the new ones. A file that names an algorithm of your
    own by its import path (package.module:Class) runs that module's code.

    Exit codes: 0 success, 1 failure (a run diverged, a file could not be written), 2 bad input, 130 interrupted.

    Example: cofed run experiment.toml, then cofed report cofed-results
    """
    from cofed.experiments import experiment_file as work

    try:
        with input_checked():
            target = work.run_file(experiment, writable_folder(out), seeds, again)
    except KeyboardInterrupt:
        stop(f"Stopped. What is done is kept in {out}; the same command goes on from there.")
    except OSError as error:
        fail(f"{error}; what is done is kept, and the same command goes on from there")
    Console().print(work.summary(target))
    say_written(target)
    if badly := work.bad_ends(target):
        fail(f"{'; '.join(badly)}. Smaller steps (client_lr, server_lr) usually help")


def tune(
    experiment: ExperimentFile,
    out: Annotated[Path | None, typer.Option(help="Write the whole table there, as CSV.", show_default=False)] = None,
) -> None:
    """Search the grids of an experiment file, each as one program, and say which values are best.

    Example: cofed tune experiment.toml
    """
    from cofed.experiments import experiment_file as work

    try:
        with input_checked():
            table, stopped = work.tune_file(experiment)
    except KeyboardInterrupt:
        stop("Stopped before a grid was done.")
    screen = Console()
    screen.print(work.ranking(table))
    if out is not None:
        from cofed._util.spreadsheets import to_csv

        try:
            to_csv(table, out)
        except OSError as error:
            fail(str(error))
        say_written(out)
    if stopped:
        screen.print("Stopped before all grids were done; those that were are shown.")
        raise typer.Exit(STOPPED)
    if without := work.all_diverged(table):
        fail(f"every configuration of {', '.join(without)} diverged; add smaller learning rates")


def plan(
    experiment: ExperimentFile,
    seeds: Seeds = None,
    seconds: Annotated[
        float, typer.Option(help="How long to time each program, not counting compilation; longer is more precise.")
    ] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs: seconds and bytes.")] = False,
) -> None:
    """Say what an experiment file will cost, before it runs: time, memory, bytes, and how many clients fit.

    Makes the file's data, compiles each algorithm's own program and times a few of its rounds and evaluations, so it
    takes some seconds for each algorithm. `cofed run` then takes the compiled programs from disk.

    a round, an evaluation: seconds of one. compiling: to trace, and to take the program from disk (where COFED_CACHE is
    off: to compile). tuning: the whole grid as one program. down to, up from each client: bytes in one round.
    memory: of the whole process at its peak.

    Example: cofed init && cofed plan experiment.toml && cofed run experiment.toml
    """
    from cofed.experiments import plan
    from cofed.experiments.reproduce import progress_bar

    if not seconds > 0:
        refuse(f"--seconds must be > 0, got {seconds:g}")
    try:
        with input_checked(), progress_bar(experiment.stem, Console(stderr=True)) as tick:
            outlook = plan.look_ahead(experiment, seeds, seconds, tick)
    except KeyboardInterrupt:
        stop("Stopped before there was anything to say.")
    if as_json:
        print(json.dumps(plan.to_dict(outlook), indent=2))
        return
    screen = Console()
    screen.print(plan.table(outlook))
    for sentence in plan.words(outlook):
        screen.print(sentence, highlight=False)


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("experiment.toml"),
) -> None:
    """Write a commented example of an experiment file.

    It can name every algorithm that `cofed algorithms` lists, and one of your own by its import path, such as
    momentum:HeavyBall for the class HeavyBall of momentum.py beside the file. Importing it runs its code.

    Example: cofed init experiment.toml
    """
    from cofed.experiments import experiment_file as work

    if path.exists():
        refuse(f"{path} exists already; give another name")
    try:
        work.write_example(path)
    except OSError as error:
        fail(str(error))
    Console().print(f"Written: {path}. Run it with: cofed run {path}", highlight=False, soft_wrap=True)
