"""Estimates without the penalty's bias, with standard errors, intervals and p-values."""

from cofed.estimators.inference.table import infer, keep_inference

__all__ = ["infer", "keep_inference"]
