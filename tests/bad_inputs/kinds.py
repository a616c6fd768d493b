"""What may be accepted for a parameter, by its kind: written from the documentation, not from the code."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Kind = Callable[[Any], bool]


def nothing(value: Any) -> bool:
    """No odd value will do: an object of ours is wanted."""
    return False


def anything(value: Any) -> bool:
    """Whatever it is, it is told from others by its text."""
    return True


def optional(kind: Kind) -> Kind:
    """None, or what the kind accepts."""
    return lambda value: value is None or kind(value)


def either(*kinds: Kind) -> Kind:
    """What one of the kinds accepts."""
    return lambda value: any(kind(value) for kind in kinds)


def whole(low: float = 1, high: float = math.inf) -> Kind:
    """An integer in this range, of Python or NumPy."""
    return lambda value: is_whole(value) and low <= value <= high


def is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def real(low: float = -math.inf, high: float = math.inf, *, strict: bool = False, infinite: bool = False) -> Kind:
    """A number in this range; `strict` leaves the ends out."""

    def accepts(value: Any) -> bool:
        if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind == "f":
            value = float(value)
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.floating, np.integer)):
            return False
        if isinstance(value, int) and abs(value) > 1e308:
            value = math.inf
        if math.isinf(value):
            return infinite and low <= value <= high
        return low < value < high if strict else low <= value <= high

    return accepts


positive = real(0, strict=True)
nonnegative = real(0)
finite = real()


def grid_of(kind: Kind) -> Kind:
    """A hyperparameter: a number, or an array of them, which `vmap` takes apart."""

    def accepts(value: Any) -> bool:
        if isinstance(value, np.ndarray) and value.ndim and value.dtype.kind in "fiu":
            return not np.ma.isMaskedArray(value) and all(kind(float(entry)) for entry in value.ravel())
        return kind(value)

    return accepts


def flag(value: Any) -> bool:
    """True or False."""
    return isinstance(value, (bool, np.bool_))


def word(*words: str) -> Kind:
    """One of these texts."""
    return lambda value: isinstance(value, str) and value in words


def text(value: Any) -> bool:
    """A text that is not empty."""
    return isinstance(value, str) and value != ""


def any_text(value: Any) -> bool:
    """A text."""
    return isinstance(value, str)


def function(value: Any) -> bool:
    """What can be called, but for a class."""
    return callable(value) and not isinstance(value, type)


def file_to_write(value: Any) -> bool:
    """The name of a file that can be made: in a folder that is there."""
    return isinstance(value, (str, Path)) and str(value) != "" and Path(value).resolve().parent.exists()


def plain(value: Any) -> bool:
    """Whether NumPy can make numbers of it that are what they look like."""
    if np.ma.isMaskedArray(value) or isinstance(value, (pd.DataFrame, bytes, str)):
        return False
    try:
        array = np.asarray(value)
    except ValueError:
        return False
    return array.dtype.kind in "fiub"


def numbers(value: Any) -> bool:
    """A number or a list or array of finite numbers."""
    return plain(value) and bool(np.isfinite(np.asarray(value)).all())


def one_per(count: int, low: float = -math.inf) -> Kind:
    """A list or array of so many finite numbers."""

    def accepts(value: Any) -> bool:
        return numbers(value) and np.shape(value) == (count,) and bool((np.asarray(value) >= low).all())

    return accepts


def guess(kind: Kind) -> Kind:
    """A number of this kind, or a list or array of them."""

    def accepts(value: Any) -> bool:
        if isinstance(value, (bool, np.bool_)) or not plain(value) or np.asarray(value).dtype.kind == "b":
            return False
        return np.ndim(value) <= 1 and np.size(value) > 0 and all(kind(float(one)) for one in np.ravel(value))

    return accepts


def empty_list(value: Any) -> bool:
    """A list with nothing in it."""
    if isinstance(value, (np.ndarray, pd.DataFrame)):
        return value.shape[:1] == (0,)
    return isinstance(value, (list, tuple)) and not value


def names(value: Any) -> bool:
    """A list of names: texts, whole numbers, dates."""
    if not isinstance(value, (list, tuple, np.ndarray, Iterator)) or np.ma.is_masked(value):
        return False
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "UfiM" and not pd.isna(value).any()
    return not isinstance(value, (list, tuple)) or all(isinstance(one, (str, int, float)) for one in value)


def texts(value: Any) -> bool:
    """A list of texts."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(entry, str) for entry in value)
    return isinstance(value, np.ndarray) and value.dtype.kind == "U"
