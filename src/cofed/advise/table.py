"""Prepare a table of all sites' rows for the comparison, with a note on everything that is left out."""

import dataclasses
import difflib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from cofed._util import naming
from cofed._util.pandas_types import Frame, Series
from cofed.federation import Federation
from cofed.federation.files import read_csv
from cofed.losses import Logistic, Poisson, Softmax, Squared
from cofed.models import Linear
from cofed.problem import Problem

LEVELS = 20  # a text column with more distinct values than this is not treated as categorical
GAPS = 0.05  # a column with a larger share of missing values is left out; below it, the incomplete rows are
MODELS = {"linear": Squared, "logistic": Logistic, "multinomial": Softmax, "poisson": Poisson}
FEATURES = 1000  # the exact solver factorises matrices of this size


@dataclasses.dataclass(frozen=True)
class Columns:
    """The role of each column of a table.

    Parameters
    ----------
    target
        The column to predict.
    client
        The column that names a row's site.
    group
        Rows with the same value here, such as those of one person, are never split between folds.
    features
        The columns to predict from; None takes all others.
    drop
        Columns to ignore.
    """

    target: str
    client: str
    group: str | None = None
    features: Sequence[str] | None = None
    drop: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The sites' data on one scale, the model that the target suggests, and what was done to get there."""

    federation: Federation
    problem: Problem
    kind: str  # a key of MODELS
    groups: list[np.ndarray] | None  # per site, the group of each row
    excluded: dict[str, str]  # sites left out, and why
    notes: list[str]  # what else was done, a sentence each
    target: str


def read(path: Path, client: str) -> Frame:
    """Read a CSV or Parquet file (or a folder of Parquet files); site names are read as text."""
    if not path.exists():
        raise ValueError(f"there is no file {path}")
    if path.is_dir() or path.suffix == ".parquet":
        try:
            return pd.read_parquet(path)
        except Exception as error:
            raise ValueError(f"{path} could not be read as Parquet: {str(error).splitlines()[0]}") from None
    if path.suffix in (".csv", ".tsv", ".txt") or path.name.endswith((".csv.gz", ".tsv.gz")):
        return read_csv(path, client, sep=None)
    raise ValueError(f"{path} ends in {path.suffix!r}; give a .csv or a .parquet file")


def prepare(df: Frame, columns: Columns, model: str | None = None, folds: int = 5) -> Prepared:
    """Encode and scale the features, leave out what cannot be used, and choose the model.

    Parameters
    ----------
    df
        The rows of all sites.
    columns
        The role of each column.
    model
        A key of `MODELS`; None chooses one by the target's values.
    folds
        Folds of the cross-validation that follows: a site needs two rows (or groups) for each.

    Returns
    -------
    Prepared
        The federation and the problem, with notes on what was left out.

    Raises
    ------
    ValueError
        Where a column is missing, or no comparison is possible.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from cofed.advise.table import Columns, prepare
    >>> df = pd.DataFrame({"site": ["a", "b"] * 30, "age": np.arange(60.0), "ill": [0, 0, 1] * 20})
    >>> ready = prepare(df, Columns(target="ill", client="site"))
    >>> ready.kind, ready.federation.names, ready.federation.feature_names
    ('logistic', ('a', 'b'), ('age',))
    """
    notes: list[str] = []
    df, chosen = with_roles(df, columns)
    target, client, group = columns.target, columns.client, columns.group
    df = drop_rows(df, target, f"the target {target!r} is missing", notes)
    for column in (client, group):
        if column is not None:
            df = drop_rows(df, column, f"{column!r} is missing", notes)
    if df[client].nunique() < 2:
        only = df[client].iloc[0]
        raise ValueError(
            f"the client column {client!r} has the one value {only}: there is nothing to compare; name the column "
            "that tells the sites apart with --client"
        )
    kind = kind_of(df[target], target, model, notes)
    y = encode_target(df[target], target, kind, notes)
    X = encode_features(df[chosen], columns.features is not None, notes)
    whole = X.notna().all(axis=1)
    if not whole.all():
        notes.append(f"{(~whole).sum():,} of {len(X):,} rows are left out: a feature is missing there.")
        df, X, y = df[whole.to_numpy()], X[whole], y[whole.to_numpy()]
    if not len(X):
        raise ValueError("no row is left in which all features are there; name those that matter with --features")
    sites = df[client].astype(str).to_numpy()
    labels = None if group is None else df[group].to_numpy()
    excluded = unfit_sites(sites, y, labels, kind, folds)
    keep = ~np.isin(sites, list(excluded))
    if len(set(sites[keep])) < 2:
        reasons = "; ".join(f"{name}: {why}" for name, why in list(excluded.items())[:5])
        raise ValueError(f"fewer than two sites can be compared ({reasons})")
    X, y, sites = independent(X[keep], notes), y[keep], sites[keep]
    outputs = len(set(y)) - 1 if kind == "multinomial" else 1
    if X.shape[1] * outputs > FEATURES:
        raise ValueError(
            f"there are {X.shape[1]} feature columns"
            + (f" for {outputs + 1} classes" if outputs > 1 else "")
            + f", and at most {FEATURES // outputs} work here; use --features"
        )
    scaled = (X - X.mean()) / X.std(ddof=0)
    table = scaled.assign(__y=y, __site=sites)
    federation = Federation.from_frame(table, target="__y", client="__site", features=list(X.columns), dtype="float64")
    groups = None
    if labels is not None:
        groups = [labels[keep][sites == name] for name in federation.names]
    problem = Problem(Linear(), MODELS[kind]())
    return Prepared(federation, problem, kind, groups, excluded, notes, target)


