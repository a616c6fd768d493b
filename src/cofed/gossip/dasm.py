"""DASM: distributed dual averaging of subgradients, the classical method by gossip.

Problem     min_w  mean_m F_m(w) + psi(w), psi convex; node m talks to its neighbours only, after every step
When        something to compare with is needed: the classical method, whose steps must shrink.
Start       z^m = 0, t = 0
Round       z^m <- sum_j u_jm z^j - G^m(x^m),  t <- t + 1,  alpha_t = a / sqrt(t + 1)
Model       x = D_{alpha_t t}(grad h(w_0) + alpha_t z); also `average`, the mean of all x so far
Assumes     one step per round.
Reference   Duchi, Agarwal, Wainwright 2012, IEEE TAC, distributed dual averaging.
Deviations  psi enters as in regularized dual averaging (Xiao 2010): with the weight of all gradients, t. The proximal
            function is centred at the start w_0.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import rate, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractGossipAlgorithm, LocalSteps, LossCurvature
from cofed.mirrors import AbstractMirror, Euclidean, require_mirror
from cofed.problem import Problem


class Node(NamedTuple):
    z: PyTree  # z^m, minus the sum of mixed gradients
    centre: PyTree  # grad h(w_0)
    t: Float[Array, ""]  # t, steps so far
    total: PyTree  # the sum of all models so far
    gradient: PyTree  # G^m of the round


class DASM(AbstractGossipAlgorithm):
    """Distributed dual averaging with decreasing steps (see cofed.gossip.dasm for the update).

    Parameters
    ----------
    step : float
        a of alpha_t = a / sqrt(t + 1), the falling step size.
    mirror : AbstractMirror, default Euclidean()
        h, the geometry of the dual averaging.

    Examples
    --------
    >>> import cofed
    >>> cofed.DASM(step=0.5).step
    0.5
    """

    step: Hyperparameter = eqx.field(converter=rate)
    mirror: AbstractMirror = eqx.field(default_factory=Euclidean)

    needs: ClassVar[tuple[str, ...]] = ("convex",)
    equal_steps: ClassVar[bool] = True
    one_step: ClassVar[bool] = True
    paper: ClassVar[str] = "Duchi et al. 2012"

    def __check_init__(self):
        require_positive("DASM", step=self.step)
        require_mirror("DASM", self.mirror)

    def refuses(self, problem: Problem) -> str | None:
        return self.mirror.refuses(problem.regularizer)

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        return {"step": 1 / curvature.largest}

    def init_node(self, problem: Problem, w0: PyTree) -> Node:
        zero = trees.zeros_like(w0)
        return Node(zero, self.mirror.to_dual(w0), jnp.zeros((), trees.dtype(w0)), zero, zero)

    def local_node(self, problem: Problem, node: Node, steps: LocalSteps):
        g = steps.gradient(self.model_node(problem, node), jnp.zeros_like(steps.count))
        return node._replace(gradient=g), node.z

    def mix(self, problem: Problem, node: Node, mixed: PyTree) -> Node:
        moved = node._replace(z=trees.sub(mixed, node.gradient), t=node.t + 1)
        return moved._replace(total=trees.add(node.total, self.model_node(problem, moved)))

    def model_node(self, problem: Problem, node: Node) -> PyTree:
        alpha = self.step / jnp.sqrt(node.t + 1)
        return self.mirror.to_primal(problem.regularizer, trees.axpy(alpha, node.z, node.centre), alpha * node.t)

    def average_node(self, problem: Problem, node: Node) -> PyTree:
        """The mean of the models so far; the start, before round 0."""
        mean = trees.scale(1 / jnp.maximum(node.t, 1), node.total)
        return trees.where(node.t > 0, mean, self.model_node(problem, node))
