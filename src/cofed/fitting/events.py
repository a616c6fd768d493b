"""What happens in a fit, told as it happens: lines of JSON in a file that whoever watches can follow."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cofed._util.files import private_append, private_file

JSON = str | int | float | bool | None | list["JSON"] | dict[str, "JSON"]
Hearer = Callable[[dict[str, JSON]], None]
# What is told: "begin" and "end" of the fit; "exchange", and "gap", how far the certificate is; of a site that it has
# "joined", was "asked" or "heard", is in "trouble", "refused" or "left out"; and "waiting", for what. Others are kept,
# not shown.


class FitEvents:
    """The events of one fit.

    Parameters
    ----------
    path : Path
        The file of lines, which is begun anew; only its owner can read it.
    hear : callable, optional
        Called with every event too, such as to show it in a terminal.

    Examples
    --------
    >>> import json
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed.fitting.events import FitEvents
    >>> events = FitEvents(Path(tempfile.mkdtemp()) / "progress.jsonl")
    >>> events.tell("heard", site="Oslo")
    >>> json.loads(events.path.read_text())["site"]
    'Oslo'
    """

    def __init__(self, path: Path, hear: Hearer | None = None):
        self.path, self.hear = path, hear
        path.unlink(missing_ok=True)
        private_file(path)

    def tell(self, kind: str, **details: JSON) -> None:
        """Tell that something has happened."""
        event: dict[str, JSON] = {"time": time.time(), "kind": kind, **details}
        with private_append(self.path) as file:
            file.write(json.dumps(event) + "\n")
        if self.hear is not None:
            self.hear(event)

    @contextlib.contextmanager
    def to_the_end(self) -> Iterator[None]:
        """Tell the end of a fit that does not end well."""
        try:
            yield
        except BaseException as error:
            words = "It was stopped." if isinstance(error, KeyboardInterrupt) else f"{error}"
            self.tell("end", ok=False, outcome="stopped", words=words)
            raise
