"""What `cofed fit` does: a plan, a fit over sites, and its files."""

from cofed.fitting.finished import FinishedFit
from cofed.fitting.outputs import write_fit
from cofed.fitting.plan import FitPlan

__all__ = ["FinishedFit", "FitPlan", "write_fit"]
