"""What a run tells: its history, its traffic, its outcome and its result."""

import dataclasses
import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import PyTree

from cofed._util import checks
from cofed._util.files import atomically
from cofed._util.spreadsheets import to_csv

COLUMNS = ("round", "objective", "loss", "prox_gradient", "density", "rank", "accuracy", "test_loss", "test_accuracy")
NOT_FINITE = "its update is not finite"


class Outcome(enum.Enum):
    """How a run ended."""

    COMPLETED = "all rounds were done"
    INTERRUPTED = "stopped by the user; the model is that of the last finished round"
    DIVERGED = "the model was about to become non-finite (it is the last good one), or ended far worse than it began"
    STARVED = "too few clients answered for longer than the time limit; the model is that of the last finished round"


@dataclasses.dataclass(frozen=True)
class Communication:
    """Bytes on the wire: per client and round (the sizes of `down` and `up`), and in total.

    By gossip nothing comes down: `up_per_client` is one message to one neighbour, `per_edge` what a link carries in a
    round (both ways) and `per_node` what each node sends in a round, where no link fails; `up` counts each once.
    """

    down_per_client: int
    up_per_client: int
    down: int
    up: int
    per_edge: int | None = None
    per_node: tuple[int, ...] | None = None

    @property
    def total(self) -> int:
        """All bytes, both ways."""
        return self.down + self.up


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """A client whose update did not count in its round: it was not finite or, over a network, did not come."""

    round: int
    client: str
    why: str = NOT_FINITE

    def entries(self) -> list[int | str]:
        """What a checkpoint says of it; the usual reason goes without saying."""
        return [self.round, self.client] if self.why == NOT_FINITE else [self.round, self.client, self.why]


@dataclasses.dataclass
class History:
    """One row per evaluated round; row 0 is the start.

    Columns: round, objective, loss (the smooth part), prox_gradient (||w - prox_1(w - grad F(w))||, zero at stationary
    points), density or rank where the regularizer has one, accuracy where the loss has one, test_loss and
    test_accuracy with an evaluation federation, own metrics, participants and left_out (since the row before),
    bytes_down and bytes_up (so far), seconds (so far, without compilation), stage. Without a server also consensus
    (the root mean squared distance of the nodes' models from the federation's) and, of the nodes' own models, the
    objective_min, _mean and _max (where nodes x samples is at most 10^7) and those of every own metric. Personal
    methods: personal_loss, _objective, _accuracy, _test_loss and _test_accuracy, the weighted means of what each
    client's own model gives on that client's own data, and the _min, _mean and _max of every own metric over clients.

    >>> History([{"round": 0, "objective": 2.0}], [], []).to_pandas()["objective"].tolist()
    [2.0]
    """

    rows: list[dict[str, Any]]
    left_out: list[LeftOut]
    client_losses: list[tuple[int, np.ndarray]]  # (round, loss of each client), where asked for
    names: Sequence[str] = ()
    compile_seconds: float = 0.0

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a table."""
        table = pd.DataFrame(self.rows)
        first = [name for name in COLUMNS if name in table]
        return table.loc[:, first + [name for name in table if name not in first]]

    def clients(self) -> pd.DataFrame:
        """The loss of the model at each client in each evaluated round (with `per_client=True`), clients as columns."""
        if not self.client_losses:
            raise ValueError("the run did not record values per client; pass per_client=True")
        rounds, values = zip(*self.client_losses, strict=True)
        return pd.DataFrame(np.stack(values), index=pd.Index(rounds, name="round"), columns=list(self.names))

    def to_csv(self, path: str | Path) -> None:
        """Write the rows as CSV."""
        to_csv(self.to_pandas(), checks.file_to_write("path", path))

    def to_parquet(self, path: str | Path) -> None:
        """Write the rows as Parquet."""
        path = checks.file_to_write("path", path)
        atomically(path, lambda f: self.to_pandas().to_parquet(f, index=False), shown=True)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, column: str) -> np.ndarray:
        if not self.rows or column not in self.rows[0]:
            known = list(self.rows[0]) if self.rows else []
            raise KeyError(f"the history has no column {column!r}; it has {known}")
        return np.array([row[column] for row in self.rows])


@dataclasses.dataclass
class Log:
    """What a run has recorded so far."""

    history: History
    models: list[PyTree]
    down: int = 0
    up: int = 0
    seconds: float = 0.0
    unreported: int = 0  # clients left out since the last row


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run gives back.

    `model` is the last model, `average` the averaged one where the method defines it, `models` the models after every
    round (entry 0 is the start) with `keep_models=True`. Personal methods and gossip have a model for each client:
    `personal_models`, stacked in the clients' order, and `clients`, a table of their scores, each on its own data (and
    on its held-out part). `choice` says how a method that chooses has chosen.
    """

    model: Any
    history: History
    outcome: Outcome
    communication: Communication
    models: list[Any] | None = None
    average: Any = None
    personal_models: Any = None
    clients: pd.DataFrame | None = dataclasses.field(default=None, repr=False)
    choice: Any = None
    state: PyTree = dataclasses.field(default=None, repr=False)

    def __repr__(self) -> str:
        row = self.history.rows[-1]
        return (
            f"Result({self.outcome.name.lower()} after {row['round']} rounds, objective {row['objective']:.6g}, "
            f"{self.communication.total:,} bytes)"
        )
