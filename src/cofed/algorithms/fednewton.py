"""FedNewton: proximal Newton steps from the clients' mean gradient and Hessian, on a working set of coordinates.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), F_m smooth and convex, psi convex
When        rounds are what costs, the loss is convex, and what is not zero is small enough for Hessians to travel: the
            fewest rounds of all.
Round       w = x + t d goes down, with the working set S; each client sends F_m(w), its gradient, and its Hessian on S
Server      if the objective has fallen enough, P(w) <= P(x) + t Delta/10^4: x = w, t = eta_s and
            d = argmin <g, d> + d' H d/2 + psi(x + d) over d that is 0 outside S, Delta = <g, d> + psi(x + d) - psi(x);
            else t = t/2: the same direction from the same x. The inner problem is solved to round-off.
Set         the next S: what is not zero in x or x + d, what psi leaves free, then what violates optimality most at x
Wire        down one vector and s positions, up one vector, s (s+1)/2 numbers (the triangle) and the loss; K = 1
            (K > 1 averages over K batches at the same point). A squared loss needs one round per working set.
Assumes     every client in every round, as a step is accepted by the loss of the same clients; a convex psi, and a
            separable one for a working set smaller than the model.
Reference   Lee, Sun, Saunders 2014, SIAM J. Optim. (proximal Newton); Johnson and Guestrin 2015, ICML (working sets).
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from cofed._util import trees
from cofed._util.scalars import rate, require_count, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps
from cofed.problem import Problem
from cofed.solvers import curvature
from cofed.solvers.quadratic import VectorPenalty, minimise

ENOUGH = 1e-4  # the part of the promised decrease that a step must keep


class Server(NamedTuple):
    w: PyTree  # x + t d, the point that the clients look at next
    x: PyTree  # the last point that was accepted
    d: PyTree  # the direction from it
    t: Float[Array, ""]  # the step along it
    known: Float[Array, ""]  # 0 before the first round, when no objective is known, then 1
    loss: Float[Array, ""]  # F(x)
    gradient: PyTree  # grad F(x)
    hessian: Float[Array, "s s"]  # of F at x, on the working set
    promise: Float[Array, ""]  # Delta <= 0, what the quadratic model promises for the whole step
    priority: Float[Array, " d"] | None  # who enters the working set: the largest; None where it is the whole model


class Down(NamedTuple):
    w: PyTree
    where: Int[Array, " s"] | None  # S


class Up(NamedTuple):
    loss: Float[Array, ""]
    gradient: PyTree
    hessian: Float[Array, " packed"]  # the upper triangle, on S


class FedNewton(AbstractServerAlgorithm):
    """Few rounds, whatever the conditioning, for convex problems (see cofed.algorithms.fednewton for the update).

    Parameters
    ----------
    server_lr : float, default 1.0
        eta_s, the first step tried along each direction.
    working_set : int, optional
        s, how many coordinates the clients send second derivatives of; None is all of them.

    Examples
    --------
    >>> import cofed
    >>> cofed.FedNewton(working_set=64)
    FedNewton(working_set=64)
    """

    server_lr: Hyperparameter = eqx.field(converter=rate, default=1.0)
    working_set: int | None = eqx.field(static=True, default=None)

    needs: ClassVar[tuple[str, ...]] = ("convex",)
    same_loss: ClassVar[bool] = True
    equal_steps: ClassVar[bool] = False
    whole_up: ClassVar[str | None] = (
        "FedNewton solves for its direction with the mean Hessian and accepts it by the mean loss"
    )
    paper: ClassVar[str] = "Lee et al. 2014"

    def __check_init__(self):
        require_positive("FedNewton", server_lr=self.server_lr)
        if self.working_set is not None:
            require_count("FedNewton", working_set=self.working_set)

    def refuses(self, problem: Problem) -> str | None:
        """A part of the coordinates is only solved for where psi treats each alone, and only the same clients' losses
        can be compared."""
        psi = problem.regularizer
        if not problem.everyone:
            return "FedNewton needs every client in every round; leave clients_per_round out, or take FedDecouple"
        if self.working_set is None or psi.separable:
            return None
        return (
            f"FedNewton with a working set does not fit the regularizer {type(psi).__name__}: it needs one that acts "
            "on each coordinate alone (trait 'separable'); leave working_set out"
        )

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return self.start(problem, w0, trees.zeros_like(w0))

    def start(self, problem: Problem, w0: PyTree, gradient: PyTree) -> Server:
        """The state before round 0 where the gradient at w0 is known: it says which coordinates to begin with."""
        flat = ravel_pytree(w0)[0]
        zero, size = jnp.zeros((), flat.dtype), self.size(flat.size)
        return Server(
            w=w0,
            x=w0,
            d=trees.zeros_like(w0),
            t=zero + 1,
            known=zero,
            loss=zero,
            gradient=gradient,
            hessian=jnp.zeros((size, size), flat.dtype),
            promise=zero,
            priority=None if size == flat.size else priority(problem, w0, w0, gradient),
        )

    def size(self, parameters: int) -> int:
        """s"""
        return parameters if self.working_set is None else min(self.working_set, parameters)

    def init_client(self, problem: Problem, w0: PyTree) -> tuple[()]:
        return ()

    def broadcast(self, server: Server) -> Down:
        if server.priority is None:
            return Down(server.w, None)
        return Down(server.w, jax.lax.top_k(server.priority, server.hessian.shape[0])[1])

    def local(self, problem: Problem, down: Down, client: tuple[()], steps: LocalSteps):
        flat = ravel_pytree(down.w)[0]
        where = jnp.arange(flat.size, dtype=jnp.int32) if down.where is None else down.where

        def step(k, total):
            loss, gradient = steps.loss_and_gradient(down.w, k)
            seen = Up(loss, gradient, curvature.pack(steps.hessian(down.w, k, where)))
            return trees.axpy(1 / steps.count, seen, total)

        triangle = where.size * (where.size + 1) // 2
        nothing = Up(jnp.zeros((), flat.dtype), trees.zeros_like(down.w), jnp.zeros(triangle, flat.dtype))
        up = steps.run(step, nothing)
        # A step so long that the loss overflows is no failure of the client: the server must hear of it, to shorten it.
        huge = jnp.asarray(jnp.finfo(flat.dtype).max / 4, flat.dtype)
        return trees.where(jnp.isposinf(up.loss), nothing._replace(loss=huge), up), client

    def aggregate(self, problem: Problem, server: Server, up: Up, share: Float[Array, ""]) -> Server:
        psi = problem.regularizer
        before, after = server.loss + psi.value(server.x), up.loss + psi.value(server.w)
        room = 8 * jnp.finfo(before.dtype).eps * jnp.abs(after)  # round-off must not shorten the step
        fallen = (server.known == 0) | (after <= before + ENOUGH * server.t * server.promise + room)
        return jax.lax.cond(
            fallen,
            lambda: self.accepted(problem, server, up),
            lambda: server._replace(t=server.t / 2, w=trees.axpy(server.t / 2, server.d, server.x)),
        )

    def accepted(self, problem: Problem, server: Server, up: Up) -> Server:
        """The state with x = w, and the next direction."""
        psi, where = problem.regularizer, self.broadcast(server).where
        flat, back = ravel_pytree(server.w)
        if where is None:
            where = jnp.arange(flat.size, dtype=jnp.int32)
        H = curvature.unpack(up.hessian, where.size)

        def prox(v, step):
            return ravel_pytree(psi.prox(back(flat.at[where].set(v)), step))[0][where]

        def value(v):
            return psi.value(back(flat.at[where].set(v)))

        g = ravel_pytree(up.gradient)[0]
        z = minimise(H, g[where], flat[where], VectorPenalty(prox, value, psi.separable))
        d = back(jnp.zeros_like(flat).at[where].set(z - flat[where]))
        ahead = trees.add(server.w, d)
        promise = trees.dot(up.gradient, d) + psi.value(ahead) - psi.value(server.w)
        t = jnp.asarray(self.server_lr, flat.dtype)
        w = trees.axpy(t, d, server.w)
        following = None if server.priority is None else priority(problem, server.w, ahead, up.gradient)
        return Server(w, server.w, d, t, jnp.ones_like(t), up.loss, up.gradient, H, jnp.minimum(promise, 0), following)

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.w


def priority(problem: Problem, x: PyTree, ahead: PyTree, gradient: PyTree) -> Float[Array, " d"]:
    """How much each coordinate matters next: infinitely where it is not zero or is left free by psi, else by how far
    it is from optimal at x, else by its gradient."""
    psi = problem.regularizer
    flat, g = ravel_pytree(x)[0], ravel_pytree(gradient)[0]
    off = ravel_pytree(trees.sub(x, psi.prox(trees.sub(x, gradient), 1.0)))[0]
    tiny = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.finfo(leaf.dtype).tiny), x)
    free = ravel_pytree(psi.prox(tiny, 1.0))[0] != 0
    held = free | (flat != 0) | (ravel_pytree(ahead)[0] != 0)
    most = jnp.finfo(flat.dtype).max
    return jnp.where(held, most, jnp.abs(off) + jnp.finfo(flat.dtype).eps * jnp.abs(g))
