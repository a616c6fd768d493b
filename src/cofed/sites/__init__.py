"""Sites: where the rows are. An estimator learns of them what `AbstractSites.ask` answers, and nothing else."""

from cofed.sites.base import (
    AbstractSites,
    AbstractTraining,
    Exchange,
    ExchangeTotal,
    QuestionRefused,
    TrainingPlan,
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
    "Folds",
    "MemorySites",
    "QuestionRefused",
    "Scaling",
    "SiteRows",
    "Table",
    "TrainingPlan",
    "totals",
]
