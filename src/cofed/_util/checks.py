"""What is given, checked where it is given: each check returns the value, or refuses it in one sentence.

A name may say whose parameter it is, as in "TopK: share". Hyperparameters, which JAX may trace, are checked in
`cofed._util.scalars`.
"""

import math
import os
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from cofed._util.types import Given

MOST = 2**31 - 1  # counters of rounds, steps and clients are 32 bits wide


def shown(value: object) -> str:
    """A value in a sentence: its text, cut where it is long.

    >>> from cofed._util.checks import shown
    >>> shown("x"), shown([1] * 100)
    ("'x'", '[1, 1, 1, 1, 1, 1, ...]')
    """
    try:
        text = reprlib.repr(value) if isinstance(value, (list, tuple, dict, set, str, bytes, int)) else repr(value)
    except Exception:  # an object of the user's may fail to say what it is
        text = kind(value)
    text = " ".join(text.split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def kind(value: object) -> str:
    """What a value is, in words."""
    return f"an object of type {type(value).__name__}"


def called(value: object) -> str:
    """What a function is called, or the class of an object that has no name of its own."""
    return str(getattr(value, "__name__", type(value).__name__))


def is_integer(value: object) -> TypeGuard[int | np.integer]:
    """Whether this is an integer of Python or NumPy; True and False are none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def integer(name: str, value: object, least: int = 1, most: int | None = MOST) -> int:
    """An integer of Python or NumPy, within these bounds.

    >>> from cofed._util.checks import integer
    >>> integer("rounds", 3)
    3
    >>> integer("rounds", 2.5)
    Traceback (most recent call last):
    ValueError: rounds must be an integer >= 1, got 2.5
    """
    if not is_integer(value) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {shown(value)}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be an integer from {least} to {most}, got {shown(value)}")
    return int(value)


def optional_integer(name: str, value: object, least: int = 1, most: int | None = MOST) -> int | None:
    """An integer within these bounds, or None."""
    return None if value is None else integer(name, value, least, most)


def seed(name: str, value: object) -> int:
    """A seed: an integer that fits 32 bits.

    >>> from cofed._util.checks import seed
    >>> seed("seed", -1)
    Traceback (most recent call last):
    ValueError: seed must be an integer from 0 to 2**32 - 1, got -1
    """
    if not is_integer(value) or not 0 <= value < 2**32:
        raise ValueError(f"{name} must be an integer from 0 to 2**32 - 1, got {shown(value)}")
    return int(value)


def generator_seed(owner: str, value: object) -> int:
    """A seed for NumPy's generators, which take any whole number >= 0."""
    if not is_integer(value) or value < 0:
        raise ValueError(f"{owner}: seed must be a whole number >= 0, got {shown(value)}")
    return int(value)


def flag(name: str, value: object) -> bool:
    """True or False: a text such as "no" would count as True.

    >>> from cofed._util.checks import flag
    >>> flag("intercept", "no")
    Traceback (most recent call last):
    TypeError: intercept must be True or False, got 'no'
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def optional_flag(name: str, value: object) -> bool | None:
    """True, False or None."""
    return None if value is None else flag(name, value)


def is_real(value: object) -> TypeGuard[float]:
    """Whether this is one real number, of Python or NumPy (also as an array of rank 0)."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "fiu" and not np.ma.isMaskedArray(value)
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def as_float(value: Given[float]) -> float:
    """The number; infinite where it is beyond 64 bits."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def real(name: str, value: object, expected: str, inside: bool | None = None) -> float:
    """A number, finite; `inside` says whether it is where it is expected, None that any will do.

    >>> from cofed._util.checks import real
    >>> real("tol", "small", "a number > 0")
    Traceback (most recent call last):
    ValueError: tol must be a number > 0, got 'small'
    """
    if not is_real(value) or inside is False or not math.isfinite(as_float(value)):
        raise ValueError(f"{name} must be {expected}, got {shown(value)}")
    return float(value)


def positive(name: str, value: object) -> float:
    """A finite number > 0."""
    return real(name, value, "a finite number > 0", is_real(value) and as_float(value) > 0)


def nonnegative(name: str, value: object) -> float:
    """A finite number >= 0."""
    return real(name, value, "a finite number >= 0", is_real(value) and as_float(value) >= 0)


def share(name: str, value: object) -> float:
    """A number between 0 and 1, both excluded."""
    expected = "a share between 0 and 1 (both excluded)"
    return real(name, value, expected, is_real(value) and 0 < as_float(value) < 1)


def text(name: str, value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} must be a text, got {shown(value)}")
    return value


def optional_text(name: str, value: object) -> str | None:
    """A text that is not empty, or None."""
    return None if value is None else text(name, value)


def one_of(name: str, value: object, known: Iterable[str]) -> str:
    """One of these words.

    >>> from cofed._util.checks import one_of
    >>> one_of("x", "time", ["round", "bytes"])
    Traceback (most recent call last):
    ValueError: x must be 'round' or 'bytes', got 'time'
    """
    words = list(known)
    if not isinstance(value, str) or value not in words:
        listed = ", ".join(map(repr, words[:-1])) + f" or {words[-1]!r}" if len(words) > 1 else repr(words[0])
        raise ValueError(f"{name} must be {listed}, got {shown(value)}")
    return value


def path(name: str, value: object) -> Path:
    """The name of a file or a folder.

    >>> from cofed._util.checks import path
    >>> path("path", "")
    Traceback (most recent call last):
    ValueError: path must be the name of a file or folder, got ''
    """
    if not isinstance(value, (str, os.PathLike)) or isinstance(os.fspath(value), bytes):
        raise TypeError(f"{name} must be the name of a file or folder, got {shown(value)}")
    if not os.fspath(value) or "\0" in os.fspath(value):
        raise ValueError(f"{name} must be the name of a file or folder, got {shown(value)}")
    return Path(value)


def folder(name: str, value: object) -> Path:
    """The name of a folder, which may be there or not; not that of a file, nor of a place inside one.

    >>> import os
    >>> from cofed._util.checks import folder
    >>> folder("checkpoint", os.__file__)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: checkpoint: ...os.py is a file, or a part of it is; give the name of a folder
    """
    place = path(name, value)
    try:
        there = next(part for part in (place, *place.absolute().parents) if part.exists())
    except OSError as error:  # such as a name that is too long
        raise ValueError(f"{name} must be the name of a folder: {error.strerror}") from None
    if not there.is_dir():
        raise ValueError(f"{name}: {place} is a file, or a part of it is; give the name of a folder")
    return place


def file_to_write(name: str, value: object) -> Path:
    """The name of a file that can be made: no folder, and not inside a file. Missing folders above it may be made."""
    place = path(name, value)
    if place.is_dir():
        raise IsADirectoryError(f"{name} is the folder {place}; give the name of a file")
    folder(name, place.parent)
    return place


def items(name: str, value: object, what: str) -> list[Any]:
    """A list of things: not a text, which would be taken apart into letters, and not a set, which has no order.

    >>> from cofed._util.checks import items
    >>> items("names", "Oslo", "client names")
    Traceback (most recent call last):
    TypeError: names must be a list of client names, got 'Oslo'
    """
    unordered = isinstance(value, (str, bytes, Mapping, set, frozenset))
    if unordered or not isinstance(value, Iterable) or (isinstance(value, np.ndarray) and value.ndim == 0):
        raise TypeError(f"{name} must be a list of {what}, got {shown(value)}")
    return list(value)
