"""What `cofed fit` does: a plan, the sites' tables, a fit over them, and its files."""

from cofed.fitting.events import FitEvents
from cofed.fitting.finished import FinishedFit
from cofed.fitting.outputs import write_fit
from cofed.fitting.plan import FitPlan
from cofed.fitting.privacy_plan import PrivacyPlan, read_guesses
from cofed.fitting.run import FitJob, run_fit
from cofed.fitting.study_files import chosen_analysis, drafted, plan_of, prepare_study
from cofed.fitting.tables import FitTables, PreparedFit, prepare

__all__ = [
    "FinishedFit",
    "FitEvents",
    "FitJob",
    "FitPlan",
    "FitTables",
    "PreparedFit",
    "PrivacyPlan",
    "chosen_analysis",
    "drafted",
    "plan_of",
    "prepare",
    "prepare_study",
    "read_guesses",
    "run_fit",
    "write_fit",
]
