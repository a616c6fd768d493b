"""Columns of a user's pandas X: what is refused of them, and text as factors, on whose levels all clients agree."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from cofed._util import naming
from cofed._util.pandas_types import Frame, Series
from cofed.sites.agreement import agree
from cofed.sites.design import Design, Feature
from cofed.sites.site_table import SiteTable, TableMismatch

FILL = (
    "fill them or drop the rows (or let cofed.sites.sites_of_frame do so: missing='impute' or 'drop', and fit its "
    "sites)"
)


def check_frame(owner: str, X: Frame, besides: str | None = None) -> None:
    """Columns of a pandas X with names of their own, and nothing missing; `besides` names the client."""
    twice = X.columns[X.columns.duplicated()]
    if len(twice):
        raise ValueError(f"{owner}: the columns of X must have different names, but {twice[0]!r} is there twice")
    for column in X.columns:
        missing = 0 if besides is not None and column == besides else int(np.sum(X[column].isna().to_numpy()))
        if missing:
            where = f"{owner}: column {column!r} of X"
            raise ValueError(f"{where} contains NaN: {missing} of {len(X)} are missing; {FILL}")


def refuse_text(owner: str, X: Frame) -> None:
    """Refuse columns that are no numbers, where there are no factors."""
    for column in text_columns(X):
        values = X[column]
        said = f"got {values.dtype}" if not pd.api.types.is_object_dtype(values) else f"but has {odd(values)!r}"
        raise ValueError(f"{owner}: column {column!r} of X must be numbers, {said}; encode it as numbers")


def with_factors(estimator: BaseEstimator, X: Frame, rows: Mapping[str, np.ndarray]) -> Frame:
    """X with numbers in place of text: zeros and ones for each level but the first.

    A column's levels are those of all clients, whose `rows` are given by name. The estimator keeps the design as
    `design_`: new rows become numbers by it.
    """
    texts = [str(column) for column in text_columns(X)]
    named = X.set_axis([str(column) for column in X.columns], axis=1)
    try:
        infos = {client: SiteTable(named.iloc[own][texts], client).info() for client, own in rows.items()}
        agreed = {feature.name: feature for feature in agree(infos, features=texts).features}
        design = Design(features=tuple(agreed.get(name, Feature(name=name)) for name in named.columns))
        encoded = SiteTable(named, "all").rows(design).X
    except TableMismatch as error:
        raise TableMismatch([f"{type(estimator).__name__}: {finding}" for finding in error.findings]) from None
    naming.require_different(f"{type(estimator).__name__}: the names of features", design.feature_names)
    vars(estimator)["design_"] = design
    return pd.DataFrame(encoded, columns=list(design.feature_names), index=X.index)


def text_columns(X: Frame) -> list[object]:
    """The columns that are no numbers: text, factors, dates. Text that is all numbers is taken for them."""
    return [column for column in X.columns if not pd.api.types.is_numeric_dtype(X[column]) and is_text(X[column])]


def is_text(values: Series) -> bool:
    """Whether values of another type than numbers are none."""
    return not pd.api.types.is_object_dtype(values) or odd(values) is not None


def odd(values: Series) -> object:
    """The first of some values that is no number; None where all are."""
    wrong = np.flatnonzero(np.isnan(np.asarray(pd.to_numeric(values, errors="coerce"), float)))
    return values.iloc[wrong[0]] if len(wrong) else None
