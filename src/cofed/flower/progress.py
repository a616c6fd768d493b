"""What has happened in a network run: told as it happens, and kept with every checkpoint."""

import dataclasses
import logging
import math
import time
from typing import Any

from cofed.flower.run_folder import Folder

log = logging.getLogger("flwr")
OFTEN = 10.0  # seconds between two times that something which lasts is said


@dataclasses.dataclass
class Progress:
    """All of a run that changes, but for the server's state."""

    round: int = 0
    begun: int = 0
    stage: int = 0
    counted: dict[str, int] = dataclasses.field(default_factory=dict)  # site -> the last round that counted
    spent: dict[str, int] = dataclasses.field(default_factory=dict)  # site -> updates that it was asked for
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    left_out: list[tuple[int, str, str]] = dataclasses.field(default_factory=list)
    down: int = 0
    up: int = 0
    seconds: float = 0.0

    @classmethod
    def read(cls, meta: dict[str, Any]) -> "Progress":
        """What a checkpoint says of it."""
        found = {field.name: meta[field.name] for field in dataclasses.fields(cls)}
        return cls(**found | {"left_out": [tuple(event) for event in found["left_out"]]})


class Diary:
    """The progress so far, and the words about it, in the log and in the run's folder."""

    def __init__(self, folder: Folder):
        self.folder, self.now = folder, Progress()
        self.warned: dict[str, float] = {}

    def tell(self, kind: str, words: str, **more: Any) -> None:
        """Say what happened."""
        log.info("cofed: %s", words)
        self.folder.tell({"time": time.time(), "kind": kind, "round": self.now.round, "words": words} | more)

    def now_and_then(self, kind: str, words: str) -> None:
        """Say something that lasts, every ten seconds."""
        if time.monotonic() - self.warned.get(kind, -math.inf) > OFTEN:
            self.warned[kind] = time.monotonic()
            self.tell("waiting", words)
