"""What a round costs: bytes of all clients together, and gradients of one client."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cofed._util import trees
from cofed.algorithms.base import AbstractAlgorithm, AbstractGossipAlgorithm, AbstractServerAlgorithm
from cofed.algorithms.base.local_steps import Carry
from cofed.algorithms.probe import Probe
from cofed.engine.job import prepare
from cofed.engine.ranking import numbers_of
from cofed.engine.spec import RunSpec
from cofed.problem import Problem


class RoundCost(NamedTuple):
    """What a round costs."""

    bytes: int  # of all clients, in both directions; without a server, of all messages
    first_bytes: int  # of an exchange before the first round
    gradients: float  # of one client: passes over all its samples


class CountedSteps:
    """The `LocalSteps` of a client without data, which counts the gradients that a method asks for.

    A Hessian on s coordinates counts as s gradients, as that is what it takes for a linear model.
    """

    def __init__(self, dtype: jnp.dtype, steps: int):
        self.round, self.count = jnp.zeros((), dtype), jnp.asarray(steps, dtype)
        self.probe = Probe(self.round, self.count, 1.0, steps)
        self.times = 1  # a step inside the loop is traced once and taken `steps` times
        self.gradients = 0

    @property
    def key(self) -> PRNGKeyArray:
        """A fixed key."""
        return self.probe.key

    @property
    def shared_key(self) -> PRNGKeyArray:
        """A fixed key."""
        return self.probe.shared_key

    def gradient(self, w: PyTree, k: Float[Array, ""]) -> PyTree:
        """Count one."""
        self.gradients += self.times
        return self.probe.gradient(w, k)

    def loss_and_gradient(self, w: PyTree, k: Float[Array, ""]) -> tuple[Float[Array, ""], PyTree]:
        """Count one: the loss comes with it."""
        self.gradients += self.times
        return self.probe.loss_and_gradient(w, k)

    def full_gradient(self, w: PyTree) -> PyTree:
        """Count one: no method of the race takes it beside batches."""
        self.gradients += self.times
        return self.probe.full_gradient(w)

    def clipped_sum(self, w: PyTree, k: Float[Array, ""], clip: Float[Array, ""]) -> tuple[PyTree, Float[Array, ""]]:
        """Count one: it is a gradient of every sample, and their sum."""
        self.gradients += self.times
        return self.probe.clipped_sum(w, k, clip)

    def hessian(self, w: PyTree, k: Float[Array, ""], where: Int[Array, " s"]) -> Float[Array, "s s"]:
        """Count one for each coordinate."""
        self.gradients += self.times * where.size
        return self.probe.hessian(w, k, where)

    def run(self, step: Callable[[Float[Array, ""], Carry], Carry], carry: Carry) -> Carry:
        """The step once, for all of the loop's."""
        self.times = self.probe.steps
        carry = step(jnp.zeros((), self.count.dtype), carry)
        self.times = 1
        return carry


def gradients_of(algorithm: AbstractAlgorithm, problem: Problem, w0: PyTree, steps: int) -> float:
    """How many gradients a client takes in a round of so many local steps: on average, where rounds take turns.

    >>> import jax.numpy as jnp
    >>> import cofed
    >>> from cofed.race.work import gradients_of
    >>> w0 = jnp.zeros(3)
    >>> problem = cofed.Problem(cofed.Linear(intercept=False))
    >>> gradients_of(cofed.FedAvg(0.1), problem, w0, 5), gradients_of(cofed.FedNewton(), problem, w0, 1)
    (5.0, 4.0)
    """
    counted = CountedSteps(trees.dtype(w0), steps)
    if isinstance(algorithm, AbstractServerAlgorithm):
        server: AbstractServerAlgorithm = algorithm

        def one_round() -> PyTree:
            down = server.broadcast(server.init(problem, w0))
            return server.local(problem, down, server.init_client(problem, w0), counted)
    else:
        assert isinstance(algorithm, AbstractGossipAlgorithm)
        node: AbstractGossipAlgorithm = algorithm

        def one_round() -> PyTree:
            return node.local_node(problem, node.init_node(problem, w0), counted)

    jax.eval_shape(one_round)
    return counted.gradients / algorithm.turns


def round_cost(spec: RunSpec) -> RoundCost:
    """What a round of a run costs: of its dearest stage, where it has several."""
    job = prepare(spec)
    links = 0 if spec.topology is None else 2 * len(spec.topology.first)
    federation, steps = spec.federation, spec.local_steps or 1
    start = spec.start()
    sent, first, gradients = 0, 0, 0.0
    for stage in job.stages:
        each = links * stage.up if links else federation.n_clients * (stage.down + stage.up)
        taken = gradients_of(stage.task.algorithm, stage.task.problem, start, steps)
        sent, first, gradients = max(sent, each), max(first, links * stage.first), max(gradients, taken)
    return RoundCost(sent, first, gradients * drawn_share(spec.algorithm, steps) * batch_share(spec))


def batch_share(spec: RunSpec) -> float:
    """The part of an average client's samples that a gradient is of."""
    batch = spec.batch_size
    return batch * spec.federation.n_clients / spec.federation.n_samples if isinstance(batch, int) else 1.0


def drawn_share(algorithm: AbstractAlgorithm, steps: int) -> float:
    """The part of a round's steps that is taken on average, where their number is drawn with a `probability`.

    >>> import cofed
    >>> from cofed.race.work import drawn_share
    >>> round(50 * drawn_share(cofed.ProxSkip(0.1, probability=0.1), 50), 2)
    9.95
    """
    p = dict(numbers_of(algorithm)).get("probability")
    return 1.0 if p is None else (1 - (1 - p) ** steps) / p / steps
