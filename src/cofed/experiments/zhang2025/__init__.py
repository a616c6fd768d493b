"""Zhang, Hu, Johansson (2025), Non-convex composite federated learning with heterogeneous data: Sections 2 to 4.

Their method has no name in the paper; here it is FedDecouple. FedDA is FedDualAvg.

What the paper leaves open is the scale of the (alpha, beta) data of Li et al. (2018). As generated, the features have
norms of about 25, and the printed steps are far above what proximal gradient tolerates. The printed steps say what the
scale must be, more or less: with one local step of (4, 15) FedDecouple is proximal gradient with a step of 60, which
converges where the smoothness L is below 1/30. So rows get a common norm, 0.5, and the client means are drawn for each
coordinate apart, as in the public generator of Noble et al. (2022), whom the paper cites for its data: then all printed
steps converge on every data set that was tried. With one mean for all coordinates, as Li et al. write it, nearly all
features lie along one direction, and at no norm that was tried does (4, 15) converge with ten local steps on every data
set (see zhang2025-scale).
"""

from cofed.experiments.zhang2025.full_gradients import FIG2, SCALE
from cofed.experiments.zhang2025.network import FIG4
from cofed.experiments.zhang2025.prox_parameter import PROX_PARAMETER
from cofed.experiments.zhang2025.residual import BATCH, SERVER_STEP
from cofed.experiments.zhang2025.stochastic import FIG3

EXPERIMENTS = [FIG2, SCALE, FIG3, FIG4, PROX_PARAMETER, BATCH, SERVER_STEP]
