"""What a column of a site's table holds, whatever type it was stored as, and what a site tells of its columns."""

import dataclasses
import datetime
import functools
import numbers
import re
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd
from pandas.api import types
from pydantic import BaseModel, ConfigDict

from cofed._util import naming
from cofed._util.pandas_types import Series

Label: TypeAlias = bool | int | float | str  # a level of a factor, a class, or what stands for a missing value
Kind: TypeAlias = Literal["number", "whole", "binary", "text", "free text", "decimal commas", "date", "mixed", "empty"]
NUMERIC = ("number", "whole", "binary")
WORDS: dict[Kind, str] = {
    "number": "numbers",
    "whole": "whole numbers",
    "binary": "true or false",
    "text": "text",
    "free text": "free text",
    "decimal commas": "text that looks like numbers with decimal commas",
    "date": "dates or times",
    "mixed": "values of several types",
    "empty": "nothing",
}
MOST_LEVELS = 50  # a text column with more different values is free text ...
CERTAIN_LEVELS = 10  # ... and so is one with more than this whose values mostly stand there once, such as names
FEW_NUMBERS = 20  # whole numbers with at most so many different values may be classes, or levels of a factor
DATES = re.compile(r"\s*(\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}([./])\d{1,2}\3\d{2,4}|\d{1,2}:\d{2}(:\d{2})?)\s*")
COMMAS = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")  # a number as much of Europe writes it
TRUTH = {"true": 1.0, "false": 0.0}


