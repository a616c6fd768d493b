"""One table of all clients' samples: which column is what, and whose each row is."""

import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from cofed._util import checks, naming
from cofed._util.checks import kind, shown
from cofed.federation.arrays import Pair, table


@dataclasses.dataclass(frozen=True)
class ColumnRoles:
    """The columns of a table by what they are used for."""

    targets: list[Hashable]
    client: Hashable
    features: list[Hashable]
    single_target: bool  # whether the target was given as one column, so that y is a vector


@dataclasses.dataclass(frozen=True)
class ColumnChoice:
    """The columns that a user asks for, before the table is known."""

    target: object
    client: object
    features: object = None  # None: all that are left

    def among(self, have: Sequence[Hashable]) -> ColumnRoles:
        """The roles of a table's columns; what is not there, or there twice, is refused."""
        targets = list(self.target) if isinstance(self.target, (list, tuple)) else [self.target]
        if isinstance(self.features, str):
            raise TypeError(f"features must be a list of columns, got the string {self.features!r}")
        chosen = None if self.features is None else checks.items("features", self.features, "columns")
        given = (("target", targets or [self.target]), ("client", [self.client]), ("features", chosen or []))
        for role, columns in given:
            for column in columns:
                require_column(role, column)
        features = [c for c in have if c not in targets and c != self.client] if chosen is None else chosen
        for role, columns in (("target", targets), ("client", [self.client]), ("feature", features)):
            for column in columns:
                require_there(role, column, have)
        require_apart(targets, self.client, features)
        single = not isinstance(self.target, (list, tuple))
        return ColumnRoles(targets, self.client, features, single)  # type: ignore[arg-type]


def require_column(role: str, name: object) -> None:
    """Refuse what cannot be the name of a column."""
    if name is None or name is pd.NA or not isinstance(name, Hashable) or (isinstance(name, tuple) and not name):
        raise TypeError(f"{role} must name a column, got {shown(name)}")


def require_there(role: str, column: object, have: Sequence[Hashable]) -> None:
    """Refuse a column that the table does not have, or has more than once."""
    if not any(column is one or same(column, one) for one in have):
        where = "features: " if role == "feature" else ""
        raise ValueError(f"{where}there is no {role} column {shown(column)}; the columns are {naming.listed(have)}")
    if list(have).count(column) > 1:  # type: ignore[arg-type]
        times = list(have).count(column)  # type: ignore[arg-type]
        raise ValueError(f"the column {column!r} is there {times} times; column names must differ")


def same(one: object, other: object) -> bool:
    """Whether two names of columns are the same; 1 and True are not."""
    return type(one) is type(other) and bool(one == other)


def require_apart(targets: Sequence[object], client: object, features: Sequence[object]) -> None:
    """Refuse a column with two roles or given twice, and a table without features."""
    if client in targets or client in features or set(targets) & set(features):
        raise ValueError("target, client and features must be different columns")
    for given, columns in (("target", targets), ("features", features)):
        if len(set(columns)) != len(columns):
            twice = next(column for column in columns if list(columns).count(column) > 1)
            raise ValueError(f"{given} names the column {twice!r} twice")
    if not features:
        raise ValueError("no feature column is left beside the target and the client: check features")


def clients_of(df: object, choice: ColumnChoice, clients: object) -> tuple[list[Pair], list[str], list[Hashable]]:
    """The pairs (X, y), the names of the clients and the columns of X, from one frame."""
    if not isinstance(df, pd.DataFrame):
        raise TypeError(f"df: from_frame expects a pandas DataFrame, got {kind(df)}; see from_arrays for arrays")
    if not len(df.columns):
        raise ValueError("df has no columns")
    roles = choice.among(list(df.columns))
    if len(df) == 0:
        raise ValueError("the frame has no rows; a federation needs at least one sample")
    missing = int(np.sum(df[roles.client].isna().to_numpy()))
    if missing:
        raise ValueError(
            f"column {roles.client!r} names the client, but {missing} of {len(df)} rows have no value there"
        )
    codes, values = pd.factorize(df[roles.client])
    found = [str(value) for value in values]
    order = order_of(found, clients, roles.client)
    check_gaps(df.loc[:, [*roles.features, *roles.targets]], codes, found, order)
    # One stable sort brings every client's rows together, in their order in the frame.
    rows = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(found)))
    X, y = table(df.loc[:, roles.features])[rows], table(df.loc[:, roles.targets])[rows]
    if roles.single_target:
        y = y[:, 0]
    starts = np.concatenate([[0], ends[:-1]])
    pairs: list[Pair] = [(X[starts[c] : ends[c]], y[starts[c] : ends[c]]) for c in order]
    return pairs, [found[c] for c in order], roles.features


def order_of(found: list[str], clients: object, column: Hashable) -> list[int]:
    """The clients to take: those that are asked for, or all in the natural order of their names."""
    if clients is None:
        return sorted(range(len(found)), key=lambda code: naming.natural(found[code]))
    wanted = [str(name) for name in checks.items("clients", clients, "client names")]
    absent = [name for name in wanted if name not in set(found)]
    if absent:
        raise ValueError(
            f"clients: client {naming.listed(absent)} not found in column {column!r}; there are {naming.listed(found)}"
        )
    return [found.index(name) for name in wanted]


def check_gaps(df: pd.DataFrame, codes: np.ndarray, found: list[str], order: list[int]) -> None:
    """Refuse missing values, naming the column and the client that has most of them."""
    for column in df.columns:
        gaps = np.bincount(codes, weights=df[column].isna(), minlength=len(found)).astype(int)[order]
        if gaps.any():
            worst = int(gaps.argmax())
            raise ValueError(
                f"client {found[order[worst]]!r} has {gaps[worst]} missing values in column {column!r} "
                f"({gaps.sum()} over all clients); drop these rows or fill them in"
            )
