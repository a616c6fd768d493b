"""S-DANE: proximal steps of every client towards the others, from a stabilised centre.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), F_m and psi convex
When        clients are alike, or can solve their own problems well: few rounds, exact, nothing to tune.
Look        v goes down, grad F_i(v) comes up: h_i = grad F_i(v) - grad F(v)
Work        client: x_i = argmin F_i(x) - <h_i, x> + lambda/2 |x - v|^2 + psi(x), as well as
            |G_i - h_i + lambda (x_i - v)| <= lambda/2 |x_i - v| asks, G_i in the subdifferential of F_i + psi at x_i
Server      x = mean x_i,  v+ = (mu a x + v - a mean G_i)/(1 + mu a),  a = 1/lambda
Lambda      a step is good where mean <G_i - h_i(x), v - x_i> >= |mean G_i|^2/(2 lambda), which the next look tells
            (h_i at x): then lambda is halved; else it is doubled, and the clients work again around the same v.
            Where mean G_i is zero but for rounding, lambda stays.
Wire        two vectors each way. A round of the paper is two rounds here: the clients look, then they work.
Assumes     every client in every round, full gradients, convex F_m.
Reference   Jiang, Rodomanov, Stich 2024, NeurIPS, the adaptive variant (arXiv 2407.07084); public code mlolab/S-DANE.
Deviations  psi is not in the paper: stabilized_dane.py says why its proof holds with it. Clients take at most
            `local_steps` steps, each 1/(lambda + the curvature met so far), so that nothing is tuned; where that is
            too few, the test fails and lambda grows. Weights pi.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import number, rate, require_nonnegative, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps
from cofed.algorithms.stabilized_dane import Client, Down, Up, client_round, enough, idle, nothing, still
from cofed.problem import Problem


class Server(NamedTuple):
    x: PyTree  # x, the model: the mean of the clients' points of the last good step
    v: PyTree  # v, the centre
    gradient: PyTree  # grad F(v)
    strength: Float[Array, ""]  # lambda
    works: Float[Array, ""]  # 1 where the clients work next, 0 where they look
    work: Up  # the means of the last work, x and G, which the next look judges


class SDANE(AbstractServerAlgorithm):
    """Rounds that depend on how much clients differ, not on how steep their losses are; nothing to tune.

    See cofed.algorithms.sdane for the update.

    Parameters
    ----------
    strength : float, default 1.0
        lambda, how strongly clients are held at the centre: the first guess, which is halved and doubled as needed.
    mu : float, default 0.0
        mu, the strong convexity of the losses, where it is known.

    Examples
    --------
    >>> import cofed
    >>> cofed.SDANE()
    SDANE()
    >>> cofed.SDANE(strength=0.1, mu=0.01)
    SDANE(strength=0.1, mu=0.01)
    """

    strength: Hyperparameter = eqx.field(converter=number, default=1.0)
    mu: Hyperparameter = eqx.field(converter=rate, default=0.0)

    needs: ClassVar[tuple[str, ...]] = ("convex",)
    same_loss: ClassVar[bool] = True
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "Jiang et al. 2024"
    turns: ClassVar[int] = 2
    whole_up: ClassVar[str | None] = "SDANE accepts a step by the products of what clients send"

    def __check_init__(self):
        require_positive("SDANE", strength=self.strength)
        require_nonnegative("SDANE", mu=self.mu)

    def refuses(self, problem: Problem) -> str | None:
        if not problem.everyone:
            return "SDANE needs every client in every round; leave clients_per_round out, or take FedDecouple"
        return None

    def init(self, problem: Problem, w0: PyTree) -> Server:
        strength = jnp.asarray(self.strength, trees.dtype(w0))
        return Server(w0, w0, trees.zeros_like(w0), strength, 0 * strength, nothing(w0))

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        return idle(w0)

    def broadcast(self, server: Server) -> Down:
        work, look = (server.v, server.gradient), (self.following(server), server.work.first)
        centre, other = trees.where(server.works > 0, work, look)
        return Down(centre, other, server.strength, server.works)

    def following(self, server: Server) -> PyTree:
        """v+ of the last work"""
        a = 1 / server.strength
        ahead = trees.axpy(self.mu * a, server.work.first, trees.axpy(-a, server.work.second, server.v))
        return trees.scale(1 / (1 + self.mu * a), ahead)

    def local(self, problem: Problem, down: Down, client: Client, steps: LocalSteps):
        return client_round(problem, down, client, steps)

    def aggregate(self, problem: Problem, server: Server, up: Up, share: Float[Array, ""]) -> Server:
        worked = server._replace(work=up, works=0 * server.works)
        return trees.where(server.works > 0, worked, self.judged(server, up))

    def judged(self, server: Server, look: Up) -> Server:
        """The state after the clients' look: the step is taken, or lambda is too small for it."""
        strength, works = server.strength, jnp.ones_like(server.works)
        resting = still(server.work)
        taken = Server(
            x=server.work.first,
            v=self.following(server),
            gradient=look.first,
            strength=jnp.where(resting, strength, strength / 2),
            works=works,
            work=server.work,
        )
        good = resting | enough(look, server.work, server.v, server.gradient, strength)
        return trees.where(good, taken, server._replace(strength=2 * strength, works=works))

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.x
