"""Constraints, second part: whether every point at which a client takes a gradient is feasible (Appendix B.5.1)."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

import cofed
from cofed._util import trees
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps
from cofed.experiments.digits import READS
from cofed.experiments.measurements import Measurements, each
from cofed.experiments.specification import Claim, Experiment, Method, Numbers, Sweep, Verdict, View
from cofed.experiments.yuan2021.common import FOUR, MAKES
from cofed.experiments.yuan2021.constraints import (
    DIGITS,
    L1_LINEAR,
    L1_NETWORK,
    L2_LINEAR,
    QUICK,
    STAND_IN,
    LargestNorm,
    constrained,
)
from cofed.problem import Problem

Carry = TypeVar("Carry")
UNPROJECTED = """The OSP variants project on the server only, as their pseudo-code says, so that within a round their
clients may walk out of the ball. The network's random start is outside (its kernels are that large), and FedMiD's
clients too take their first gradient there; FedDualAvg projects before it takes a gradient, and is the only one of the
four with no point outside."""


class NormedSteps:
    """A client's local steps, which keep the largest norm of the points at which gradients are taken."""

    def __init__(self, steps: LocalSteps, norm: Callable[[PyTree], Float[Array, ""]], largest: Float[Array, ""]):
        self.steps, self.norm, self.largest = steps, norm, largest
        self.round, self.count = steps.round, steps.count

    @property
    def key(self) -> PRNGKeyArray:
        return self.steps.key

    @property
    def shared_key(self) -> PRNGKeyArray:
        return self.steps.shared_key

    def gradient(self, w: PyTree, k: Float[Array, ""]) -> PyTree:
        self.here = self.norm(w)
        return self.steps.gradient(w, k)

    def loss_and_gradient(self, w: PyTree, k: Float[Array, ""]) -> tuple[Float[Array, ""], PyTree]:
        self.here = self.norm(w)
        return self.steps.loss_and_gradient(w, k)

    def full_gradient(self, w: PyTree) -> PyTree:
        self.here = self.norm(w)
        return self.steps.full_gradient(w)

    def clipped_sum(self, w: PyTree, k: Float[Array, ""], clip: Array) -> tuple[PyTree, Array]:
        self.here = self.norm(w)
        return self.steps.clipped_sum(w, k, clip)

    def hessian(self, w: PyTree, k: Float[Array, ""], where: Array) -> Array:
        return self.steps.hessian(w, k, where)

    def run(self, step: Callable[[Float[Array, ""], Carry], Carry], carry: Carry) -> Carry:
        def watched(k, pair):
            inner = step(k, pair[0])  # which takes a gradient, and so sets self.here within the same trace
            return inner, jnp.maximum(pair[1], self.here)

        carry, self.largest = self.steps.run(watched, (carry, self.largest))
        return carry


class Watched(AbstractServerAlgorithm):
    """A method whose clients keep nothing, but for the largest norm of the points at which they take gradients."""

    algorithm: AbstractServerAlgorithm
    norm: LargestNorm

    def init(self, problem: Problem, w0: PyTree) -> PyTree:
        return self.algorithm.init(problem, w0)

    def init_client(self, problem: Problem, w0: PyTree) -> Float[Array, ""]:
        return jnp.zeros((), trees.dtype(w0))

    def broadcast(self, server: PyTree) -> PyTree:
        return self.algorithm.broadcast(server)

    def local(self, problem: Problem, down: PyTree, client: Float[Array, ""], steps: LocalSteps):
        watched = NormedSteps(steps, self.norm, client)
        up, _ = self.algorithm.local(problem, down, (), watched)
        return up, watched.largest

    def aggregate(self, problem: Problem, server: PyTree, up: PyTree, share: Float[Array, ""]) -> PyTree:
        return self.algorithm.aggregate(problem, server, up, share)

    def model(self, problem: Problem, server: PyTree) -> PyTree:
        return self.algorithm.model(problem, server)


def with_rates(n: Numbers) -> list[Method]:
    """The four algorithms with one pair of rates."""
    return [
        Method(label, make, {"client_lr": (n.client_lr,), "server_lr": (n.server_lr,)}) for label, make in MAKES.items()
    ]


def largest_norms(n: Numbers, label: str, seed: int) -> list[dict]:
    """The largest norm, in parts of the radius, of the server's models (x) and of the clients' points."""
    setup = constrained(n, seed)
    norm = LargestNorm(n.order, "kernel" if n.width else "coef")
    algorithm = Watched(MAKES[label](client_lr=n.client_lr, server_lr=n.server_lr), norm)
    result = cofed.run(
        setup.problem, setup.federation, algorithm, metrics=setup.metrics, seed=seed, progress=False, **setup.run
    )
    return [
        {
            "algorithm": label,
            "x": float(np.max(result.history["norm"][1:])) / n.radius,
            "clients": float(np.max(jax.tree.leaves(result.state.clients)[0])) / n.radius,
            "data": setup.data,
        }
    ]


def every_point_feasible(seen: Measurements) -> Verdict:
    """No model of the server and no point of a client has a norm above the radius, in any panel."""
    by_panel, largest = [], 0.0
    for panel in PANELS:
        rows = {label: seen.rows(label, panel) for label in FOUR}
        server, clients = ({k: float(v[column].max()) for k, v in rows.items()} for column in ("x", "clients"))
        largest = max(largest, *server.values(), *clients.values())
        by_panel.append(f"{panel}: server {each(server)}; clients {each(clients)}")
    return Verdict(
        largest <= 1 + 1e-5,
        f"Largest norm in parts of the radius. {'. '.join(by_panel)}.",
        {"largest": largest},
    )


PANELS = {
    "||w||_1 <= 1000": L1_LINEAR,
    "||w||_2 <= 10": L2_LINEAR,
    "network, ||w||_1 <= 1000": L1_NETWORK | {"epochs": 1, "rounds": 20},
}
FEASIBLE = Experiment(
    id="yuan2021-feasible",
    title="Constraints: the largest norm of every point at which a client takes a gradient",
    measure=Sweep("largest norm of the server's models / radius", lambda n: FOUR, largest_norms, with_rates),
    full=DIGITS | {"rounds": 50, "evaluate_every": 1, "client_lr": 0.1, "server_lr": 1.0},
    quick=QUICK | {"rounds": 5, "evaluate_every": 1},
    panels=PANELS,
    views=tuple(View("clients", panel, panel, label="of the clients' points / radius", dots=True) for panel in PANELS),
    claims=(
        Claim(
            "Every iterate of all four is feasible, the clients' too.",
            every_point_feasible,
            why=UNPROJECTED,
            quick=False,
            quote="all the trajectories of all the four algorithms are always in the feasible region",
            criterion="""The largest norm over all rounds, clients, local steps and seeds, in parts of the radius: at
            most 1, up to a round-off of 1e-5. Rates are the largest of the paper's grid, with which points go
            farthest.""",
        ),
    ),
    note=STAND_IN,
    reads=READS,
    smaller="50 rounds (the network: 20 of one local epoch) of the paper's 5,000, at one pair of rates",
)
