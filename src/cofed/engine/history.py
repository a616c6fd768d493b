"""What a run returns: its history, its communication, its outcome and its result."""

import dataclasses
import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import PyTree

from cofed._util import checks
from cofed._util.files import atomically
from cofed._util.spreadsheets import to_csv
from cofed._util.types import Given
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.drawn_clients import ClockedClients, DrawnClients
from cofed.engine.saved import write_model, write_results

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
    """Bytes on the wire, per client and round and in total.

    Parameters
    ----------
    down_per_client : int
        What one client receives in a round. Without a server, 0.
    up_per_client : int
        What one client sends in a round. Without a server, one message to one neighbour.
    down, up : int
        The totals of the run. Without a server, `up` counts every message once.
    per_edge : int or None
        Without a server, what a link carries in a round, both ways, if it does not fail.
    per_node : tuple of int or None
        Without a server, what each node sends in a round if no link fails.
    """

    down_per_client: int
    up_per_client: int
    down: int
    up: int
    per_edge: int | None = None
    per_node: tuple[int, ...] | None = None

    @property
    def total(self) -> int:
        """All bytes of the run, in both directions."""
        return self.down + self.up


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """A client whose update was left out of a round: it was not finite or, over a network, did not arrive.

    Parameters
    ----------
    round : int
        The round.
    client : str
        The client's name.
    why : str
        The reason.
    """

    round: int
    client: str
    why: str = NOT_FINITE

    def entries(self) -> list[int | str]:
        """The event as a checkpoint holds it: round, client and, unless it is the usual one, the reason."""
        return [self.round, self.client] if self.why == NOT_FINITE else [self.round, self.client, self.why]

    @classmethod
    def of(cls, entries: Sequence[int | str]) -> "LeftOut":
        """The event that a checkpoint holds.

        Parameters
        ----------
        entries : sequence
            What `entries()` gave.
        """
        round, client, *why = entries
        return cls(int(round), str(client), *map(str, why))


