"""Yuan, Zaheer, Reddi (2021), Federated Composite Optimization: Section 5 and Appendix B.

Open in the paper, chosen here: the strengths lambda (the paper: "so that the centralized solver can successfully
recover the sparse pattern"; here: the smallest with which a pooled solver has the true support or rank, or else its
best F1), and how the validation data are drawn (fresh clients). The printed features and the printed rates do not
belong together (see lasso.py): figures 3, 4 and 6 to 11 have a second form, with features of the rates' scale.
"FedMiD-OSP" and "FedDualAvg-OSP" take proximal steps on the server only.
"""

from cofed.experiments.yuan2021.common import four
from cofed.experiments.yuan2021.constraints import CONSTRAINTS
from cofed.experiments.yuan2021.feasibility import FEASIBLE
from cofed.experiments.yuan2021.fmri import FIG5, FIG12
from cofed.experiments.yuan2021.lasso import LASSOS, lasso
from cofed.experiments.yuan2021.low_rank import NUCLEARS
from cofed.experiments.yuan2021.theorems import THEOREMS

EXPERIMENTS = [*LASSOS[:2], *NUCLEARS[:2], FIG5, *LASSOS[2:], *NUCLEARS[2:], FIG12, *CONSTRAINTS, FEASIBLE, *THEOREMS]
