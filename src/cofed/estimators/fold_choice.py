"""What `cv=` can be: a number of folds, a column of groups, a fold for each site, or splits of scikit-learn."""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import BaseCrossValidator

from cofed._util.types import Given
from cofed.estimators.checks import check_count
from cofed.sites import AbstractSites, Folds, GivenFolds, GroupFolds, SiteFolds
from cofed.sites.intake import Clients, FitFeatures, Labels, row_order
from cofed.sites.row_options import RowOptions

Splits: TypeAlias = Iterable[tuple[np.ndarray, np.ndarray]]
CV: TypeAlias = Given[int | str | tuple[str, int] | BaseCrossValidator | Splits]

BY_SITE = "leave-one-site-out"
FOLDS = 5  # of groups, where no number is given
MOST = 10_000
WORDS = (
    f"cv must be a number of folds, {BY_SITE!r}, the name of a column of groups (or that and a number: ('patient', "
    "10)), a splitter of scikit-learn, or its splits"
)


class AskedFolds(NamedTuple):
    """What `cv=` asks for, of some rows."""

    n_folds: int  # 0 where every site is a fold
    column: str | None = None  # whose values are groups
    labels: np.ndarray | None = None  # by row: groups, or the folds of a splitter
    is_given: bool = False  # whether labels are folds

    def of_sites(self, names: tuple[str, ...], seed: int, by_class: bool) -> Folds:
        """The folds of these sites."""
        if not self.n_folds:
            return SiteFolds.of(names)
        if self.is_given:
            return GivenFolds(self.n_folds)
        return GroupFolds(self.n_folds, seed) if self.column is not None else Folds(self.n_folds, seed, by_class)


def check_cv(owner: str, cv: CV) -> None:
    """Refuse what are no folds, before any rows are seen."""
    match cv:
        case str():
            return
        case (str(), count):
            check_count(owner, "cv", count, low=2, high=MOST)
        case BaseCrossValidator():
            return
        case bool() | int() | float() | np.number() | None:
            check_count(owner, "cv", cv, low=2, high=MOST)
        case _ if not isinstance(cv, Iterable):
            raise ValueError(f"{owner}: {WORDS}, got {cv!r}")


def column_of(cv: CV) -> str | None:
    """The column of groups that `cv` names."""
    match cv:
        case str():
            return None if cv == BY_SITE else cv
        case (str() as column, int()):
            return column
    return None


def without_column(owner: str, cv: CV, X: FitFeatures) -> FitFeatures:
    """X whose column of groups, where `cv` names one, is no feature."""
    column = column_of(cv)
    if column is None:
        return X
    if isinstance(X, AbstractSites):
        known = X.design is not None and X.design.group is not None and X.design.group.name == column
        return X if known else X.with_columns(group=column)
    return X.drop(columns=column) if isinstance(X, pd.DataFrame) and column in X.columns else X


def asked_folds(owner: str, cv: CV, X: FitFeatures, y: Labels) -> AskedFolds:
    """The folds of these rows."""
    if isinstance(cv, str) and cv == BY_SITE:
        return AskedFolds(0)
    column = column_of(cv)
    if column is not None:
        count = FOLDS if isinstance(cv, str) else int(cv[1])  # type: ignore[index]
        if isinstance(X, AbstractSites):
            return AskedFolds(count, column)
        if not isinstance(X, pd.DataFrame) or column not in X.columns:
            raise ValueError(f"{owner}: cv={cv!r} must name a column of a pandas X or of the sites' tables; {WORDS}")
        if X[column].isna().to_numpy().any():
            raise ValueError(f"{owner}: the column {column!r} of cv must have a value in every row")
        return AskedFolds(count, column, pd.factorize(X[column])[0])
    if isinstance(cv, (int, np.integer)):
        return AskedFolds(int(cv))
    if y is None:  # sites, and federations, carry theirs
        raise ValueError(f"{owner}: splits of scikit-learn are of rows that are given, and not of sites; {WORDS}")
    fold = splits_of(owner, cv, y)
    return AskedFolds(int(fold.max()) + 1, None, fold, True)


def splits_of(owner: str, cv: CV, y: npt.ArrayLike) -> np.ndarray:
    """The fold of each row by the splits of scikit-learn, of which each row must be in one test set."""
    n = len(np.asarray(y))
    if isinstance(cv, BaseCrossValidator):
        try:
            splits = list(cv.split(np.zeros((n, 1)), y))
        except ValueError as error:
            name = type(cv).__name__
            raise ValueError(
                f"{owner}: {name} makes no splits of these rows: {error}. Where it needs groups, give "
                f"cv=list({name}(...).split(X, y, groups)), or the name of a column"
            ) from None
    else:
        splits = list(cv)  # type: ignore[arg-type]
    fold = np.full(n, -1)
    for k, split in enumerate(splits):
        if not isinstance(split, (tuple, list)) or len(split) != 2:
            raise ValueError(f"{owner}: {WORDS}, got splits that are not (train, test)")
        train, test = (np.asarray(part) for part in split)
        if len(np.union1d(train, test)) != n or len(train) + len(test) != n or (fold[test] >= 0).any():
            raise ValueError(
                f"{owner}: every row must be in the test set of one split and in all other training sets; split {k} is "
                "not such a one"
            )
        fold[test] = k
    if len(splits) < 2 or (fold < 0).any():
        missing = int((fold < 0).sum())
        raise ValueError(f"{owner}: cv must hold out every row once, in 2 splits at least; {missing} rows never are")
    return fold


def with_folds(
    owner: str, sites: AbstractSites, asked: AskedFolds, given: RowOptions, clients: Clients
) -> AbstractSites:
    """The same sites, whose rows have the labels that they are dealt to folds by."""
    if asked.labels is None:
        return sites
    order = row_order(owner, given.X, clients, len(asked.labels))
    labels = asked.labels[order]
    if given.weight is not None:
        labels = labels[given.weight[order] > 0]
    return sites.with_given_folds(labels) if asked.is_given else sites.with_groups(labels)