@dataclasses.dataclass
class History:
    """The history of a run: one row per evaluated round; row 0 is the start.

    `len(history)` is the number of rows, and `history["objective"]` a column as an array.

    Parameters
    ----------
    rows : list of dict
        The rows, by column; see the notes.
    left_out : list of LeftOut
        The updates that did not count.
    client_rows : list of tuple
        Evaluated rounds and the columns of `clients()`, as arrays by name, with `per_client=True`.
    names : sequence of str
        The clients' names.
    test_names : sequence of str
        Those of the held-out data.
    compile_seconds : float
        Seconds that compilation took.
    drawn : DrawnClients or ClockedClients, optional
        Who takes part in which round, for `participants()`.

    Notes
    -----
    The columns are

    - round, objective, loss (the smooth part), and prox_gradient (||w - prox_1(w - grad F(w))||, which is zero at
      stationary points);
    - density or rank, where the regularizer has one; accuracy, where the loss has one;
    - test_loss and test_accuracy, with an evaluation federation;
    - the metrics of your own; those that see data also as test_..., on the evaluation federation;
    - simulated_seconds, where the run has a clock;
    - participants and left_out (since the row before), bytes_down and bytes_up (so far), seconds (so far, without
      compilation), stage.

    Without a server also consensus (the root mean squared distance of the nodes' models from the federation's) and,
    over the nodes' own models, objective_min, _mean and _max (where nodes x samples is at most 10^7) and those of every
    own metric. Personal methods have personal_loss, _objective, _accuracy, _test_loss and _test_accuracy, the weighted
    means of each client's own model on its own data, and the _min, _mean and _max of every own metric over clients.

    Examples
    --------
    >>> import cofed
    >>> cofed.History([{"round": 0, "objective": 2.0}], [], []).to_pandas()["objective"].tolist()
    [2.0]
    >>> cofed.History([{"round": 0, "objective": 2.0}, {"round": 5, "objective": 0.5}], [], [])
    History(2 rows, rounds 0 to 5, objective 0.5)
    """

    rows: list[dict[str, Any]]
    left_out: list[LeftOut]
    client_rows: list[tuple[int, dict[str, np.ndarray]]]
    names: Sequence[str] = ()
    test_names: Sequence[str] = dataclasses.field(default=(), kw_only=True)
    compile_seconds: float = 0.0
    drawn: DrawnClients | ClockedClients | None = dataclasses.field(default=None, repr=False)

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a table.

        Returns
        -------
        pandas.DataFrame
            A row per evaluated round, the most important columns first.
        """
        table = pd.DataFrame(self.rows)
        first = [name for name in COLUMNS if name in table]
        return table.loc[:, first + [name for name in table if name not in first]]

    def clients(self, column: Given[str] = "loss") -> pd.DataFrame:
        """How the model does at each client in each evaluated round; of personal methods, the client's own model.

        Parameters
        ----------
        column : str
            "loss", "accuracy" where the loss has one, a metric of yours that sees data, or one of these on the held-out
            data, such as "test_loss".

        Returns
        -------
        pandas.DataFrame
            Rounds as rows, clients as columns; those of the evaluation federation for what begins with "test_".

        Raises
        ------
        ValueError
            Where the run was not made with `per_client=True`, or has no such column.
        """
        if not self.client_rows:
            raise ValueError("the run did not record values per client; pass per_client=True")
        known = list(self.client_rows[0][1])
        if checks.text("column", column) not in known:
            raise ValueError(
                f"column must be one of {', '.join(known)}, which were recorded; got {checks.shown(column)}"
            )
        rounds = pd.Index([round for round, _ in self.client_rows], name="round")
        values = np.stack([each[column] for _, each in self.client_rows])
        return pd.DataFrame(values, index=rounds, columns=list(names_of(self, column)))

    def participants(self) -> pd.DataFrame:
        """Who took part in each round, so that a run can be replayed elsewhere.

        Returns
        -------
        pandas.DataFrame
            A row for each round and client: round (the first is 0), client (by name), and counted (False where its
            update was left out).

        Raises
        ------
        ValueError
            Where it is not known, as of runs over a network.
        """
        if self.drawn is None:
            raise ValueError("this history does not know who took part in its rounds")
        rounds = self.rows[-1]["round"] if self.rows else 0
        table = pd.DataFrame(self.drawn.participants(rounds), columns=["round", "client"])
        lost = {(event.round, event.client) for event in self.left_out}
        table["counted"] = [pair not in lost for pair in zip(table["round"], table["client"], strict=True)]
        return table

    def to_csv(self, path: str | Path) -> None:
        """Write the rows to a CSV file, whole or not at all.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        to_csv(self.to_pandas(), checks.file_to_write("path", path))

    def to_parquet(self, path: str | Path) -> None:
        """Write the rows to a Parquet file, whole or not at all.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        path = checks.file_to_write("path", path)
        atomically(path, lambda f: self.to_pandas().to_parquet(f, index=False), shown=True)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, column: str) -> np.ndarray:
        if not self.rows or column not in self.rows[0]:
            known = list(self.rows[0]) if self.rows else []
            raise KeyError(f"the history has no column {column!r}; it has {known}")
        return np.array([row[column] for row in self.rows])

    def __repr__(self) -> str:
        if not self.rows:
            return "History(0 rows)"
        first, last = self.rows[0], self.rows[-1]
        objective = f", objective {last['objective']:.6g}" if "objective" in last else ""
        return f"History({len(self.rows):,} rows, rounds {first['round']} to {last['round']}{objective})"


def names_of(history: History, column: str) -> Sequence[str]:
    """The clients that a column of `history.clients()` is of."""
    return history.test_names if column.startswith("test_") else history.names


class LogMark(NamedTuple):
    """Where a log stood: the lengths of its lists, and its counts."""

    lengths: tuple[int, int, int, int]
    counts: tuple[int, int, float, int]


@dataclasses.dataclass
class Log:
    """What a run has recorded so far; it grows while the run goes on."""

    history: History
    models: list[PyTree]
    down: int = 0
    up: int = 0
    seconds: float = 0.0
    unreported: int = 0  # clients left out since the last row
    unseen: dict[int, PyTree] = dataclasses.field(default_factory=dict)  # models that callbacks are still to see

    def reopen(self, every: int) -> None:
        """Forget the last row where only the end of the run called for it: it is to have more rounds."""
        history = self.history
        if history.rows[-1]["round"] % every:
            self.unreported += history.rows.pop()["left_out"]
            del history.client_rows[len(history.rows) :]

    def mark(self) -> LogMark:
        """Where the log stands now."""
        history = self.history
        lengths = (len(history.rows), len(history.left_out), len(history.client_rows), len(self.models))
        return LogMark(lengths, (self.down, self.up, self.seconds, self.unreported))

    def rewind(self, mark: LogMark) -> None:
        """Forget what was recorded since the mark."""
        history = self.history
        lists = (history.rows, history.left_out, history.client_rows, self.models)
        for entries, length in zip(lists, mark.lengths, strict=True):
            del entries[length:]
        self.down, self.up, self.seconds, self.unreported = mark.counts
        self.unseen.clear()


@dataclasses.dataclass(frozen=True)
class Result:
    """What `cofed.run` returns.

    Parameters
    ----------
    model : pytree
        The last model, with its parameters as NumPy arrays.
    history : History
        How the run went, one row per evaluated round.
    outcome : Outcome
        How the run ended.
    communication : Communication
        The bytes that were sent.
    models : list of pytrees, optional
        The models after every round, the start first, with `keep_models=True`.
    average : pytree, optional
        The averaged model, where the method defines one.
    personal_models : pytree, optional
        The clients' own models, stacked in the clients' order, of personal methods and without a server.
    clients : pandas.DataFrame, optional
        How each client's own model scores on that client's data, and on its held-out data.
    choice : Choice, optional
        How a method that chooses between others has chosen.
    state : pytree
        The state of server and clients at the end.
    algorithm : AbstractAlgorithm, optional
        The method with the numbers that it ran with, those that were "auto" settled.
    weights : array, optional
        pi_m, what each client counted.
    local_steps : int, optional
        K, the local steps of a round, where all clients took as many.
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
    algorithm: AbstractAlgorithm | None = None
    weights: np.ndarray | None = dataclasses.field(default=None, repr=False)
    local_steps: int | None = None

    def save(self, folder: Given[str | Path], label: Given[str | None] = None) -> None:
        """Write the history, the model and what ran into a folder of its own, which `cofed report folder` shows.

        Parameters
        ----------
        folder : str or Path
            A new folder, or one without a result: config.json, numbers.parquet and model.safetensors are written.
        label : str, optional
            What the run is called in the report; None is the method's name.
        """
        ended = {"outcome": self.outcome.name.lower(), "bytes": self.communication.total}
        place = write_results(folder, label, self.algorithm, self.history.to_pandas(), ended)
        write_model(place / "model.safetensors", self.model)

    def __repr__(self) -> str:
        row = self.history.rows[-1]
        return (
            f"Result({self.outcome.name.lower()} after {row['round']} rounds, objective {row['objective']:.6g}, "
            f"{self.communication.total:,} bytes)"
        )
