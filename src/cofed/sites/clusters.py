"""Which standard errors are asked for, and whose cluster each row is."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from cofed._util.types import Given
from cofed.federation import Federation
from cofed.sites.base import AbstractSites
from cofed.sites.design import Design
from cofed.sites.intake import Clients, FitFeatures, is_list, refuse_other_order, row_order
from cofed.sites.memory import MemorySites

KINDS = ("model", "hc1", "hc3", "site")
Errors = Given[str | npt.ArrayLike | pd.Series]


class AskedErrors(NamedTuple):
    """What `errors=` asks for."""

    kind: str  # one of KINDS, or "cluster"
    X: FitFeatures  # without the column that names the clusters
    clusters: npt.ArrayLike | pd.Series | None  # one for each row


def asked_errors(owner: str, X: FitFeatures, errors: Errors) -> AskedErrors:
    """The kind of standard errors, and the clusters of the rows where they are given."""
    if isinstance(errors, str):
        if errors in KINDS:
            return AskedErrors(errors, by_sites(X) if errors == "site" else X, None)
        if isinstance(X, pd.DataFrame) and errors in X.columns:
            return AskedErrors("cluster", X.drop(columns=errors), X[errors])
        if isinstance(X, AbstractSites) and X.design is not None:
            return AskedErrors("cluster", of_column(X, X.design, errors), None)
    elif is_list(errors) and not isinstance(X, (AbstractSites, Federation)):
        return AskedErrors("cluster", X, errors)
    given = f"{errors!r}" if errors is None or isinstance(errors, (str, int, float)) else type(errors).__name__
    raise ValueError(
        f"{owner}: errors must be one of {', '.join(map(repr, KINDS))}, or the cluster of each row of an array or a "
        f"pandas X (a list, or the name of a column of X or of the sites' tables), got {given}"
    )


def of_column(sites: AbstractSites, design: Design, column: str) -> AbstractSites:
    """The same sites, whose rows are in the clusters that a column of their tables names."""
    known = design.cluster is not None and design.cluster.name == column
    return sites if known else sites.with_columns(cluster=column)


def by_sites(X: FitFeatures) -> FitFeatures:
    """X, where it is sites, without clusters within them."""
    if isinstance(X, AbstractSites) and X.design is not None and X.design.cluster is not None:
        return X.with_design(X.design.model_copy(update={"cluster": None}))
    return X


def in_clusters(owner: str, sites: AbstractSites, given: AskedErrors, clients: Clients) -> AbstractSites:
    """The same sites, whose rows are in the given clusters: each within a site."""
    if given.clusters is None:
        return sites
    assert isinstance(sites, MemorySites)  # of rows that were given
    if isinstance(given.X, pd.DataFrame):
        refuse_other_order(owner, given.X, "errors", given.clusters)
    groups, n = pd.Series(given.clusters).to_numpy(), sum(sites.sizes)
    missing = int(pd.isna(groups).sum())
    if len(groups) != n or missing:
        got = f"{len(groups)} clusters" if len(groups) != n else f"{missing} without a cluster"
        raise ValueError(f"{owner}: errors must name one cluster per row: {n} rows, {got}")
    order = row_order(owner, given.X, clients, n)
    pairs = np.column_stack([sites.rows.site, pd.factorize(groups)[0][order]])
    _, codes = np.unique(pairs, axis=0, return_inverse=True)
    return sites.with_clusters(np.ravel(codes).astype(np.int32))
