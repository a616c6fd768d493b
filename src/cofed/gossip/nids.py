"""NIDS: proximal gradient descent by gossip, exact, with a step that does not depend on the network.

Problem     min_w  mean_m F_m(w) + psi(w), psi convex; node m talks to its neighbours only, after every step
When        there is no server and the pooled answer is wanted: the first choice. Every node's model is sparse.
Notation    W the gossip matrix, W~ = (I + W)/2; a = client_lr; g_k = G(x_k)
Start       z_1 = x_0 - a g_0
Round       z_{k+1} = z_k - x_k + W~ (2 x_k - x_{k-1} - a (g_k - g_{k-1}))
Model       of a node x_k = prox_{a psi}(z_k); of the federation mean_m x_k
Assumes     W symmetric; one step per round; a < 2/L, L the largest of the nodes' own smoothness constants.
Reference   Li, Shi, Yan 2019, IEEE Transactions on Signal Processing, NIDS (arXiv 1704.07807).
Deviations  All nodes begin at one w_0. The first round sends x_0, which all nodes have: so every round is alike.
            Where links fail W changes from round to round, which the theory does not cover.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import rate, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractGossipAlgorithm, LocalSteps, LossCurvature
from cofed.problem import Problem


class Node(NamedTuple):
    z: PyTree  # z_k, the point before the prox
    x: PyTree  # x_k, the node's model
    before: PyTree  # x_{k-1}
    gradient: PyTree  # g_k, of the last gradient that was computed
    sent: PyTree  # what the node sent in this round
    fresh: Float[Array, ""]  # 1 before the node's first round, then 0


class NIDS(AbstractGossipAlgorithm):
    """Exact proximal gradient descent without a server (see cofed.gossip.nids for the update).

    Parameters
    ----------
    client_lr : float
        a, the step size; it may be as large as for one node alone, whatever the graph.

    Examples
    --------
    >>> import cofed
    >>> cofed.NIDS(client_lr=0.1).needs
    ('convex',)
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)

    needs: ClassVar[tuple[str, ...]] = ("convex",)
    equal_steps: ClassVar[bool] = True
    one_step: ClassVar[bool] = True
    paper: ClassVar[str] = "Li et al. 2019"

    def __check_init__(self):
        require_positive("NIDS", client_lr=self.client_lr)

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        return {"client_lr": 1 / curvature.largest}  # one step per round, which no drift shortens

    def init_node(self, problem: Problem, w0: PyTree) -> Node:
        nothing = trees.zeros_like(w0)
        return Node(w0, w0, w0, nothing, nothing, jnp.ones((), trees.dtype(w0)))

    def local_node(self, problem: Problem, node: Node, steps: LocalSteps):
        g = steps.gradient(node.x, jnp.zeros_like(steps.count))
        first = node.fresh > 0
        # In the first round z = x_0 - a g_0 and no gradient has changed: the update then leaves z as it is.
        z = trees.where(first, trees.axpy(-self.client_lr, g, node.z), node.z)
        change = trees.where(first, trees.zeros_like(g), trees.sub(g, node.gradient))
        reflected = trees.sub(trees.scale(2.0, node.x), node.before)
        sent = trees.axpy(-self.client_lr, change, reflected)
        return node._replace(z=z, gradient=g, sent=sent, fresh=0 * node.fresh), sent

    def mix(self, problem: Problem, node: Node, mixed: PyTree) -> Node:
        half = trees.scale(0.5, trees.add(node.sent, mixed))  # W~ applied to what was sent
        z = trees.add(trees.sub(node.z, node.x), half)
        return node._replace(z=z, x=problem.regularizer.prox(z, self.client_lr), before=node.x)

    def model_node(self, problem: Problem, node: Node) -> PyTree:
        return node.x
