"""Liang et al. (2023), dual averaging with gradient tracking for high-dimensional problems.

Section 7 with Appendix D (`recovery`), and what Theorems 4.1, 6.1, B.2 and C.2 say of heterogeneity, mixing time and
dimension (`rates`) and of restarts (`restart`).
"""

from cofed.experiments.liang2023.rates import DIMENSION, HETEROGENEITY, MIXING
from cofed.experiments.liang2023.recovery import FIG1, FIG1_RELEASED, FIG2, FIG2_RELEASED
from cofed.experiments.liang2023.restart import RESTART

EXPERIMENTS = [FIG1, FIG1_RELEASED, FIG2, FIG2_RELEASED, HETEROGENEITY, MIXING, DIMENSION, RESTART]
