"""Fast-FedDA: fast federated dual averaging for strongly convex losses.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), F_m mu-strongly convex, psi convex
When        the loss is strongly convex, gradients are noisy, clients differ and all take the same number of steps.
Weights     t = rK + k;  alpha_t = 1 + a t,  A_t = alpha_0 + ... + alpha_t = (t+1)(1 + a t/2),  gamma_t = L alpha_t,
            c_t = mu A_t/2 + gamma_t;  a = 1 are the paper's weights, a = 0 constant ones, those of the authors' code
Prox        P_t(z) = prox_{A_t/c_t}((gamma_t w_0 - z)/c_t)
Start       g = 0,  v = w_0 (it includes alpha_0 w_0),  w = w_0
Local       g <- g + alpha_t G(w);  but for the round's last step:  w <- P_t(g - mu v/2),  v <- v + alpha_{t+1} w
Server      t the round's last:  g = mean_S g,  v' = mean_S v,  w = P_t(g - mu v'/2),  v = v' + alpha_{t+1} w
Wire        down (g, v, w), up (g, v')
Assumes     the same K on all clients; L and mu of the losses.
Reference   bao2022, Algorithm 1, Theorem 2.1.
Deviations  The theorem's average needs a message per step and is printed with a wrong sign and index; `average` here is
            the alpha-weighted mean of the server's models.

With constant weights and mu = 0 it is FedDualAvg with the step 1/L.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import number, rate, require_nonnegative, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps
from cofed.algorithms.linear_weights import LinearWeights
from cofed.problem import Problem


class Down(NamedTuple):
    g: PyTree  # g, the weighted sum of all gradients
    v: PyTree  # w-tilde, the weighted sum of all models
    w: PyTree  # w, the model


class Up(NamedTuple):
    g: PyTree  # g after this client's steps
    v: PyTree  # w-tilde after this client's steps, without the model that the server computes


class Server(NamedTuple):
    g: PyTree  # g
    v: PyTree  # w-tilde
    w: PyTree  # w, the model after the round
    w0: PyTree  # w_0, the start
    t: Float[Array, ""]  # t, the next local step
    total: PyTree  # the alpha-weighted sum of the server's models
    weight: Float[Array, ""]  # the sum of those alphas


class Client(NamedTuple):
    w0: PyTree  # w_0, the start: the prox is centred at it


class FastFedDA(AbstractServerAlgorithm):
    """Weighted dual averaging that uses strong convexity (see cofed.algorithms.fastfedda for the update).

    Parameters
    ----------
    mu : float
        mu >= 0, the strong convexity of the loss (Bao et al. 2022 tune it).
    L : float
        L, the smoothness of the loss (Bao et al. 2022 tune it).
    growth : float, default 1.0
        a >= 0 in the weights alpha_t = 1 + a t of the gradients: 1 as in the paper, 0 for constant weights.

    Examples
    --------
    >>> import cofed
    >>> cofed.FastFedDA(mu=0.1, L=550.0)
    FastFedDA(mu=0.1, L=550.0)
    """

    mu: Hyperparameter = eqx.field(converter=rate)
    L: Hyperparameter = eqx.field(converter=rate)
    growth: Hyperparameter = eqx.field(converter=number, default=1.0)

    needs: ClassVar[tuple[str, ...]] = ("convex",)
    equal_steps: ClassVar[bool] = True
    paper: ClassVar[str] = "bao2022"
    counts_rounds: ClassVar[bool] = True

    def __check_init__(self):
        require_nonnegative("FastFedDA", mu=self.mu, growth=self.growth)
        require_positive("FastFedDA", L=self.L)

    def init(self, problem: Problem, w0: PyTree) -> Server:
        zero = jnp.zeros((), trees.dtype(w0))
        return Server(trees.zeros_like(w0), w0, w0, w0, zero, trees.zeros_like(w0), zero)

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        return Client(w0)

    def broadcast(self, server: Server) -> Down:
        return Down(server.g, server.v, server.w)

    def local(self, problem: Problem, down: Down, client: Client, steps: LocalSteps):
        start, weights = steps.round * steps.count, LinearWeights(self.growth)

        def step(k, carry: Down) -> Down:
            t = start + k
            g = trees.axpy(weights.at(t), steps.gradient(carry.w, k), carry.g)
            w = self.prox(problem, client.w0, g, carry.v, t)
            # After the round's last step the server, not the client, computes w and adds it to v.
            more = jnp.where(k < steps.count - 1, weights.at(t + 1), 0)
            return Down(g, trees.axpy(more, w, carry.v), w)

        end = steps.run(step, down)
        return Up(end.g, end.v), client

    def aggregate(self, problem: Problem, server: Server, up: Up, share: Float[Array, ""]) -> Server:
        last = server.t + self.steps(problem) - 1
        w = self.prox(problem, server.w0, up.g, up.v, last)
        alpha = LinearWeights(self.growth).at(last + 1)
        return Server(
            g=up.g,
            v=trees.axpy(alpha, w, up.v),
            w=w,
            w0=server.w0,
            t=last + 1,
            total=trees.axpy(alpha, w, server.total),
            weight=server.weight + alpha,
        )

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.w

    def origin(self, problem: Problem, server: Server) -> Up:
        return self.expected(self.broadcast(server), server.t, jnp.asarray(self.steps(problem), server.t.dtype))

    def local_origin(self, problem: Problem, down: Down, client: Client, steps: LocalSteps) -> Up:
        return self.expected(down, steps.round * steps.count, steps.count)

    def expected(self, down: Down, start: Float[Array, ""], count: Float[Array, ""]) -> Up:
        """g, and v with the round's own models all equal to w: sum of alpha_{t+1} over all steps but the last"""
        # The difference of two sums would lose digits late in a run.
        added = (count - 1) * LinearWeights(self.growth).at(start + count / 2)
        return Up(down.g, trees.axpy(added, down.w, down.v))

    def average(self, problem: Problem, server: Server) -> PyTree:
        """The alpha-weighted mean of the server's models; the start, before round 0."""
        begun = server.weight > 0
        mean = trees.scale(1 / jnp.where(begun, server.weight, 1), server.total)
        return trees.where(begun, mean, server.w)

    def prox(self, problem: Problem, w0: PyTree, g: PyTree, v: PyTree, t: Float[Array, ""]) -> PyTree:
        """P_t(g - mu v/2)"""
        weights = LinearWeights(self.growth)
        A, gamma = weights.sum(t), self.L * weights.at(t)
        c = self.mu * A / 2 + gamma
        z = trees.axpy(-self.mu / 2, v, g)
        centre = trees.scale(1 / c, trees.sub(trees.scale(gamma, w0), z))
        return problem.regularizer.prox(centre, A / c)

    def steps(self, problem: Problem) -> int:
        """K, which server and clients agree on."""
        assert problem.local_steps is not None, "the engine fills in local_steps"
        return problem.local_steps