def with_roles(df: Frame, columns: Columns) -> tuple[Frame, list[str]]:
    """The table with text as column names, and its feature columns, once every named column exists and has one role."""
    names = [str(name) for name in df.columns]
    df = df.set_axis(names, axis="columns")
    check_names(names, columns)
    if len(df) == 0:
        raise ValueError("the table has no rows")
    taken = {columns.target, columns.client, columns.group}
    if columns.features is None:
        others = [name for name in names if name not in taken]
    else:
        others = list(columns.features)
        if both := sorted(set(others) & taken):
            raise ValueError(f"{both[0]!r} cannot be a feature: it is the target, the client or the group")
    chosen = [name for name in dict.fromkeys(others) if name not in columns.drop]
    if not chosen:
        raise ValueError("no feature column is left beside the target and the client")
    return df, chosen


def check_names(names: list[str], columns: Columns) -> None:
    """Refuse column names that are there twice, and roles given to columns that are missing or have another role."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"the column {twice[0]!r} is there twice; column names must differ")
    for role, named in (
        ("target", [columns.target]),
        ("client", [columns.client]),
        ("group", [columns.group] if columns.group is not None else []),
        ("feature", columns.features or []),
        ("drop", columns.drop),
    ):
        for name in named:
            if name not in names:
                near = difflib.get_close_matches(name, names, 3)
                hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
                raise ValueError(f"there is no {role} column {name!r}{hint} The columns are {naming.listed(names)}")
    if len({columns.target, columns.client, columns.group}) < 3:
        raise ValueError("the target, the client and the group must be different columns")


def drop_rows(df: Frame, column: str, why: str, notes: list[str]) -> Frame:
    """Drop the rows in which a column has no value."""
    whole = df[column].notna()
    if not whole.any():
        raise ValueError(f"{why} in every row")
    if not whole.all():
        notes.append(f"{(~whole).sum():,} of {len(df):,} rows are left out: {why} there.")
    return df[whole]


def kind_of(y: Series, name: str, asked: str | None, notes: list[str]) -> str:
    """The kind of model: the one that was asked for, or the one that the target's values suggest."""
    distinct, numeric = y.nunique(), pd.api.types.is_numeric_dtype(y)
    if distinct == 1:
        raise ValueError(f"the target {name!r} has the one value {y.iloc[0]}: there is nothing to predict")
    if asked is not None:
        check_kind(asked, y, name)
        return asked
    if distinct == 2:
        return "logistic"
    if not numeric:
        if distinct > LEVELS:
            raise ValueError(f"the target {name!r} holds {distinct} different texts, too many for classes")
        return "multinomial"
    whole = pd.api.types.is_integer_dtype(y) and y.min() >= 0 and distinct <= LEVELS
    if whole:
        notes.append(
            f"{name!r} has {distinct} whole values and is taken as a quantity (a linear model); "
            "--model poisson takes it as counts, --model multinomial as classes."
        )
    return "linear"


def check_kind(asked: str, y: Series, name: str) -> None:
    """Refuse a kind of model that the target's values do not fit."""
    distinct, numeric = y.nunique(), pd.api.types.is_numeric_dtype(y)
    if asked not in MODELS:
        raise ValueError(f"there is no model {asked!r}; there are {', '.join(MODELS)}")
    if asked == "logistic" and distinct != 2:
        raise ValueError(f"a logistic model needs a target with two values, and {name!r} has {distinct}")
    if asked in ("linear", "poisson") and not numeric:
        raise ValueError(f"a {asked} model needs numbers, and the target {name!r} holds text")
    if asked == "poisson" and (y.min() < 0 or (y != y.round()).any()):
        raise ValueError(f"a Poisson model needs counts 0, 1, 2, ..., and the target {name!r} has others")