class Agreed(BaseModel):
    """What sites and server tell each other: fixed once it is made, and JSON on the wire."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ColumnInfo(Agreed):
    """What a site tells of a column.

    Attributes
    ----------
    name : str
        The column.
    kind : str
        What it holds: "number", "whole", "binary", "text", "free text", "decimal commas", "date", "mixed" or "empty".
    missing : int
        How many rows have no value.
    infinite : int
        How many values are infinite.
    levels : tuple or None
        The different values of text, of a few whole numbers, and of a column with one value; None for others.
    """

    name: str
    kind: Kind
    missing: int = 0
    infinite: int = 0
    levels: tuple[Label, ...] | None = None

    @property
    def is_numeric(self) -> bool:
        """Whether the column can be a feature that is a number."""
        return self.kind in NUMERIC


class TableInfo(Agreed):
    """What a site tells of its table when a study begins: no row, and no sum of rows but counts of missing values.

    Attributes
    ----------
    rows : int
        How many rows there are.
    columns : tuple of ColumnInfo
        The columns, in the table's order.
    """

    rows: int
    columns: tuple[ColumnInfo, ...]

    @functools.cached_property
    def by_name(self) -> dict[str, ColumnInfo]:
        """The columns by their names."""
        return {column.name: column for column in self.columns}


@dataclasses.dataclass(frozen=True)
class Column:
    """The values of a column, read: numbers, or texts."""

    kind: Kind
    values: np.ndarray  # float64 with NaN where one is missing; or texts with None
    missing: np.ndarray  # whether the value is missing, row by row

    @property
    def is_numeric(self) -> bool:
        """Whether the values are numbers."""
        return self.kind in NUMERIC

    @property
    def has_decimal_commas(self) -> bool:
        """Whether all values are texts such as 12,5."""
        texts = set(self.values[~self.missing].tolist()) if self.kind == "text" else set()
        return any("," in one for one in texts) and all(COMMAS.fullmatch(one) for one in texts)

    def taken(self, places: np.ndarray) -> "Column":
        """The column whose values are those at these places; -1 is a missing one."""
        nothing = np.array([np.nan if self.is_numeric else None], self.values.dtype)
        values, missing = np.concatenate([self.values, nothing]), np.append(self.missing, True)
        return Column(self.kind, values[places], missing[places])

    def texts(self) -> np.ndarray:
        """The values as texts, None where one is missing."""
        if not self.is_numeric:
            return self.values
        different, places = np.unique(self.values, return_inverse=True)
        words = np.array([None if np.isnan(one) else level_text(one) for one in different.tolist()], object)
        return words[places]

    def codes(self, levels: Sequence[Label]) -> np.ndarray:
        """The position of each value among the levels; -1 where it is missing or none of them."""
        known = {level_text(level): place for place, level in enumerate(levels)}
        places, different = pd.factorize(self.texts())
        return np.array([*(known.get(text, -1) for text in different), -1], np.int32)[places]

    def info(self, name: str) -> ColumnInfo:
        """What a site tells of this column."""
        present = self.values[~self.missing]
        infinite = int(np.isinf(present).sum()) if self.is_numeric else 0
        kind, levels = self.kind, None
        if kind == "text":
            levels = tuple(sorted(set(present.tolist()), key=naming.natural))
            if self.has_decimal_commas:
                kind, levels = "decimal commas", None
            elif is_free(len(levels), len(present)):
                kind, levels = "free text", None
        elif self.is_numeric and not infinite:
            different = np.unique(present)
            if len(different) == 1 or (kind != "number" and len(different) <= FEW_NUMBERS):
                levels = tuple(as_number(one) for one in different.tolist())
        return ColumnInfo(name=name, kind=kind, missing=int(self.missing.sum()), infinite=infinite, levels=levels)


def is_free(levels: int, values: int) -> bool:
    """Whether text with so many different values is free text, such as names or notes, and no factor.

    >>> from cofed.sites.columns import is_free
    >>> is_free(3, 5), is_free(12, 20), is_free(12, 200), is_free(51, 10_000)
    (False, True, False, True)
    """
    return levels > MOST_LEVELS or (levels > CERTAIN_LEVELS and 2 * levels > values)


def as_number(value: int | float) -> int | float:
    """A number, whole where it is."""
    return int(value) if float(value).is_integer() else float(value)


def level_text(level: Label) -> str:
    """A level as text, the same however it was stored.

    >>> from cofed.sites.columns import level_text
    >>> level_text(1), level_text(1.0), level_text(True), level_text(0.5), level_text(" male ")
    ('1', '1', '1', '0.5', 'male')
    """
    return level.strip() if isinstance(level, str) else str(as_number(level))


def read_column(values: Series, markers: Iterable[Label] = ()) -> Column:
    """The values of a column.

    Parameters
    ----------
    values
        The column. Text around which there are spaces, and text that is a number, is read as what it says.
    markers
        What stands for a missing value, beside what pandas takes for one, and text without a character.

    Returns
    -------
    Column
        The values as numbers or texts.

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.sites.columns import read_column
    >>> read_column(pd.Series(["1.5", ".", "2"]), ["."]).values.tolist()
    [1.5, nan, 2.0]
    >>> read_column(pd.Series([True, None])).kind, read_column(pd.Series(["2024-05-01"])).kind
    ('binary', 'date')
    """
    marks = {level_text(marker) for marker in markers}
    if types.is_bool_dtype(values.dtype):
        return of_numbers(values.astype("Float64").to_numpy(np.float64, na_value=np.nan), marks, truth=True)
    if types.is_numeric_dtype(values.dtype) and not types.is_complex_dtype(values.dtype):
        return of_numbers(values.to_numpy(np.float64, na_value=np.nan), marks)
    # Texts and objects come again and again: each is looked at once.
    factor = isinstance(values.dtype, pd.CategoricalDtype)
    try:
        places, different = pd.factorize(values.astype(object))
    except TypeError:  # lists and the like
        return Column("mixed", values.to_numpy(object), values.isna().to_numpy(bool))
    return read_objects(pd.Series(different, dtype=object), marks, factor).taken(places)


def read_objects(values: Series, marks: set[str], factor: bool) -> Column:
    """Values of any type; texts and numbers of a factor are its levels."""
    if factor and all(isinstance(one, (str, numbers.Real)) for one in values):
        return of_texts(values.map(level_text), marks, factor=True)
    blank: Series = values.map(lambda one: isinstance(one, str) and one.strip() in marks | {""}, na_action="ignore")
    values = values.mask(blank.isin([True]), None)
    missing = values.isna().to_numpy(bool)
    present = values[~missing]
    if all(isinstance(one, str) for one in present):
        return of_texts(values, marks)
    if all(isinstance(one, (bool, np.bool_)) for one in present):
        return of_numbers(values.where(~missing, np.nan).to_numpy(np.float64), marks, truth=True)
    if all(isinstance(one, (numbers.Real, np.number)) or is_decimal(one) for one in present):
        return of_numbers(values.where(~missing, np.nan).map(as_float).to_numpy(np.float64), marks)
    times = (datetime.date, datetime.time, datetime.timedelta, pd.Period, np.datetime64, np.timedelta64)
    kind = "date" if all(isinstance(one, times) for one in present) else "mixed"
    return Column(kind, values.to_numpy(object), missing)


def as_float(value: object) -> float:
    """A number as a float; a whole number of more digits than floats have is infinite.

    >>> from cofed.sites.columns import as_float
    >>> as_float(-(10**400)), as_float(3)
    (-inf, 3.0)
    """
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return np.inf if value > 0 else -np.inf  # type: ignore[operator]


def is_decimal(value: object) -> bool:
    """Whether this is a decimal number, as databases give them."""
    return type(value).__name__ == "Decimal"


def of_numbers(values: np.ndarray, marks: set[str], truth: bool = False) -> Column:
    """A column of numbers."""
    codes = [float(mark) for mark in marks if is_number(mark)]
    values = np.where(np.isin(values, codes), np.nan, values) if codes else values
    missing = np.isnan(values)
    present = values[~missing]
    if not len(present):
        return Column("empty", np.full(len(values), None, object), missing)
    whole = bool(np.all(np.isfinite(present))) and bool(np.all(present == np.round(present)))
    return Column("binary" if truth else "whole" if whole else "number", values, missing)


def of_texts(values: Series, marks: set[str], factor: bool = False) -> Column:
    """A column of texts: those that are all numbers, or all true or false, are read as what they say."""
    found: Series = values.map(lambda one: one.strip(), na_action="ignore")
    gaps: Series = found.isna() | found.isin(marks | {""})
    missing: np.ndarray = gaps.to_numpy(bool)
    texts: np.ndarray = found.where(~missing, None).to_numpy(object)
    whole: Series = pd.Series(texts, dtype=object)
    present: Series = whole[~missing]
    if not len(present):
        return Column("empty", texts, missing)
    if factor:
        return Column("text", texts, missing)
    if present.str.lower().isin(list(TRUTH)).all():
        return of_numbers(whole.str.lower().map(TRUTH).to_numpy(np.float64), set(), truth=True)
    read = numbers_of(texts)
    if not np.isnan(read[~missing]).any():
        return of_numbers(read, marks)
    if present.map(lambda one: DATES.fullmatch(one) is not None).all():
        return Column("date", texts, missing)
    return Column("text", texts, missing)


def numbers_of(texts: np.ndarray) -> np.ndarray:
    """Texts as numbers, NaN where one is none."""
    read: Series = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce")
    return read.to_numpy(np.float64)


def is_number(text: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
