"""The parameters of estimators, checked as scikit-learn does: when they are used, and in one sentence each."""

import contextlib
import math
from collections.abc import Iterator

import numpy as np

from cofed._util.types import Given
from cofed.sites import QuestionRefused, SiteRefused


@contextlib.contextmanager
def named_refusals(owner: str) -> Iterator[None]:
    """Name the estimator that rows are refused for; a site elsewhere that refuses says so itself."""
    try:
        yield
    except SiteRefused:
        raise
    except QuestionRefused as refused:
        raise ValueError(f"{owner}: {refused}") from None


def check_number(
    owner: str,
    name: str,
    value: Given[float],
    low: float | int = -math.inf,
    high: float | int = math.inf,
    strict: bool = False,
) -> None:
    """Refuse what is no finite number in a range; `strict` leaves out its lower end."""
    wanted = f"a number {'>' if strict else '>='} {low:g}" + ("" if high == math.inf else f" and <= {high:g}")
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high or (strict and value == low):
        raise ValueError(f"{owner}: {name} must be {wanted}, got {value!r}")


def check_count(owner: str, name: str, value: Given[int], low: int = 1, high: int = 10**9) -> None:
    """Refuse what is no integer in a range."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < low:
        raise ValueError(f"{owner}: {name} must be an integer >= {low}, got {value!r}")
    if value > high:
        raise ValueError(f"{owner}: {name} must be an integer <= {high}, got {value!r}")


def check_flag(owner: str, name: str, value: Given[bool]) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{owner}: {name} must be True or False, got {value!r}")


def check_choice(owner: str, name: str, value: Given[str], known: tuple[str, ...]) -> None:
    """Refuse what is none of these words."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{owner}: {name} must be one of {', '.join(known)}, got {value!r}")
