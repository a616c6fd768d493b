"""Tables from CSV files, with a sentence for every way in which a file is none."""

import io
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.io.common import get_handle

from cofed._util import intake

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
        raise ValueError(f"path: {name} could not be read as CSV: it is empty; expected a header and rows")
    return raw


def contents(file: Path) -> bytes:
    """The bytes of a file, unpacked where its ending says that it is compressed."""
    try:
        with get_handle(str(file), "rb", compression="infer", is_text=False) as opened:
            return opened.handle.read()
    except Exception as error:
        line = str(error).strip().partition("\n")[0]
        raise ValueError(f"path: {file} could not be read: {line}") from None
