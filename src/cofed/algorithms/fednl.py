"""FedNL: Newton steps with Hessians that the server learns from compressed differences.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), F_m smooth and convex, psi convex
When        as FedNewton, where whole Hessians are too much to send in every round.
Start       H_i = 0, H = 0: nothing of size d^2 is ever sent whole
Client      sends its gradient g_i, S_i = C(hess F_i(x) - H_i) and l_i = ||hess F_i(x) - H_i||_F;
            H_i <- H_i + alpha S_i
Server      x <- x + argmin_d <g, d> + d'(H + l I) d/2 + psi(x + d), of the means g and l;  H <- H + alpha mean_i S_i.
            The inner problem is solved to round-off.
Sampling    (the paper's FedNL-PP) a participant keeps v_i = (H_i + l_i I) x - g_i, the slope of its quadratic model of
            F_i, with H_i as it has become and l_i = ||hess F_i(x) - H_i||_F, and sends what changed: S_i, and the
            changes of v_i and l_i. The server adds them up to the means H, v and l over all clients, and
            x <- argmin_z  z'(H + l I) z/2 - <v, z> + psi(z): the others count by their last gradients.
Wire        one vector down; up one vector, one number (two under sampling), and C of the d (d+1)/2 numbers of a
            triangle; K = 1 (K > 1 averages over K batches at the same point)
Assumes     convex F_m. H + l I is above the mean Hessian at x, so where H is far off, the step is short.
Reference   Safaryan, Islamov, Qian, Richtarik 2021, Algorithm 1 with option 2 and, under sampling, FedNL-PP
            (arXiv 2106.02969).
Deviations  psi is not in the paper: there the inner problem is a linear system, as it is here for psi = 0. C acts on
            the triangle laid out as one row. Under sampling the paper begins with everybody; here a client that has
            not come yet is taken to be like the mean of those that have: psi counts by their part q of all weight.
"""

from collections.abc import Callable
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


class Model(NamedTuple):
    """A quadratic model of a loss, or the mean of several, without its Hessian."""

    slope: Float[Array, " d"]  # v_i
    distance: Float[Array, ""]  # l_i
    known: Float[Array, ""]  # whether the client has come; of the mean q, the part of all weight that has


class Server(NamedTuple):
    x: PyTree  # x, the model
    hessian: Float[Array, " packed"]  # H, the mean of what clients have sent of their Hessians: the upper triangle
    mean: Model | None  # v, l and q; None where everybody takes part in every round


class Client(NamedTuple):
    hessian: Float[Array, " packed"]  # H_i, the server's picture of this client's Hessian
    model: Model | None  # what the server has of it; None where everybody takes part in every round


class Up(NamedTuple):
    gradient: PyTree  # g_i; None under sampling
    change: PyTree  # S_i
    distance: Float[Array, ""] | None  # l_i; None under sampling
    model: Model | None  # how the client's model changed; None where everybody takes part in every round


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
    same_loss: ClassVar[bool] = True
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "Safaryan et al. 2021"

    def __check_init__(self):
        compressors.require_compressor("FedNL", self.compressor)
        require_positive("FedNL", hessian_lr=self.hessian_lr)
        require_between("FedNL", 0.0, 1.0, hessian_lr=self.hessian_lr)

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return Server(w0, no_triangle(w0), no_model(problem, w0))

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        return Client(no_triangle(w0), no_model(problem, w0))

    def broadcast(self, server: Server) -> PyTree:
        return server.x

    def local(self, problem: Problem, down: PyTree, client: Client, steps: LocalSteps):
        x = ravel_pytree(down)[0]
        everything = jnp.arange(x.size, dtype=jnp.int32)

        def step(k, total):
            seen = steps.gradient(down, k), curvature.pack(steps.hessian(down, k, everything))
            return trees.axpy(1 / steps.count, seen, total)

        gradient, hessian = steps.run(step, (trees.zeros_like(down), jnp.zeros_like(client.hessian)))
        off = hessian - client.hessian
        change = compressors.compress(self.compressor, off, steps.key)
        learned = client.hessian + self.hessian_lr * compressors.expand(change)
        if client.model is None:
            return Up(gradient, change, length(off, x.size), None), Client(learned, None)
        distance = length(hessian - learned, x.size)
        slope = curvature.unpack(learned, x.size) @ x + distance * x - ravel_pytree(gradient)[0]
        now = Model(slope, distance, jnp.ones_like(distance))
        return Up(None, change, None, trees.sub(now, client.model)), Client(learned, now)

    def expand(self, message: Up) -> Up:
        """A client's message with S_i as an array"""
        return message._replace(change=compressors.expand(message.change))

    def aggregate(self, problem: Problem, server: Server, up: Up, share: Float[Array, ""]) -> Server:
        flat, back = ravel_pytree(server.x)
        learned = server.hessian + self.hessian_lr * share * up.change
        if up.distance is not None:  # everybody takes part
            H = shifted(server.hessian, up.distance, flat)
            x = minimise(H, ravel_pytree(up.gradient)[0], flat, penalty(problem, back))
            return Server(back(x), learned, None)
        assert server.mean is not None
        assert up.model is not None
        mean = trees.axpy(share, up.model, server.mean)
        H = shifted(learned, mean.distance, flat)
        x = minimise(H, H @ flat - mean.slope, flat, penalty(problem, back, mean.known))
        return Server(back(x), learned, mean)

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.x


def no_triangle(w0: PyTree) -> Float[Array, " packed"]:
    """The triangle of a matrix of zeros."""
    flat = ravel_pytree(w0)[0]
    return jnp.zeros(flat.size * (flat.size + 1) // 2, flat.dtype)


def no_model(problem: Problem, w0: PyTree) -> Model | None:
    """What is known of a client that has not come yet; None where everybody comes."""
    if problem.everyone:
        return None
    flat = ravel_pytree(w0)[0]
    nothing = jnp.zeros((), flat.dtype)
    return Model(jnp.zeros_like(flat), nothing, nothing)


def length(triangle: Float[Array, " packed"], size: int) -> Float[Array, ""]:
    """The Frobenius norm of a symmetric matrix."""
    return jnp.linalg.norm(curvature.unpack(triangle, size))


def shifted(hessian: Float[Array, " packed"], distance: Float[Array, ""], x: Float[Array, " d"]) -> Float[Array, "d d"]:
    """H + l I"""
    return curvature.unpack(hessian, x.size) + distance * jnp.eye(x.size, dtype=x.dtype)


def penalty(problem: Problem, back: Callable[[Array], PyTree], times: Float[Array, ""] | float = 1.0) -> VectorPenalty:
    """So many times psi, of the parameters as one vector."""
    psi = problem.regularizer
    return VectorPenalty(
        lambda v, step: ravel_pytree(psi.prox(back(v), times * step))[0],
        lambda v: times * psi.value(back(v)),
        psi.separable,
    )
