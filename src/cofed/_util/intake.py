"""What comes in from users: names, arrays and tables, checked, with a sentence where something is wrong."""

import datetime
import re
import unicodedata
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from cofed._util import checks
from cofed._util.checks import kind as kind
from cofed._util.checks import shown

EXACT = 2**53  # the whole numbers up to here are exact in 64 bits of floating point
LABELS = (str, int, float, tuple, np.integer, np.floating, datetime.date, np.datetime64)  # what names may be
INDEX = re.compile(r"__index_level_\d+__")  # where pandas keeps the row labels of a frame in a parquet file


def listed(names: Iterable[Any]) -> str:
    """Names for a sentence; a thousand clients would bury it."""
    shown = [repr(name) for name in names]
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")


def natural(name: str) -> bytes:
    """A sort key with "2" < "10": digits compare as numbers (by length, then by value), the rest as text.

    Bytes, because a million names are sorted by them: a text ends with a mark below all that may follow in a longer
    one, and a number begins with its length. The name itself breaks ties such as "1" and "01".
    """
    parts = re.split(r"([0-9]+)", name)
    for i, part in enumerate(parts):
        if i % 2:
            digits = part.lstrip("0")
            parts[i] = f"\x01{chr(len(digits))}{digits}"  # a length beyond Unicode would be no name
        else:
            parts[i] = part.replace("\x00", "\x00\x02") + "\x00\x01"
    return "".join([*parts, "\x00", name]).encode("utf-8", "surrogatepass")


def ranks(names: Sequence[str]) -> np.ndarray:
    ranks = np.empty(len(names), np.int32)
    ranks[sorted(range(len(names)), key=lambda m: natural(names[m]))] = np.arange(len(names), dtype=np.int32)
    return ranks


def client_names(names: Iterable[Any] | None, count: int) -> tuple[str, ...]:
    if names is None:
        return tuple(str(m) for m in range(count))
    given = checks.items("names", names, "client names")
    labels = tuple(label("names", name) for name in given)
    if len(labels) != count:
        raise ValueError(f"names= holds {len(labels)} names for {count} clients; give one name per client")
    require_different("client names", labels)
    return labels


def label(given: str, name: Any) -> str:
    """A name as text: of a text, a number, a date or a tuple of these, which all say what they are."""
    if isinstance(name, (bool, np.bool_)) or not isinstance(name, LABELS) or name != name:
        raise TypeError(f"{given} must hold texts or whole numbers, got {shown(name)}")
    return str(name)


def require_different(what: str, labels: Iterable[str]) -> None:
    """Refuse a name that is there twice, also where only its Unicode differs, which nobody sees."""
    seen: set[str] = set()
    for label in labels:
        same = label if label.isascii() else unicodedata.normalize("NFC", label)
        if same in seen:
            raise ValueError(f"{what} must differ, but {label!r} is given twice")
        seen.add(same)


def feature_labels(names: Iterable[Any] | None) -> tuple[str, ...] | None:
    """Names of features, which differ."""
    if names is None:
        return None
    labels = tuple(label("feature_names", name) for name in checks.items("feature_names", names, "names of features"))
    require_different("feature_names", labels)
    return labels


def align(
    Xs: list[Any], names: Sequence[str], columns: tuple[str, ...] | None
) -> tuple[tuple[str, ...] | None, list[Any]]:
    """Pandas columns in the same order for every client."""
    frames = [isinstance(X, pd.DataFrame) for X in Xs]
    if not any(frames):
        return columns, Xs
    reference = names[frames.index(True)]
    if not all(frames):
        other = names[frames.index(False)]
        raise ValueError(f"client {reference!r} has named columns, but client {other!r} has none; give frames for all")
    wanted = columns or tuple(str(column) for column in Xs[0].columns)
    source = "feature_names" if columns else f"client {reference!r}"
    aligned = []
    for X, name in zip(Xs, names, strict=True):
        own = [str(column) for column in X.columns]
        if len(set(own)) != len(own):
            twice = next(column for column in own if own.count(column) > 1)
            raise ValueError(f"client {name!r} has two columns called {twice!r}")
        if set(own) != set(wanted):
            lacks = [column for column in wanted if column not in own]
            adds = [column for column in own if column not in wanted]
            parts = [f"lacks {listed(lacks)}"] * bool(lacks) + [f"has besides {listed(adds)}"] * bool(adds)
            raise ValueError(f"client {name!r}: its columns differ from those of {source}: it {' and '.join(parts)}")
        aligned.append(X.iloc[:, [own.index(column) for column in wanted]])
    return wanted, aligned


