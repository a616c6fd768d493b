"""Who hears of a tuning while it goes on."""

import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping

from cofed._util import checks
from cofed._util.caller import warn_caller
from cofed.engine.callbacks import refused
from cofed.engine.contracts import in_a_line
from cofed.engine.ranking import Trial, Tuning

TuningCallback = Callable[[Tuning], object]


def checked_callbacks(given: object) -> list[TuningCallback]:
    """Functions of a tuning so far; refused where one is none."""
    if not isinstance(given, Iterable):
        raise TypeError(f"callbacks must be a list of functions, got a single {type(given).__name__}")
    found = checks.items("callbacks", given, "functions")
    for one in found:
        if not callable(one) or isinstance(one, type):
            raise TypeError(f"callbacks of a tuning are functions of the cofed.Tuning so far, got {checks.shown(one)}")
    return found


@dataclasses.dataclass
class Audience:
    """The callbacks of a tuning: told of what is done so far, and asked whether to go on."""

    callbacks: list[TuningCallback]
    ranked: Callable[[Mapping[int, Trial]], Tuning]
    stop: threading.Event

    def tell(self, trials: Mapping[int, Trial]) -> None:
        """Tell of what is known of each configuration. One that answers False ends the search; one that fails is
        told of, and never called again."""
        if not self.callbacks:
            return
        tuning = self.ranked(trials)
        for callback in list(self.callbacks):
            try:
                answer = callback(tuning)
            except Exception as error:
                self.callbacks = [other for other in self.callbacks if other is not callback]
                warn_caller(
                    f"the callback {checks.called(callback)} failed and is not called again; the tuning is not "
                    f"affected: {in_a_line(error)}"
                )
                continue
            if refused(answer):
                self.stop.set()
