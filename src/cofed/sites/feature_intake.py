"""Tables without a target, and what sites tell of their columns: for what is learned of columns with levels or gaps."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from cofed._util import naming
from cofed._util.pandas_types import Frame
from cofed.federation import Federation
from cofed.sites.base import AbstractSites
from cofed.sites.columns import ColumnInfo, TableInfo
from cofed.sites.design import Design, Feature
from cofed.sites.exchanges import Exchange, Exchanges
from cofed.sites.intake import (
    Clients,
    Features,
    FitFeatures,
    by_client,
    learn_names,
    refuse_masked,
    refuse_other_order,
    refuse_times,
    without_client_column,
)
from cofed.sites.site_table import SiteTable
from cofed.sites.table_sites import TableSites


@dataclasses.dataclass(frozen=True)
class GatheredTables:
    """Tables behind the door: what the sites tell of their columns, and a way to ask them about columns as numbers."""

    features: tuple[Feature, ...]  # the columns, without levels
    infos: dict[str, TableInfo]  # by site
    sites_of: Callable[[Design], AbstractSites]  # the sites, whose tables became numbers by a design
    exchanges: Exchanges
    before: int  # exchanges before this fit
    kept: Design  # what questions about them are of, with missing values left as they are

    def told(self, name: str) -> dict[str, ColumnInfo]:
        """By site, what it tells of one column."""
        return {site: info.by_name[name] for site, info in self.infos.items()}

    @property
    def n_rows(self) -> int:
        """The rows of all sites."""
        return sum(info.rows for info in self.infos.values())

    def missing(self, name: str) -> int:
        """How many values of a column are missing, at all sites together."""
        return sum(info.missing for info in self.told(name).values())


def gather_tables(estimator: BaseEstimator, X: FitFeatures, clients: Clients) -> GatheredTables:
    """The tables of a fit: those of the sites as given, or made of rows. Missing values stay.

    Sets the estimator's `n_features_in_` and `feature_names_in_`.
    """
    owner = type(estimator).__name__
    if isinstance(X, AbstractSites):
        return tables_as_given(estimator, X, clients)
    if isinstance(X, Federation):
        raise ValueError(
            f"{owner}: X must be an array, a pandas table or sites, got a Federation, which holds numbers without gaps"
        )
    X, clients = without_client_column(owner, X, clients, has_gaps=True)
    for what, given in (("X", X), ("clients", clients)):
        refuse_masked(owner, what, given)
    refuse_other_order(owner, X, "clients", clients)
    refuse_times(owner, "X", X)
    frame = frame_of(estimator, X, reset=True)
    parts = (("all",), [np.arange(len(frame))]) if clients is None else by_client(owner, clients, len(frame))
    held = {site: SiteTable(frame.iloc[own], site) for site, own in zip(*parts, strict=True)}
    infos = {site: table.info() for site, table in held.items()}
    told = sum(len(info.model_dump_json()) for info in infos.values())
    exchanges = Exchanges([Exchange("columns", 1, 0, told, 0.0)])

    def sites_of(design: Design) -> AbstractSites:
        sites = TableSites(held, design)
        sites.exchanges = exchanges
        return sites

    features = tuple(Feature(name=str(name)) for name in frame.columns)
    return GatheredTables(features, infos, sites_of, exchanges, 0, Design(features=features, missing="keep"))


def tables_as_given(estimator: BaseEstimator, sites: AbstractSites, clients: Clients) -> GatheredTables:
    """The tables of sites that carry everything themselves."""
    owner = type(estimator).__name__
    if clients is not None:
        raise ValueError(f"{owner}: sites carry their own rows; leave clients out")
    if sites.design is None:
        raise ValueError(
            f"{owner}: these sites have no tables, of whose columns they could tell; cofed.sites.table_sites makes "
            "some that have"
        )
    features = tuple(Feature(name=one.name, markers=one.markers) for one in sites.design.features)
    learn_names(estimator, len(features), tuple(one.name for one in features))
    kept = sites.design.keeping_missing()  # which sites that have approved a study answer
    return GatheredTables(features, sites.infos, sites.with_design, sites.exchanges, len(sites.exchanges), kept)


def frame_of(estimator: BaseEstimator, X: Features, reset: bool) -> Frame:
    """Rows as a table whose columns are read one by one, after scikit-learn's checks of names and shapes."""
    owner = type(estimator).__name__
    if X is None or isinstance(X, (str, bytes)):
        raise ValueError(f"{owner}: X must be a table, or an array with a row for each sample, got {X!r}")
    if isinstance(X, pd.DataFrame):
        names = [str(name) for name in X.columns]
        naming.require_different(f"{owner}: the names of the columns of X", names)
        validate_data(estimator, X, reset=reset, skip_check_array=True)  # pyright: ignore
        if not len(X) or not len(X.columns):
            raise ValueError(f"{owner}: X has {len(X)} rows and {len(X.columns)} columns")
        return X.set_axis(names, axis=1)
    rows = validate_data(estimator, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")  # pyright: ignore
    return pd.DataFrame(np.asarray(rows), columns=[f"x{j}" for j in range(np.shape(rows)[1])])
