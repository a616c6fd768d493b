"""FedNL: Newton steps with Hessians that the server learns from compressed differences.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), F_m smooth and convex, psi convex
When        as FedNewton, where whole Hessians are too much to send in every round.
Start       H_i = 0, H = 0: nothing of size d^2 is ever sent whole
Client      sends its gradient g_i, S_i = C(hess F_i(x) - H_i) and l_i = ||hess F_i(x) - H_i||_F;
            H_i <- H_i + alpha S_i
Server      x <- x + argmin_d <g, d> + d'(H + l I) d/2 + psi(x + d), of the means g and l;  H <- H + alpha mean_i S_i.
            The inner problem is solved to round-off.
Wire        one vector down; up one vector, one number, and C of the d (d+1)/2 numbers of a triangle; K = 1
            (K > 1 averages over K batches at the same point)
Assumes     convex F_m. H + l I is above the mean Hessian at x, so where H is far off, the step is short.
Reference   Safaryan, Islamov, Qian, Richtarik 2021, Algorithm 1 with option 2 (arXiv 2106.02969).
Deviations  psi is not in the paper: there the inner problem is a linear system, as it is here for psi = 0. C acts on
            the triangle laid out as one row. Under sampling H stays the mean of all H_i; g and l are the participants'.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from cofed import compressors
from cofed._util import trees
from cofed._util.scalars import number, require_between, require_positive
from cofed._util.types import Given, Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps
from cofed.problem import Problem
from cofed.solvers import curvature
from cofed.solvers.quadratic import VectorPenalty, minimise


class Server(NamedTuple):
    x: PyTree  # x, the model
    hessian: Float[Array, " packed"]  # H, the mean of what clients have sent of their Hessians: the upper triangle


class Client(NamedTuple):
    hessian: Float[Array, " packed"]  # H_i, the server's picture of this client's Hessian


class Up(NamedTuple):
    gradient: PyTree  # g_i
    change: PyTree  # S_i
    distance: Float[Array, ""]  # l_i


class FedNL(AbstractServerAlgorithm):
    """Second order at the price of a few vectors a round (see cofed.algorithms.fednl for the update).

    Parameters
    ----------
    compressor : AbstractCompressor
        C: `TopK`, `RandomK` or `Quantised`, of the differences of Hessians.
    hessian_lr : float, default 1.0
        alpha, in (0, 1], how much of a difference is learned.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> rng = np.random.default_rng(0)
    >>> clients = [(X := rng.normal(size=(50, 20)), (X[:, 0] + rng.normal(size=50) > 0).astype(int)) for _ in range(3)]
    >>> problem = cofed.Problem(loss=cofed.Logistic(), regularizer=cofed.On(cofed.L1(0.05), "coef"))
    >>> method = cofed.FedNL(cofed.TopK(0.1))
    >>> result = cofed.run(problem, cofed.Federation.from_arrays(clients), method, rounds=60, local_steps=1)
    >>> bool(result.history["prox_gradient"][-1] < 1e-8)
    True
    """

    compressor: Given[compressors.AbstractCompressor]
    hessian_lr: Hyperparameter = eqx.field(converter=number, default=1.0)

    needs: ClassVar[tuple[str, ...]] = ("convex",)
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "Safaryan et al. 2021"

    def __check_init__(self):
        compressors.require_compressor("FedNL", self.compressor)
        require_positive("FedNL", hessian_lr=self.hessian_lr)
        require_between("FedNL", 0.0, 1.0, hessian_lr=self.hessian_lr)

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return Server(w0, unknown(w0))

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        return Client(unknown(w0))

    def broadcast(self, server: Server) -> PyTree:
        return server.x

    def local(self, problem: Problem, down: PyTree, client: Client, steps: LocalSteps):
        everything = jnp.arange(ravel_pytree(down)[0].size, dtype=jnp.int32)

        def step(k, total):
            seen = steps.gradient(down, k), curvature.pack(steps.hessian(down, k, everything))
            return trees.axpy(1 / steps.count, seen, total)

        gradient, hessian = steps.run(step, (trees.zeros_like(down), jnp.zeros_like(client.hessian)))
        off = hessian - client.hessian
        distance = jnp.linalg.norm(curvature.unpack(off, everything.size))
        change = compressors.compress(self.compressor, off, steps.key)
        learned = client.hessian + self.hessian_lr * compressors.expand(change)
        return Up(gradient, change, distance), Client(learned)

    def expand(self, message: Up) -> Up:
        """A client's message with S_i as an array"""
        return message._replace(change=compressors.expand(message.change))

    def aggregate(self, problem: Problem, server: Server, up: Up, share: Float[Array, ""]) -> Server:
        psi = problem.regularizer
        flat, back = ravel_pytree(server.x)
        H = curvature.unpack(server.hessian, flat.size) + up.distance * jnp.eye(flat.size, dtype=flat.dtype)
        penalty = VectorPenalty(
            lambda v, step: ravel_pytree(psi.prox(back(v), step))[0], lambda v: psi.value(back(v)), psi.separable
        )
        x = minimise(H, ravel_pytree(up.gradient)[0], flat, penalty)
        return Server(back(x), server.hessian + self.hessian_lr * share * up.change)

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.x


def unknown(w0: PyTree) -> Float[Array, " packed"]:
    """The triangle of a matrix of zeros."""
    flat = ravel_pytree(w0)[0]
    return jnp.zeros(flat.size * (flat.size + 1) // 2, flat.dtype)
