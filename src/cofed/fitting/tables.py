"""From files to a job: the sites' tables agree on their columns, and the target suggests the family."""

import dataclasses
from pathlib import Path

import pandas as pd

from cofed.fitting.plan import FitPlan
from cofed.fitting.run import FitJob
from cofed.sites import Design, SiteTable, TableSites, as_tables, read_sites, read_table, table_sites, tables_of_frame


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

    def read(self) -> dict[str, SiteTable]:
        """The tables by site."""
        if self.path.is_dir():
            if self.client is not None:
                raise ValueError(f"--client is for one table of all sites, but {self.path} is a folder with one for each")
            return read_sites(self.path)
        if self.client is None:
            raise ValueError(f"{self.path} is one table: give --client, the column that says which site a row is of")
        return tables_of_frame(read_table(self.path), self.client)
