"""Estimates without the penalty's bias, with standard errors, intervals and p-values."""

from cofed.estimators.inference.table import Chosen, infer

__all__ = ["Chosen", "infer"]
