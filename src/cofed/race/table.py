"""Which algorithm when: the best of each cost in each situation, from the race's costs alone.

The rule is fixed: within a situation and for a cost, the method that came within the gap on the most problems is the
best; among equals the one whose ratio to the best method of each problem has the smallest geometric mean.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from cofed.race.costs import COSTS
from cofed.race.knowledge import GAPS
from cofed.race.problems import FAMILIES, RaceProblem
from cofed.race.profiles import ratios

BEGIN, END = "<!-- from the race: begin -->", "<!-- from the race: end -->"
WITHIN = 1.25  # a second method is named where it takes at most so many times what the first takes


class Situation(NamedTuple):
    """A kind of problem that a reader may have."""

    words: str
    holds: Callable[[RaceProblem], bool]


def kind(problem: RaceProblem) -> str:
    """The kind of a problem's family."""
    return FAMILIES[problem.family].kind


def served(problem: RaceProblem) -> bool:
    """Whether there is a server, a convex problem, and full gradients."""
    return problem.graph is None and problem.convex and problem.batch_size is None


SITUATIONS = (
    Situation("smooth, no regularizer", lambda p: served(p) and kind(p) == "smooth"),
    Situation("sparse: an L1 penalty", lambda p: served(p) and kind(p) == "sparse"),
    Situation("groups, low rank, a constraint", lambda p: served(p) and kind(p) == "structured"),
    Situation("clients alike", lambda p: served(p) and p.heterogeneity == 0),
    Situation("clients very different", lambda p: served(p) and p.heterogeneity >= 2),
    Situation("ill-conditioned", lambda p: served(p) and p.conditioning >= 1000),
    Situation("gradients of small batches", lambda p: p.graph is None and p.convex and p.batch_size is not None),
    Situation("not convex: MCP, a network", lambda p: p.graph is None and not p.convex),
    Situation("no server: a graph", lambda p: p.graph is not None and p.batch_size is None),
    Situation("no server, small batches", lambda p: p.graph is not None and p.batch_size is not None),
)


class Place(NamedTuple):
    """How a method did in a situation."""

    method: str
    arrived: int  # problems on which it came within the gap
    of: int  # problems of the situation
    ratio: float  # the geometric mean, over these problems, of its cost over the best one's


def ranking(costs: pd.DataFrame, cost: str) -> list[Place]:
    """The methods by a cost, the best first; those that never arrived are left out.

    >>> import numpy as np
    >>> import pandas as pd
    >>> from cofed.race.table import ranking
    >>> costs = pd.DataFrame({
    ...     "problem": ["a", "a", "b", "b"], "algorithm": ["X", "Y"] * 2, "rounds": [10.0, 20.0, np.nan, 5.0]})
    >>> [(place.method, place.arrived, round(place.ratio, 3)) for place in ranking(costs, "rounds")]
    [('Y', 2, 1.414), ('X', 1, 1.0)]
    """
    table = ratios(costs, cost)
    places = []
    for method in table:
        there = table[method][np.isfinite(table[method])]
        if len(there):
            mean = float(np.exp(np.mean(np.log(there))))
            places.append(Place(str(method), len(there), len(set(costs["problem"])), mean))
    return sorted(places, key=lambda place: (-place.arrived, place.ratio, place.method))


def of_situation(costs: pd.DataFrame, situation: Situation, problems: Mapping[str, RaceProblem]) -> pd.DataFrame:
    """The costs of the problems of a situation."""
    return costs.loc[[situation.holds(problems[name]) for name in costs["problem"]], :]


def tightest(costs: pd.DataFrame) -> float:
    """The smallest gap that some method reaches on every problem; the largest gap where none does."""
    for gap in sorted(GAPS):
        places = ranking(costs.loc[costs["gap"] == gap, :], "rounds")
        if places and places[0].arrived == places[0].of:
            return gap
    return max(GAPS)


def cell(places: Sequence[Place]) -> str:
    """The best method, and the next where it is close, as Markdown."""
    if not places:
        return "none arrived"
    close = [place for place in places[1:2] if place.arrived == places[0].arrived]
    close = [place for place in close if place.ratio <= WITHIN * places[0].ratio]
    return ", ".join(shown(place) for place in (places[0], *close))


def shown(place: Place) -> str:
    """A method as code, with how often it arrived where that was not always."""
    name, _, flags = place.method.partition(" ")
    some = "" if place.arrived == place.of else f" ({place.arrived} of {place.of})"
    return f"`{name}{flags}`{some}"


def which(costs: pd.DataFrame, problems: Mapping[str, RaceProblem], gap: float | None = None) -> str:
    """The table, as Markdown: a row for each situation, a column for each cost.

    The gap is the smallest that some method reaches on every problem of the situation, in a column of its own, unless
    one is given for all.
    """
    level = ["to a gap of"] * (gap is None)
    heads = ["your problem", *level, "fewest rounds", "fewest bytes", "fewest local gradients", "soonest (simulated)"]
    lines = [row(heads), row(["---"] * len(heads))]
    for words, count, reached, cells in found(costs, problems, COSTS, gap):
        lines.append(row([f"{words} ({count})", *[power(reached)] * (gap is None), *cells]))
    return "\n".join(lines)


def brief(costs: pd.DataFrame, problems: Mapping[str, RaceProblem]) -> str:
    """The same for a first look: rounds and bytes alone, situations with one answer in one row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for words, _, _, cells in found(costs, problems, ("rounds", "bytes")):
        alike.setdefault(cells, []).append(words)
    heads = ["your problem", "fewest rounds", "fewest bytes"]
    lines = [row(heads), row(["---"] * len(heads))]
    return "\n".join([*lines, *(row(["; ".join(words), *cells]) for cells, words in alike.items())])


def found(
    costs: pd.DataFrame, problems: Mapping[str, RaceProblem], of: Sequence[str], gap: float | None = None
) -> Iterator[tuple[str, int, float, tuple[str, ...]]]:
    """Each situation in words, how many problems it has, the gap, and the best methods by these costs."""
    for situation in SITUATIONS:
        own = of_situation(costs, situation, problems)
        if not own.empty:
            level = tightest(own) if gap is None else gap
            cells = tuple(cell(ranking(own.loc[own["gap"] == level, :], cost)) for cost in of)
            yield situation.words, len(set(own["problem"])), level, cells


def row(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def power(gap: float) -> str:
    """A gap as it is written.

    >>> from cofed.race.table import power
    >>> power(1e-8)
    '1e-8'
    """
    return f"{gap:.0e}".replace("e-0", "e-")


def section(costs: pd.DataFrame, problems: Mapping[str, RaceProblem]) -> str:
    """What the README says of it: between two marks, so that it can be written again."""
    methods, count = len(set(costs["algorithm"])), len(set(costs["problem"]))
    return "\n".join(
        [
            BEGIN,
            brief(costs, problems),
            "",
            f"Found by `cofed race`, {methods} methods on {count} small problems; what `FedNewton` sends grows with",
            "the square of the model. Rules and figures: [the race](docs/race/README.md). Larger models:",
            "[how to choose](docs/choose.md).",
            END,
        ]
    )


def replaced(text: str, section: str) -> str:
    """A page with its section from the race written again.

    >>> from cofed.race.table import BEGIN, END, replaced
    >>> replaced(f"a {BEGIN} old {END} b", f"{BEGIN} new {END}") == f"a {BEGIN} new {END} b"
    True
    """
    if BEGIN not in text or END not in text:
        raise ValueError(f"the page has no section from the race: put {BEGIN} and {END} where it belongs")
    return text[: text.index(BEGIN)] + section + text[text.index(END) + len(END) :]
