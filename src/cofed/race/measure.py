"""One algorithm on one problem: its whole grid by `cofed.tune`, with every round evaluated, kept in one file."""

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

import cofed
from cofed._util.files import atomically, file_stem
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.ranking import AllDiverged, Tuning, described
from cofed.engine.spec import RunSpec
from cofed.race.entrants import FACTORS, FEWER, Entrant
from cofed.race.knowledge import GAPS, Knowledge, known, posed
from cofed.race.problems import RaceProblem
from cofed.race.work import round_cost

FORMAT = 1  # of the files; a file of another is made again
# A method in stages splits its rounds over them, so it is also given these parts of the rounds.
BUDGETS = (1 / 16, 1 / 4, 1.0)
FIRST = 512  # rounds that are run first: where a configuration reaches the smallest gap in these, no more are run


@dataclasses.dataclass(frozen=True)
class Pairing:
    """One algorithm on one problem."""

    problem: RaceProblem
    entrant: Entrant

    def path(self, folder: Path) -> Path:
        """Its file."""
        return folder / "results" / self.problem.name / f"{file_stem(self.entrant.name)}.parquet"

    @property
    def definition(self) -> str:
        """What the numbers depend on: with another definition they are made again."""
        asked = [FORMAT, dataclasses.asdict(self.problem), self.entrant.name, FACTORS, FEWER, BUDGETS, FIRST]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]

    def read(self, folder: Path) -> pd.DataFrame | None:
        """Its rows, one for each configuration; None where they are not made yet, or for another definition."""
        path = self.path(folder)
        if not path.exists():
            return None
        try:
            rows = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} is damaged; delete it to run its part again") from error
        return rows if set(rows["definition"]) == {self.definition} else None


def measure(pairing: Pairing, folder: Path) -> None:
    """Run a pairing, and write its file."""
    knowledge = known(pairing.problem, folder)
    tried = pairing.entrant.local_steps(pairing.problem.local_steps)
    rows = [row for steps in tried for row in configurations(pairing, knowledge, steps)]
    table = pd.DataFrame(rows).assign(
        problem=pairing.problem.name, algorithm=pairing.entrant.name, definition=pairing.definition
    )
    atomically(pairing.path(folder), lambda name: table.to_parquet(name, index=False, compression="zstd"))
    jax.clear_caches()  # no other pairing has the same programs, and those of all 480 would take 20 GB


def configurations(pairing: Pairing, knowledge: Knowledge, steps: int) -> Iterator[dict[str, Any]]:
    """A row for each configuration with so many local steps (on average, where they are drawn)."""
    asked, entrant = pairing.problem, pairing.entrant
    problem, federation, topology = posed(asked)
    grid = entrant.grid(knowledge, steps)
    for rounds in budgets(grid[0], pairing):
        common: dict[str, Any] = {
            "rounds": rounds,
            "local_steps": entrant.most_steps(steps),
            "batch_size": asked.batch_size,
            "topology": topology,
            "evaluate_every": 1,
        }
        first = rounds if staged(grid[0], pairing) else min(FIRST, rounds)
        tuning = tuned(pairing, grid, common | {"rounds": first})
        if first < rounds and not arrived(tuning, knowledge):
            tuning = tuned(pairing, grid, common)
        for algorithm, curve in zip(grid, objectives(tuning), strict=True):
            cost = round_cost(RunSpec(problem, federation, algorithm, **common))
            yield {
                "configuration": described(algorithm),
                "local_steps": steps,
                "bytes_per_round": cost.bytes,
                "first_bytes": cost.first_bytes,
                "gradients_per_round": cost.gradients,
                "objective": np.asarray(curve, np.float64),
            }


def objectives(tuning: Tuning) -> np.ndarray:
    """The curves of a grid. Without a server the worst node counts: that is the model that somebody is left with."""
    return tuning.curves["objective_max" if "objective_max" in tuning.curves else "objective"]


def arrived(tuning: Tuning, knowledge: Knowledge) -> bool:
    """Whether a configuration of the grid has come within the smallest gap."""
    return knowledge.optimum is not None and bool(np.any(objectives(tuning) <= knowledge.within(min(GAPS))))


def staged(algorithm: AbstractAlgorithm, pairing: Pairing) -> bool:
    """Whether a method splits its rounds over several stages."""
    return len(algorithm.stages(posed(pairing.problem).problem, pairing.problem.rounds, 1)) > 1


def budgets(algorithm: AbstractAlgorithm, pairing: Pairing) -> list[int]:
    """How many rounds a method is given: several numbers where it has stages, as these depend on it."""
    rounds = pairing.problem.rounds
    return [round(part * rounds) for part in BUDGETS] if staged(algorithm, pairing) else [rounds]


def tuned(pairing: Pairing, grid: list[AbstractAlgorithm], settings: dict[str, Any]) -> Tuning:
    """The grid's curves; a configuration that diverges has a curve too, up to there."""
    problem, federation, _ = posed(pairing.problem)
    with warnings.catch_warnings():
        # A method that leaves a constraint has no finite objective: it does not come near the optimum.
        warnings.filterwarnings("ignore", message=r".*is not finite", category=RuntimeWarning)
        try:
            found = cofed.tune(problem, federation, grid, progress=False, **settings)
        except AllDiverged as error:
            return error.tuning
    if found.outcome is cofed.Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    return found
