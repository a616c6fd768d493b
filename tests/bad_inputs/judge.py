"""How one case ends, and the cases of one call."""

import contextlib
import dataclasses
import re
import resource
import signal
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import cofed
from tests.bad_inputs.kinds import Kind
from tests.bad_inputs.values import ODD

OURS = str(Path(cofed.__file__).parent)
SECONDS = 30  # a case that takes longer hangs
BYTES = 3 * 2**30  # a case that asks for more is absurd

Verdict = Literal["refused", "right", "raw", "silent"]


@dataclasses.dataclass(frozen=True)
class Call:
    """A call that works, and the kind of each of its parameters."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    kinds: dict[str, Kind]
    ends: tuple[type[Exception], ...] = ()  # how it ends where the right call cannot succeed here, such as without data
    spread: str | None = None  # the parameter that is given as *arguments
    words: tuple[str, ...] = ()  # other words for what is given, such as the leaf of a model

    def __call__(self, **changed: Any) -> Any:
        arguments = {**self.arguments, **changed}
        if self.spread is None:
            return self.function(**arguments)
        rest = arguments.pop(self.spread)
        return self.function(*arguments.values(), *(rest if isinstance(rest, tuple) else (rest,)))


@dataclasses.dataclass(frozen=True)
class Case:
    """What was tried, how it ended, and the words."""

    where: str  # the public name and the parameter
    value: str  # the odd value's label
    verdict: Verdict
    words: str


class TooLong(BaseException):
    """A case that does not end."""


def is_chosen(place: int, where: str, every: int) -> bool:
    """Whether an input is among every so many: others of another parameter, so that each is tried somewhere."""
    return (place + zlib.crc32(where.encode())) % every == 0


def cases(name: str, call: Call, every: int = 1) -> Iterator[Case]:
    """Every odd value in the place of every argument, one at a time, or every so many of them."""
    for parameter, kind in call.kinds.items():
        for place, (label, make) in enumerate(ODD.items()):
            if not is_chosen(place, f"{name}({parameter})", every):
                continue
            verdict, words = judge(call, parameter, make(), kind(make()))
            yield Case(f"{name}({parameter})", label, verdict, words)


def judge(call: Call, parameter: str, value: Any, acceptable: bool) -> tuple[Verdict, str]:
    """How the call ends with this value."""
    try:
        with guarded():
            call(**{parameter: value})
    except TooLong:
        return "raw", f"did not end in {SECONDS} s"
    except Exception as error:
        if acceptable and isinstance(error, call.ends):
            return "right", ""
        ours = any(in_our_words(error, word) for word in (parameter, *call.words))
        return ("refused" if ours else "raw"), told(error)
    return ("right" if acceptable else "silent"), ""


def in_our_words(error: Exception, parameter: str) -> bool:
    """Whether the error was raised by cofed's own code (its last line says `raise`), in words that name the
    parameter."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = last.filename.startswith(OURS) and "raise" in (last.line or "")
    return ours and bool(re.search(rf"(?<![A-Za-z0-9]){re.escape(parameter)}(?![A-Za-z0-9])", str(error)))


def told(error: Exception) -> str:
    """The error in a line, and where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = str(error).strip().partition("\n")[0][:160]
    return f"{type(error).__name__}: {line} ({Path(frame.filename).name}:{frame.lineno})"


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """A limit on time; warnings are not looked at."""

    def ring(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def limit_memory() -> None:
    """No case may take the machine: what asks for more than a few gigabytes gets a MemoryError."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
