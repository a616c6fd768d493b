"""Compressed: any method with a server, its uploads compressed, with error feedback.

Client      v_i = up_i - o + e_i,  sends C(v_i),  keeps e_i+ = v_i - C(v_i);  e_i = 0 before its first round
Server      up = o + mean_S C(v_i), which is all that it sees, then the method's own step
Origin      o is known to both ends before the round: what up is where nothing changes any more (`origin` in base)
Invariant   what client i has sent and what it still holds add up: sum_r C(v_i) + e_i = sum_r (up_i - o). A client that
            is not in a round keeps its e_i.
Reference   Seide et al. 2014, Interspeech (one bit); Stich, Cordonnier, Jaggi 2018, NeurIPS (top-k).

What ends exactly where the plain method ends, with full gradients and a step that is small enough for C (in the worst
case delta times that of the plain method):

FedDecouple     yes. o = -eta_c K d (0 under sampling, where up_i is that difference already), so
                up_i - o = -eta_c K (g_i - g_i'), the change of the client's mean gradient
                since its last round. Summed up, the server has ghat_i = g_i + e_i/(eta_c K) of client i, and
                v_i = -eta_c K (g_i - ghat_i'): a message corrects the server's picture. That is EF21 (Richtarik,
                Sokolov, Fatkhullin 2021, NeurIPS) with K local steps, and d = sum_i pi_i ghat_i, also under sampling.
                Since c_i = d - g_i, mean c_i is no longer 0 but mean e_i/(eta_c K): the clients walk along what the
                server believes. Where gradients settle, the e_i contract to 0, d becomes the mean gradient and
                mean c_i is 0 again: the fixed points are those of the plain method, with e_i = 0.
Scaffold, FedDR, FedADMM, ReFedDAGT
                yes, for the same reason: what they send is a change, and ends at 0.
FastFedDA, CFedDA, MCFedDA
                yes, slowly: a message carries gradients with weight alpha_t, and the server divides their sum by
                something like t^2, so what is held back counts for 1/(delta t).
FedAvg, FedMiD, FedDualAvg, FedProx
                no: up_i does not end at 0 where clients differ, so e_i stays of the size of eta_c K ||grad F_i||/delta,
                and the model trembles by the mean of these. That falls with the step, like the bias that these methods
                have without compression.

FedFISTA and FedNewton are refused: their servers compute with differences of means, which must be exact.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed import compressors
from cofed._util import trees
from cofed._util.checks import shown
from cofed._util.types import Given
from cofed.algorithms import base
from cofed.algorithms.base import (
    AbstractAlgorithm,
    AbstractChoice,
    AbstractServerAlgorithm,
    AbstractWrapper,
    LocalSteps,
    Stage,
)
from cofed.algorithms.probe import Probe
from cofed.problem import Problem
from cofed.regularizers import Zero


class Client(NamedTuple):
    own: PyTree  # what the method keeps
    error: PyTree  # e_i, what is not sent yet


def compressible(method: object) -> AbstractAlgorithm:
    """The method, checked: it must have a server, and what its clients send must be compressible."""
    if not isinstance(method, AbstractAlgorithm) and isinstance(method, eqx.Module) and "local" in dir(method):
        method = base.as_algorithm(method, "Compressed: algorithm")
    if not isinstance(method, AbstractAlgorithm):
        raise TypeError(
            f"Compressed: algorithm must be one with a server, such as cofed.FedDualAvg(0.1), got {shown(method)}"
        )
    if isinstance(method, AbstractChoice):
        raise ValueError(
            f"Compressed: {method.name} chooses between methods: compress these, such as "
            "Alternative(shared=Compressed(FedAvg(0.1), TopK(0.05)), local=PureLocal(0.1))"
        )
    if not method.has_server:
        raise ValueError(f"Compressed: {method.name} has no server, and this is for what clients send to one")
    if method.is_compressed:
        raise ValueError(f"Compressed: {method.name} is compressed already; give one compressor")
    if method.whole_up is not None:
        raise ValueError(f"Compressed: what clients of {method.name} send must come whole: {method.whole_up}")
    return method


class Compressed(AbstractWrapper):
    """A method whose clients send less (see cofed.algorithms.compressed for the update).

    `result.communication` counts what is sent.

    Parameters
    ----------
    algorithm : AbstractAlgorithm
        Any method with a server whose uploads may be compressed.
    compressor : AbstractCompressor
        C: `TopK`, `RandomK` or `Quantised`. Single numbers beside the vectors are sent as they are.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> rng = np.random.default_rng(0)
    >>> clients = [(X := rng.normal(size=(40, 100)), X[:, 0]) for _ in range(4)]
    >>> federation, problem = cofed.Federation.from_arrays(clients), cofed.Problem(regularizer=cofed.L1(0.1))
    >>> plain = cofed.FedDecouple(client_lr=0.02)
    >>> small = cofed.Compressed(plain, cofed.Quantised(bits=1))
    >>> runs = [cofed.run(problem, federation, one, rounds=300, local_steps=5) for one in (plain, small)]
    >>> [run.communication.up_per_client for run in runs]
    [808, 29]
    >>> bool(np.isclose(*(run.history["objective"][-1] for run in runs), rtol=1e-3))
    True
    """

    algorithm: AbstractAlgorithm = eqx.field(converter=compressible)
    compressor: Given[compressors.AbstractCompressor]

    def __check_init__(self):
        compressors.require_compressor("Compressed", self.compressor)

    @property
    def name(self) -> str:
        return f"{self.algorithm.name} + {self.compressor}"

    def own_server(self, server: PyTree) -> PyTree:
        return server

    def own_client(self, client: Client) -> PyTree:
        return client.own

    def refuses(self, problem: Problem) -> str | None:
        reason = super().refuses(problem)
        if reason is None and sends_more_than_changes(self.algorithm, problem):
            reason = (
                f"Compressed: clients of {self.algorithm.name} send something else than 0 where nothing changes any "
                "more, such as their whole model, and the method has no origin and local_origin to take from it; "
                "compressed as it is, most of it would be lost"
            )
        return reason

    def stages(self, problem: Problem, rounds: int, local_steps: int | None) -> list[Stage]:
        """The method's stages, each compressed; the errors begin anew with each."""
        found = self.algorithm.stages(problem, rounds, local_steps)
        return [stage._replace(algorithm=Compressed(stage.algorithm, self.compressor)) for stage in found]

    def init(self, problem: Problem, w0: PyTree) -> PyTree:
        return self.method.init(problem, w0)

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.up_shape(problem, w0))
        return Client(self.method.init_client(problem, w0), nothing)

    def local(self, problem: Problem, down: PyTree, client: Client, steps: LocalSteps):
        up, own = self.method.local(problem, down, client.own, steps)
        origin = self.method.local_origin(problem, down, client.own, steps)
        v = trees.add(up if origin is None else trees.sub(up, origin), client.error)
        message = compressors.compress(self.compressor, v, steps.key)
        return message, Client(own, trees.sub(v, self.expand(message)))

    def expand(self, message: PyTree) -> PyTree:
        """C(v), as the server reads it"""
        return compressors.expand(message)

    def aggregate(self, problem: Problem, server: PyTree, up: PyTree, share: Float[Array, ""]) -> PyTree:
        origin = self.method.origin(problem, server)
        return self.method.aggregate(problem, server, up if origin is None else trees.add(origin, up), share)

    def last_local(self, problem: Problem, down: PyTree, client: Client, steps: LocalSteps) -> Client:
        return client._replace(own=self.method.last_local(problem, down, client.own, steps))

    def up_shape(self, problem: Problem, w0: PyTree) -> PyTree:
        """What the method sends, in shapes."""

        def up(w0):
            method, zero = self.method, jnp.zeros((), trees.dtype(w0))
            down = method.broadcast(method.init(problem, w0))
            return method.local(problem, down, method.init_client(problem, w0), Probe(zero, zero + 1, 0.0, 1))[0]

        return jax.eval_shape(up, w0)


def sends_more_than_changes(method: AbstractAlgorithm, problem: Problem) -> bool:
    """Whether a user's method without an `origin` sends anything but 0 where all gradients are 0 and psi = 0.

    cofed's own methods are known to send changes only, or to have an `origin`."""
    if type(method).__module__.startswith("cofed.") or not isinstance(method, AbstractServerAlgorithm):
        return False
    smooth, w0, zero = dataclasses.replace(problem, regularizer=Zero()), {"w": jnp.arange(1.0, 4.0)}, jnp.zeros(())
    server = method.init(smooth, w0)
    if method.origin(smooth, server) is not None:
        return False
    client, steps = method.init_client(smooth, w0), Probe(zero, zero + 1, 0.0, 1)
    up, _ = method.local(smooth, method.broadcast(server), client, steps)
    return any(bool(jnp.any(jnp.abs(leaf) > 1e-4)) for leaf in jax.tree.leaves(up))
