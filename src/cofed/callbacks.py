"""Callbacks of a run: what they derive from, early stopping, and the best model so far.

Those that write to files and trackers are in `cofed.loggers`.
"""

import math
from typing import Any

from cofed._util import checks
from cofed._util.types import Given
from cofed.engine.callbacks import AbstractCallback, Row, RunInfo, Snapshot
from cofed.engine.ranking import maximised

__all__ = ["AbstractCallback", "EarlyStopping", "KeepBest", "RunInfo", "Snapshot"]


class KeepBest(AbstractCallback):
    """Keeps the best model of a run.

    Parameters
    ----------
    column : str
        The column of the history that judges: by default the objective. ``"test_loss"`` needs an evaluation federation.
    maximise : bool, optional
        Whether more of it is better. None is what the column says, as for `cofed.tune`.

    Attributes
    ----------
    model : pytree or None
        The best model so far, the first of several equals; of methods with a model for each client the shared one. Of
        a resumed run: of the rows since it was resumed.
    row : dict of str to float or None
        Its row of the history.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> federation = cofed.Federation.from_arrays([(np.eye(2), np.array([1.0, 3.0]))])
    >>> best = cofed.callbacks.KeepBest("loss")
    >>> result = cofed.run(cofed.Problem(), federation, cofed.FedAvg(0.5), rounds=20, callbacks=[best])
    >>> best.row["round"], bool(best.row["loss"] == result.history["loss"].min())
    (20, True)
    """

    def __init__(self, column: Given[str] = "objective", maximise: Given[bool | None] = None):
        self.column = checks.text(f"{self.name}: column", column)
        self.maximise = checks.optional_flag(f"{self.name}: maximise", maximise)
        self.sign = 1.0  # -1 where more is better
        self.model: Any = None
        self.row: Row | None = None

    def on_start(self, info: RunInfo) -> None:
        """Begin anew.

        Parameters
        ----------
        info : RunInfo
            The run.
        """
        if self.column in ("test_loss", "test_accuracy") and info.settings.evaluation is None:
            raise ValueError(f"{self.column} is measured on held-out data: give cofed.run an evaluation= federation")
        self.sign = -1.0 if maximised(self.column, info.settings.metrics, self.maximise) else 1.0
        self.model, self.row = None, None

    def on_model(self, snapshot: Snapshot) -> bool | None:
        """Keep the model if it is the best.

        Parameters
        ----------
        snapshot : Snapshot
            The row and its model.
        """
        if self.row is None or self.score(snapshot.row) < self.score(self.row):
            self.row, self.model = snapshot.row, snapshot.model

    def score(self, row: Row) -> float:
        """What is to become small; infinite where it is not a number."""
        if self.column not in row:
            raise ValueError(f"the history has no column {self.column!r}; it has {list(row)}")
        value = self.sign * row[self.column]
        return math.inf if math.isnan(value) else value


class EarlyStopping(KeepBest):
    """Ends a run whose score has not improved for some rows, and keeps its best model.

    The run ends after the very row that used up the patience, so its rounds depend on the run alone.

    Parameters
    ----------
    column : str
        The column of the history that judges: by default test_loss, which needs an evaluation federation.
    patience : int
        After so many rows in a row without an improvement the run ends.
    min_delta : float
        What counts as an improvement: more than this.
    maximise : bool, optional
        Whether more of the column is better. None is what the column says, as for `cofed.tune`.

    Attributes
    ----------
    model : pytree or None
        The best model so far.
    row : dict of str to float or None
        Its row of the history.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> rng = np.random.default_rng(0)
    >>> clients = [(X := rng.normal(size=(12, 8)), X[:, 0] + rng.normal(size=12)) for _ in range(4)]
    >>> train, held_out = cofed.Federation.from_arrays(clients).split(0.5)
    >>> stopper = cofed.callbacks.EarlyStopping(patience=5)
    >>> options = {"rounds": 1000, "evaluation": held_out, "callbacks": [stopper]}
    >>> result = cofed.run(cofed.Problem(), train, cofed.FedAvg(0.05), **options)
    >>> result.history.rows[-1]["round"] - stopper.row["round"]
    5
    """

    def __init__(
        self,
        column: Given[str] = "test_loss",
        patience: Given[int] = 10,
        min_delta: Given[float] = 0.0,
        maximise: Given[bool | None] = None,
    ):
        super().__init__(column, maximise)
        self.patience = checks.integer("EarlyStopping: patience", patience)
        self.min_delta = checks.nonnegative("EarlyStopping: min_delta", min_delta)
        self.since = 0
        self.level = math.inf

    def on_start(self, info: RunInfo) -> None:
        """Begin anew; of a resumed run, with the patience that its rows have left.

        Parameters
        ----------
        info : RunInfo
            The run.
        """
        super().on_start(info)
        self.since, self.level = 0, math.inf
        for row in info.rows:
            self.count(row)

    def on_model(self, snapshot: Snapshot) -> bool | None:
        """Keep the model if it is the best, and end the run where the patience is used up.

        Parameters
        ----------
        snapshot : Snapshot
            The row and its model.

        Returns
        -------
        bool
            Whether to go on.
        """
        super().on_model(snapshot)
        self.count(snapshot.row)
        return self.since < self.patience

    def count(self, row: Row) -> None:
        """Count the rows since the last improvement.

        Parameters
        ----------
        row : dict of str to float
            The newest row.
        """
        value = self.score(row)
        better = value < self.level - self.min_delta
        self.level, self.since = (value, 0) if better else (self.level, self.since + 1)
