"""Runs on several devices beside the same on one, in a process of its own: JAX's devices are fixed at its start.

python -m tests.engine.mesh_cases all                   4 devices of this process; prints how far each case is off
python -m tests.engine.mesh_cases few                   the same for a few cases
python -m tests.engine.mesh_cases CASES ADDRESS RANK    one of 2 processes with 2 devices each
"""

import json
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

import cofed
from cofed._util import trees

ROUNDS = 7
UNEQUAL = (9, 1, 60, 7, 2, 30, 3)  # sizes of clients that are not padded to the largest


def federation(sizes=(9, 4, 12, 7, 5, 8, 3)):
    rng = np.random.default_rng(3)
    clients = [(X := rng.normal(size=(n, 6)) + rng.normal(size=6), X @ np.r_[1, -1, 0, 0, 2, 0.0]) for n in sizes]
    # Names whose order is not that of the positions.
    return cofed.Federation.from_arrays(clients, names=["g", "b", "f", "a", "e", "c", "d"])


def draw(key, client, size):
    X = jax.random.normal(key, (size, 6)) + client
    return X, X.sum(axis=1) * client


class Masked(cofed.AbstractModel):
    """A linear model, half of whose inputs are left out in training."""

    is_random = True

    def init(self, key, x, outputs):
        return {"coef": 0 * x}

    def __call__(self, w, x):
        return w["coef"] @ x

    def train(self, w, x, key):
        return self(w, 2 * x * jax.random.bernoulli(key, 0.5, x.shape))


DRAWING = cofed.Problem(Masked())
PROBLEM = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(0.02))
SMOOTH = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared())
START = {"coef": np.linspace(-0.5, 0.5, 6)}
EPOCHS = {"local_epochs": 2, "batch_size": 4}
STEPS = {"local_steps": 3, "batch_size": 2}
SAMPLED = {"clients_per_round": 3, "weights": "samples"}
RING = {"topology": cofed.topologies.ring(7), "local_steps": 3}
CASES = {
    "FedDualAvg, everybody, epochs": (PROBLEM, cofed.FedDualAvg(0.02, 1.3), EPOCHS),
    "FedDualAvg, sampled, epochs": (PROBLEM, cofed.FedDualAvg(0.02, 1.3), EPOCHS | SAMPLED),
    "FedMiD, sampled, full gradients": (PROBLEM, cofed.FedMiD(0.02, 1.3), {"local_steps": 3} | SAMPLED),
    "FedDecouple, everybody": (PROBLEM, cofed.FedDecouple(0.02, 1.3), STEPS),
    "FedDecouple, sampled": (PROBLEM, cofed.FedDecouple(0.02, 1.3), STEPS | SAMPLED),
    "Scaffold, sampled": (SMOOTH, cofed.Scaffold(0.02, 1.3), STEPS | SAMPLED),
    "FedADMM, sampled": (PROBLEM, cofed.FedADMM(client_lr=0.02, eta=0.5), STEPS | SAMPLED),
    "MCFedDA, stages": (
        PROBLEM,
        cofed.MCFedDA(mu=0.5, L=20.0, strengths=(0.08, 0.04, 0.02), radii=(5.0, 4.0, 3.0)),
        STEPS,
    ),
    "FedProx, sampled": (PROBLEM, cofed.FedProx(strength=0.1, client_lr=0.02), STEPS | SAMPLED),
    "DFedDA on a ring": (PROBLEM, cofed.DFedDA(0.02, gradient_tracking=True), RING),
    "DFedMiD on a star, links that fail": (
        PROBLEM,
        cofed.DFedMiD(0.02),
        STEPS | {"topology": cofed.topologies.star(7), "link_failure": 0.3},
    ),
    "MReFedDAGT on a complete graph": (
        SMOOTH,
        cofed.MReFedDAGT(client_lr=0.02, radius_squared=40.0, sparsity=3, stages_count=2),
        STEPS | {"topology": cofed.topologies.complete(7)},
    ),
    "FedMiD, sampled, full gradients, unequal": (PROBLEM, cofed.FedMiD(0.02, 1.3), {"local_steps": 3} | SAMPLED),
    "FedDualAvg, everybody, epochs, unequal": (PROBLEM, cofed.FedDualAvg(0.02, 1.3), EPOCHS),
    "a model that draws, sampled, epochs, unequal": (DRAWING, cofed.FedAvg(0.02), EPOCHS | SAMPLED),
    "a stream on a chain": (
        SMOOTH,
        cofed.DASM(0.01),
        {"local_steps": 1, "batch_size": 4, "topology": cofed.topologies.chain(7)},
    ),
}


FEW = ("FedDualAvg, sampled, epochs", "FedProx, sampled", "DFedDA on a ring")


def off(one, other) -> float:
    """The largest difference, relative to the largest entry (or to 1)."""
    pairs = zip(*([np.asarray(leaf) for leaf in jax.tree.leaves(tree)] for tree in (one, other)), strict=True)
    return max(float(np.abs(a - b).max() / max(1.0, np.abs(b).max())) for a, b in pairs)


def compare(mesh, cases=CASES) -> dict[str, float]:
    found = {}
    for name, (problem, algorithm, settings) in cases.items():
        data = cofed.Federation.from_stream(draw, 7, samples=20) if "stream" in name else federation()
        if "unequal" in name:
            data = federation(UNEQUAL)
            assert data.rows.tiers is not None
        common = {
            "rounds": ROUNDS,
            "w0": START,
            "seed": 5,
            "keep_models": True,
            "per_client": True,
            "evaluation": None if "stream" in name else federation(),
            "metrics": {"size": lambda w: trees.norm(w)},
        }
        one, many = (cofed.run(problem, data, algorithm, **common, **settings, mesh=m) for m in (None, mesh))
        rows = [{k: v for k, v in row.items() if k != "seconds"} for row in one.history.rows]
        same = [{k: v for k, v in row.items() if k != "seconds"} for row in many.history.rows]
        assert [sorted(row) for row in rows] == [sorted(row) for row in same]
        differences = [off(many.models, one.models), off(same, rows)]
        if one.personal_models is not None:
            differences.append(off(many.personal_models, one.personal_models))
            differences.append(off(many.clients.to_numpy(), one.clients.to_numpy()))
        differences.append(off(many.history.clients().to_numpy(float), one.history.clients().to_numpy(float)))
        assert many.communication == one.communication
        found[name] = max(differences)
    return found


def resumed(mesh) -> float:
    """A run that is stopped on the mesh, and goes on in one place, against one that never left it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        settings = STEPS | SAMPLED | {"seed": 5, "rounds": ROUNDS}
        whole = cofed.run(SMOOTH, federation(), cofed.Scaffold(0.02), **settings)

        class Stop:
            def on_row(self, row):
                return row["round"] < 4

        cofed.run(
            SMOOTH, federation(), cofed.Scaffold(0.02), **settings, mesh=mesh, checkpoint=path, callbacks=[Stop()]
        )
        there = off(cofed.resume(path, mesh=mesh).model.coef, whole.model.coef)
        return max(there, off(cofed.resume(path).model.coef, whole.model.coef))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    which, *network = sys.argv[1:]
    cases = CASES if which == "all" else {name: CASES[name] for name in FEW}
    if network:
        address, rank = network
        jax.config.update("jax_num_cpu_devices", 2)
        jax.distributed.initialize(address, num_processes=2, process_id=int(rank))
        found = compare(cofed.mesh(), cases)
    else:
        found = compare(cofed.mesh(4), cases) | {"stopped and resumed": resumed(cofed.mesh(4))}
    print(json.dumps(found))
