"""Values as JSON has them."""

import dataclasses
import math
import re
from types import FunctionType
from typing import Any

import numpy as np

from cofed._util.files import without_nonfinite


def described(value: object) -> Any:
    """A value as JSON: what is no number, text or list of them, in words.

    >>> import cofed
    >>> described([np.float32(0.5), cofed.Euclidean(), cofed.TopK(0.1)])
    [0.5, 'Euclidean', 'TopK(share=0.1)']
    >>> described({"optimizer": described})
    {'optimizer': 'described'}
    """
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [described(entry) for entry in value]
    if isinstance(value, dict):
        return {str(key): described(entry) for key, entry in value.items()}
    if isinstance(value, FunctionType):  # one that another has made goes by the name of that
        return value.__qualname__.partition(".<locals>")[0]
    if dataclasses.is_dataclass(value) and not dataclasses.fields(value):
        return type(value).__name__
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))  # where an object is in memory says nothing about it


def finite(value: object) -> Any:
    """The same JSON value with null in place of infinities and NaN, which JSON does not have."""
    return without_nonfinite(value, lambda number: None)


def json_number(value: float | int | None) -> float | int | None:
    """A number as JSON has it: infinite and missing ones are null."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, int) else float(value)
