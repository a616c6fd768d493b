"""Chen, Zheng, Long, Su (2021), A Theorem of the Alternative for Personalized Federated Learning: theory, measured.

The logistic model of Section 4.1 with features uniform on [-1, 1]^5. AER is the average excess risk over the clients,
measured on fresh samples; "shared" is the minimiser of the pooled loss, to which FedAvg is run with one full gradient
per round, "local" the clients' own.
"""

from cofed.experiments.chen2021.alternative import ALTERNATIVE
from cofed.experiments.chen2021.convergence import CONVERGENCE
from cofed.experiments.chen2021.fedprox import FEDPROX
from cofed.experiments.chen2021.heterogeneity import HETEROGENEITY
from cofed.experiments.chen2021.path import PATH
from cofed.experiments.chen2021.rates import RATES

EXPERIMENTS = [ALTERNATIVE, RATES, FEDPROX, CONVERGENCE, PATH, HETEROGENEITY]
