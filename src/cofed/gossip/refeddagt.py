"""ReFedDA-GT: restricted dual averaging with gradient tracking, with a server or by gossip.

Problem     min_w  mean_m F_m(w)   (psi = 0), the solution s-sparse and within ||w - w_0||_q^2 <= Q
When        as MReFedDAGT, where a good bound of the distance is known beforehand; else it is a stage of that.
Point       x = w_0 + B(grad h*(z)),  B the rescaling into the q-norm ball of radius sqrt(Q)
Start       z = 0, c = c^m = 0
Local       z <- z - eta_c (G_k(x) - c^m + c)
Client      c^m+ = c^m - c - (z_K - z)/(K eta_c)
Server      z <- z + eta_s mean_S(z_K - z),  c <- c + (1/M) sum_S (c^m+ - c^m)
Gossip      DFedDA's recursions with this x: tracker c^m <- c^m + Delta^m - sum_j u_jm Delta^j from 0,
            z^m <- sum_j u_jm (z^j + K eta_s eta_c Delta^j),  Delta^m = (z_K - z)/(K eta_c); where the nodes' starts
            differ (`mix_start`, the later stages of MReFedDA-GT) also w_0^m <- sum_j u_jm w_0^j
Output      `average`: the s largest entries (ties: lowest index) of the mean of w_{r,0}, r = 0..R-1
Reference   liang2023, Algorithm 3 (the gossip form: DReFedDA-GT of Section 7).
Deviations  The printed Prox(w_0, z) has the wrong sign, the printed Delta_r telescopes to nothing and is not used, and
            the printed 1/|S| in the server's c is wrong under sampling. B is exact since h is homogeneous.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import number, rate, require_count, require_flag, require_positive, require_radius
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractGossipAlgorithm, AbstractServerAlgorithm, LocalSteps
from cofed.mirrors import AbstractMirror, PNorm, require_mirror
from cofed.problem import Problem
from cofed.regularizers import L0Ball


class Server(NamedTuple):
    z: PyTree  # z, the dual state, relative to w_0
    c: PyTree  # c, the server's control variate
    w0: PyTree  # w_0, the start and the centre of the ball
    total: PyTree  # sum_r w_{r,0}
    rounds: Float[Array, ""]  # r


class Down(NamedTuple):
    z: PyTree  # z
    c: PyTree  # c


class Client(NamedTuple):
    c: PyTree  # c^m, the client's control variate
    w0: PyTree  # w_0


class Node(NamedTuple):
    z: PyTree  # z^m
    c: PyTree  # c^m, the tracker
    w0: PyTree  # w_0
    total: PyTree  # sum_r w_{r,0}
    rounds: Float[Array, ""]  # r
    delta: PyTree  # Delta^m of the round


class Up(NamedTuple):
    z: PyTree  # with a server z_K - z; by gossip z + K eta_s eta_c Delta
    c: PyTree  # with a server c^m+ - c^m; by gossip Delta
    w0: PyTree = None  # by gossip w_0^m, where the nodes' starts differ


class ReFedDAGT(AbstractServerAlgorithm, AbstractGossipAlgorithm):
    """Dual averaging within a q-norm ball around the start, drift-corrected (see cofed.gossip.refeddagt).

    Runs through a server, or along a graph with `topology=`.

    Parameters
    ----------
    client_lr : float
        eta_c, the step size of the clients' local steps.
    server_lr : float, default 1.0
        eta_s, the step size of the server (by gossip, of a node) along the moves.
    radius_squared : float, default inf
        Q, the squared radius of the q-norm ball around the start; infinity leaves the ball out.
    sparsity : int, optional
        s, how many entries of the output are kept; None keeps all.
    mirror : AbstractMirror, default PNorm()
        h, the geometry; by default the p-norm with p = max(2, 2 ln d).
    mix_start : bool, default False
        Whether nodes mix their starts too, as the later stages of MReFedDA-GT need.

    Examples
    --------
    >>> import cofed
    >>> cofed.ReFedDAGT(client_lr=0.1, radius_squared=4.0, sparsity=16).sparsity
    16
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)
    server_lr: Hyperparameter = eqx.field(converter=rate, default=1.0)
    radius_squared: Hyperparameter = eqx.field(converter=number, default=float("inf"))
    sparsity: int | None = eqx.field(static=True, default=None)
    mirror: AbstractMirror = eqx.field(default_factory=PNorm)
    mix_start: bool = eqx.field(static=True, default=False)

    needs: ClassVar[tuple[str, ...]] = ("zero",)
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "liang2023"

    def __check_init__(self):
        require_positive("ReFedDAGT", client_lr=self.client_lr, server_lr=self.server_lr)
        require_radius("ReFedDAGT", radius_squared=self.radius_squared)
        require_flag("ReFedDAGT", mix_start=self.mix_start)
        require_mirror("ReFedDAGT", self.mirror)
        if self.sparsity is not None:
            require_count("ReFedDAGT", sparsity=self.sparsity)
        if not self.mirror.has_norm:
            raise ValueError(f"ReFedDAGT needs a mirror with a norm, PNorm or Euclidean, got {self.mirror}")

    def init(self, problem: Problem, w0: PyTree) -> Server:
        zero = trees.zeros_like(w0)
        return Server(zero, zero, w0, zero, jnp.zeros((), trees.dtype(w0)))

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        return Client(trees.zeros_like(w0), w0)

    def broadcast(self, server: Server) -> Down:
        return Down(server.z, server.c)

    def local(self, problem: Problem, down: Down, client: Client, steps: LocalSteps):
        move = self.walk(down.z, client.w0, trees.sub(down.c, client.c), steps)
        # c^m+ - c^m = -c - (z_K - z)/(K eta_c)
        change = trees.scale(-1.0, trees.axpy(1 / (self.client_lr * steps.count), move, down.c))
        return Up(move, change), client._replace(c=trees.add(client.c, change))

    def aggregate(self, problem: Problem, server: Server, up: Up, share: Float[Array, ""]) -> Server:
        began = self.point(server.z, server.w0)
        return Server(
            z=trees.axpy(self.server_lr, up.z, server.z),
            c=trees.axpy(share, up.c, server.c),
            w0=server.w0,
            total=trees.add(server.total, began),
            rounds=server.rounds + 1,
        )

    def model(self, problem: Problem, server: Server) -> PyTree:
        return self.point(server.z, server.w0)

    def average(self, problem: Problem, server: Server) -> PyTree:
        """The output: the s largest entries of the mean of w_{r,0}; the start, before round 0."""
        return self.output(server)

    def init_node(self, problem: Problem, w0: PyTree) -> Node:
        zero = trees.zeros_like(w0)
        return Node(zero, zero, w0, zero, jnp.zeros((), trees.dtype(w0)), zero)

    def local_node(self, problem: Problem, node: Node, steps: LocalSteps):
        move = self.walk(node.z, node.w0, node.c, steps)
        delta = trees.scale(1 / (self.client_lr * steps.count), move)
        start = node.w0 if self.mix_start else None
        return node._replace(delta=delta), Up(trees.axpy(self.server_lr, move, node.z), delta, start)

    def mix(self, problem: Problem, node: Node, mixed: Up) -> Node:
        began = self.point(node.z, node.w0)
        return Node(
            z=mixed.z,
            c=trees.add(node.c, trees.sub(node.delta, mixed.c)),
            w0=mixed.w0 if self.mix_start else node.w0,
            total=trees.add(node.total, began),
            rounds=node.rounds + 1,
            delta=node.delta,
        )

    def model_node(self, problem: Problem, node: Node) -> PyTree:
        return self.point(node.z, node.w0)

    def average_node(self, problem: Problem, node: Node) -> PyTree:
        """The output of a node, as with a server."""
        return self.output(node)

    def walk(self, z: PyTree, w0: PyTree, correction: PyTree, steps: LocalSteps) -> PyTree:
        """z_K - z after K corrected local steps"""

        def step(k, at):
            g = steps.gradient(self.point(at, w0), k)
            return trees.axpy(-self.client_lr, trees.add(g, correction), at)

        return trees.sub(steps.run(step, z), z)

    def point(self, z: PyTree, w0: PyTree) -> PyTree:
        """x = w_0 + B(grad h*(z))"""
        u = self.mirror.to_primal_smooth(z)
        norm = self.mirror.norm(u)
        inside = norm**2 <= self.radius_squared
        shrink = jnp.where(inside, 1, jnp.sqrt(self.radius_squared) / jnp.where(inside, 1, norm))
        return trees.axpy(shrink, u, w0)

    def output(self, state: Server | Node) -> PyTree:
        """The s largest entries of the mean of w_{r,0}"""
        mean = trees.scale(1 / jnp.maximum(state.rounds, 1), state.total)
        mean = trees.where(state.rounds > 0, mean, state.w0)
        return mean if self.sparsity is None else L0Ball(self.sparsity).prox(mean, 1.0)
