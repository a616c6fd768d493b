"""Sites: where the rows are. An estimator learns of them what `AbstractSites.ask` answers, and nothing else."""

from cofed.sites.base import (
    AbstractSites,
    AbstractTraining,
    Exchange,
    Exchanges,
    ExchangeTotal,
    QuestionRefused,
    totals,
)
from cofed.sites.memory import MemorySites
from cofed.sites.rows import SiteRows
from cofed.sites.table import Folds, Scaling, Table

__all__ = [
    "AbstractSites",
    "AbstractTraining",
    "Exchange",
    "ExchangeTotal",
    "Exchanges",
    "Folds",
    "MemorySites",
    "QuestionRefused",
    "Scaling",
    "SiteRows",
    "Table",
    "totals",
]
