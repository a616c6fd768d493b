"""PG-EXTRA: the first exact proximal gradient method by gossip.

Problem     min_w  mean_m F_m(w) + psi(w), psi convex; node m talks to its neighbours only, after every step
When        something to compare with is needed: NIDS is the same idea with longer steps.
Notation    W the gossip matrix, W~ = (I + W)/2; a = client_lr; g_k = G(x_k)
Start       z_1 = W x_0 - a g_0
Round       z_{k+1} = z_k - x_k + W~ (2 x_k - x_{k-1}) - a (g_k - g_{k-1})
Model       of a node x_k = prox_{a psi}(z_k); of the federation mean_m x_k
Assumes     W symmetric; one step per round; a < (1 + lambda_min(W))/L, so the worse the graph, the smaller the step.
Reference   Shi, Ling, Wu, Yin 2015, IEEE Transactions on Signal Processing, PG-EXTRA (arXiv 1506.03080).
Deviations  All nodes begin at one w_0, so W x_0 = x_0, and the start is the update with z_0 = x_{-1} = x_0 and
            g_{-1} = 0. Where links fail W changes from round to round, which the theory does not cover.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from cofed._util import trees
from cofed._util.scalars import rate, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractGossipAlgorithm, LocalSteps, LossCurvature
from cofed.problem import Problem


class Node(NamedTuple):
    z: PyTree  # z_k, the point before the prox
    x: PyTree  # x_k, the node's model
    before: PyTree  # x_{k-1}
    gradient: PyTree  # g_{k-1}; after the node's own work g_k
    change: PyTree  # a (g_k - g_{k-1})
    sent: PyTree  # what the node sent in this round


class PGExtra(AbstractGossipAlgorithm):
    """The classical exact proximal gradient method without a server (see cofed.gossip.pgextra for the update).

    Parameters
    ----------
    client_lr : float
        a, the step size; `NIDS` allows larger ones.

    Examples
    --------
    >>> import cofed
    >>> cofed.PGExtra(client_lr=0.1).needs
    ('convex',)
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)

    needs: ClassVar[tuple[str, ...]] = ("convex",)
    equal_steps: ClassVar[bool] = True
    one_step: ClassVar[bool] = True
    paper: ClassVar[str] = "Shi et al. 2015"

    def __check_init__(self):
        require_positive("PGExtra", client_lr=self.client_lr)

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        return {"client_lr": 1 / curvature.largest}  # one step per round, which no drift shortens

    def init_node(self, problem: Problem, w0: PyTree) -> Node:
        nothing = trees.zeros_like(w0)
        return Node(w0, w0, w0, nothing, nothing, nothing)

    def local_node(self, problem: Problem, node: Node, steps: LocalSteps):
        g = steps.gradient(node.x, jnp.zeros_like(steps.count))
        change = trees.scale(self.client_lr, trees.sub(g, node.gradient))
        sent = trees.sub(trees.scale(2.0, node.x), node.before)
        return node._replace(gradient=g, change=change, sent=sent), sent

    def mix(self, problem: Problem, node: Node, mixed: PyTree) -> Node:
        half = trees.scale(0.5, trees.add(node.sent, mixed))  # W~ applied to what was sent
        z = trees.sub(trees.add(trees.sub(node.z, node.x), half), node.change)
        return node._replace(z=z, x=problem.regularizer.prox(z, self.client_lr), before=node.x)

    def model_node(self, problem: Problem, node: Node) -> PyTree:
        return node.x
