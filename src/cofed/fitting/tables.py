"""From files to a job: the sites' tables agree on their columns, and the target suggests the family."""

import dataclasses
from pathlib import Path

import pandas as pd

from cofed._util import naming
from cofed.fitting.plan import FitPlan, one_of
from cofed.fitting.run import FitJob, agreed_design
from cofed.sites import (
    AbstractSites,
    Design,
    SiteTable,
    TableInfo,
    TableSites,
    Target,
    agree,
    agree_on_fills,
    read_sites,
    read_table,
    site_files,
    table_sites,
)
from cofed.sites.agreement import usable_columns
from cofed.sites.site_table import parts
from cofed.sites.table_sites import tables_of_frame
from cofed.studies import Study

MISSING = ("refuse", "drop", "impute")


@dataclasses.dataclass(frozen=True)
class FitTables:
    """Which tables, and which of their columns.

    Attributes
    ----------
    path : Path
        A folder with a table per site, or one table.
    target : str
        The column to predict; of the time to an event, that of times.
    features : list of str or None
        The columns to predict from; None is all others.
    client : str or None
        The column of one table that names the site of a row.
    missing : {"refuse", "drop", "impute"}
        What is done about missing values.
    weight, offset, group, cluster : str or None
        The columns of the rows' weights, of what is added to their predictions, of groups that are each in one fold,
        and of clusters of related rows: no features.
    event, entry : str or None
        Of the time to an event, the columns of events and of entries.
    responses : tuple of str
        Of several responses, the columns that are predicted together with the target.
    """

    path: Path
    target: str
    features: list[str] | None = None
    client: str | None = None
    missing: str = "refuse"
    weight: str | None = None
    offset: str | None = None
    event: str | None = None
    entry: str | None = None
    group: str | None = None
    cluster: str | None = None
    responses: tuple[str, ...] = ()

    @property
    def predicted(self) -> str | Target:
        """The target: a column, or those of the time to an event or of several responses."""
        if self.event is None and not self.responses:
            return self.target
        return Target(name=self.target, event=self.event, entry=self.entry, responses=self.responses)

    @property
    def words(self) -> str:
        """What is predicted, for titles."""
        return ", ".join((self.target, *self.responses))

    @property
    def of_rows(self) -> tuple[str | None, str | None, str | None, str | None]:
        """The columns that say something of a row, in the order in which designs take them."""
        return self.weight, self.offset, self.group, self.cluster

    @property
    def roles(self) -> tuple[str, ...]:
        """The columns beside the target that are no features."""
        named = (self.event, self.entry, *self.responses, *self.of_rows)
        return tuple(name for name in named if name is not None)

    def check_family(self, family: str) -> None:
        """Refuse columns that a family has no use for, or lacks."""
        if family == "cox" and self.event is None:
            raise ValueError("--family cox needs --event, the column that is 1 where a time ends with an event, else 0")
        if family == "mgaussian" and not self.responses:
            raise ValueError("--family mgaussian needs several targets: --target systolic,diastolic")
        if family == "mgaussian" and self.offset is not None:
            raise ValueError("--offset is not for --family mgaussian: take it off the targets")
        if family != "cox" and (self.event is not None or self.entry is not None):
            raise ValueError(f"--event and --entry are for --family cox, which is {family} here")

    def among(self, infos: dict[str, TableInfo]) -> "FitTables":
        """The same choice, in which the features are named where some of the columns are none."""
        known = usable_columns(infos, None)
        words = ("--weight", "--offset", "--cv", "--errors is model, hc1, hc3, site or the name of a column")
        for option, name in zip(words, self.of_rows, strict=True):
            if name is not None and name not in known:
                raise ValueError(f"{option}: there is no column {name!r}; the columns are {naming.listed(known)}")
        if not any(self.of_rows) or self.features is not None:
            return self
        left = [name for name in known if name not in (self.target, *self.roles)]
        return dataclasses.replace(self, features=left)

    def files(self) -> dict[str, Path]:
        """The file of each site; none where all sites are in one table."""
        return site_files(self.path) if self.path.is_dir() else {}

    def require_elsewhere(self, out: Path) -> None:
        """Refuse a folder for the results that holds a table, which a file of theirs could replace."""
        whole = self.path if self.path.is_dir() else self.path.parent
        folders = {whole, *(file.parent for file in self.files().values())}
        if out.resolve() in {folder.resolve() for folder in folders}:
            raise ValueError(f"--out: {out} holds tables of the sites; give another folder, such as {out / 'fit'}")

    def read(self) -> dict[str, SiteTable]:
        """The tables by site."""
        one_of("--missing-values", self.missing, MISSING)
        if self.path.is_dir():
            if self.client is not None:
                raise ValueError(
                    f"--client is for one table of all sites, but {self.path} is a folder with a table for each"
                )
            return read_sites(self.path)
        table = read_table(self.path)
        if self.client is None:
            raise ValueError(f"{self.path} is one table: give --client, the column that says which site a row is of")
        return tables_of_frame(table, self.client)