def table(df: Any, where: str = "") -> np.ndarray:
    """A frame's numbers in their common dtype; pandas gives objects where booleans or gaps are mixed in."""
    dtypes = []
    for column, dtype in df.dtypes.items():
        if not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_complex_dtype(dtype):
            raise TypeError(
                f"{where}column {column!r} holds {dtype} values, and only numbers can be used; encode it "
                "(for example with pandas.get_dummies or .cat.codes) or leave it out"
            )
        plain = dtype.subtype if isinstance(dtype, pd.SparseDtype) else np.dtype(getattr(dtype, "numpy_dtype", dtype))
        if isinstance(dtype, pd.api.extensions.ExtensionDtype) and df[column].isna().any():
            plain = np.result_type(plain, np.float32) if plain.kind == "f" else np.dtype(np.float64)
        dtypes.append(np.dtype(np.uint8) if plain.kind == "b" and df.shape[1] > 1 else plain)
    common = np.result_type(*dtypes) if dtypes else np.dtype(float)
    return df.to_numpy(dtype=common, **({"na_value": np.nan} if common.kind == "f" else {}))


def array(value: Any, name: str, what: str) -> np.ndarray:
    if isinstance(value, pd.DataFrame):
        return table(value, f"client {name!r}: ")
    if isinstance(value, pd.Series):
        return table(value.to_frame(value.name or what), f"client {name!r}: ")[:, 0]
    if type(value).__module__.startswith("scipy.sparse"):
        raise TypeError(
            f"client {name!r}: {what} is a sparse matrix of SciPy, expected a dense array; give {what}.toarray()"
        )
    if np.ma.is_masked(value):
        raise ValueError(
            f"client {name!r}: {what} has {np.ma.count_masked(value)} masked entries, whose values are not known; "
            "drop these rows or fill them in"
        )
    try:
        array = np.asarray(value)
    except ValueError as error:  # a ragged list
        raise ValueError(f"client {name!r}: {what} is not a regular array: {error}") from None
    if array.dtype.kind not in "fiub":
        hint = "encode text as numbers" if array.dtype.kind in "OSUT" else "convert them first"
        raise TypeError(f"client {name!r}: {what} holds {array.dtype} values, expected numbers; {hint}")
    return array


def numbers(owner: str, what: str, value: Any) -> np.ndarray:
    """Samples that are not handed out yet, as an array of numbers."""
    if isinstance(value, (str, bytes, dict, set)) or not isinstance(value, Iterable):
        raise TypeError(f"{owner}: {what} must be an array, got {shown(value)}")
    if isinstance(value, Iterator):
        raise TypeError(f"{owner}: {what} must be an array, got a generator, which can be gone through only once")
    return array(value, owner, what)


def features(value: Any, name: str) -> np.ndarray:
    X = array(value, name, "X")
    if X.ndim < 2:
        raise ValueError(
            f"client {name!r}: X has shape {X.shape}, expected (samples, features...); "
            "a single feature is X.reshape(-1, 1)"
        )
    return X


def targets(value: Any, name: str) -> np.ndarray:
    y = array(value, name, "y")
    if y.ndim not in (1, 2):
        raise ValueError(f"client {name!r}: y has shape {y.shape}, expected (samples,) or (samples, targets)")
    return y


def check_shapes(
    Xs: list[np.ndarray], ys: list[np.ndarray], names: Sequence[str], columns: tuple[str, ...] | None
) -> None:
    shape, targets = Xs[0].shape[1:], ys[0].shape[1:]
    for X, y, name in zip(Xs, ys, names, strict=True):
        if len(X) != len(y):
            raise ValueError(f"client {name!r}: X has {len(X)} samples, but y has {len(y)}")
        if len(X) == 0:
            raise ValueError(f"client {name!r} is empty; every client needs at least one sample")
        if X.shape[1:] != shape:
            raise ValueError(
                f"client {name!r} has {features_text(X.shape[1:])}, but client {names[0]!r} has "
                f"{features_text(shape)}; all clients need the same"
            )
        if y.shape[1:] != targets:
            raise ValueError(
                f"client {name!r}: y has shape {y.shape} and that of client {names[0]!r} {ys[0].shape}; "
                "all clients need the same number of targets"
            )
    if 0 in shape:
        raise ValueError(f"X has no features: one sample of client {names[0]!r} has shape {shape}")
    if columns is not None and len(columns) != shape[0]:
        raise ValueError(f"feature_names holds {len(columns)} names, but X has {features_text(shape)}")


