"""The synthetic data of the papers, generated from a seed: one file per paper."""

from cofed.datasets.bao import bao_low_rank, bao_sparse
from cofed.datasets.chen import chen_logistic
from cofed.datasets.liang import liang_linear, liang_linear_stream, liang_logistic, liang_logistic_stream
from cofed.datasets.synthetic import Synthetic
from cofed.datasets.yuan import yuan_fmri_like, yuan_lasso, yuan_low_rank
from cofed.datasets.zhang import zhang_logistic

__all__ = [
    "Synthetic",
    "bao_low_rank",
    "bao_sparse",
    "chen_logistic",
    "liang_linear",
    "liang_linear_stream",
    "liang_logistic",
    "liang_logistic_stream",
    "yuan_fmri_like",
    "yuan_lasso",
    "yuan_low_rank",
    "zhang_logistic",
]