@dataclasses.dataclass(frozen=True)
class PreparedFit:
    """A plan and tables that fit together, before anything is asked of the sites.

    Attributes
    ----------
    plan : FitPlan
        What to fit.
    choice : FitTables
        To which tables and columns.
    tables : dict of str to SiteTable
        The tables by site.
    infos : dict of str to TableInfo
        What the sites tell of them.
    design : Design or None
        How the tables become numbers, where a study says it; None lets the sites agree.
    study : Study or None
        That study.
    """

    plan: FitPlan
    choice: FitTables
    tables: dict[str, SiteTable]
    infos: dict[str, TableInfo]
    design: Design | None = None
    study: Study | None = None

    def in_process(self) -> TableSites:
        """The sites, all in this process."""
        if self.design is not None:
            return by_design(self.tables, self.design)
        choice, frames = self.choice, {site: table.frame for site, table in self.tables.items()}
        classify = self.plan.classifies
        sites = table_sites(frames, choice.predicted, choice.features, classify=classify, missing=choice.missing)
        found = sites.with_columns(*choice.of_rows)
        assert isinstance(found, TableSites)
        return found

    def job(self, sites: AbstractSites, out: Path, command: str, drop: bool = False) -> FitJob:
        """The job of fitting over these sites, which have agreed on a design."""
        used = {part.name for part in parts(agreed_design(sites))}
        rows = {site: info.rows for site, info in self.infos.items()}
        missing = {
            site: sum(column.missing for column in info.columns if column.name in used)
            for site, info in self.infos.items()
        }
        tables = pd.DataFrame({"rows_of_the_table": rows, "missing_values": missing})
        return FitJob(self.plan, sites, self.choice.words, tables, out, command, drop)


def by_design(tables: dict[str, SiteTable], design: Design) -> TableSites:
    """The sites in this process, by a design that they need not agree on, but for what stands for missing values."""
    if not design.needs_fills:
        return TableSites(tables, design)
    asked = TableSites(tables, design.keeping_missing())
    sites = TableSites(tables, agree_on_fills(design, asked))
    sites.exchanges = asked.exchanges
    return sites


def is_binary(infos: dict[str, TableInfo], target: str) -> bool:
    """Whether a column has no other values than 0 and 1, at any site."""
    told = [info.by_name[target] for info in infos.values() if target in info.by_name]
    known = [one.levels for one in told if one.kind != "empty"]
    return bool(known) and all(levels is not None and set(levels) <= {0, 1} for levels in known)


def prepare(plan: FitPlan, choice: FitTables, *, guess: bool = False) -> PreparedFit:
    """Read the tables, and refuse what does not fit together.

    Parameters
    ----------
    plan : FitPlan
        What to fit.
    choice : FitTables
        To which tables and columns.
    guess : bool
        Whether the family is what the target suggests, and not the plan's.

    Returns
    -------
    PreparedFit
        Both, and the tables.
    """
    if guess and choice.event is not None:
        plan, guess = dataclasses.replace(plan, family="cox"), False
    if not guess:
        choice.check_family(plan.family)
    tables = choice.read()
    infos = {site: table.info() for site, table in tables.items()}
    if plan.privacy is not None and (choice.weight is not None or choice.offset is not None):
        raise ValueError("--epsilon takes neither --weight nor --offset: the noise is for rows that count alike")
    choice = choice.among(infos)
    classify = (True if is_binary(infos, choice.target) else None) if guess else plan.classifies
    design = agree(infos, choice.predicted, choice.features, classify=classify, missing=choice.missing)
    design = design.with_columns(*choice.of_rows)
    plan.check_columns([feature.name for feature in design.features])
    if plan.privacy is not None:
        plan.privacy.check_columns([part.name for part in parts(design)])
    classes = 0 if design.classes is None else len(design.classes)
    if guess:
        family = "gaussian" if not classes else "binomial" if classes == 2 else "multinomial"
        choice.check_family(family)
        plan = dataclasses.replace(plan, family=family)
    elif plan.family == "binomial" and classes != 2:
        raise ValueError(
            f"--family binomial is for two classes, but {choice.target} has {classes}: give --family multinomial"
        )
    return PreparedFit(plan, choice, tables, infos)
