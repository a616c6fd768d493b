"""ProxSkip: proximal gradient descent that skips most of the communication (Scaffnew, with a regularizer).

Problem     min_w  sum_m pi_m F_m(w) + psi(w), psi convex
When        rounds cost more than local steps, every client takes part, and gradients are full: many local steps without
            bias.
Notation    gamma = client_lr, p the probability that all communicate after a step; a round ends with a communication,
            so the number T of its local steps is geometric: P(T = t) = p (1 - p)^(t - 1), the same for all clients
Start       x_i = w_0, h_i = 0
Local       T times  x^_i <- x^_i - gamma (G_k(x^_i) - h_i), from x^_i = x
Server      x+ = prox_{(gamma/p) psi}(mean_i (x^_i - (gamma/p) h_i))
Client      from x+ alone:  h_i <- h_i + (p/gamma) (x+ - x^_i)
Wire        one vector each way
Assumes     every client takes part in every round; gamma <= 1/L. p = sqrt(mu/L) takes about
            sqrt(L/mu) log(1/eps) rounds.
Reference   Mishchenko, Malinovsky, Stich, Richtarik 2022, ICML, Algorithms 1 and 2 (arXiv 2202.09357).
Deviations  T is at most the run's `local_steps` (a longer one is cut there), which bounds the work of a round: with
            local_steps = 5/p once in 150 rounds. The optimum stays the fixed point whatever T is. Weights pi.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import rate, require_between, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps, LossCurvature
from cofed.problem import Problem


class Client(NamedTuple):
    h: PyTree  # h_i, which tends to the client's gradient at the optimum
    x: PyTree  # x^_i, where its last local steps ended


class ProxSkip(AbstractServerAlgorithm):
    """Exact, with a number of rounds that grows like the square root of the condition number.

    See cofed.algorithms.proxskip for the update.

    Parameters
    ----------
    client_lr : float
        gamma, the step size of the clients' local steps.
    probability : float
        p, how often all communicate: after 1/p local steps on average. The run's `local_steps` is the most that a
        round may have.

    Examples
    --------
    >>> import cofed
    >>> cofed.ProxSkip(client_lr=0.1, probability=0.2)
    ProxSkip(client_lr=0.1, probability=0.2)
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)
    probability: Hyperparameter = eqx.field(converter=rate)

    needs: ClassVar[tuple[str, ...]] = ("convex",)
    equal_steps: ClassVar[bool] = True
    paper: ClassVar[str] = "Mishchenko et al. 2022"
    whole_up: ClassVar[str | None] = "what a client sends does not tend to anything that the server knows"

    def __check_init__(self):
        require_positive("ProxSkip", client_lr=self.client_lr, probability=self.probability)
        require_between("ProxSkip", 0.0, 1.0, probability=self.probability)

    def refuses(self, problem: Problem) -> str | None:
        if not problem.everyone:
            return "ProxSkip needs every client in every round; leave clients_per_round out, or take FedDecouple"
        return None

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        # gamma = 1/L and p = sqrt(mu/L), but no rounds that are longer than K on average
        rare = max((curvature.mu / curvature.largest) ** 0.5, 1 / curvature.local_steps)
        return {"client_lr": 1 / curvature.largest, "probability": min(1.0, rare)}

    def init(self, problem: Problem, w0: PyTree) -> PyTree:
        return w0

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        return Client(trees.zeros_like(w0), w0)

    def broadcast(self, server: PyTree) -> PyTree:
        return server

    def local(self, problem: Problem, down: PyTree, client: Client, steps: LocalSteps):
        h = trees.axpy(self.probability / self.client_lr, trees.sub(down, client.x), client.h)
        T = self.drawn_steps(steps)

        def step(k, x):
            moved = trees.axpy(-self.client_lr, trees.sub(steps.gradient(x, k), h), x)
            return trees.where(k < T, moved, x)

        x = steps.run(step, down)
        return trees.axpy(-self.client_lr / self.probability, h, x), Client(h, x)

    def aggregate(self, problem: Problem, server: PyTree, up: PyTree, share: Float[Array, ""]) -> PyTree:
        return problem.regularizer.prox(up, self.client_lr / self.probability)

    def model(self, problem: Problem, server: PyTree) -> PyTree:
        return server

    def drawn_steps(self, steps: LocalSteps) -> Float[Array, ""]:
        """T >= 1, from a uniform draw that all clients share."""
        u = jax.random.uniform(steps.shared_key, (), steps.count.dtype)
        p = jax.lax.stop_gradient(jnp.asarray(self.probability, steps.count.dtype))
        return 1 + jnp.floor(jnp.log1p(-u) / jnp.log1p(-p))
