"""Tables as CSV files that a spreadsheet reads as they are: names that people gave may look like formulas."""

from pathlib import Path

import pandas as pd

from cofed._util.files import atomically

# A spreadsheet computes a cell that begins with one of these; the last four are the full-width forms of the first.
FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def cell(value: object) -> object:
    """A value as it may stand in a CSV file: text that a spreadsheet would compute gets an apostrophe before it.

    Line ends are made alike, since a lone carriage return is not quoted and so would begin another row.

    >>> from cofed._util.spreadsheets import cell
    >>> cell("=HYPERLINK(A1)"), cell("FedAvg"), cell(-1.5)
    ("'=HYPERLINK(A1)", 'FedAvg', -1.5)
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(FORMULA) else text


def to_csv(table: pd.DataFrame, path: str | Path, float_format: str | None = None) -> None:
    """A table as a CSV file to be shown, whose texts are no formulas; numbers stay as they are."""
    safe = table.rename(columns=cell)
    for place, kind in enumerate(table.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            safe.isetitem(place, table.iloc[:, place].astype(object).map(cell))
    atomically(path, lambda name: safe.to_csv(name, index=False, float_format=float_format), shown=True)
