"""Bao, Crawshaw, Luo, Liu (2022), Fast Composite Optimization and Statistical Recovery in FL: Section 4, Appendix F.

FedDA is FedDualAvg. C-FedDA's and MC-FedDA's L is divided by K = 10 here: in Algorithm 2 as printed, the quadratic term
of the prox has the factor K, so that L = 600 means a step of 1/6000 per gradient, at which nothing moves; the authors'
code has no such factor, and 600 without it is 60 with it. Rounds and start are not stated in the paper.
"""

from cofed.experiments.bao2022.released import RELEASED
from cofed.experiments.bao2022.speedup import SPEEDUP
from cofed.experiments.bao2022.stages import STAGES
from cofed.experiments.bao2022.synthetic import FIG1, FIG2
from cofed.experiments.bao2022.writers import FIG3, FIG4

EXPERIMENTS = [FIG1, FIG2, FIG3, FIG4, SPEEDUP, STAGES, *RELEASED]
