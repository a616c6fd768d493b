"""Sites: where the rows are. An estimator learns of them what `AbstractSites.ask` answers, and nothing else."""

from cofed.sites.agreement import agree, agree_on_fills, missing_values
from cofed.sites.base import (
    AbstractSites,
    AbstractTraining,
    QuestionRefused,
    SiteRefused,
    TrainingPlan,
)
from cofed.sites.chosen_columns import ChosenColumns
from cofed.sites.columns import ColumnInfo, TableInfo
from cofed.sites.design import Design, Feature, Target
from cofed.sites.exchanges import Exchange, Exchanges, ExchangeTotal, Spent, spent, totals
from cofed.sites.folds import Folds, GivenFolds, GroupFolds, SiteFolds
from cofed.sites.memory import MemorySites
from cofed.sites.reading import read_sites, read_table, site_files
from cofed.sites.rows import SiteRows
from cofed.sites.scaling import Scaling
from cofed.sites.site_table import SiteTable, TableMismatch
from cofed.sites.table import Table
from cofed.sites.table_sites import TableSites, sites_of_frame, table_sites

__all__ = [
    "AbstractSites",
    "AbstractTraining",
    "ChosenColumns",
    "ColumnInfo",
    "Design",
    "Exchange",
    "ExchangeTotal",
    "Exchanges",
    "Feature",
    "Folds",
    "GivenFolds",
    "GroupFolds",
    "MemorySites",
    "QuestionRefused",
    "Scaling",
    "SiteFolds",
    "SiteRefused",
    "SiteRows",
    "SiteTable",
    "Spent",
    "Table",
    "TableInfo",
    "TableMismatch",
    "TableSites",
    "Target",
    "TrainingPlan",
    "agree",
    "agree_on_fills",
    "missing_values",
    "read_sites",
    "read_table",
    "site_files",
    "sites_of_frame",
    "spent",
    "table_sites",
    "totals",
]
