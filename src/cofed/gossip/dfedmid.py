"""DFedMiD: decentralised mirror descent, Euclidean.

Problem     min_w  mean_m F_m(w) + psi(w); node m talks to its neighbours only
When        something to compare with is needed: what averaging sparse models does on a graph.
Local       x <- D_{eta_c}(x - eta_c G_k(x)),  D_t = prox of t psi, from x = w^m
Exchange    w^m <- D_{eta_s eta_c K}(sum_j u_jm (w^j + eta_s (x_K^j - w^j)))
Model       of a node w^m, of the federation mean_m w^m
Reference   liang2023, Section 7 (a baseline: FedMiD of yuan2021 without a server).
Deviations  Where nodes take different numbers of steps, eta_c K is mixed like the models.

The mean of nodes in a non-convex set (L0Ball) need not lie in it: look at the nodes' own models there.
With U = J/M this is FedMiD, with its fixed point of 2 psi for a finite psi; see there.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import rate, require_flag, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractGossipAlgorithm, LocalSteps
from cofed.problem import Problem


class Node(NamedTuple):
    w: PyTree  # w^m, the node's model


class Up(NamedTuple):
    w: PyTree  # w + eta_s (x_K - w)
    elapsed: Float[Array, ""]  # eta_s eta_c K_m


class DFedMiD(AbstractGossipAlgorithm):
    """Proximal steps by gossip (see cofed.gossip.dfedmid for the update).

    Parameters
    ----------
    client_lr : float
        eta_c, the step size of the clients' local steps.
    server_lr : float, default 1.0
        eta_s, the step size along a node's own move.
    client_prox : bool, default True
        Whether local steps take the prox of psi.

    Examples
    --------
    >>> import cofed
    >>> cofed.DFedMiD(client_lr=0.1).server_lr
    1.0
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)
    server_lr: Hyperparameter = eqx.field(converter=rate, default=1.0)
    client_prox: bool = eqx.field(static=True, default=True)

    needs: ClassVar[tuple[str, ...]] = ()
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "liang2023"

    def __check_init__(self):
        require_positive("DFedMiD", client_lr=self.client_lr, server_lr=self.server_lr)
        require_flag("DFedMiD", client_prox=self.client_prox)

    def init_node(self, problem: Problem, w0: PyTree) -> Node:
        return Node(w0)

    def local_node(self, problem: Problem, node: Node, steps: LocalSteps):
        def step(k, x):
            x = trees.axpy(-self.client_lr, steps.gradient(x, k), x)
            return problem.regularizer.prox(x, self.client_lr) if self.client_prox else x

        move = trees.sub(steps.run(step, node.w), node.w)
        up = Up(trees.axpy(self.server_lr, move, node.w), self.server_lr * self.client_lr * steps.count)
        return node, up

    def mix(self, problem: Problem, node: Node, mixed: Up) -> Node:
        return Node(problem.regularizer.prox(mixed.w, mixed.elapsed))

    def model_node(self, problem: Problem, node: Node) -> PyTree:
        return node.w
