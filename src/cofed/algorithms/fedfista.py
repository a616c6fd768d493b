"""FedFISTA: accelerated proximal gradient steps, one gradient of every client per round.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), F_m smooth and convex, psi convex
When        gradients are what costs: it takes few of them, and a first guess of the curvature is all that it must be
            given. Full gradients, a convex loss.
Round       v goes down; each client sends F_m(v) and its gradient
Server      w+ = prox_{1/L}(v - g/L),  theta+ = (1 + sqrt(1 + 4 theta^2))/2,  v+ = w+ + (theta - 1)/theta+ (w+ - w)
            theta starts again from 1 where <v - w+, w+ - w> > 0: momentum points uphill
Curvature   L is a first guess. Where two gradients differ by more than it allows, <g+ - g, v+ - v> > L ||v+ - v||^2, L
            becomes 1.05 times what was seen, and the server goes back to the last v and steps from it again.
Wire        one vector down, one vector and the loss up; K = 1 (K > 1 averages over K batches at the same point)
Assumes     every client in every round, as two gradients of different clients differ by more than curvature; full
            gradients for its rate; a convex psi.
Reference   Beck and Teboulle 2009, SIAM J. Imaging Sci.; the restart is O'Donoghue and Candes 2015.
Deviations  the curvature by gradients instead of a search, so that a guess costs no message of its own.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import rate, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps, LossCurvature
from cofed.problem import Problem


class Server(NamedTuple):
    v: PyTree  # v_r, where the clients take their gradients next
    w: PyTree  # w_r, the model
    theta: Float[Array, ""]  # theta_r, the momentum's sequence
    L: Float[Array, ""]  # the curvature
    at: PyTree  # v_{r-1}, where the last gradient was taken
    known: Float[Array, ""]  # 0 before the first round, when no gradient is known, then 1
    loss: Float[Array, ""]  # F(v_{r-1})
    gradient: PyTree  # grad F(v_{r-1})


class Up(NamedTuple):
    loss: Float[Array, ""]
    gradient: PyTree


class FedFISTA(AbstractServerAlgorithm):
    """Accelerated proximal gradient, exact in spite of heterogeneous clients (see cofed.algorithms.fedfista).

    Parameters
    ----------
    L : float
        The first guess of the curvature of the mean loss; it only grows.

    Examples
    --------
    >>> import cofed
    >>> cofed.FedFISTA(L=1)
    FedFISTA(L=1.0)
    """

    L: Hyperparameter = eqx.field(converter=rate)

    needs: ClassVar[tuple[str, ...]] = ("convex",)
    same_loss: ClassVar[bool] = True
    equal_steps: ClassVar[bool] = False
    whole_up: ClassVar[str | None] = "FedFISTA measures the curvature by the difference of two mean gradients"
    paper: ClassVar[str] = "Beck and Teboulle 2009"

    def __check_init__(self):
        require_positive("FedFISTA", L=self.L)

    def refuses(self, problem: Problem) -> str | None:
        if not problem.everyone:
            return "FedFISTA needs every client in every round; leave clients_per_round out, or take FedDecouple"
        return None

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        return {"L": curvature.L}  # of the mean loss, whose gradients it takes

    def init(self, problem: Problem, w0: PyTree) -> Server:
        dtype = trees.dtype(w0)
        one, zero = jnp.ones((), dtype), jnp.zeros((), dtype)
        return Server(w0, w0, one, jnp.asarray(self.L, dtype), w0, zero, zero, trees.zeros_like(w0))

    def init_client(self, problem: Problem, w0: PyTree) -> tuple[()]:
        return ()

    def broadcast(self, server: Server) -> PyTree:
        return server.v

    def local(self, problem: Problem, down: PyTree, client: tuple[()], steps: LocalSteps):
        def step(k, total):
            return trees.axpy(1 / steps.count, Up(*steps.loss_and_gradient(down, k)), total)

        nothing = Up(jnp.zeros((), trees.dtype(down)), trees.zeros_like(down))
        return steps.run(step, nothing), client

    def aggregate(self, problem: Problem, server: Server, up: Up, share: Float[Array, ""]) -> Server:
        apart, bent = trees.sub(server.v, server.at), trees.sub(up.gradient, server.gradient)
        square = trees.dot(apart, apart)
        seen = trees.dot(apart, bent) / jnp.where(square > 0, square, 1)
        short = (server.known == 1) & (seen > server.L)
        L = jnp.where(short, 1.05 * seen, server.L)
        # Too long a step: again from the last v, whose loss and gradient are known, without momentum.
        base, loss, gradient = trees.where(
            short, (server.at, server.loss, server.gradient), (server.v, up.loss, up.gradient)
        )
        w = problem.regularizer.prox(trees.axpy(-1 / L, gradient, base), 1 / L)
        moved = trees.sub(w, server.w)
        uphill = trees.dot(trees.sub(base, w), moved) > 0
        theta = jnp.where(short | uphill, 1, server.theta)
        following = (1 + jnp.sqrt(1 + 4 * theta**2)) / 2
        v = trees.axpy((theta - 1) / following, moved, w)
        return Server(v, w, following, L, base, jnp.ones_like(L), loss, gradient)

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.w
