"""Odd values: of the wrong type, sign, size, shape, dtype; empty, not finite, not there."""

import datetime
import decimal
import fractions
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

# Each is made anew for each case: some are changed or used up by looking at them.
ODD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "text": lambda: "odd",
    "empty text": lambda: "",
    "number as text": lambda: "1",
    "bytes": lambda: b"odd",
    "object": object,
    "class": lambda: int,
    "function": lambda: lambda *arguments: None,
    "True": lambda: True,
    "NumPy's True": lambda: np.True_,
    "complex": lambda: 1j,
    "0": lambda: 0,
    "-1": lambda: -1,
    "3": lambda: 3,
    "0.5": lambda: 0.5,
    "-0.5": lambda: -0.5,
    "1.0": lambda: 1.0,
    "10**12": lambda: 10**12,
    "10**400": lambda: 10**400,
    "1e300": lambda: 1e300,
    "NaN": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "NumPy's 3": lambda: np.int64(3),
    "NumPy's 0.5": lambda: np.float32(0.5),
    "NumPy's NaN": lambda: np.float64("nan"),
    "0-d array": lambda: np.array(2.0),
    "Decimal": lambda: decimal.Decimal("0.5"),
    "Fraction": lambda: fractions.Fraction(1, 2),
    "date": lambda: datetime.date(2020, 1, 1),
    "NA": lambda: pd.NA,
    "empty list": list,
    "list of numbers": lambda: [1.0, 2.0],
    "list of texts": lambda: ["a", "b"],
    "ragged list": lambda: [[1.0], [1.0, 2.0]],
    "empty tuple": lambda: (),
    "empty mapping": dict,
    "mapping": lambda: {"a": 1},
    "set": lambda: {1},
    "generator": lambda: (i for i in range(2)),
    "empty array": lambda: np.ones(0),
    "array of rank 5": lambda: np.ones((2, 1, 1, 1, 2)),
    "array of texts": lambda: np.array(["a", "b"]),
    "array of objects": lambda: np.array([object(), None]),
    "array of dates": lambda: np.array(["2020-01-01", "2020-01-02"], "datetime64[D]"),
    "complex array": lambda: np.array([1j, 2.0]),
    "array with NaN": lambda: np.array([1.0, np.nan]),
    "masked array": lambda: np.ma.masked_array([1.0, 2.0], [False, True]),
    "sparse matrix": lambda: scipy.sparse.csr_array(np.eye(2)),
    "empty frame": pd.DataFrame,
    "path to nothing": lambda: Path("/dev/null/at.all"),
}
