"""Sites in this process that have tables, with columns of their own types, rather than matrices."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from cofed._util import naming
from cofed._util.types import Given
from cofed.sites.agreement import agree, agree_on_fills
from cofed.sites.columns import TableInfo
from cofed.sites.design import Design, Target
from cofed.sites.exchanges import Exchange, Exchanges
from cofed.sites.intake import refuse_other_order
from cofed.sites.memory import MemorySites
from cofed.sites.reading import read_sites
from cofed.sites.rows import SiteRows
from cofed.sites.site_table import SiteTable, TableMismatch

Tables = Given[Mapping[str, pd.DataFrame] | str | Path]


class TableSites(MemorySites):
    """Sites in this process whose tables become numbers by one design.

    Parameters
    ----------
    tables : mapping of str to SiteTable
        The sites' tables.
    design : Design
        On which they agreed.

    Attributes
    ----------
    design : Design
        How the tables became numbers.
    """

    def __init__(self, tables: Mapping[str, SiteTable], design: Design):
        own = [one.rows(design) for one in encodable(tables, design).values()]
        super().__init__(joined_rows(own), design.feature_names)
        self.tables, self.design, self.classes = dict(tables), design, design.classes

    @property
    def infos(self) -> dict[str, TableInfo]:
        return {site: table.info() for site, table in self.tables.items()}

    def with_design(self, design: Design) -> "TableSites":
        if design.needs_fills:
            design = agree_on_fills(design, self.with_design(design.keeping_missing()))
        other = TableSites(self.tables, design)
        other.exchanges = self.exchanges
        return other

    def of_numbers(self) -> MemorySites:
        if self.classes is None:
            return super().of_numbers()
        if self.classes.dtype.kind not in "biuf":
            raise ValueError("the target must be numbers, but its classes are text")
        return self.with_labels(self.classes.astype(np.float64)[self.rows.y])

    def of_classes(self) -> tuple[MemorySites, np.ndarray]:
        return super().of_classes() if self.classes is None else (self.with_labels(self.rows.y), self.classes)


def joined_rows(parts: list[SiteRows]) -> SiteRows:
    """The rows of several sites, one after another."""
    rows = SiteRows.of_sites(tuple(one.names[0] for one in parts), [one.X for one in parts], [one.y for one in parts])
    weight, offset, group = (
        np.concatenate(own) if (own := [values for values in column if values is not None]) else None
        for column in zip(*((one.weight, one.offset, one.group) for one in parts), strict=True)
    )
    return dataclasses.replace(rows, weight=weight, offset=offset, group=group, cluster=joined_clusters(parts))


def joined_clusters(parts: list[SiteRows]) -> np.ndarray | None:
    """The clusters of several sites, none of which is at two."""
    own = [one.cluster for one in parts if one.cluster is not None]
    first = np.cumsum([0, *(codes.max(initial=-1) + 1 for codes in own)])
    return np.concatenate([codes + at for codes, at in zip(own, first, strict=False)]).astype(np.int32) if own else None


def encodable(tables: Mapping[str, SiteTable], design: Design) -> Mapping[str, SiteTable]:
    """The tables, all of which fit the design; else all that does not fit is said, of all sites."""
    found = [finding for table in tables.values() for finding in table.findings(design)]
    if found:
        raise TableMismatch(found)
    return tables


def table_sites(
    tables: Tables,
    target: str | Target | None = None,
    features: Sequence[str] | None = None,
    *,
    factors: Collection[str] = (),
    classify: bool | None = None,
    missing: str = "refuse",
) -> TableSites:
    """Sites from tables: they agree on a design, and every table becomes numbers by it.

    Parameters
    ----------
    tables : mapping of str to pandas.DataFrame, str or Path
        The sites' tables by their names, or a folder with a file for each site.
    target, features, factors, classify, missing
        As for `cofed.sites.agree`.

    Returns
    -------
    TableSites
        The sites, which an estimator's `fit` takes.

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.sites import table_sites
    >>> oslo = pd.DataFrame({"age": [61, None], "sex": ["male", "male"], "cost": [3.0, 1.5]})
    >>> rome = pd.DataFrame({"cost": [2.0, 5.0], "sex": ["male", "female"], "age": [44, 71]})
    >>> sites = table_sites({"Oslo": oslo, "Rome": rome}, "cost", missing="drop")
    >>> sites.feature_names, sites.sizes
    (('age', 'sex[male]'), (1, 2))
    """
    return sites_by_design(
        as_tables(tables),
        lambda infos: agree(infos, target, features, factors=factors, classify=classify, missing=missing),
    )


def sites_by_design(tables: Mapping[str, SiteTable], agreed: Callable[[Mapping[str, TableInfo]], Design]) -> TableSites:
    """Sites whose tables become numbers by the design that is agreed on from what each tells of its columns."""
    infos = {site: table.info() for site, table in tables.items()}
    design = agreed(infos)
    told = sum(len(info.model_dump_json()) for info in infos.values())
    first = TableSites(tables, design.keeping_missing() if design.needs_fills else design)
    first.exchanges = Exchanges([Exchange("columns", 1, 0, told, 0.0)])
    return first.with_design(design) if design.needs_fills else first


def sites_of_frame(
    frame: Given[pd.DataFrame],
    target: str | Target | None = None,
    client: Given[str | npt.ArrayLike | None] = None,
    *,
    factors: Collection[str] = (),
    classify: bool | None = None,
    missing: str = "refuse",
) -> TableSites:
    """Sites from one frame with the rows of all.

    Parameters
    ----------
    frame : pandas.DataFrame
        The rows.
    target : str or Target, optional
        The column to predict (of the time to an event, a target such as `Target(name="days", event="dead")`); all
        others are features.
    client : str or array
        The column that names a row's site, or the names of all rows' sites; None is a single site.
    factors, classify, missing
        As for `cofed.sites.agree`.

    Returns
    -------
    TableSites
        The sites, in the natural order of their names.

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.sites import sites_of_frame
    >>> frame = pd.DataFrame({"site": ["b", "a", "b"], "ward": ["x", "y", "x"], "cost": [1.0, 2.0, 4.0]})
    >>> sites = sites_of_frame(frame, "cost", "site")
    >>> sites.names, sites.feature_names, sites.rows.y.tolist()
    (('a', 'b'), ('ward[y]',), [2.0, 1.0, 4.0])
    """
    tables = {site: table.frame for site, table in tables_of_frame(frame, client).items()}
    return table_sites(tables, target, factors=factors, classify=classify, missing=missing)


def tables_of_frame(frame: Given[pd.DataFrame], client: Given[str | npt.ArrayLike | None]) -> dict[str, SiteTable]:
    """The tables of all sites, from one frame with the rows of all."""
    whole = SiteTable(frame, "all").frame
    if client is None:
        return {"all": SiteTable(whole, "all")}
    if isinstance(client, str):
        if client not in whole.columns:
            raise ValueError(f"there is no client column {client!r}; the columns are {naming.listed(whole.columns)}")
        names, whole = whole[client], whole.drop(columns=client)
    else:
        refuse_other_order("sites_of_frame", frame, "client", client, "frame")
        names = pd.Series(client)
    if len(names) != len(whole):
        raise ValueError(f"client must name one site per row: {len(whole)} rows, {len(names)} names")
    absent = int(names.isna().sum())
    if absent:
        raise ValueError(f"client must name one site per row, but {absent} of {len(names)} are missing")
    codes, values = pd.factorize(names.to_numpy())
    sites = [str(value) for value in values]
    naming.require_different("the names of sites", sites)
    order = sorted(range(len(sites)), key=lambda code: naming.natural(sites[code]))
    return {sites[code]: SiteTable(whole[codes == code], sites[code]) for code in order}


def as_tables(tables: Tables) -> dict[str, SiteTable]:
    """The sites' tables, from frames by name or from a folder."""
    if isinstance(tables, (str, Path)):
        return read_sites(tables)
    if isinstance(tables, Mapping) and not tables:
        raise ValueError("tables must have at least one site, and has none")
    if not isinstance(tables, Mapping):
        raise TypeError(f"tables must be a mapping of sites' names to tables, or a folder, got {type(tables).__name__}")
    named = sorted(tables, key=lambda name: naming.natural(naming.as_text("the names of sites", name)))
    return {str(name): SiteTable(tables[name], str(name)) for name in named}
