"""What callbacks and single clients leave of a run in an experiment's results."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from cofed._util.pandas_types import Frame
from cofed.callbacks import KeepBest
from cofed.engine.callbacks import AbstractCallback, Row, RunInfo, Snapshot
from cofed.engine.history import History, Result


class Overheard(AbstractCallback):
    """A callback, and whether it has ended its run: of the result alone nobody could tell that from Ctrl-C.

    Parameters
    ----------
    own : AbstractCallback
        The callback.
    """

    def __init__(self, own: AbstractCallback):
        self.own = own
        self.has_ended = False

    @property
    def name(self) -> str:
        return self.own.name

    @property
    def sees_models(self) -> bool:
        return self.own.sees_models

    def on_start(self, info: RunInfo) -> None:
        self.own.on_start(info)

    def on_row(self, row: Row) -> bool | None:
        return self.heard(self.own.on_row(row))

    def on_model(self, snapshot: Snapshot) -> bool | None:
        return self.heard(self.own.on_model(snapshot))

    def on_end(self, result: Result) -> None:
        self.own.on_end(result)

    def heard(self, answer: bool | None) -> bool | None:
        """The answer, of which False ends the run."""
        self.has_ended |= answer is False
        return answer


def best_rows(callbacks: Sequence[Overheard]) -> dict[str, Any]:
    """The best row of each callback that kept one, by the column that judged."""
    kept = {one.own.column: one.own.row for one in callbacks if isinstance(one.own, KeepBest)}
    return {"best": kept} if kept else {}


def with_clients(history: History) -> Frame:
    """The rows as a table, with a column for each client of what was recorded of single ones: "loss of hospital-3"."""
    table = history.to_pandas()
    if not history.client_rows:
        return table
    columns = list(history.client_rows[0][1])
    each = [history.clients(column).rename(columns=lambda name, c=column: f"{c} of {name}") for column in columns]
    whole: Frame = table.join(pd.concat(each, axis=1), on="round")
    return whole
