"""cofed, through its public API: one call of `cofed.run` for all rounds."""

import os
import time

import jax

import cofed
from benchmarks.peers.jobs import Job
from benchmarks.peers.measure import Ran, main
from benchmarks.peers.models import L1, Leaves, Multinomial, Network, Nuclear, Squares
from cofed._util import trees

PACKAGES = ("cofed", "jax", "jaxlib", "numpy")
MODELS = {
    Squares: lambda m: cofed.Linear(intercept=False) if len(m.shape) == 1 else cofed.Trace(*m.shape),
    Multinomial: lambda m: cofed.Linear(),
    Network: lambda m: cofed.CNN((*m.shape, 1), m.maps, m.hidden),
}
LOSSES = {
    Squares: lambda m: cofed.Squared(),
    Multinomial: lambda m: cofed.Softmax(m.classes),
    Network: lambda m: cofed.Softmax(m.classes),
}
REGULARIZERS = {L1: lambda r: cofed.L1(r.strength), Nuclear: lambda r: cofed.Nuclear(r.strength)}


def prepare(job: Job, X, y, w0: Leaves, **where):
    """A function that runs so many rounds from the start; `where` goes to `cofed.run` as it is."""
    kind = type(job.model)
    problem = cofed.Problem(
        MODELS[kind](job.model), LOSSES[kind](job.model), REGULARIZERS[type(job.regularizer)](job.regularizer)
    )
    federation = cofed.Federation.from_arrays(list(zip(X, y, strict=True)))
    if job.ring:
        algorithm = cofed.DFedDA(job.lr, gradient_tracking=True)
        who = {"topology": cofed.topologies.ring(job.clients)}
    else:
        algorithm = cofed.FedMiD(job.lr)
        who = {"clients_per_round": job.per_round}
    work = {"local_epochs": 1} if job.local_steps is None else {"local_steps": job.local_steps}
    schedule = work | who | where | {"batch_size": job.batch, "w0": w0}

    def run(rounds: int) -> Ran:
        began = time.perf_counter()
        result = cofed.run(problem, federation, algorithm, rounds=rounds, evaluate_every=rounds, **schedule)
        seconds = time.perf_counter() - began
        leaves = dict(zip(trees.names(result.model), jax.tree.leaves(result.model), strict=True))
        return Ran(leaves, seconds)

    return run


if __name__ == "__main__":
    os.environ["COFED_CORES"] = "1"  # with_cofed_mesh takes them all
    main(prepare, packages=PACKAGES)
