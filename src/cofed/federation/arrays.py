"""Arrays that users give, one X and y per client: checked, brought to one dtype and laid out in memory."""

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import jax
import numpy as np
import numpy.typing as npt
import pandas as pd

from cofed._util import checks, naming
from cofed._util.checks import kind, shown
from cofed._util.types import Given
from cofed.federation import rows

EXACT = 2**53  # whole numbers up to here are exact in 64-bit floating point
Pair = tuple[npt.ArrayLike, npt.ArrayLike]


@dataclasses.dataclass(frozen=True)
class Layout:
    """The checked samples of all clients, as `Federation` keeps them."""

    rows: rows.Rows
    sizes: np.ndarray
    names: tuple[str, ...]
    columns: tuple[str, ...] | None


def layout(clients: object, client_names: object, feature_names: object, dtype: object) -> Layout:
    """What `Federation.from_arrays` is given, checked and put in place."""
    pairs, labels = pairs_of(clients, client_names)
    columns = naming.feature_names(feature_names)
    columns, Xs = align([X for X, _ in pairs], labels, columns)
    Xs = [features(X, name) for X, name in zip(Xs, labels, strict=True)]
    ys = [targets(y, name) for (_, y), name in zip(pairs, labels, strict=True)]
    check_shapes(Xs, ys, labels, columns)
    for (X, y), name in zip(pairs, labels, strict=True):
        warn_of_reordered_index(f"client {name!r}", X, y)
    x_dtype = common_dtype([X.dtype for X in Xs], labels, dtype)
    y_dtype = common_target_dtype([y.dtype for y in ys], labels, x_dtype)

    sizes = np.array([len(X) for X in Xs], np.int32)
    empty = rows.empty_rows(sizes, rows.SampleKind(Xs[0].shape[1:], x_dtype), rows.SampleKind(ys[0].shape[1:], y_dtype))
    for (X_own, y_own), X, y, name in zip(empty.parts(sizes), Xs, ys, labels, strict=True):
        check_finite(X, y, name, columns)
        with np.errstate(over="ignore"):
            rows.fill(X_own, X)
            rows.fill(y_own, y)
        if X.dtype != x_dtype and not np.isfinite(X_own).all():
            raise ValueError(f"client {name!r}: X holds numbers too large for {x_dtype}; pass dtype='float64'")
        if y.dtype.kind == "f" and y.dtype != y_dtype and not np.isfinite(y_own).all():
            raise ValueError(f"client {name!r}: y holds numbers too large for {x_dtype}; pass dtype='float64'")
    if x_dtype == np.float64:
        jax.config.update("jax_enable_x64", True)
    return Layout(empty.as_rows(), sizes, labels, columns)


def pairs_of(clients: object, client_names: object) -> tuple[list[Given[Pair]], tuple[str, ...]]:
    """The pairs (X, y) of a list or a mapping of clients, and the clients' names."""
    if isinstance(clients, Mapping):
        if client_names is not None:
            raise ValueError("a mapping of clients carries their names already; leave names= out")
        client_names, clients = list(clients), list(clients.values())
    elif isinstance(clients, (str, bytes)) or not isinstance(clients, Iterable):
        raise TypeError(f"clients must be a list of (X, y) pairs or a mapping name -> (X, y), got {kind(clients)}")
    if isinstance(clients, (set, frozenset)):
        raise TypeError("clients is a set, which has no order; give a list of (X, y) pairs")
    pairs = checks.items("clients", clients, "pairs (X, y)")
    if not pairs:
        raise ValueError("clients is empty: a federation needs at least one client, got none")
    labels = naming.client_names(client_names, len(pairs))
    for name, pair in zip(labels, pairs, strict=True):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"client {name!r}: expected a pair (X, y), got {kind(pair)}; clients must be a list of pairs"
            )
    return pairs, labels


def align(
    Xs: Given[Sequence[npt.ArrayLike]], client_names: Sequence[str], columns: tuple[str, ...] | None
) -> tuple[tuple[str, ...] | None, list[Given[npt.ArrayLike]]]:
    """The same columns in the same order for every client, where the clients give pandas frames."""
    frames = [X for X in Xs if isinstance(X, pd.DataFrame)]
    if not frames:
        return columns, list(Xs)
    named = [isinstance(X, pd.DataFrame) for X in Xs]
    reference = client_names[named.index(True)]
    if not all(named):
        other = client_names[named.index(False)]
        raise ValueError(f"client {reference!r} has named columns, but client {other!r} has none; give frames for all")
    wanted = columns or tuple(str(column) for column in frames[0].columns)
    source = "feature_names" if columns else f"client {reference!r}"
    return wanted, [in_order(X, name, wanted, source) for X, name in zip(frames, client_names, strict=True)]


def in_order(X: pd.DataFrame, name: str, wanted: tuple[str, ...], source: str) -> pd.DataFrame:
    """A client's frame with the columns that are wanted, and no others."""
    own = [str(column) for column in X.columns]
    if len(set(own)) != len(own):
        twice = next(column for column in own if own.count(column) > 1)
        raise ValueError(f"client {name!r} has two columns called {twice!r}")
    if set(own) != set(wanted):
        difference = columns_differ(own, wanted)
        raise ValueError(f"client {name!r}: its columns differ from those of {source}: it {difference}")
    return X.iloc[:, [own.index(column) for column in wanted]]


