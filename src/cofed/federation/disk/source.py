"""A parquet file or folder as a stream of samples with their clients, checked as they come."""

import dataclasses
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads

from cofed.federation.arrays import common_dtype, common_target_dtype
from cofed.federation.files import parquet, parquet_columns, reading_parquet
from cofed.federation.frames import ColumnChoice

ROWS = 2**16  # rows of a block


@dataclasses.dataclass(frozen=True)
class Source:
    """Where the samples come from, which columns they are made of, and as what they are kept."""

    path: Path
    files: list[Path]
    table: pads.Dataset
    client: Hashable
    targets: list[Hashable]
    columns: list[Hashable]
    record: np.dtype  # of one sample: the fields X and y

    @classmethod
    def open(cls, path: Path, choice: ColumnChoice, dtype: object) -> "Source":
        """The source, once its columns are known to be numbers."""
        with reading_parquet(path):
            files, table = parquet(path)
        roles = choice.among(parquet_columns(table))
        columns, targets = roles.features, roles.targets
        types = {name: number(name, table.schema.field(name).type) for name in [*columns, *targets]}
        x_dtype = common_dtype([common([types[name] for name in columns])], [""], dtype)
        y_dtype = common_target_dtype([common([types[name] for name in targets])], [""], x_dtype)
        y_shape = () if roles.single_target else (len(targets),)
        record = np.dtype([("X", x_dtype, (len(columns),)), ("y", y_dtype, y_shape)])
        return cls(Path(path), files, table, roles.client, targets, columns, record)

    def fingerprint(self) -> dict[str, Any]:
        """What changes when the files or the chosen columns do."""
        base = self.path if self.path.is_dir() else self.path.parent
        stats = [(file, file.stat()) for file in self.files]
        return {
            "files": [[str(file.relative_to(base)), stat.st_size, stat.st_mtime_ns] for file, stat in stats],
            "client": str(self.client),
            "targets": [str(name) for name in self.targets],
            "features": [str(name) for name in self.columns],
            "sample": described(self.record),
        }

    def blocks(self, columns: list[Hashable]) -> Iterator[pa.RecordBatch]:
        """These columns, a block of rows at a time in the order of the files, with little read ahead."""
        options = pads.ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)
        with reading_parquet(self.path, owner=""):
            yield from self.table.to_batches(
                columns=columns,
                batch_size=ROWS,
                batch_readahead=2,
                fragment_readahead=1,
                fragment_scan_options=options,
            )

    def samples(self, block: pa.RecordBatch, owners: "Owners") -> np.ndarray:
        """The samples of a block as records; a refusal names the client and the column."""
        records = np.empty(block.num_rows, self.record)
        X, y = records["X"], records["y"].reshape(block.num_rows, -1)
        for j, name in enumerate(self.columns):
            X[:, j] = finite(block.column(j), name, "X", owners, X.dtype)
        for j, name in enumerate(self.targets, len(self.columns)):
            y[:, j - len(self.columns)] = finite(block.column(j), name, "y", owners, y.dtype)
        return records


@dataclasses.dataclass(frozen=True)
class Owners:
    """The clients that the rows of a block belong to: their names, and which of them each row has."""

    names: pd.Index  # whole numbers as they are, anything else as text
    codes: np.ndarray
    missing: int  # rows without a client

    @classmethod
    def of(cls, column: pa.Array) -> "Owners":
        """The owners of rows, by the names that `from_frame` would give them: the text of pandas' values."""
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()  # type: ignore[attr-defined]
        encoded = column.dictionary_encode()
        values = encoded.dictionary.to_pandas()
        gaps = values.isna().to_numpy()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        missing = int((codes < 0).sum() + np.isin(codes, np.flatnonzero(gaps)).sum())
        whole = pa.types.is_integer(column.type)
        names = pd.Index(values) if whole else pd.Index([str(value) for value in values], dtype=object)
        return cls(names, codes, missing)

    def name(self, row: int) -> str:
        """The client that a row belongs to."""
        return str(self.names[self.codes[row]])


def number(column: Hashable, kind: pa.DataType) -> np.dtype:
    """The dtype of a column, which must hold numbers."""
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise TypeError(
            f"column {column!r} holds {kind} values, and only numbers can be used; encode it "
            "(for example with pandas.get_dummies or .cat.codes) or leave it out"
        )
    return np.dtype(kind.to_pandas_dtype())


def common(dtypes: list[np.dtype]) -> np.dtype:
    """The common dtype of several columns, as for a frame: booleans beside other columns are 0 and 1."""
    if len(dtypes) == 1:
        return dtypes[0]
    return np.result_type(*(np.dtype(np.uint8) if dtype.kind == "b" else dtype for dtype in dtypes))


def finite(column: pa.Array, name: Hashable, part: str, owners: Owners, dtype: np.dtype) -> np.ndarray:
    """A column's numbers in the dtype that they are kept in, all of them finite."""
    if column.null_count:
        refuse_missing(name, owners.name(int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])))
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        bad = ~np.isfinite(values)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            if np.isnan(values[row]):
                refuse_missing(name, owners.name(row))
            where = f"client {owners.name(row)!r}: {part}, column {name!r}"
            raise ValueError(f"{where} holds an infinite number; expected finite numbers")
    if dtype.kind == "i" and values.dtype.kind in "iu":
        beyond = (values < -(2**31)) | (values >= 2**31)
        if beyond.any():
            who = owners.name(int(np.flatnonzero(beyond)[0]))
            raise ValueError(f"client {who!r}: y holds whole numbers beyond 32 bits; pass y as floats")
    with np.errstate(over="ignore"):
        kept = values.astype(dtype, copy=False)
    if values.dtype != dtype and dtype.kind == "f" and not np.isfinite(kept).all():
        who = owners.name(int(np.flatnonzero(~np.isfinite(kept))[0]))
        raise ValueError(f"client {who!r}: {part} holds numbers too large for {dtype}; pass dtype='float64'")
    return kept


def refuse_missing(column: Hashable, client: str) -> NoReturn:
    """Refuse a missing value."""
    raise ValueError(f"client {client!r} has missing values in column {column!r}; drop these rows or fill them in")


def described(record: np.dtype) -> list[Any]:
    """A dtype of samples as JSON."""
    return [[name, record[name].base.str, list(record[name].shape)] for name in ("X", "y")]
