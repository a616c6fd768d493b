"""The synthetic data of the papers, generated from a seed, one file per paper; and loaders for real data."""

from cofed.datasets.bao import bao_low_rank, bao_sparse
from cofed.datasets.chen import chen_logistic
from cofed.datasets.digits import digits
from cofed.datasets.femnist import femnist
from cofed.datasets.folder import data_folder
from cofed.datasets.haxby import Split, haxby, haxby_split
from cofed.datasets.liang import liang_linear, liang_linear_stream, liang_logistic, liang_logistic_stream
from cofed.datasets.mnist import Images, mnist, mnist_by_writer
from cofed.datasets.synthetic import Synthetic
from cofed.datasets.yuan import yuan_fmri_like, yuan_lasso, yuan_low_rank
from cofed.datasets.zhang import zhang_logistic

__all__ = [
    "Images",
    "Split",
    "Synthetic",
    "bao_low_rank",
    "bao_sparse",
    "chen_logistic",
    "data_folder",
    "digits",
    "femnist",
    "haxby",
    "haxby_split",
    "liang_linear",
    "liang_linear_stream",
    "liang_logistic",
    "liang_logistic_stream",
    "mnist",
    "mnist_by_writer",
    "yuan_fmri_like",
    "yuan_lasso",
    "yuan_low_rank",
    "zhang_logistic",
]