def columns_differ(own: Iterable[str], wanted: Iterable[str]) -> str:
    """What a table lacks of the columns that are wanted, and what it has besides them."""
    own, wanted = list(own), list(wanted)
    lacks = [column for column in wanted if column not in own]
    adds = [column for column in own if column not in wanted]
    parts = [f"lacks {naming.listed(lacks)}"] * bool(lacks) + [f"has besides {naming.listed(adds)}"] * bool(adds)
    return " and ".join(parts)


def warn_of_reordered_index(owner: str, X: object, y: object) -> None:
    """Warn where pandas would match the rows of X and y by their index in another order than by position.

    Samples are matched by position everywhere in cofed, as in scikit-learn.
    """
    if not isinstance(X, (pd.DataFrame, pd.Series)) or not isinstance(y, (pd.DataFrame, pd.Series)):
        return
    if len(X) == len(y) and not X.index.equals(y.index) and X.index.sort_values().equals(y.index.sort_values()):
        warnings.warn(
            f"{owner}: X and y have the same row labels in another order. They are matched by position, not by "
            "label; bring them into one order (y = y.loc[X.index]) where that is not meant",
            stacklevel=2,
        )


def table(df: pd.DataFrame, where: str = "") -> np.ndarray:
    """A frame's numbers in their common dtype; pandas alone gives objects where booleans or gaps are mixed in."""
    dtypes = [plain_dtype(column, df.shape[1] > 1, where) for _, column in df.items()]
    common = np.result_type(*dtypes) if dtypes else np.dtype(float)
    return df.to_numpy(common, na_value=np.nan) if common.kind == "f" else df.to_numpy(common)


def plain_dtype(column: pd.Series, together: bool, where: str) -> np.dtype:
    """NumPy's dtype for a column of numbers of any of pandas' kinds, wide enough for NaN where there are gaps.

    Booleans that share a table with other columns (`together`) count as 0 and 1.
    """
    dtype: Any = column.dtype
    if not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_complex_dtype(dtype):
        raise TypeError(
            f"{where}column {column.name!r} holds {dtype} values, and only numbers can be used; encode it "
            "(for example with pandas.get_dummies or .cat.codes) or leave it out"
        )
    plain = dtype.subtype if isinstance(dtype, pd.SparseDtype) else np.dtype(getattr(dtype, "numpy_dtype", dtype))
    if isinstance(dtype, pd.api.extensions.ExtensionDtype) and column.isna().to_numpy().any():
        return np.result_type(plain, np.float32) if plain.kind == "f" else np.dtype(np.float64)
    return np.dtype(np.uint8) if plain.kind == "b" and together else plain


