"""What it took to come within a gap of the optimum: rounds, bytes, gradients, and seconds by a simple model."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from cofed.race.knowledge import GAPS, Knowledge, known
from cofed.race.measure import Pairing

COSTS = ("rounds", "bytes", "gradients", "seconds")


@dataclasses.dataclass(frozen=True)
class CostModel:
    """Simulated seconds: rounds * latency + bytes / bandwidth + gradients * gradient_seconds."""

    latency: float = 0.1  # seconds of a round, whatever is sent
    bandwidth: float = 1e6  # bytes per second, of all clients together
    gradient_seconds: float = 0.01  # of one pass over a client's samples; clients work at the same time

    def seconds(self, rounds: np.ndarray, sent: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """The seconds of so many rounds, bytes and gradients.

        >>> import numpy as np
        >>> from cofed.race.costs import CostModel
        >>> CostModel().seconds(np.array([10.0]), np.array([1e6]), np.array([100.0])).tolist()
        [3.0]
        """
        return rounds * self.latency + sent / self.bandwidth + gradients * self.gradient_seconds


def arrival(objective: np.ndarray, wanted: float) -> float:
    """The first round after which the objective is as small as wanted; infinity where it never is.

    >>> import numpy as np
    >>> from cofed.race.costs import arrival
    >>> arrival(np.array([3.0, 0.5, 2.0, 0.1]), 0.5), arrival(np.array([3.0, np.nan]), 0.5)
    (2.0, inf)
    """
    there = np.flatnonzero(np.asarray(objective) <= wanted)
    return float(there[0] + 1) if there.size else np.inf


def gather(chosen: Sequence[Pairing], folder: Path, model: CostModel) -> pd.DataFrame:
    """A row for each pairing and gap, with the least of each cost over the pairing's configurations.

    Each cost has its own best configuration; `setting` and `local_steps` are those of the fewest seconds. What did not
    come within the gap has no numbers. Pairings that are not finished are left out.
    """
    results = {pairing: rows for pairing in chosen if (rows := pairing.read(folder)) is not None}
    lowest: dict[str, float] = {}
    for pairing, rows in results.items():
        seen = [float(np.nanmin(curve)) for curve in rows["objective"] if np.isfinite(curve).any()]
        lowest[pairing.problem.name] = min([lowest.get(pairing.problem.name, np.inf), *seen])
    return pd.DataFrame(
        [
            cheapest(pairing, rows, gap, known(pairing.problem, folder), lowest[pairing.problem.name], model)
            for pairing, rows in results.items()
            for gap in GAPS
        ]
    )


def cheapest(
    pairing: Pairing, rows: pd.DataFrame, gap: float, knowledge: Knowledge, lowest: float, model: CostModel
) -> dict[str, object]:
    """What a pairing took to come within a gap, each cost by its own best configuration."""
    wanted = knowledge.within(gap, None if pairing.problem.convex else lowest)
    rounds = np.array([arrival(curve, wanted) for curve in rows["objective"]])
    sent = rounds * rows["bytes_per_round"].to_numpy() + rows["first_bytes"].to_numpy()
    gradients = rounds * rows["gradients_per_round"].to_numpy()
    costs = dict(zip(COSTS, (rounds, sent, gradients, model.seconds(rounds, sent, gradients)), strict=True))
    found: dict[str, object] = {"problem": pairing.problem.name, "algorithm": pairing.entrant.name, "gap": gap}
    found |= {name: least(values) for name, values in costs.items()}
    fastest = rows.iloc[int(np.argmin(costs["seconds"]))]
    there = np.isfinite(costs["seconds"]).any()
    setting = {
        "setting": fastest["configuration"] if there else "",
        "local_steps": fastest["local_steps"] if there else None,
    }
    return found | setting


def least(values: np.ndarray) -> float:
    """The least of some costs, to five digits; NaN where all are infinite.

    >>> import numpy as np
    >>> from cofed.race.costs import least
    >>> least(np.array([np.inf, 12345678.0]))
    12346000.0
    """
    smallest = float(np.min(values))
    return float(f"{smallest:.5g}") if np.isfinite(smallest) else np.nan
