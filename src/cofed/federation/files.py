"""CSV and Parquet files as tables, with a sentence for everything that can be wrong with a file."""

import contextlib
import io
import os
import re
import warnings
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pandas.io.common import get_handle

from cofed._util import checks
from cofed._util.types import Given
from cofed.federation.arrays import columns_differ
from cofed.federation.frames import ColumnChoice, require_column

ROW_LABELS = re.compile(r"__index_level_\d+__")  # where pandas keeps the row labels of a frame in a parquet file


@runtime_checkable
class Readable(Protocol):
    """An open file, or what can be read like one."""

    def read(self) -> str | bytes:
        """All of it."""
        ...


def read_csv(
    path: Given[str | os.PathLike[str] | Readable], client: Given[Hashable], sep: str | None = ","
) -> pd.DataFrame:
    """A CSV file with a header as a frame; the column `client` is read as text.

    Parameters
    ----------
    path
        A file, or an object with `read`.
    client
        The column that names the clients.
    sep
        What stands between two fields; None finds out from the file.

    Returns
    -------
    pandas.DataFrame
        The rows, in the file's order.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is empty, a folder, not text, or not a table, or if two columns have one name.

    Examples
    --------
    >>> import io
    >>> from cofed.federation.files import read_csv
    >>> read_csv(io.StringIO("site,age\\n007,50\\n"), client="site")["site"].tolist()
    ['007']
    """
    require_column("client", client)
    text = text_of(path)
    name = path if isinstance(path, (str, Path)) else "path"
    try:
        return parsed(text, client, sep)
    except Exception as error:
        raise ValueError(f"path: {name} could not be read as CSV: {first_line(error)}") from None


def parsed(text: str, client: Hashable, sep: str | None) -> pd.DataFrame:
    """The frame of a CSV text, whose columns differ."""
    engine = "c" if sep else "python"
    header = pd.read_csv(
        io.StringIO(text),
        sep=sep,
        engine=engine,
        index_col=False,
        header=None,
        nrows=1,
        dtype=str,
        keep_default_na=False,
    )
    names = [str(column) for column in header.iloc[0]]
    twice = sorted({column for column in names if names.count(column) > 1})
    if twice:
        raise ValueError(f"the column {twice[0]!r} is there twice; column names must differ")
    text_columns = {client: str} if client in names else None
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows with more fields than the header
        return pd.read_csv(io.StringIO(text), sep=sep, engine=engine, index_col=False, dtype=text_columns)


def text_of(path: object) -> str:
    """The text of a file or of an object with `read`."""
    if isinstance(path, Readable):
        raw, name = path.read(), "what was read"
    else:
        file = existing(path)
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
            return opened.handle.read()  # type: ignore[return-value]
    except Exception as error:
        raise ValueError(f"path: {file} could not be read: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    """The first line of what an error says; what pandas says of rows that do not fit, in our words."""
    said = str(error).strip().partition("\n")[0]
    if found := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", said):
        return f"line {found[2]} has {found[3]} fields, and the header {found[1]}"
    if "EOF inside string" in said:
        return "a quotation mark is opened and never closed"
    return "its rows have more fields than its header" if isinstance(error, pd.errors.ParserWarning) else said


def existing(path: object) -> Path:
    """The path of a file or folder that is there."""
    found = checks.path("path", path)
    if not found.exists():
        raise FileNotFoundError(f"path: there is no file or folder {found}")
    return found


@contextlib.contextmanager
def reading_parquet(path: object, owner: str = "path: ") -> Iterator[None]:
    """Turn what pyarrow raises while a file is read into a sentence."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{owner}{path} could not be read as parquet: {error}") from error


def read_parquet(path: object, choice: ColumnChoice) -> tuple[pd.DataFrame, list[Hashable]]:
    """The chosen columns of a parquet file or a folder of them, and the names of the features among them."""
    with reading_parquet(path):
        data = parquet(path)[1]
        roles = choice.among(parquet_columns(data))
        used = [*roles.features, *roles.targets, roles.client]
        df = data.to_table(columns=used).to_pandas(ignore_metadata=True)  # type: ignore[arg-type]
    return df, roles.features


def parquet(path: object) -> tuple[list[Path], pads.Dataset]:
    """The parquet files of a path, and the table that they are together."""
    path = existing(path)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"the folder {path} holds no file that ends in .parquet")
    base = str(path) if path.is_dir() else None
    table = dataset(files, base)
    schemas = [pq.read_schema(file) for file in files]
    for file, schema in zip(files[1:], schemas[1:], strict=True):
        if set(schema.names) != set(schemas[0].names):
            difference = columns_differ(sorted(schema.names), sorted(schemas[0].names))
            raise ValueError(f"{file}: its columns differ from those of {files[0].name}: it {difference}")
    schema = unified(table.schema, schemas)
    return files, table if schema.equals(table.schema) else dataset(files, base, schema)


def dataset(files: list[Path], base: str | None, schema: pa.Schema | None = None) -> pads.Dataset:
    """The table of these files; folders such as `client=oslo/` below `base` are a column."""
    return pads.dataset(
        [str(file) for file in files],
        schema=schema,
        format="parquet",
        partitioning=pads.partitioning(flavor="hive"),
        partition_base_dir=base,
    )


def unified(schema: pa.Schema, schemas: list[pa.Schema]) -> pa.Schema:
    """A table's schema with types that hold the values of all files; Arrow's own are those of the first file.

    A column may be whole numbers in one file and floats in another, or empty in one. Where no type holds all values,
    the schema stays as it is, and reading the table says which file does not fit.
    """
    for place, field in enumerate(schema):
        if field.name not in schemas[0].names:  # from the name of a folder
            continue
        fields = [pa.schema([(field.name, one.field(field.name).type)]) for one in schemas]
        if all(one.equals(fields[0]) for one in fields):
            continue
        with contextlib.suppress(pa.ArrowInvalid, pa.ArrowTypeError):
            together = pa.unify_schemas(fields, promote_options="permissive").field(0).type
            schema = schema.set(place, field.with_type(together))
    return schema


def parquet_columns(table: pads.Dataset) -> list[str]:
    """The columns of a table without pandas' row labels."""
    return [name for name in table.schema.names if not ROW_LABELS.fullmatch(name)]
