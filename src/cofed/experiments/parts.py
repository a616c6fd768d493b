"""Finished parts of an experiment on disk, so that an interrupted one goes on where it was."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from cofed._util.files import atomically, file_stem
from cofed._util.pandas_types import Frame
from cofed.engine import folders


class Piece(NamedTuple):
    """A part of the work that is done as a whole or not at all."""

    name: str
    work: float  # how much of it there is, in rounds of one configuration
    do: Callable[[], tuple[Frame, dict[str, Any]]]


class Took(NamedTuple):
    """What a part has taken."""

    seconds: float = 0.0
    processor_seconds: float = 0.0  # of all cores; a busy machine does not lengthen it


class Parts:
    """A folder of finished pieces, each a table and a record. A folder of another definition is set aside.

    It is kept what a piece took, so that the sum is right also for an experiment that was interrupted.
    """

    def __init__(self, folder: Path, definition: str, clock: Callable[[], float] = time.perf_counter):
        self.folder, self.clock, mark = folder, clock, folder / "definition.json"
        if folder.exists() and (not mark.exists() or mark.read_text() != definition):
            folders.set_aside(folder)
        atomically(mark, lambda name: Path(name).write_text(definition))

    def __contains__(self, name: str) -> bool:
        """Whether a part is there, and whole."""
        try:
            return self.path(name, "json").exists() and bool(self.get(name))
        except (ValueError, OSError):  # it is damaged (pyarrow raises either), so it is done again
            return False

    def path(self, name: str, ending: str) -> Path:
        """Where a part is kept. The record is written last, so where there is one the part is whole."""
        return self.folder / f"{file_stem(name)}.{ending}"

    def get(self, name: str) -> tuple[Frame, dict[str, Any]]:
        """Read a finished part."""
        record = json.loads(self.path(name, "json").read_text())
        record.pop("took", None)
        return pd.read_parquet(self.path(name, "parquet")), record

    def took(self, name: str) -> Took:
        """What a finished part has taken; an older version has not kept it."""
        return Took(**json.loads(self.path(name, "json").read_text()).get("took", {}))

    def put(self, name: str, table: Frame, record: dict[str, Any]) -> None:
        """Keep a part."""
        atomically(self.path(name, "parquet"), lambda file: table.to_parquet(file, index=False))
        atomically(self.path(name, "json"), lambda file: Path(file).write_text(json.dumps(record)))

    def done(self, piece: Piece) -> tuple[Frame, dict[str, Any]]:
        """Give a part, which is done now if it has not been done yet."""
        if piece.name not in self:
            began, worked = self.clock(), time.process_time()
            table, record = piece.do()
            took = Took(self.clock() - began, time.process_time() - worked)
            self.put(piece.name, table, record | {"took": took._asdict()})
        return self.get(piece.name)