def encode_target(y: Series, name: str, kind: str, notes: list[str]) -> np.ndarray:
    """Encode the target as the loss expects it: numbers, or classes 0, 1, ..."""
    if kind in ("linear", "poisson"):
        return y.to_numpy(float)
    values = sorted(y.unique(), key=str) if y.dtype == object else sorted(y.unique())
    if kind == "logistic" and [str(v) for v in values] not in (["0", "1"], ["False", "True"], ["0.0", "1.0"]):
        notes.append(f"{name!r} = {values[1]} counts as 1, {values[0]} as 0.")
    return pd.Categorical(y, categories=values).codes.astype(np.int64)


def encode_features(X: Frame, asked: bool, notes: list[str]) -> Frame:
    """Turn categories into indicators, and leave out identifiers, dates, free text and columns with many gaps.

    Columns that the user `asked` for by name are kept even where many of their values are missing.
    """
    gaps = X.isna().mean()
    left: dict[str, list[str]] = {}
    parts = []
    for column in X:
        values = X[column]
        if gaps[column] > GAPS and not asked:
            left.setdefault(f"more than {GAPS:.0%} of their values are missing", []).append(column)
        elif pd.api.types.is_bool_dtype(values):
            parts.append(values.astype(float))
        elif pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_complex_dtype(values):
            if pd.api.types.is_integer_dtype(values) and values.nunique() == len(values) > LEVELS:
                left.setdefault("a different value in every row, taken as an identifier", []).append(column)
            else:
                parts.append(values.astype(float).replace([np.inf, -np.inf], np.nan))
        elif pd.api.types.is_datetime64_any_dtype(values) or values.nunique() > LEVELS:
            comma = values.dropna().astype(str).str.fullmatch(r"-?\d+,\d+").all()
            why = "numbers with a decimal comma: write a point" if comma else "neither numbers nor a few categories"
            left.setdefault(why, []).append(column)
        else:
            indicators = pd.get_dummies(values, prefix=column, prefix_sep="=", drop_first=True, dtype=float)
            indicators[values.isna().to_numpy()] = np.nan
            parts.append(indicators)
    for why, columns in left.items():
        notes.append(f"Columns left out ({why}): {', '.join(columns)}.")
    if not parts:
        raise ValueError("no feature column can be used: " + " ".join(notes[-len(left) :]))
    return pd.concat(parts, axis=1)


def independent(X: Frame, notes: list[str]) -> Frame:
    """Leave out columns that are constant or linear combinations of the columns before them."""
    constant = [c for c in X if X[c].nunique() == 1]
    if constant:
        notes.append(f"Columns left out (constant): {', '.join(constant)}.")
        X = X.drop(columns=constant)
    if X.shape[1] == 0:
        raise ValueError(f"no feature column is left: {', '.join(constant)} are constant")
    scaled = ((X - X.mean()) / X.std(ddof=0)).to_numpy()
    # A column in the span of those before it has a diagonal entry of about 0 in the R of a QR factorisation.
    diagonal = np.abs(np.diag(np.linalg.qr(scaled, mode="r")))
    bound = 1e-8 * np.sqrt(len(scaled))
    determined = [c for c, size in zip(X, diagonal, strict=False) if size < bound] + list(X.columns[len(diagonal) :])
    if determined:
        notes.append(f"Columns left out (the others determine them): {', '.join(determined)}.")
        X = X.drop(columns=determined)
    return X


def unfit_sites(sites: np.ndarray, y: np.ndarray, groups: np.ndarray | None, kind: str, folds: int) -> dict[str, str]:
    """The sites that cannot take part, with the reason."""
    excluded = {}
    for name in sorted(set(sites), key=naming.natural):
        rows = sites == name
        units = int(rows.sum()) if groups is None else len(set(groups[rows]))
        if units < 2 * folds:
            what = "rows" if groups is None else "groups"
            excluded[name] = f"only {units} {what}, at least {2 * folds} are needed to hold some out"
        elif len(set(y[rows])) == 1:
            value = "one class" if kind in ("logistic", "multinomial") else "one value"
            excluded[name] = f"its target has {value} only"
    return excluded
