"""The log of exchanges: every question's hash and every summed answer, so that a fit can be taken up where it was."""

import dataclasses
import fcntl
import json
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from cofed._util.files import atomically, digest, private_file, private_folder

LINES = "exchanges.jsonl"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One exchange, as its line in the log says.

    Attributes
    ----------
    number : int
        Which one of the fit it was, from 0.
    what : str
        The query's name.
    version : int
        The query's version.
    question : str
        The hash of the question's bytes.
    down, up : int
        Bytes to all sites, and from all sites.
    seconds : float
        How long it took.
    sites : tuple of str
        Whose answers were added up, in this order.
    said : dict
        What was learnt beside arrays, such as the classes of the labels.
    answer : str
        The hash of the file that holds the sum.
    """

    number: int
    what: str
    version: int
    question: str
    down: int
    up: int
    seconds: float
    sites: tuple[str, ...]
    said: dict[str, object] = dataclasses.field(default_factory=dict)
    answer: str = ""


class ExchangeLog:
    """The exchanges of one fit, in a folder: `exchanges.jsonl`, and the sums in `exchange-000000.safetensors`, ...

    The sum is written before the line that speaks of it. So whenever the server is killed, every line of the log is of
    an exchange whose sum is there.

    Parameters
    ----------
    folder : Path
        The folder, made where it is missing. One log is open in it at a time.

    Raises
    ------
    ValueError
        Where the folder is in use, or its log is damaged.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed.sites.exchange_log import ExchangeLog
    >>> ExchangeLog(Path(tempfile.mkdtemp()) / "log").entries
    []
    """

    def __init__(self, folder: Path):
        self.folder = private_folder(folder)
        path = folder / LINES
        if not path.exists():
            private_file(path)
        self.file = open(path, "r+", encoding="utf-8")  # noqa: SIM115  # it is held for as long as the log is in use
        weakref.finalize(self, self.file.close)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.file.close()
            raise ValueError(f"{folder} is in use by another fit; wait for its end, or give another folder") from None
        text = self.file.read()
        whole = text[: text.rfind("\n") + 1]
        self.file.seek(len(whole.encode()))
        self.file.truncate()  # of a line that was being written when the server was killed
        self.begun: dict[str, object] | None = None
        self.entries: list[Entry] = []
        self.next = 0  # the number of the next exchange of this start of the fit
        try:
            first, *others = [json.loads(line) for line in whole.splitlines()] or [None]
            self.begun = first
            self.entries = [Entry(**{**line, "sites": tuple(line["sites"])}) for line in others]
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{path} is damaged: it is not a log of exchanges") from None

    def close(self) -> None:
        """Let others open the log."""
        self.file.close()

    def begin(self, content: dict[str, object]) -> None:
        """Write what the fit is about as the first line; where there is one already, it must say the same."""
        content = json.loads(json.dumps(content))
        if self.begun is None:
            self.begun = content
            self.write(content)
            return
        different = [name for name in content if content[name] != self.begun.get(name)]
        if different:
            raise ValueError(
                f"the log in {self.folder} is of a fit with other {' and '.join(different)}; give the same as before, "
                "or another folder"
            )

    def recall(self, what: str, question: str) -> tuple[Entry, dict[str, np.ndarray]] | None:
        """The next exchange with its sum, where it has happened before; refused where that was another question."""
        if self.next >= len(self.entries):
            return None
        entry, path = self.entries[self.next], self.path(self.next)
        if entry.question != question:
            raise ValueError(
                f"exchange {entry.number} in the log {self.folder} asked another question ({entry.what}) than this fit "
                f"asks ({what}): its settings, or the version of cofed, are not those of before; give the same as "
                "before, or another folder"
            )
        try:
            whole = digest(path) == entry.answer
            found = load_file(path) if whole else {}
        except (OSError, SafetensorError):
            whole, found = False, {}
        if not whole:
            raise ValueError(f"{path} is missing or damaged; give another folder to begin anew")
        self.next += 1
        return entry, found

    def add(self, entry: Entry, answer: dict[str, np.ndarray]) -> None:
        """Write an exchange and its sum."""
        path = self.path(self.next)
        tensors = {name: np.ascontiguousarray(array) for name, array in answer.items()}
        atomically(path, lambda name: save_file(tensors, name))
        entry = dataclasses.replace(entry, number=self.next, answer=digest(path))
        self.write(dataclasses.asdict(entry))
        self.entries.append(entry)
        self.next += 1

    def write(self, line: dict[str, object]) -> None:
        """Add a line that is on the disk when this returns."""
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def path(self, number: int) -> Path:
        """The file of a sum."""
        return self.folder / f"exchange-{number:06d}.safetensors"


def read_log(folder: Path) -> Sequence[dict[str, object]]:
    """The lines of a log so far, for whoever follows a fit: the first says what it is about."""
    path = folder / LINES
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
