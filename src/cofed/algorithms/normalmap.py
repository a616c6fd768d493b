"""NormalMap: steps along the normal map, proximal gradient descent whose prox stays outside of what is averaged.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), F_m possibly non-convex, psi convex or weakly convex
When        the loss or psi is not convex and gradients are noisy, from batches or sampled clients: steps may fall while
            the parameter of the prox, and with it what the prox sets to zero, stays.
Notation    gamma the parameter of the prox, a = eta_s gamma the step
Start       z = w_0
Round       x = prox_gamma(z) goes down, G_m(x) comes up
Server      z+ = z - a (mean_S G + (z - x)/gamma);  model prox_gamma(z+)
Wire        one vector each way; one gradient per round, so K = 1
Assumes     gamma < 1/rho where psi + rho ||.||^2/2 is convex. Exact with everybody and full gradients: where z stays,
            0 is in grad F(x) + subdifferential psi(x). With noise it needs steps that fall (`Scheduled`, server_lr).
Reference   Qiu, Jiang, Milzarek 2023, A normal map-based proximal stochastic gradient method (arXiv 2305.05828).
Deviations  the paper has one place with all data; here the mean of the clients' gradients stands for its gradient.

eta_s = 1 (a = gamma) is proximal gradient descent with step gamma. This is not FedNMap (arXiv 2602.03357), whose
clients take several steps and correct their drift.
"""

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import rate, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps, LossCurvature
from cofed.problem import Problem


class Server(eqx.Module):
    z: PyTree  # z, the point before the prox
    x: PyTree  # prox_gamma(z), the model


class NormalMap(AbstractServerAlgorithm):
    """Proximal steps for problems that are not convex, with the prox outside the mean (see cofed.algorithms.normalmap).

    Parameters
    ----------
    prox_step : float
        gamma, the parameter of the prox: 1/L and shorter.
    server_lr : float, default 1.0
        eta_s, the step size in units of gamma: a = eta_s gamma, and 1 is proximal gradient descent.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> rng = np.random.default_rng(0)
    >>> clients = [(X := rng.normal(size=(50, 6)), X @ np.array([1.0, -2, 0, 0, 0, 0])) for _ in range(3)]
    >>> problem = cofed.Problem(cofed.Linear(intercept=False), regularizer=cofed.MCP(0.3, gamma=3.0))
    >>> method = cofed.NormalMap("auto", server_lr=0.8)
    >>> result = cofed.run(problem, cofed.Federation.from_arrays(clients), method, rounds=100, local_steps=1)
    >>> np.flatnonzero(result.model.coef).tolist(), result.model.coef[:2].round(3).tolist()
    ([0, 1], [1.0, -2.0])
    """

    prox_step: Hyperparameter = eqx.field(converter=rate)
    server_lr: Hyperparameter = eqx.field(converter=rate, default=1.0)

    equal_steps: ClassVar[bool] = True
    one_step: ClassVar[bool] = True
    changeable: ClassVar[tuple[str, ...]] = ("server_lr",)
    paper: ClassVar[str] = "Qiu et al. 2023"

    def __check_init__(self):
        require_positive("NormalMap", prox_step=self.prox_step, server_lr=self.server_lr)

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        return {"prox_step": 1 / curvature.L, "server_lr": 1.0}  # all gradients are taken at one point

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return self.at(problem, w0)

    def init_client(self, problem: Problem, w0: PyTree) -> tuple[()]:
        return ()

    def broadcast(self, server: Server) -> PyTree:
        return server.x

    def local(self, problem: Problem, down: PyTree, client: tuple[()], steps: LocalSteps):
        return steps.gradient(down, 0 * steps.count), client

    def aggregate(self, problem: Problem, server: Server, up: PyTree, share: Float[Array, ""]) -> Server:
        normal = trees.axpy(self.prox_step, up, trees.sub(server.z, server.x))  # gamma times the normal map
        return self.at(problem, trees.axpy(-self.server_lr, normal, server.z))

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.x

    def at(self, problem: Problem, z: PyTree) -> Server:
        """The state with this z"""
        return Server(z, problem.regularizer.prox(z, self.prox_step))