def features_text(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} features" if len(shape) == 1 else f"features of shape {shape}"


def common_dtype(dtypes: list[np.dtype], names: Sequence[str], wanted: Any) -> np.dtype:
    if wanted is not None:
        return floating("dtype", wanted)
    integer = [dtype.kind in "iub" for dtype in dtypes]
    if all(integer):
        return np.dtype(np.float64)
    for dtype, name in zip(dtypes, names, strict=True):
        if dtype != dtypes[0] and not (dtype.kind in "iub" and integer[0]):
            raise ValueError(
                f"client {names[0]!r} has {dtypes[0]} features and client {name!r} has {dtype}; "
                "convert them to one type, or pass dtype='float32' or dtype='float64'"
            )
    if dtypes[0] not in (np.float32, np.float64):
        raise ValueError(f"features are {dtypes[0]}; pass dtype='float32' or dtype='float64'")
    return dtypes[0]


def floating(name: str, wanted: Any) -> np.dtype:
    """float32 or float64, by its name or as a type."""
    try:
        dtype = np.dtype(wanted) if isinstance(wanted, (str, type, np.dtype)) else None
    except TypeError:
        dtype = None
    if dtype is None or dtype not in (np.float32, np.float64):
        raise ValueError(f"{name} must be 'float32' or 'float64', got {shown(wanted)}")
    return dtype


def common_target_dtype(dtypes: list[np.dtype], names: Sequence[str], x_dtype: np.dtype) -> np.dtype:
    for dtype, name in zip(dtypes, names, strict=True):
        if (dtype.kind == "f") != (dtypes[0].kind == "f"):
            raise ValueError(
                f"client {names[0]!r} has {dtypes[0]} targets and client {name!r} has {dtype}; "
                "make y floats for all clients, or whole numbers for all"
            )
    return x_dtype if dtypes[0].kind == "f" else np.dtype(np.int32)


def check_finite(X: np.ndarray, y: np.ndarray, name: str, columns: tuple[str, ...] | None) -> None:
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        row, *place = (int(i) for i in np.argwhere(~np.isfinite(X))[0])
        at = place[0] if len(place) == 1 else tuple(place)
        column = repr(columns[place[0]]) if columns and len(place) == 1 else at
        not_finite(X[(row, *place)], f"client {name!r}: X, column {column}, row {row}")
    if X.dtype.kind in "iu" and X.dtype.itemsize == 8 and (X.max() > EXACT or X.min() < -EXACT):
        raise ValueError(
            f"client {name!r}: X holds whole numbers beyond 2**53, which would be rounded; leave them out where they "
            "are identifiers, or pass X as floats"
        )
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(y))[0])
        not_finite(y[place], f"client {name!r}: y, row {place[0]}")
    if y.dtype.kind in "iu" and (y.min() < -(2**31) or y.max() >= 2**31):
        raise ValueError(f"client {name!r}: y holds whole numbers beyond 32 bits; pass y as floats")


def not_finite(value: Any, where: str) -> NoReturn:
    raise ValueError(f"{where} is {'missing (NaN)' if np.isnan(value) else 'infinite'}; expected finite numbers")


