"""`cofed reproduce`"""

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cofed.cli import values
from cofed.cli.messages import BAD_END, fail, refuse, say_written, stop
from cofed.cli.options import between, writable_folder

if TYPE_CHECKING:
    from cofed.experiments.specification import Experiment


def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            help="Experiments, such as yuan2021-fig3.", autocompletion=values.experiments, show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All experiments.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="The small setup: a minute or less for each.")] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            callback=between(1, 1000),
            help="Repetitions; mean and spread are drawn. By default 5, and 1 with --quick.",
            show_default=False,
        ),
    ] = None,
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
    plan: Annotated[bool, typer.Option("--plan", help="Run nothing; measure what it would take here.")] = False,
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

    Example: cofed reproduce --list, then cofed reproduce yuan2021-fig3 --quick
    """
    from cofed._util import programs

    if quick:
        programs.compile_sooner()  # before arrays are made: the compiler reads its flags once
    from cofed import experiments
    from cofed.experiments import reproduce as work

    known = experiments.everything()
    screen = Console()
    if listed:
        screen.print(work.listing(list(known.values())))
        return
    chosen = choose(known, ids or [], everything)
    use_data_folder(data)
    size = "quick" if quick else "full"
    count = work.SEEDS[size] if seeds is None else seeds
    target = out or Path("cofed-results") / size
    if judge and not target.is_dir():
        refuse(f"--judge: there is no folder {target} with results to judge")
    target = writable_folder(target)
    if plan:
        say_what_it_takes(chosen, target, size, count)
        return
    try:
        became = work.judge_again(chosen, target) if judge else work.reproduce(chosen, target, size, count, again)
    except KeyboardInterrupt:
        stop(f"Stopped. What is done is kept in {target}; the same command goes on from there.")
    except ValueError as error:
        refuse(str(error))
    except OSError as error:
        fail(f"{error}; what is done is kept, and the same command goes on from there")
    screen.print(work.claims_table(chosen, target, became))
    say_written(target)
    if page is not None:
        publish(target, page, list(known.values()))
    if len(chosen) == 1 and became[chosen[0].id] not in ("done", "kept"):
        raise typer.Exit(BAD_END)


def say_what_it_takes(experiments: "list[Experiment]", out: Path, size: str, seeds: int) -> None:
    """Forecast the experiments, and say what was found."""
    from cofed.experiments import expected

    try:
        found = expected.expect(experiments, out, size, seeds)
    except KeyboardInterrupt:
        stop(f"Stopped. What was found is kept in {out}.")
    except ValueError as error:
        refuse(str(error))
    except OSError as error:
        fail(str(error))
    Console().print(expected.table(found))


def choose(known: "dict[str, Experiment]", ids: list[str], everything: bool) -> "list[Experiment]":
    """The experiments that were asked for."""
    if everything and ids:
        refuse(f"give --all or names of experiments, not both (got {', '.join(ids)})")
    wanted = list(known) if everything else list(dict.fromkeys(ids))
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, list(known), 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            refuse(f"there is no experiment {name!r}{hint}; `cofed reproduce --list` lists them")
    if not wanted:
        refuse("name at least one experiment, or give --all; `cofed reproduce --list` lists them")
    return [known[name] for name in wanted]


def use_data_folder(given: Path | None) -> None:
    """Let the datasets read from this folder, or check the one that the environment names."""
    if given is not None:
        if not given.is_dir():
            refuse(f"--data: there is no folder {given}")
        os.environ["COFED_DATA"] = str(given)
    elif (named := os.environ.get("COFED_DATA")) and not Path(named).expanduser().is_dir():
        refuse(f"COFED_DATA: there is no folder {named}")


def publish(results: Path, page: Path, experiments: "list[Experiment]") -> None:
    """Write the page of all results that are finished."""
    from cofed.experiments import page as pages

    try:
        shown = pages.publish(results, writable_folder(page, "--page"), experiments)
    except OSError as error:
        fail(str(error))
    Console().print(f"Page: {shown}", style="dim", highlight=False)