def array(value: object, name: str, what: str) -> np.ndarray:
    """An array of numbers; the sentence of a refusal names the client and says which of X and y it is."""
    if isinstance(value, pd.DataFrame):
        return table(value, f"client {name!r}: ")
    if isinstance(value, pd.Series):
        return table(value.to_frame(value.name or what), f"client {name!r}: ")[:, 0]
    if type(value).__module__.startswith("scipy.sparse"):
        raise TypeError(
            f"client {name!r}: {what} is a sparse matrix of SciPy, expected a dense array; give {what}.toarray() "
            "(estimators take sparse rows as they are)"
        )
    if isinstance(value, Mapping):
        parts = ", ".join(map(repr, value))
        raise TypeError(
            f"client {name!r}: {what} is a mapping of {parts}, expected one array with a row for each sample"
            + ("; join its arrays by numpy.concatenate, and let a model of your own take them apart" * (what == "X"))
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


def numbers(owner: str, what: str, value: object) -> np.ndarray:
    """Samples that belong to no client yet, as an array of numbers."""
    if isinstance(value, (str, bytes, dict, set)) or not isinstance(value, Iterable):
        raise TypeError(f"{owner}: {what} must be an array, got {shown(value)}")
    if isinstance(value, Iterator):
        raise TypeError(f"{owner}: {what} must be an array, got a generator, which can be gone through only once")
    return array(value, owner, what)


def labels_of(name: str, value: object) -> np.ndarray:
    """Labels of any kind, one per sample, as an array."""
    if np.ma.is_masked(value) or isinstance(value, (str, bytes, dict, set)):
        raise TypeError(f"{name} must be arrays of labels without gaps, got {shown(value)}")
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be arrays of labels, got the ragged {shown(value)}") from None


def features(value: object, name: str) -> np.ndarray:
    """A client's X."""
    X = array(value, name, "X")
    if X.ndim < 2:
        raise ValueError(
            f"client {name!r}: X has shape {X.shape}, expected (samples, features...); "
            "a single feature is X.reshape(-1, 1)"
        )
    return X


def targets(value: object, name: str) -> np.ndarray:
    """A client's y."""
    y = array(value, name, "y")
    if y.ndim not in (1, 2):
        raise ValueError(f"client {name!r}: y has shape {y.shape}, expected (samples,) or (samples, targets)")
    return y


def check_shapes(
    Xs: list[np.ndarray], ys: list[np.ndarray], client_names: Sequence[str], columns: tuple[str, ...] | None
) -> None:
    """Refuse clients that are empty or unlike the first."""
    shape = Xs[0].shape[1:]
    for X, y, name in zip(Xs, ys, client_names, strict=True):
        if len(X) != len(y):
            raise ValueError(f"client {name!r}: X has {len(X)} samples, but y has {len(y)}")
        if len(X) == 0:
            raise ValueError(f"client {name!r} is empty; every client needs at least one sample")
        if X.shape[1:] != shape:
            raise ValueError(
                f"client {name!r} has {features_text(X.shape[1:])}, but client {client_names[0]!r} has "
                f"{features_text(shape)}; all clients need the same"
            )
        if y.shape[1:] != ys[0].shape[1:]:
            raise ValueError(
                f"client {name!r}: y has shape {y.shape} and that of client {client_names[0]!r} {ys[0].shape}; "
                "all clients need the same number of targets"
            )
    if 0 in shape:
        raise ValueError(f"X has no features: one sample of client {client_names[0]!r} has shape {shape}")
    if columns is not None and len(columns) != shape[0]:
        raise ValueError(f"feature_names holds {len(columns)} names, but X has {features_text(shape)}")


def features_text(shape: tuple[int, ...]) -> str:
    """The features of one sample, for a sentence."""
    return f"{shape[0]} features" if len(shape) == 1 else f"features of shape {shape}"


def common_dtype(dtypes: list[np.dtype], client_names: Sequence[str], wanted: object) -> np.dtype:
    """The dtype of all clients' features: the one that is wanted, else the one that they have in common."""
    if wanted is not None:
        return floating("dtype", wanted)
    integer = [dtype.kind in "iub" for dtype in dtypes]
    if all(integer):
        return np.dtype(np.float64)
    for dtype, name in zip(dtypes, client_names, strict=True):
        if dtype != dtypes[0] and not (dtype.kind in "iub" and integer[0]):
            raise ValueError(
                f"client {client_names[0]!r} has {dtypes[0]} features and client {name!r} has {dtype}; "
                "convert them to one type, or pass dtype='float32' or dtype='float64'"
            )
    if dtypes[0] not in (np.float32, np.float64):
        raise ValueError(f"features are {dtypes[0]}; pass dtype='float32' or dtype='float64'")
    return dtypes[0]


def floating(name: str, wanted: object) -> np.dtype:
    """float32 or float64, given by name or as a type."""
    try:
        dtype = np.dtype(wanted) if isinstance(wanted, (str, type, np.dtype)) else None
    except TypeError:
        dtype = None
    if dtype is None or dtype not in (np.float32, np.float64):
        raise ValueError(f"{name} must be 'float32' or 'float64', got {shown(wanted)}")
    return dtype


def common_target_dtype(dtypes: list[np.dtype], client_names: Sequence[str], x_dtype: np.dtype) -> np.dtype:
    """The dtype of all clients' targets: that of the features for floats, int32 for whole numbers."""
    for dtype, name in zip(dtypes, client_names, strict=True):
        if (dtype.kind == "f") != (dtypes[0].kind == "f"):
            raise ValueError(
                f"client {client_names[0]!r} has {dtypes[0]} targets and client {name!r} has {dtype}; "
                "make y floats for all clients, or whole numbers for all"
            )
    return x_dtype if dtypes[0].kind == "f" else np.dtype(np.int32)


def check_finite(X: np.ndarray, y: np.ndarray, name: str, columns: tuple[str, ...] | None) -> None:
    """Refuse numbers that are missing, infinite, or too large to be kept exactly."""
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        row, *place = (int(i) for i in np.argwhere(~np.isfinite(X))[0])
        at = place[0] if len(place) == 1 else tuple(place)
        column = repr(columns[place[0]]) if columns and len(place) == 1 else at
        refuse_not_finite(X[(row, *place)], f"client {name!r}: X, column {column}, row {row}")
    if X.dtype.kind in "iu" and X.dtype.itemsize == 8 and (X.max() > EXACT or X.min() < -EXACT):
        raise ValueError(
            f"client {name!r}: X holds whole numbers beyond 2**53, which would be rounded; leave them out where they "
            "are identifiers, or pass X as floats"
        )
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(y))[0])
        refuse_not_finite(y[place], f"client {name!r}: y, row {place[0]}")
    if y.dtype.kind in "iu" and (y.min() < -(2**31) or y.max() >= 2**31):
        raise ValueError(f"client {name!r}: y holds whole numbers beyond 32 bits; pass y as floats")


def refuse_not_finite(value: np.floating, where: str) -> NoReturn:
    """Say what is at a place where a finite number is expected."""
    raise ValueError(f"{where} is {'missing (NaN)' if np.isnan(value) else 'infinite'}; expected finite numbers")
