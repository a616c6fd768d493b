"""Yuan, Zaheer, Reddi (2021), Federated Composite Optimization: Section 5 and Appendix B.

Open in the paper, chosen here: the strengths lambda (the paper: "so that the centralized solver can successfully
recover the sparse pattern"; here: the one with the best F1, or the smallest with the true rank, of a pooled solver),
and how the validation data are drawn (fresh clients). "FedMiD-OSP" and "FedDualAvg-OSP" take proximal steps on the
server only.
"""

from cofed.experiments.yuan2021.common import four
from cofed.experiments.yuan2021.constraints import CONSTRAINTS
from cofed.experiments.yuan2021.fmri import FIG5, FIG12
from cofed.experiments.yuan2021.lasso import LASSOS, lasso
from cofed.experiments.yuan2021.low_rank import NUCLEARS

EXPERIMENTS = [LASSOS[0], NUCLEARS[0], FIG5, *LASSOS[1:], *NUCLEARS[1:], FIG12, *CONSTRAINTS]
