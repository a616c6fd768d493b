"""What happens in a network run, told as it happens: in Flower's log, and as lines of the run's folder."""

import dataclasses
import logging
import math
import time
from collections.abc import Iterable, Mapping

from cofed.flower.run_folder import RunFolder

log = logging.getLogger("flwr")
OFTEN = 10.0  # seconds between two reminders of the same thing


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened."""

    kind: str
    words: str
    details: Mapping[str, object] = dataclasses.field(default_factory=dict)  # such as the site


class ProgressLog:
    """Where events are told."""

    def __init__(self, folder: RunFolder):
        self.folder = folder
        self.reminded: dict[str, float] = {}  # when each thing was last said

    def tell(self, round: int, events: Iterable[Event]) -> None:
        """Say what happened in this round."""
        for event in events:
            log.info("cofed: %s", event.words)
            head = {"time": time.time(), "kind": event.kind, "round": round, "words": event.words}
            self.folder.append_progress(head | dict(event.details))

    def remind(self, round: int, topic: str, words: str) -> bool:
        """Say what the run is waiting for, unless that was said in the last ten seconds; whether it was said now."""
        now = time.monotonic()
        if now - self.reminded.get(topic, -math.inf) <= OFTEN:
            return False
        self.reminded[topic] = now
        self.tell(round, [Event("waiting", words)])
        return True
