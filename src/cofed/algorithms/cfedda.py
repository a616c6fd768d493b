"""C-FedDA: constrained federated dual averaging.

Problem     min_w  sum_m pi_m F_m(w) + psi(w)  subject to  R(w - w_0) <= radius, with psi = lambda R
When        a ball around the start is known that holds the solution; else it is a stage of MCFedDA.
Weights     alpha_r = 1 + a r,  A_r = alpha_0 + ... + alpha_r,  gamma_r = (L + mu) alpha_r, constant within the round;
            a = 1 are the paper's weights, a = 0 constant ones, those of the authors' code
Prox        CProx_r(z) = argmin over R(w - w_0) <= radius of
                         <w, z - gamma_r K w_0> + (mu A_r/2 + gamma_r) K ||w||^2/2 + A_r K psi(w)
Start       g = 0,  v = w_0,  w = w_0
Local       x = w;  K times: g <- g + alpha_r G(x), and, but for the last, x <- CProx_r(g - mu K v/2) with v fixed
Server      g = mean_S g,  w = CProx_r(g - mu K v/2),  v <- v + alpha_{r+1} w
Output      sum_r alpha_r w_{r+1} / A_{R-1}; the model after each round is w
Assumes     the same K on all clients; psi a multiple of a norm where there is a radius.
Reference   bao2022, Algorithm 2, Theorem 3.1.
Deviations  `radius=None` drops the ball; `scale` multiplies psi, which is how MC-FedDA's stages change lambda; the last
            model's part of the output is `last_share` (0 in the paper, 1 in the authors' code).
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import (
    number,
    optional_number,
    rate,
    require_between,
    require_nonnegative,
    require_positive,
    require_radius,
)
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps, lacks
from cofed.algorithms.linear_weights import LinearWeights
from cofed.problem import Problem


class Down(NamedTuple):
    g: PyTree  # g, the weighted sum of all gradients
    v: PyTree  # w-tilde, the weighted sum of the server's models
    w: PyTree  # w, the model


class Server(NamedTuple):
    g: PyTree  # g
    v: PyTree  # w-tilde
    w: PyTree  # w-bar_r, the model after the round
    w0: PyTree  # w_0, the start and the centre of the ball
    round: Float[Array, ""]  # r
    total: PyTree  # sum_r alpha_r w_{r+1}


class Client(NamedTuple):
    w0: PyTree  # w_0, the start and the centre of the ball


class CFedDA(AbstractServerAlgorithm):
    """Dual averaging within a norm ball around the start (see cofed.algorithms.cfedda for the update).

    Parameters
    ----------
    mu : float
        mu >= 0, the strong convexity of the loss.
    L : float
        L, the smoothness of the loss.
    radius : float, optional
        The radius of the norm ball around the start, possibly infinite; None leaves the ball out.
    scale : float, default 1.0
        A factor of psi, by which the stages of MC-FedDA change lambda.
    growth : float, default 1.0
        a >= 0 in the weights alpha_r = 1 + a r of the rounds: 1 as in the paper, 0 for constant weights.
    last_share : float, default 0.0
        The last model's part of the output, from 0 (the weighted mean of all models) to 1 (the last model alone).

    Examples
    --------
    >>> import cofed
    >>> cofed.CFedDA(mu=0.1, L=600.0).radius is None
    True
    """

    mu: Hyperparameter = eqx.field(converter=rate)
    L: Hyperparameter = eqx.field(converter=rate)
    radius: Hyperparameter | None = eqx.field(converter=optional_number, default=None)
    scale: Hyperparameter = eqx.field(converter=number, default=1.0)
    growth: Hyperparameter = eqx.field(converter=number, default=1.0)
    last_share: Hyperparameter = eqx.field(converter=number, default=0.0)

    needs: ClassVar[tuple[str, ...]] = ("convex",)
    equal_steps: ClassVar[bool] = True
    paper: ClassVar[str] = "bao2022"
    counts_rounds: ClassVar[bool] = True

    def __check_init__(self):
        require_nonnegative("CFedDA", mu=self.mu, growth=self.growth)
        require_positive("CFedDA", L=self.L, scale=self.scale)
        require_between("CFedDA", 0.0, 1.0, last_share=self.last_share)
        if self.radius is not None:
            require_radius("CFedDA", radius=self.radius)

    def refuses(self, problem: Problem) -> str | None:
        """A ball is one of the regularizer's own norm."""
        return None if self.radius is None else lacks(self, problem, ("norm",))

    def init(self, problem: Problem, w0: PyTree) -> Server:
        zeros = trees.zeros_like(w0)
        return Server(zeros, w0, w0, w0, jnp.zeros((), trees.dtype(w0)), zeros)

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        return Client(w0)

    def broadcast(self, server: Server) -> Down:
        return Down(server.g, server.v, server.w)

    def local(self, problem: Problem, down: Down, client: Client, steps: LocalSteps):
        alpha = LinearWeights(self.growth).at(steps.round)

        def step(k, carry):
            g, x = carry
            g = trees.axpy(alpha, steps.gradient(x, k), g)
            # The last x is not used: the server takes that step with the mean of g.
            return g, self.prox(problem, client.w0, g, down.v, steps.round)

        g, _ = steps.run(step, (down.g, down.w))
        return g, client

    def aggregate(self, problem: Problem, server: Server, up: PyTree, share: Float[Array, ""]) -> Server:
        r, weights = server.round, LinearWeights(self.growth)
        w = self.prox(problem, server.w0, up, server.v, r)
        return Server(
            g=up,
            v=trees.axpy(weights.at(r + 1), w, server.v),
            w=w,
            w0=server.w0,
            round=r + 1,
            total=trees.axpy(weights.at(r), w, server.total),
        )

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.w

    def origin(self, problem: Problem, server: Server) -> PyTree:
        return server.g

    def local_origin(self, problem: Problem, down: Down, client: Client, steps: LocalSteps) -> PyTree:
        return down.g

    def average(self, problem: Problem, server: Server) -> PyTree:
        """The output of the stage, sum_r alpha_r w_{r+1} / A_{R-1} up to `last_share`; the start, before round 0."""
        r = server.round
        begun = r > 0
        mean = trees.scale(1 / jnp.where(begun, LinearWeights(self.growth).sum(r - 1), 1), server.total)
        mixed = trees.axpy(self.last_share, server.w, trees.scale(1 - self.last_share, mean))
        return trees.where(begun, mixed, server.w)

    def prox(self, problem: Problem, w0: PyTree, g: PyTree, v: PyTree, r: Float[Array, ""]) -> PyTree:
        """CProx_r(g - mu K v/2)"""
        K = problem.local_steps
        assert K is not None, "the engine fills in local_steps"
        weights = LinearWeights(self.growth)
        A, gamma = weights.sum(r), (self.L + self.mu) * weights.at(r)
        c = (self.mu * A / 2 + gamma) * K
        z = trees.axpy(-self.mu * K / 2, v, g)
        centre = trees.scale(1 / c, trees.sub(trees.scale(gamma * K, w0), z))
        step = self.scale * A * K / c
        if self.radius is None:
            return problem.regularizer.prox(centre, step)
        return problem.regularizer.prox_in_ball(centre, step, w0, self.radius)
