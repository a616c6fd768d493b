"""Tables from CSV files, with a sentence for every way in which a file is none; and CSV files whose cells no
spreadsheet takes for formulas, since names that people gave may look like some."""

import io
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

from cofed import intake
from cofed.files import atomically

# A spreadsheet computes a cell that begins with one of these; the last four are the full-width forms of the first.
FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")

Frame = Any  # of pandas, whose types say too little for a checker


def read_csv(path: Any, client: Any, sep: str | None = ",") -> Frame:
    """A CSV file with a header as a frame; the column `client` is read as text. `sep=None` finds the separator.

    Parameters
    ----------
    path
        A file, or an object with `read`.
    client
        The column that names the clients.
    sep
        What stands between two fields; None looks at the file.

    Returns
    -------
    pandas.DataFrame
        The rows, in the file's order.

    Raises
    ------
    FileNotFoundError
        Where there is no such file.
    ValueError
        Where the file is empty, a folder, not text, or not a table, or where two columns have one name.

    Examples
    --------
    >>> read_csv(io.StringIO("site,age\\n007,50\\n"), client="site")["site"].tolist()
    ['007']
    """
    intake.require_column("client", client)
    text = text_of(path)
    options: dict[str, Any] = {"sep": sep, "engine": "c" if sep else "python", "index_col": False}
    name = path if isinstance(path, (str, Path)) else "path"
    try:
        header = pd.read_csv(io.StringIO(text), header=None, nrows=1, dtype=str, keep_default_na=False, **options)
        names = [str(column) for column in header.iloc[0]]
        twice = sorted({column for column in names if names.count(column) > 1})
        if twice:
            raise ValueError(f"the column {twice[0]!r} is there twice; column names must differ")
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows with more fields than the header
            return pd.read_csv(io.StringIO(text), dtype={client: str} if client in names else None, **options)
    except pd.errors.ParserWarning:
        raise ValueError(f"path: {name} could not be read as CSV: its rows have more fields than its header") from None
    except Exception as error:
        line = str(error).strip().partition("\n")[0]
        raise ValueError(f"path: {name} could not be read as CSV: {line}") from None


def text_of(path: Any) -> str:
    """The text of a file or of an object with `read`, or a sentence on why there is none."""
    if hasattr(path, "read"):
        raw, name = path.read(), "what was read"
    else:
        file = intake.existing(path)
        name = str(file)
        if file.is_dir():
            raise ValueError(f"path: {file} is a folder; give the name of a CSV file")
        raw = contents(file)
    if isinstance(raw, bytes):
        try:
            raw = raw.decode("utf-8-sig")
        except UnicodeError:
            raise ValueError(f"path: {name} is not UTF-8 text; save it as CSV in UTF-8") from None
    if not isinstance(raw, str) or "\0" in raw:
        raise ValueError(f"path: {name} is not text; save it as CSV in UTF-8")
    if not raw.strip():
        raise ValueError(f"path: {name} is empty; expected a header and rows")
    return raw


def contents(file: Path) -> bytes:
    """The bytes of a file, unpacked where its ending says that it is compressed."""
    try:
        with pd.io.common.get_handle(str(file), "rb", compression="infer", is_text=False) as opened:
            return opened.handle.read()
    except Exception as error:
        line = str(error).strip().partition("\n")[0]
        raise ValueError(f"path: {file} could not be read: {line}") from None


def cell(value: Any) -> Any:
    """A value as it may stand in a CSV file: text that a spreadsheet would compute gets an apostrophe before it.

    Line ends are made alike, since a lone carriage return is not quoted and so would begin another row.

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