def columns(have: list[Any], target: Any, client: Any, features: Any) -> tuple[list[Any], list[Any]]:
    """(targets, features) of a table, refused where one is not there."""
    targets = list(target) if isinstance(target, (list, tuple)) else [target]
    if isinstance(features, str):
        raise TypeError(f"features must be a list of columns, got the string {features!r}")
    chosen = None if features is None else checks.items("features", features, "columns")
    for given, names in (("target", targets or [target]), ("client", [client]), ("features", chosen or [])):
        for name in names:
            require_column(given, name)
    columns = [c for c in have if c not in targets and c != client] if chosen is None else chosen
    roles = [("target", c) for c in targets] + [("client", client)] + [("feature", c) for c in columns]
    for role, column in roles:
        if not any(column is one or same(column, one) for one in have):
            where = "features: " if role == "feature" else ""
            raise ValueError(f"{where}there is no {role} column {shown(column)}; the columns are {listed(have)}")
        if have.count(column) > 1:
            raise ValueError(f"the column {column!r} is there {have.count(column)} times; column names must differ")
    if client in targets or client in columns or set(targets) & set(columns):
        raise ValueError("target, client and features must be different columns")
    for given, names in (("target", targets), ("features", columns)):
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{given} names the column {twice!r} twice")
    if not columns:
        raise ValueError("no feature column is left beside the target and the client: check features")
    return targets, columns


def require_column(given: str, name: Any) -> None:
    """Refuse what is no column's name."""
    if name is None or name is pd.NA or not isinstance(name, Hashable) or (isinstance(name, tuple) and not name):
        raise TypeError(f"{given} must name a column, got {shown(name)}")


def same(one: Any, other: Any) -> bool:
    """Whether two names of columns are the same; 1 and True are not."""
    return type(one) is type(other) and bool(one == other)


def existing(path: Any) -> Path:
    path = checks.path("path", path)
    if not path.exists():
        raise FileNotFoundError(f"path: there is no file or folder {path}")
    return path


def parquet(path: Any) -> tuple[list[Path], pads.Dataset]:
    """The parquet files of a path, and the table that they are together."""
    path = existing(path)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"the folder {path} holds no file that ends in .parquet")
    table = pads.dataset(
        [str(file) for file in files],
        format="parquet",
        partitioning=pads.partitioning(flavor="hive"),
        partition_base_dir=str(path) if path.is_dir() else None,
    )
    first, *others = files
    wanted = set(pq.read_schema(first).names)
    for file in others:
        found = set(pq.read_schema(file).names)
        if found != wanted:
            more, fewer = sorted(found - wanted), sorted(wanted - found)
            parts = [f"has besides {listed(more)}"] * bool(more) + [f"lacks {listed(fewer)}"] * bool(fewer)
            raise ValueError(f"{file}: its columns differ from those of {first.name}: it {' and '.join(parts)}")
    return files, table


def parquet_columns(table: pads.Dataset) -> list[str]:
    """The columns of a table; pandas' row labels are none."""
    return [name for name in table.schema.names if not INDEX.fullmatch(name)]


def weights(kind: Any, sizes: np.ndarray, dtype: Any) -> np.ndarray:
    """pi_m, which sum to 1: "uniform", "samples" (n_m / N) or one number per client."""
    if isinstance(kind, str) and kind == "uniform":
        raw = np.ones(len(sizes))
    elif isinstance(kind, str) and kind == "samples":
        raw = np.asarray(sizes, float)
    else:
        try:
            given = np.asarray(kind)
        except (TypeError, ValueError):  # a ragged list
            given = np.empty(0, object)
        if given.dtype.kind not in "fiu" or given.shape != (len(sizes),) or np.ma.is_masked(kind):
            raise ValueError(
                "weights must be 'uniform', 'samples' or one number per client"
                + ("" if isinstance(kind, str) else f" ({len(sizes)} clients)")
                + f", got {shown(kind)}"
            )
        raw = given.astype(float)
        if not (np.isfinite(raw).all() and (raw >= 0).all() and 0 < raw.sum() < np.inf):
            raise ValueError(f"weights must be finite and nonnegative with a positive sum, got {shown(raw.tolist())}")
    return (raw / raw.sum()).astype(dtype)


def require_seed(owner: str, seed: Any) -> None:
    """Refuse what is not a whole number >= 0; NumPy's generators take any size."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"{owner}: seed must be a whole number >= 0, got {shown(seed)}")


def labels_of(name: str, value: Any) -> np.ndarray:
    """Labels of any kind, one per sample, as an array."""
    if np.ma.is_masked(value) or isinstance(value, (str, bytes, dict, set)):
        raise TypeError(f"{name} must be arrays of labels without gaps, got {shown(value)}")
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be arrays of labels, got the ragged {shown(value)}") from None
