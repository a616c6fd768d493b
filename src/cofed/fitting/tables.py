"""From files to a job: the sites' tables agree on their columns, and the target suggests the family."""

import dataclasses
from pathlib import Path

import pandas as pd

from cofed._util.pandas_types import Frame
from cofed.fitting.plan import FitPlan, one_of
from cofed.fitting.run import FitJob
from cofed.sites import TableSites, read_sites, read_table, table_sites
from cofed.sites.table_sites import tables_of_frame

MISSING = ("refuse", "drop", "impute")


@dataclasses.dataclass(frozen=True)
class FitTables:
    """Which tables, and which of their columns.

    Attributes
    ----------
    path : Path
        A folder with a table per site, or one table.
    target : str
        The column to predict.
    features : list of str or None
        The columns to predict from; None is all others.
    client : str or None
        The column of one table that names the site of a row.
    missing : {"refuse", "drop", "impute"}
        What is done about missing values.
    """

    path: Path
    target: str
    features: list[str] | None = None
    client: str | None = None
    missing: str = "refuse"

    def read(self) -> dict[str, Frame]:
        """The tables by site."""
        one_of("--missing-values", self.missing, MISSING)
        if self.path.is_dir():
            if self.client is not None:
                raise ValueError(
                    f"--client is for one table of all sites, but {self.path} is a folder with a table for each"
                )
            return {site: table.frame for site, table in read_sites(self.path).items()}
        table = read_table(self.path)
        if self.client is None:
            raise ValueError(f"{self.path} is one table: give --client, the column that says which site a row is of")
        return {site: one.frame for site, one in tables_of_frame(table, self.client).items()}


def job_of(plan: FitPlan, tables: FitTables, out: Path, command: str, *, guess: bool = False) -> FitJob:
    """The job of fitting these tables; what does not fit together is refused.

    Parameters
    ----------
    plan : FitPlan
        What to fit.
    tables : FitTables
        To which columns.
    out : Path
        The folder for the files.
    command : str
        The command that does the same again.
    guess : bool
        Whether the family is what the target suggests, and not the plan's.

    Returns
    -------
    FitJob
        What `run_fit` does.
    """
    classify = None if guess else plan.classifies
    sites = table_sites(tables.read(), tables.target, tables.features, classify=classify, missing=tables.missing)
    classes = sites.design.classes
    if guess:
        plan = dataclasses.replace(plan, family=suggested(classes))
    elif plan.family == "binomial" and classes is not None and len(classes) != 2:
        raise ValueError(
            f"--family binomial is for two classes, but {tables.target} has {len(classes)}: give --family multinomial"
        )
    groups = tuple(feature.name for feature in sites.design.features for _ in feature.encoded)
    return FitJob(plan, sites, tables.target, groups, known(sites), out, command)


def suggested(classes: object) -> str:
    """The family that a target suggests: numbers are numbers, and classes are classes."""
    if classes is None:
        return "gaussian"
    return "binomial" if len(classes) == 2 else "multinomial"  # type: ignore[arg-type]


def known(sites: TableSites) -> pd.DataFrame:
    """What the page says of the sites: rows that are used, rows of the table, missing values among them."""
    infos = sites.infos
    used = {*(feature.name for feature in sites.design.features), sites.design.target.name}  # type: ignore[union-attr]
    table = pd.DataFrame({"site": sites.names, "rows": sites.sizes})
    if sum(sites.sizes) != sum(info.rows for info in infos.values()):
        table["rows_of_the_table"] = [infos[site].rows for site in sites.names]
    table["missing_values"] = [
        sum(column.missing for column in infos[site].columns if column.name in used) for site in sites.names
    ]
    return table
