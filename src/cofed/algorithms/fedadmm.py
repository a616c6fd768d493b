"""FedADMM: the alternating direction method of multipliers, over sampled clients.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), F_m possibly non-convex
When        clients come and go and can keep state, and the loss need not be convex. No bias. FedDR is its near
            relative.
Client      x_i ~ argmin f_i(x) + <l_i, x - xbar> + ||x - xbar||^2/(2 eta),  l_i <- l_i + (x_i - xbar)/eta
Local       the argmin by K gradient steps from the last x_i:  x <- x - eta_c (G_k(x) + l_i + (x - xbar)/eta)
Wire        up x_i + eta l_i (sent as its change, since the server keeps the last one of absent clients)
Server      xbar = prox_{eta psi}(mean over all clients of the last x_i + eta l_i)
Start       x_i = w_0, l_i = 0, so that the first model is prox_{eta psi}(w_0)
Reference   Wang, Marella, Anderson 2022, CDC, Algorithm 1.
Deviations  The inexact argmin takes a fixed number of gradient steps. With weights pi the mean is weighted.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import known, rate, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps, LossCurvature
from cofed.problem import Problem


class Server(NamedTuple):
    mean: PyTree  # the mean over all clients of their last x_i + eta l_i
    xbar: PyTree  # x-bar, the model


class Client(NamedTuple):
    x: PyTree  # x_i, the client's model
    dual: PyTree  # l_i, the multiplier of x_i = xbar


class FedADMM(AbstractServerAlgorithm):
    """ADMM over sampled clients (see cofed.algorithms.fedadmm for the update).

    Parameters
    ----------
    client_lr : float
        eta_c, the step size of the local solver.
    eta : float
        eta, the inverse of the penalty on the distance to the common model.

    Examples
    --------
    >>> import cofed
    >>> cofed.FedADMM(client_lr=0.05, eta=1.0)
    FedADMM(client_lr=0.05, eta=1.0)
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)
    eta: Hyperparameter = eqx.field(converter=rate)

    needs: ClassVar[tuple[str, ...]] = ()
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "Wang et al. 2022"
    changeable: ClassVar[tuple[str, ...]] = ("client_lr",)

    def __check_init__(self):
        require_positive("FedADMM", client_lr=self.client_lr, eta=self.eta)

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        # The splitting contracts most for eta = 1/sqrt(L mu); the local problem has the curvature L + 1/eta.
        eta = self.eta if known(self.eta) else (curvature.largest * max(curvature.mu, curvature.largest / 100)) ** -0.5
        return {"eta": float(eta), "client_lr": 1 / (curvature.largest + 1 / float(eta))}

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return self.server(problem, w0)

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        return Client(w0, trees.zeros_like(w0))

    def broadcast(self, server: Server) -> PyTree:
        return server.xbar

    def local(self, problem: Problem, down: PyTree, client: Client, steps: LocalSteps):
        def step(k, x):
            pull = trees.axpy(1 / self.eta, trees.sub(x, down), client.dual)
            return trees.axpy(-self.client_lr, trees.add(steps.gradient(x, k), pull), x)

        x = steps.run(step, client.x)
        new = Client(x, trees.axpy(1 / self.eta, trees.sub(x, down), client.dual))
        return trees.sub(self.message(new), self.message(client)), new

    def aggregate(self, problem: Problem, server: Server, up: PyTree, share: Float[Array, ""]) -> Server:
        return self.server(problem, trees.axpy(share, up, server.mean))

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.xbar

    def server(self, problem: Problem, mean: PyTree) -> Server:
        """xbar = prox_{eta psi}(mean)"""
        return Server(mean, problem.regularizer.prox(mean, self.eta))

    def message(self, client: Client) -> PyTree:
        """x_i + eta l_i"""
        return trees.axpy(self.eta, client.dual, client.x)
