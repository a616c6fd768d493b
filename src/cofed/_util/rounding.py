"""What float64's rounding alone can tell apart."""

from typing import TypeVar

import numpy as np

EPS = float(np.finfo(np.float64).eps)

Number = TypeVar("Number", float, np.ndarray)


def is_constant(n: int, mean: Number, var: Number) -> np.bool_ | np.ndarray:
    """Whether n values with this mean and variance differ by no more than the rounding of their mean.

    >>> from cofed._util.rounding import is_constant
    >>> bool(is_constant(4, 1e8, 1e-16)), bool(is_constant(4, 1.0, 1e-16))
    (True, False)
    """
    return np.sqrt(var) <= (16 + np.sqrt(n)) * EPS * np.abs(mean)
