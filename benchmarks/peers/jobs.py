"""The jobs that every contender runs: what is minimised, by whom, and how a round goes. NumPy only: all environments
read this file.

The algorithm is FedMiD everywhere: local steps x <- prox(x - lr gradient, lr), the mean of the sampled clients' models,
and one prox of the server, of lr times the local steps. On a graph it is DFedDA with gradient tracking.
"""

import dataclasses

from benchmarks import rounds
from benchmarks.peers import sources
from benchmarks.peers.models import L1, Multinomial, Network, Nuclear, Squares


@dataclasses.dataclass(frozen=True)
class Job:
    """One job. A client takes `local_steps` steps on random batches, or where that is None one epoch over a shuffle."""

    key: str
    title: str
    model: Squares | Multinomial | Network
    regularizer: L1 | Nuclear
    clients: int
    samples: int  # of each client
    per_round: int  # clients of a round
    batch: int
    lr: float
    source: sources.Source  # makes the data
    local_steps: int | None = None
    ring: bool = False  # no server: clients talk to two neighbours, and all take part
    check_rounds: int = 20  # after so many rounds the objectives are compared

    @property
    def steps(self) -> int:
        """Local steps of a client in a round."""
        return -(-self.samples // self.batch) if self.local_steps is None else self.local_steps

    @property
    def samples_per_round(self) -> int:
        """Samples that the gradients of one round are taken of."""
        return self.per_round * (self.samples if self.local_steps is None else self.local_steps * self.batch)


LASSO = Job(
    key="lasso",
    title="federated lasso, 64 clients x 128 samples, d = 1024, 10 per round",
    model=Squares((rounds.D,)),
    regularizer=L1(rounds.LAM),
    clients=rounds.CLIENTS,
    samples=rounds.SAMPLES,
    per_round=rounds.PER_ROUND,
    batch=rounds.BATCH,
    lr=rounds.LR,
    source=sources.lasso,
)
MULTINOMIAL = Job(
    key="multinomial",
    title="multinomial logistic regression, MNIST, 1,000 clients x 60 images, 100 per round",
    model=Multinomial((784,), 10),
    regularizer=L1(1e-4),
    clients=1000,
    samples=60,
    per_round=100,
    batch=10,
    lr=0.05,
    source=sources.mnist_two_labels,
    check_rounds=10,
)
CNN = Job(
    key="cnn",
    title="CNN of 112,394 parameters, MNIST, 10 clients x 500 images, 10 local steps",
    model=Network((28, 28), 10),
    regularizer=L1(1e-4),
    clients=10,
    samples=500,
    per_round=10,
    batch=10,
    lr=0.005,
    source=sources.mnist_half_by_label,
    local_steps=10,
    check_rounds=5,
)
NUCLEAR_32 = Job(
    key="nuclear-32",
    title="nuclear norm, 32 x 32, 64 clients x 128 samples, 10 per round",
    model=Squares((32, 32)),
    regularizer=Nuclear(0.1),
    clients=64,
    samples=128,
    per_round=10,
    batch=10,
    lr=0.002,
    source=sources.trace,
)
NUCLEAR_256 = Job(
    key="nuclear-256",
    title="nuclear norm, 256 x 256, 64 clients x 20 samples, 10 per round",
    model=Squares((256, 256)),
    regularizer=Nuclear(0.1),
    clients=64,
    samples=20,
    per_round=10,
    batch=10,
    lr=5e-5,
    source=sources.trace,
    check_rounds=3,
)
GOSSIP = dataclasses.replace(
    LASSO,
    key="gossip",
    title="gossip on a ring of 64, lasso as above, all take part",
    per_round=rounds.CLIENTS,
    ring=True,
)
JOBS = {job.key: job for job in (LASSO, MULTINOMIAL, CNN, NUCLEAR_32, NUCLEAR_256, GOSSIP)}
