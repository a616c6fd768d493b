"""DFedDA: decentralised dual averaging, with or without gradient tracking.

Problem     min_w  mean_m F_m(w) + psi(w), psi convex; node m talks to its neighbours only
When        there is no server and several local steps per message pay; take gradient_tracking=True where nodes differ.
Start       z^m = grad h(w_0);  with tracking c^m = -G^m(w_0) + sum_j u_jm G^j(w_0) (one gradient, one exchange)
Local       x = D_{elapsed + eta_c k}(z),  z <- z - eta_c (G_k(x) + c^m)
Exchange    Delta^m = (z_K - z)/(K eta_c);  c^m <- c^m + Delta^m - sum_j u_jm Delta^j;
            z^m <- sum_j u_jm (z^j + K eta_s eta_c Delta^j)
Model       of a node D(z^m), of the federation D(mean_m z^m)
Reference   liang2023, Algorithms 1 (DFedDA) and 2 (DFedDA-GT).
Deviations  psi is an extension: as in FedDualAvg, D_t with t = elapsed, mixed like z, so that U = J/M gives FedDualAvg.

Without tracking (c = 0) heterogeneous nodes keep a bias; with it they do not. sum_m c^m = 0 always.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import rate, require_flag, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractGossipAlgorithm, LocalSteps
from cofed.mirrors import AbstractMirror, Euclidean, require_mirror
from cofed.problem import Problem


class Node(NamedTuple):
    z: PyTree  # z^m, the dual state
    elapsed: Float[Array, ""]  # the weight that psi has gathered so far
    c: PyTree  # c^m, the tracker; None without tracking
    delta: PyTree  # Delta^m of the round (at the start: G^m(w_0)); None without tracking


class Up(NamedTuple):
    z: PyTree  # z + K eta_s eta_c Delta
    elapsed: Float[Array, ""]  # elapsed + eta_s eta_c K
    delta: PyTree  # Delta; None without tracking


class DFedDA(AbstractGossipAlgorithm):
    """Dual averaging by gossip (see cofed.gossip.dfedda for the update).

    Parameters
    ----------
    client_lr : float
        eta_c, the step size of the clients' local steps.
    server_lr : float, default 1.0
        eta_s, the step size along a node's own move.
    gradient_tracking : bool, default False
        Whether nodes track the mean gradient; True is DFedDA-GT.
    mirror : AbstractMirror, default Euclidean()
        h, the geometry of the dual averaging.

    Examples
    --------
    >>> import cofed
    >>> cofed.DFedDA(client_lr=0.1, gradient_tracking=True).gradient_tracking
    True
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)
    server_lr: Hyperparameter = eqx.field(converter=rate, default=1.0)
    gradient_tracking: bool = eqx.field(static=True, default=False)
    mirror: AbstractMirror = eqx.field(default_factory=Euclidean)

    needs: ClassVar[tuple[str, ...]] = ("convex",)
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "liang2023"

    def __check_init__(self):
        require_positive("DFedDA", client_lr=self.client_lr, server_lr=self.server_lr)
        require_flag("DFedDA", gradient_tracking=self.gradient_tracking)
        require_mirror("DFedDA", self.mirror)

    def refuses(self, problem: Problem) -> str | None:
        return self.mirror.refuses(problem.regularizer)

    def init_node(self, problem: Problem, w0: PyTree) -> Node:
        z = self.mirror.to_dual(w0)
        zero = trees.zeros_like(z) if self.gradient_tracking else None
        return Node(z, jnp.zeros((), trees.dtype(w0)), zero, zero)

    @property
    def exchanges_first(self) -> bool:
        return self.gradient_tracking

    def first_node(self, problem: Problem, node: Node, steps: LocalSteps):
        g = steps.gradient(self.model_node(problem, node), jnp.zeros_like(steps.count))
        return node._replace(delta=g), g

    def mix_first(self, problem: Problem, node: Node, mixed: PyTree) -> Node:
        return node._replace(c=trees.sub(mixed, node.delta))

    def local_node(self, problem: Problem, node: Node, steps: LocalSteps):
        def step(k, z):
            x = self.mirror.to_primal(problem.regularizer, z, node.elapsed + self.client_lr * k)
            g = steps.gradient(x, k)
            return trees.axpy(-self.client_lr, g if node.c is None else trees.add(g, node.c), z)

        move = trees.sub(steps.run(step, node.z), node.z)
        path = self.client_lr * steps.count
        delta = None if node.c is None else trees.scale(1 / path, move)
        up = Up(trees.axpy(self.server_lr, move, node.z), node.elapsed + self.server_lr * path, delta)
        return node._replace(delta=delta), up

    def mix(self, problem: Problem, node: Node, mixed: Up) -> Node:
        c = None if node.c is None else trees.add(node.c, trees.sub(node.delta, mixed.delta))
        return Node(mixed.z, mixed.elapsed, c, node.delta)

    def model_node(self, problem: Problem, node: Node) -> PyTree:
        return self.mirror.to_primal(problem.regularizer, node.z, node.elapsed)
