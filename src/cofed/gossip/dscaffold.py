"""DScaffold: gradient tracking for smooth losses, Scaffold without a server.

Problem     min_w  mean_m F_m(w)   (psi = 0); node m talks to its neighbours only
When        there is no server and no regularizer, and several local steps per message pay.
Start       x^m = w_0, c^m = 0
Local       y <- y - eta_c (G_k(y) + c^m), from y = x^m
Exchange    Delta^m = (y_K - x)/(K eta_c);  c^m <- c^m + Delta^m - sum_j u_jm Delta^j;
            x^m <- sum_j u_jm (x^j + K eta_s eta_c Delta^j)
Model       of a node x^m, of the federation mean_m x^m
Reference   Karimireddy et al. 2020 for the server; liang2023, Algorithm 2, in the Euclidean geometry for the exchange.
Deviations  Trackers start at 0, as Scaffold's do: with U = J/M this is Scaffold.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import PyTree

from cofed._util import trees
from cofed._util.scalars import rate, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractGossipAlgorithm, LocalSteps
from cofed.problem import Problem


class Node(NamedTuple):
    x: PyTree  # x^m, the node's model
    c: PyTree  # c^m, the tracker
    delta: PyTree  # Delta^m of the round


class Up(NamedTuple):
    x: PyTree  # x + K eta_s eta_c Delta
    delta: PyTree  # Delta


class DScaffold(AbstractGossipAlgorithm):
    """Gradient tracking by gossip for smooth problems (see cofed.gossip.dscaffold for the update).

    Parameters
    ----------
    client_lr : float
        eta_c, the step size of the clients' local steps.
    server_lr : float, default 1.0
        eta_s, the step size along a node's own move.

    Examples
    --------
    >>> import cofed
    >>> cofed.DScaffold(client_lr=0.1).server_lr
    1.0
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)
    server_lr: Hyperparameter = eqx.field(converter=rate, default=1.0)

    needs: ClassVar[tuple[str, ...]] = ("zero",)
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "liang2023"

    def __check_init__(self):
        require_positive("DScaffold", client_lr=self.client_lr, server_lr=self.server_lr)

    def init_node(self, problem: Problem, w0: PyTree) -> Node:
        zero = trees.zeros_like(w0)
        return Node(w0, zero, zero)

    def local_node(self, problem: Problem, node: Node, steps: LocalSteps):
        def step(k, y):
            return trees.axpy(-self.client_lr, trees.add(steps.gradient(y, k), node.c), y)

        move = trees.sub(steps.run(step, node.x), node.x)
        delta = trees.scale(1 / (self.client_lr * steps.count), move)
        return node._replace(delta=delta), Up(trees.axpy(self.server_lr, move, node.x), delta)

    def mix(self, problem: Problem, node: Node, mixed: Up) -> Node:
        c = trees.add(node.c, trees.sub(node.delta, mixed.delta))
        return Node(mixed.x, c, node.delta)

    def model_node(self, problem: Problem, node: Node) -> PyTree:
        return node.x
