"""Hyperparameters: plain floats that jit traces, checked where they are given."""

import math
from typing import Any

import jax
import numpy as np
from jax.core import Tracer


def number(value: Any) -> Any:
    """A field converter: integers and NumPy scalars become floats; arrays (a grid, a tracer) pass as they are.

    An integer field would be one more compiled program (or a wrong dtype) for `L1(1)` than for `L1(1.0)`.

    >>> number(1)
    1.0
    """
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return float(value)
    return value


def known(value: Any) -> bool:
    """Whether the value can be looked at now: a number, and not a tracer, a grid or a placeholder."""
    return isinstance(value, (int, float)) or (
        isinstance(value, (jax.Array, np.ndarray)) and not isinstance(value, Tracer) and value.ndim == 0
    )


def require_number(owner: str, name: str, value: Any) -> None:
    """Refuse what is no number at all (strings, None, flags), naming the owner and the field."""
    if value is None or isinstance(value, (bool, str, list, tuple, dict)):
        raise TypeError(f"{owner}: {name} must be a number, got {value!r}")


def require_positive(owner: str, **fields: Any) -> None:
    """Refuse numbers that are not finite and > 0, naming the owner and the field."""
    for name, value in fields.items():
        require_number(owner, name, value)
        if known(value) and not (float(value) > 0 and math.isfinite(float(value))):
            raise ValueError(f"{owner}: {name} must be a finite number > 0, got {value}")


def require_count(owner: str, **fields: Any) -> None:
    """Refuse what is not an integer >= 1, naming the owner and the field."""
    for name, value in fields.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{owner}: {name} must be an integer >= 1, got {value!r}")


def require_nonnegative(owner: str, **fields: Any) -> None:
    """Refuse numbers that are not finite and >= 0, naming the owner and the field."""
    for name, value in fields.items():
        require_number(owner, name, value)
        if known(value) and not (float(value) >= 0 and math.isfinite(float(value))):
            raise ValueError(f"{owner}: {name} must be a finite number >= 0, got {value}")
