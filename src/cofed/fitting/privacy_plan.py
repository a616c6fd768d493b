"""Differential privacy of a fit by command: what it may cost, and a file of what columns are guessed to be like."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from cofed._util import naming
from cofed.privacy import Privacy
from cofed.sites import read_table

COLUMNS = ("column", "centre", "spread")  # of the file


@dataclasses.dataclass(frozen=True)
class PrivacyPlan:
    """What the rows of a fit are protected by.

    Attributes
    ----------
    epsilon, delta : float
        The privacy loss of the whole fit, and the probability that goes with it.
    guesses : mapping of str to (float, float)
        The guessed mean and standard deviation of columns, the target among them; 0 and 1 where there are none.

    Examples
    --------
    >>> from cofed.fitting.privacy_plan import PrivacyPlan
    >>> plan = PrivacyPlan(1.0, guesses={"age": (60.0, 12.0), "cost": (4.0, 1.0)})
    >>> plan.settings(["age", "ward", "ward"], "cost").centre
    (60.0, 0.0, 0.0)
    """

    epsilon: float
    delta: float = 1e-6
    guesses: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        try:
            Privacy(self.epsilon, self.delta)
        except ValueError as error:
            raise ValueError(str(error).replace("Privacy: ", "--", 1)) from None

    def check_columns(self, known: Collection[str]) -> None:
        """Refuse guesses of columns that are not there."""
        strange = [name for name in self.guesses if name not in known]
        if strange:
            raise ValueError(
                f"--guesses: there is no column {naming.listed(strange)} in the fit; it has {naming.listed(known)}"
            )

    def settings(self, columns: Sequence[str], target: str) -> Privacy:
        """What an estimator takes; `columns` has the column that each feature is of."""
        centre, spread = zip(*(self.guesses.get(name, (0.0, 1.0)) for name in columns), strict=True)
        label = self.guesses.get(target, (0.0, 1.0))
        return Privacy(self.epsilon, self.delta, centre, spread, *label)


def read_guesses(path: Path) -> dict[str, tuple[float, float]]:
    """Guesses from a table with the columns `column`, `centre` and `spread`."""
    table = read_table(path)
    if set(table.columns) != set(COLUMNS):
        raise ValueError(
            f"--guesses: {path} must have the columns {', '.join(COLUMNS)}, and has {naming.listed(table.columns)}"
        )
    found: dict[str, tuple[float, float]] = {}
    for row in table.to_dict("records"):
        name = str(row["column"])
        try:
            centre, spread = float(row["centre"]), float(row["spread"])
            Privacy(1, centre=centre, spread=spread)
        except (TypeError, ValueError):
            raise ValueError(
                f"--guesses: {path} must give {name!r} a finite centre and a spread > 0, got {row['centre']!r} and "
                f"{row['spread']!r}"
            ) from None
        if name in found:
            raise ValueError(f"--guesses: {path} has {name!r} twice")
        found[name] = centre, spread
    return found
