"""The page of the race: tables, figures, and the numbers from which both are made."""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from cofed._util.files import atomically
from cofed._util.machine import processor
from cofed.engine.recorded import made_by
from cofed.race import profiles, table
from cofed.race.costs import COSTS, CostModel
from cofed.race.knowledge import GAPS
from cofed.race.problems import FAMILIES, RaceProblem

NUMBERS = "costs.csv"
RULES = Path(__file__).with_name("rules.md")


def write(
    costs: pd.DataFrame, problems: Mapping[str, RaceProblem], model: CostModel, command: str, folder: Path
) -> Path:
    """Write the page, its figures and its numbers into a folder, and say where the page is."""
    folder.mkdir(parents=True, exist_ok=True)
    atomically(folder / NUMBERS, lambda name: costs.to_csv(name, index=False), shown=True)
    on_graph = np.array([problems[name].graph is not None for name in costs["problem"]], dtype=bool)
    figures = []
    for words, name, part in (
        ("With a server", "profiles-server.png", costs.loc[~on_graph, :]),
        ("Without a server", "profiles-graph.png", costs.loc[on_graph, :]),
    ):
        if not part.empty:
            count = len(set(part["problem"]))
            title = f"{words}: {count} problem{'s' * (count > 1)}, {len(set(part['algorithm']))} methods"
            profiles.draw(part, GAPS, COSTS, title, folder / name)
            figures.append(f"### {words}\n\n![Performance profiles]({name})")
    path = folder / "README.md"
    text = "\n\n".join(sections(costs, problems, model, command, figures)) + "\n"
    atomically(path, lambda name: Path(name).write_text(text), shown=True)
    return path


def read(folder: Path) -> pd.DataFrame:
    """The numbers of a page."""
    return pd.read_csv(folder / NUMBERS)


def sections(
    costs: pd.DataFrame,
    problems: Mapping[str, RaceProblem],
    model: CostModel,
    command: str,
    figures: Sequence[str],
) -> list[str]:
    """The page, part by part."""
    made = ", ".join(f"{name} {version}" for name, version in made_by().items())
    return [
        "# The race",
        f"`{command}`, {datetime.date.today():%d %B %Y}, {made}, {processor()}. Counts (rounds, bytes, gradients) do "
        "not depend on the machine; no clock was read.",
        "## Which algorithm when",
        "Each cell names the method that came within the gap on most problems of its row; among equals, the one with "
        "the smallest geometric mean of its cost over the best method's. A second one is named where it takes at most "
        f"{table.WITHIN:g} times as much. The gap is the smallest that some method reaches on every problem of the "
        "row. The README's table is made of this one, and a test holds both to the numbers.",
        table.which(costs, problems),
        "`DFedDA` runs twice, with gradient tracking and without. What `FedNewton` and `FedNL` send and compute grows "
        "with the square of the model, and these problems have 30 numbers.",
        *(part for gap in GAPS for part in (f"### At a gap of {table.power(gap)}", table.which(costs, problems, gap))),
        RULES.read_text()
        .strip()
        .format(
            latency=model.latency,
            bandwidth=model.bandwidth / 1e6,
            gradient=model.gradient_seconds,
            gaps=", ".join(map(table.power, GAPS)),
        ),
        "## Performance profiles",
        "The height of a curve at x is the part of the problems on which the method took at most x times what the best "
        "method took (Dolan and Moré 2002). A method that never comes within the gap, or does not fit, counts as "
        f"infinite. The {profiles.SHOWN} methods with the most area have colours, the others are grey.",
        *figures,
        "## How often each method arrived",
        arrivals(costs, problems),
        "## The problems",
        described(problems, costs),
        f"All numbers: [{NUMBERS}]({NUMBERS}), a row for each problem, method and gap, with the configuration of the "
        "fewest seconds.",
    ]


def arrivals(costs: pd.DataFrame, problems: Mapping[str, RaceProblem]) -> str:
    """How many problems each method came within each gap on, of those that it fits, as Markdown."""
    heads = [f"within {table.power(gap)}" for gap in GAPS]
    lines = [f"| method | problems | {' | '.join(heads)} |", "| --- | ---: | ---: | ---: | ---: |"]
    for method, own in costs.groupby("algorithm"):
        counts = [int(own.loc[own["gap"] == gap, "rounds"].notna().sum()) for gap in GAPS]
        lines.append(f"| {method} | {len(set(own['problem']))} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def described(problems: Mapping[str, RaceProblem], costs: pd.DataFrame) -> str:
    """The problems and where their dials stand, as Markdown."""
    lines = [
        "| problem | what | heterogeneity | conditioning | batch | graph |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    for name in dict.fromkeys(costs["problem"]):
        one = problems[name]
        batch = "all" if one.batch_size is None else one.batch_size
        dials = f"{one.heterogeneity:g} | {one.conditioning:g} | {batch} | {one.graph or 'a server'}"
        lines.append(f"| {name} | {FAMILIES[one.family].words} | {dials} |")
    return "\n".join(lines)
