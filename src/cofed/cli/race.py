"""`cofed race`"""

import difflib
import shlex
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cofed.cli import values
from cofed.cli.messages import fail, refuse, say_written, stop
from cofed.cli.options import between, names, writable_folder

if TYPE_CHECKING:
    import pandas as pd

    from cofed.race.costs import CostModel
    from cofed.race.entrants import Entrant
    from cofed.race.problems import RaceProblem


def race(
    quick: Annotated[bool, typer.Option("--quick", help="Three small problems: about a minute.")] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="List problems and methods, who does not fit what, and exit.")
    ] = False,
    problems: Annotated[
        str | None,
        typer.Option(
            help="Only these problems, with commas between them.",
            autocompletion=values.race_problems,
            show_default=False,
        ),
    ] = None,
    algorithms: Annotated[
        str | None,
        typer.Option(
            help="Only these algorithms, with commas between them.",
            autocompletion=values.race_algorithms,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; by default cofed-race/quick or /full.", show_default=False),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(callback=between(1), help="Processes; by default as many as cores.", show_default=False),
    ] = None,
    latency: Annotated[float, typer.Option(min=0, help="Simulated seconds of a round, whatever is sent.")] = 0.1,
    bandwidth: Annotated[float, typer.Option(min=1, help="Simulated bytes per second, of all clients together.")] = 1e6,
    gradient_seconds: Annotated[
        float, typer.Option(min=0, help="Simulated seconds of a client's pass over its samples.")
    ] = 0.01,
    page: Annotated[
        Path | None, typer.Option(help="Write the page, its figures and numbers there too.", show_default=False)
    ] = None,
    readme: Annotated[
        Path | None, typer.Option(help="Write the table into this page, between its marks.", show_default=False)
    ] = None,
) -> None:
    """Race all algorithms over a battery of problems: which one wins when?

    Every algorithm that fits runs on every problem, each with its own small grid of step sizes around theory. What is
    counted: rounds, bytes, gradients and simulated seconds until the objective is within 1e-2, 1e-4 and 1e-8 of the
    optimum. The folder gets a page with a table, performance profiles and all numbers. What is finished is not run
    again, so that other prices (--latency, --bandwidth, --gradient-seconds) cost nothing.

    Example: cofed race --quick
    """
    from cofed._util import programs
    from cofed._util.machine import cores

    programs.compile_sooner()  # the problems are small: compiling takes longer than running
    from cofed.race import costs, field
    from cofed.race.problems import battery, small_battery

    known = small_battery() if quick else battery()
    chosen = {name: known[name] for name in picked(names(problems), known, "problem")}
    methods = picked_methods(names(algorithms))
    if listed:
        show_list(chosen.values(), methods)
        return
    target = writable_folder(out or Path("cofed-race") / ("quick" if quick else "full"))
    if readme is not None:
        check_readme(readme)
    asked = field.pairings(chosen.values(), methods)
    if not asked:
        refuse("none of these algorithms fits any of these problems; `cofed race --list` says why")
    model = costs.CostModel(latency, bandwidth, gradient_seconds)
    try:
        field.race(asked, target, min(jobs or cores(), cores(), len(asked)))
        table = costs.gather(asked, target, model)
        publish(table, chosen, model, [target, *([] if page is None else [page])], readme)
    except KeyboardInterrupt:
        stop(f"Stopped. What is done is kept in {target}; the same command goes on from there.")
    except ValueError as error:
        refuse(str(error))
    except OSError as error:
        fail(f"{error}; what is done is kept, and the same command goes on from there")
    say_written(target)


def check_readme(path: Path) -> None:
    """Refuse a page that the table cannot be written into, before anything runs."""
    from cofed.race import table

    try:
        table.replaced(path.read_text(), "")
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"--readme: {path} cannot be read: {error}")
    except ValueError as error:
        refuse(f"--readme: {path}: {error}")


def picked(wanted: list[str] | None, known: Collection[str], what: str) -> list[str]:
    """The names that were asked for; all of them where none were."""
    if wanted is not None and not wanted:
        refuse(f"no {what} is named: leave the option out for all of them; `cofed race --list` lists them")
    for name in wanted or []:
        if name not in known:
            near = difflib.get_close_matches(name, list(known), 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            refuse(f"there is no {what} {name!r}{hint}; `cofed race --list` lists them")
    return list(known) if not wanted else list(dict.fromkeys(wanted))


def picked_methods(wanted: list[str] | None) -> "list[Entrant]":
    """The methods that were asked for, each with all its flags; all of them where none were."""
    from cofed.race.entrants import entrants

    everybody = list(entrants())
    chosen = picked(wanted, dict.fromkeys(entrant.method.__name__ for entrant in everybody), "algorithm")
    return [entrant for entrant in everybody if entrant.method.__name__ in chosen]


def show_list(problems: "Iterable[RaceProblem]", methods: "list[Entrant]") -> None:
    """Print the problems with those that race on each, and why the others do not."""
    from cofed.race import field
    from cofed.race.problems import FAMILIES

    screen = Console(highlight=False, soft_wrap=True)
    reasons: dict[str, dict[str, int]] = {}
    for problem in problems:
        found = list(field.matches([problem], methods))
        racing = [entrant.name for _, entrant, reason in found if reason is None]
        screen.print(f"[bold]{problem.name}[/bold]  {FAMILIES[problem.family].words}: {', '.join(racing) or 'nobody'}")
        for _, entrant, reason in found:
            if reason is not None:
                counted = reasons.setdefault(entrant.name, {})
                counted[reason] = counted.get(reason, 0) + 1
    screen.print("\nWho does not race, on how many of these problems:")
    for name, counted in reasons.items():
        for reason, count in counted.items():
            screen.print(f"  {name}: {reason} ({count})", style="dim")


def publish(
    costs: "pd.DataFrame",
    problems: "dict[str, RaceProblem]",
    model: "CostModel",
    folders: list[Path],
    readme: Path | None,
) -> None:
    """Write the pages, print the table, and write it into a page of the user's."""
    from rich.markdown import Markdown

    from cofed._util.files import atomically
    from cofed.race import page, table

    command = shlex.join(["cofed", *sys.argv[1:]])
    for folder in folders:
        page.write(costs, problems, model, command, folder)
    Console().print(Markdown(table.which(costs, problems)))
    if readme is not None:
        text = table.replaced(readme.read_text(), table.section(costs, problems))
        atomically(readme, lambda name: Path(name).write_text(text), shown=True)
