"""Acc-S-DANE: S-DANE with the acceleration of Nesterov's estimating sequences.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), F_m and psi convex
When        as SDANE, where the problem is badly conditioned: acceleration saves rounds.
Start       x = v = w_0,  A = 0,  B = 1
Centre      y = (A x + a v)/(A + a), where a is the root > 0 of lambda a^2 = (A + a) B
Look        y goes down, grad F_i(y) comes up: h_i = grad F_i(y) - grad F(y)
Work        client: x_i = argmin F_i(x) - <h_i, x> + lambda/2 |x - y|^2 + psi(x), as well as
            |G_i - h_i + lambda (x_i - y)| <= lambda/2 |x_i - y| asks, G_i in the subdifferential of F_i + psi at x_i
Server      x+ = mean x_i,  v+ = (mu a x+ + B v - a mean G_i)/(mu a + B),  A += a,  B += mu a
Lambda      a step is good where mean <G_i - h_i(x+), y - x_i> >= |mean G_i|^2/(2 lambda), which the next look tells
            (h_i at x+): then lambda is halved; else it is doubled, and the clients look and work again from the same
            x and v. Where mean G_i is zero but for rounding, lambda stays.
Wire        two vectors each way. A round of the paper is two rounds here: the clients look, then they work. After a
            step that was not good, y changes with lambda, so one more look is needed.
Assumes     every client in every round, full gradients, convex F_m.
Reference   Jiang, Rodomanov, Stich 2024, NeurIPS, the adaptive variant (arXiv 2407.07084); public code mlolab/S-DANE.
Deviations  those of sdane.py; A and B, which grow without bound, are kept as A/B and used as a/B, all that matters.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import number, rate, require_nonnegative, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps
from cofed.algorithms.stabilized_dane import Client, Down, Up, client_round, enough, idle, nothing, still
from cofed.problem import Problem


class Sequences(NamedTuple):
    x: PyTree  # x, the mean of the clients' points
    v: PyTree  # v, the minimiser of the estimating sequence
    A: Float[Array, ""]  # A/B, its weight so far for its strong convexity


class Server(NamedTuple):
    now: Sequences  # after the last good step
    y: PyTree  # y, the centre of the last work, or of the next
    gradient: PyTree  # grad F(y)
    strength: Float[Array, ""]  # lambda of the last work, or of the next
    works: Float[Array, ""]  # 1 where the clients work next, 0 where they look
    waits: Float[Array, ""]  # 1 where the last work is to be judged by the next look, else 0
    work: Up  # its means, x+ and G


class AccSDANE(AbstractServerAlgorithm):
    """S-DANE, accelerated: fewer rounds where the problem is badly conditioned; nothing to tune.

    See cofed.algorithms.accsdane for the update.

    Parameters
    ----------
    strength : float, default 1.0
        lambda, how strongly clients are held at the centre: the first guess, which is halved and doubled as needed.
    mu : float, default 0.0
        mu, the strong convexity of the losses, where it is known.

    Examples
    --------
    >>> import cofed
    >>> cofed.AccSDANE()
    AccSDANE()
    >>> cofed.AccSDANE(strength=0.1, mu=0.01)
    AccSDANE(strength=0.1, mu=0.01)
    """

    strength: Hyperparameter = eqx.field(converter=number, default=1.0)
    mu: Hyperparameter = eqx.field(converter=rate, default=0.0)

    needs: ClassVar[tuple[str, ...]] = ("convex",)
    same_loss: ClassVar[bool] = True
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "Jiang et al. 2024"
    turns: ClassVar[int] = 2
    whole_up: ClassVar[str | None] = "AccSDANE accepts a step by the products of what clients send"

    def __check_init__(self):
        require_positive("AccSDANE", strength=self.strength)
        require_nonnegative("AccSDANE", mu=self.mu)

    def refuses(self, problem: Problem) -> str | None:
        if not problem.everyone:
            return "AccSDANE needs every client in every round; leave clients_per_round out, or take FedDecouple"
        return None

    def init(self, problem: Problem, w0: PyTree) -> Server:
        strength = jnp.asarray(self.strength, trees.dtype(w0))
        zero = 0 * strength
        return Server(Sequences(w0, w0, zero), w0, trees.zeros_like(w0), strength, zero, zero, nothing(w0))

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        return idle(w0)

    def broadcast(self, server: Server) -> Down:
        work, ahead = (server.y, server.gradient), self.following(server)
        look = (between(ahead, coming(server)), ahead.x)
        centre, other = trees.where(server.works > 0, work, look)
        return Down(centre, other, server.strength, server.works)

    def following(self, server: Server) -> Sequences:
        """The point that the last work leads to, where it is to be judged; else the present one."""
        a = weight(server.now, server.strength)
        shrink = 1 / (1 + self.mu * a)
        ahead = trees.axpy(self.mu * a, server.work.first, trees.axpy(-a, server.work.second, server.now.v))
        new = Sequences(server.work.first, trees.scale(shrink, ahead), shrink * (server.now.A + a))
        return trees.where(server.waits > 0, new, server.now)

    def local(self, problem: Problem, down: Down, client: Client, steps: LocalSteps):
        return client_round(problem, down, client, steps)

    def aggregate(self, problem: Problem, server: Server, up: Up, share: Float[Array, ""]) -> Server:
        worked = server._replace(work=up, works=0 * server.works, waits=1 + 0 * server.waits)
        return trees.where(server.works > 0, worked, self.judged(server, up))

    def judged(self, server: Server, look: Up) -> Server:
        """The state after the clients' look: the step is taken, or lambda is too small for it."""
        zero = 0 * server.waits
        taken = Server(
            now=self.following(server),
            y=self.broadcast(server).centre,
            gradient=look.first,
            strength=coming(server),
            works=zero + 1,
            waits=zero,
            work=server.work,
        )
        good = at_rest(server) | enough(look, server.work, server.y, server.gradient, server.strength)
        return trees.where(good, taken, server._replace(strength=2 * server.strength, waits=zero))

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.now.x


def at_rest(server: Server) -> Bool[Array, ""]:
    """Whether there is nothing to judge."""
    return (server.waits == 0) | still(server.work)


def coming(server: Server) -> Float[Array, ""]:
    """lambda of the next work, if the step is taken."""
    return jnp.where(at_rest(server), server.strength, server.strength / 2)


def weight(at: Sequences, strength: Float[Array, ""]) -> Float[Array, ""]:
    """a/B > 0, where lambda a^2 = (A + a) B"""
    half = 1 / (2 * strength)
    return half + jnp.sqrt(half**2 + at.A / strength)


def between(at: Sequences, strength: Float[Array, ""]) -> PyTree:
    """y = (A x + a v)/(A + a)"""
    a = weight(at, strength)
    return trees.axpy(a / (at.A + a), trees.sub(at.v, at.x), at.x)
