"""A description of the rows of all sites: in few exchanges, from sums and counts."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, PyTree

from cofed._util import checks
from cofed._util.pandas_types import Frame
from cofed._util.spreadsheets import to_csv
from cofed._util.types import Given
from cofed.sites import AbstractSites, Design, Exchange, Exchanges, Feature, QuestionRefused, SiteTable, TableSites
from cofed.sites.queries import HistogramMessage, MomentsMessage, ObservedAnswer, histogram, observed
from cofed.sites.queries.base import AbstractQuery, Message
from cofed.sites.table_sites import as_tables, tables_of_frame
from cofed.studies import draft
from cofed.table_one.quantiles import NumberColumn, Quantile, Refinement, coarse_edges, picture

ALL = ""  # stands for all sites together


@dataclasses.dataclass(frozen=True)
class Described:
    """A variable at one site, or at all of them."""

    rows: int
    n: int  # rows with a value
    mean: float = np.nan
    sd: float = np.nan
    quantiles: tuple[Quantile, ...] = ()  # the quartiles
    counts: tuple[int, ...] = ()  # of each level, or of 0 and 1

    @property
    def missing(self) -> int:
        """Rows without a value."""
        return self.rows - self.n


@dataclasses.dataclass(frozen=True)
class DescribedVariable:
    """A variable at all sites."""

    name: str
    levels: tuple[str, ...] | None  # None for a number
    binary: bool  # whether all values are 0 or 1
    everywhere: Described
    by_site: dict[str, Described]
    bars: tuple[np.ndarray, np.ndarray] | None = None  # the edges and counts of a picture


@dataclasses.dataclass(frozen=True)
class Description:
    """What the rows of all sites look like; `cofed.describe` makes it.

    Attributes
    ----------
    sites : dict of str to int
        The rows of each site.
    variables : tuple of DescribedVariable
        The variables, in the order of the tables.
    left_out : dict of str to str
        Columns that are not described, and why.
    exchanges : tuple of Exchange
        What was asked.
    table : pandas.DataFrame
        All of it, a row for each variable (of a factor, each level) and site; the site "" is all together.
    """

    sites: dict[str, int]
    variables: tuple[DescribedVariable, ...]
    left_out: dict[str, str]
    exchanges: tuple[Exchange, ...]

    @property
    def table(self) -> Frame:
        """The description as one table."""
        rows = []
        for variable in self.variables:
            for site, own in {ALL: variable.everywhere, **variable.by_site}.items():
                common = {"variable": variable.name, "site": site, "rows": own.rows, "missing": own.missing}
                if variable.levels is None:
                    quartiles = {f"p{25 * k}": one.value for k, one in enumerate(own.quantiles, 1)}
                    width = max((one.width for one in own.quantiles), default=np.nan)
                    rows.append(common | {"mean": own.mean, "sd": own.sd} | quartiles | {"resolution": width})
                    continue
                for level, count in zip(variable.levels, own.counts, strict=True):
                    share = count / own.n if own.n else np.nan
                    rows.append(common | {"level": level, "count": count, "share": share})
        columns = ["variable", "level", "site", "rows", "missing", "mean", "sd", "p25", "p50", "p75", "resolution"]
        return pd.DataFrame(rows, columns=[*columns, "count", "share"])

    def to_csv(self, path: Given[str | Path]) -> None:
        """Write the table to a CSV file.

        Parameters
        ----------
        path : str or Path
            Where to.
        """
        to_csv(self.table, checks.file_to_write("path", path))


def describe(
    sites: Given[AbstractSites | Mapping[str, pd.DataFrame] | pd.DataFrame | str | Path],
    client: Given[str | None] = None,
) -> Description:
    """Table 1 of a federated study: rows, missing values, means, quartiles, counts of levels, per site and overall.

    Quartiles come from histograms of all sites, refined once: each is exact to the width of its last bin, which the
    table gives as its resolution (0 where it is exact, as it mostly is for whole numbers).

    Parameters
    ----------
    sites : AbstractSites, mapping, DataFrame or path
        The sites, of which all columns are described, or those of a design that keeps missing values, such as
        `study.description_design`; or their tables by name; or one table of all with a column that names the site;
        or a folder with a file for each site.
    client : str, optional
        The column of one table that names a row's site.

    Returns
    -------
    Description
        What the rows look like. Where the sites give sums only, per site there are rows alone.

    Examples
    --------
    >>> import pandas as pd
    >>> import cofed
    >>> frame = pd.DataFrame({"site": ["a", "a", "b"], "age": [50, 61, 72], "sex": ["f", "m", "f"]})
    >>> found = cofed.describe(frame, client="site")
    >>> found.variables[0].everywhere.mean, found.variables[1].everywhere.counts
    (61.0, (2, 1))
    """
    jax.config.update("jax_enable_x64", True)
    held, left_out = opened(sites, client)
    design, questions = held.design or plain_design(held), Questions(held)
    zero = questions.each(observed, MomentsMessage(np.zeros(held.n_features)))
    mean = ratio(zero[ALL].X, zero[ALL].n)
    # Whole numbers are their own squares where they are 0 or 1.
    binary = (zero[ALL].fractions == 0) & (zero[ALL].squares == zero[ALL].X)
    answers = Answers(questions.each(observed, MomentsMessage(mean)), mean, binary, {}, {})
    ask_histograms(questions, numeric_columns(design, answers), answers)
    sizes = dict(zip(held.names, held.sizes, strict=True))
    variables = assembled(design, {ALL: sum(held.sizes), **sizes}, answers)
    return Description(sizes, variables, left_out, tuple(held.exchanges))


@dataclasses.dataclass(frozen=True)
class Answers:
    """What the sites have answered, put together."""

    around: dict[str, ObservedAnswer]  # by site, sums around the mean
    mean: np.ndarray
    binary: np.ndarray  # whether all values are 0 or 1
    pictures: dict[int, tuple[np.ndarray, np.ndarray]]  # by feature, edges and counts
    quantiles: dict[tuple[int, str], tuple[Quantile, ...]]  # by feature and site, the quartiles


class Questions:
    """Questions to sites, whose answers are told by site where the sites allow it."""

    def __init__(self, sites: AbstractSites):
        self.sites, self.alone = sites, True

    def each(self, query: AbstractQuery, message: Message) -> dict[str, PyTree]:
        """The answer of all sites under "", and that of each under its name."""
        if self.alone:
            try:
                answers = self.sites.ask_each(query, message)
                return {ALL: jax.tree.map(lambda *parts: np.sum(parts, axis=0), *answers.values()), **answers}
            except QuestionRefused:
                self.alone = False
        return {ALL: jax.tree.map(np.asarray, self.sites.ask(query, message))}


def opened(sites: object, client: str | None) -> tuple[AbstractSites, dict[str, str]]:
    """The sites to ask, with missing values kept, and the columns that cannot be described."""
    if isinstance(sites, pd.DataFrame):
        if client is None:
            raise ValueError("describe: one table of all sites needs client=, the column that names a row's site")
        return with_all_columns(tables_of_frame(sites, checks.text("client", client)))
    if client is not None:
        raise ValueError(
            "describe: client= is for one table of all sites; a folder or a mapping names the sites itself"
        )
    if isinstance(sites, AbstractSites):
        if sites.design is None or sites.design.missing == "keep":
            return sites, {}
        drafted = draft(sites.infos)
        return sites.with_design(drafted.study.description_design), drafted.left_out
    return with_all_columns(as_tables(sites))  # type: ignore[arg-type]


def with_all_columns(tables: Mapping[str, SiteTable]) -> tuple[TableSites, dict[str, str]]:
    """The sites with every column that can be a variable."""
    infos = {site: table.info() for site, table in tables.items()}
    drafted = draft(infos)
    held = TableSites(tables, drafted.study.description_design)
    told = sum(len(info.model_dump_json()) for info in infos.values())
    held.exchanges = Exchanges([Exchange("columns", 1, 0, told, 0.0)])
    return held, drafted.left_out


def plain_design(sites: AbstractSites) -> Design:
    """The design of sites that have matrices."""
    names = sites.feature_names or tuple(f"x{j}" for j in range(sites.n_features))
    return Design(features=tuple(Feature(name=name) for name in names))


def ask_histograms(questions: "Questions", columns: list[NumberColumn], answers: Answers) -> None:
    """Add the quartiles and the pictures of columns to the answers, for which the sites are asked twice."""
    if not columns:
        return
    coarse = np.array([coarse_edges(column) for column in columns])
    first = questions.each(histogram, HistogramMessage(np.array([c.place for c in columns], np.int32), coarse))
    refined = Refinement.of(columns, coarse, first)
    second = questions.each(histogram, refined.message())
    for j, column in enumerate(columns):
        shown = refined.drawn[j]
        answers.pictures[column.place] = picture(refined.edges[shown], second[ALL][shown])
        for site in first:
            answers.quantiles[column.place, site] = tuple(refined.quantiles(j, first[site], second[site]))


def numeric_columns(design: Design, answers: Answers) -> list[NumberColumn]:
    """The columns of numbers that have a value."""
    around, mean = answers.around[ALL], answers.mean
    found, place = [], 0
    for feature in design.features:
        n = int(around.n[place])
        if feature.levels is None and n > 0:
            sd = float(np.sqrt(around.squares[place] / n))
            if not np.isfinite(sd):
                raise ValueError(
                    f"describe: column {feature.name!r} has numbers whose squares are too large to be added up (beyond "
                    "1e150 or so), so that there is no standard deviation; correct them, or give them in other units"
                )
            found.append(NumberColumn(place, n, float(mean[place]), sd, bool(around.fractions[place] == 0)))
        place += len(feature.encoded)
    return found


def assembled(design: Design, rows: dict[str, int], found: Answers) -> tuple[DescribedVariable, ...]:
    """The variables of a design, described."""
    variables, place = [], 0
    for feature in design.features:
        own = slice(place, place + len(feature.encoded))
        at = {site: described(feature, own, rows[site], site, found) for site in found.around}
        everywhere = at.pop(ALL)
        bars = found.pictures.get(place)
        binary = feature.levels is None and bool(found.binary[place])
        variables.append(DescribedVariable(feature.name, feature.levels, binary, everywhere, at, bars))
        place = own.stop
    return tuple(variables)


def described(feature: Feature, own: slice, rows: int, site: str, found: Answers) -> Described:
    """A variable at one site."""
    sums = found.around[site]
    n = round(float(sums.n[own.start]))
    if feature.levels is not None:
        # Sums are of values less the mean over all sites.
        others = [round(float(value)) for value in sums.X[own] + n * found.mean[own]]
        return Described(rows, n, counts=(n - sum(others), *others))
    moved = float(ratio(sums.X[own], sums.n[own])[0])
    mean = float(found.mean[own.start]) + moved
    spread = max(float(sums.squares[own.start]) - n * moved**2, 0.0)
    sd = float(np.sqrt(spread / (n - 1))) if n > 1 else np.nan
    ones = round(n * mean)
    counts = (n - ones, ones) if found.binary[own.start] else ()
    return Described(rows, n, mean if n else np.nan, sd, found.quantiles.get((own.start, site), ()), counts)


def ratio(sums: np.ndarray | Array, n: np.ndarray | Array) -> np.ndarray:
    """Means; 0 where there is nothing."""
    counts = np.asarray(n)
    return np.where(counts > 0, np.asarray(sums) / np.where(counts > 0, counts, 1), 0.0)
