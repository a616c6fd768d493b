"""FedDR: federated Douglas-Rachford splitting, randomised.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), F_m possibly non-convex
When        clients come and go and can keep state, and the loss need not be convex. No bias. FedADMM is its near
            relative.
Client      y_i <- y_i + alpha (xbar - x_i),  x_i ~ prox_{eta f_i}(y_i),  xhat_i = 2 x_i - y_i
Local       the prox by K gradient steps from the last x_i:  x <- x - eta_c (G_k(x) + (x - y_i)/eta)
Server      xtilde <- xtilde + (1/M) sum_S (xhat_i+ - xhat_i),  xbar = prox_{eta psi}(xtilde)
Start       y_i = x_i = xhat_i = xtilde = w_0, so that the first model is prox_{eta psi}(w_0)
Reference   Tran-Dinh, Pham, Phan, Nguyen 2021, NeurIPS, Algorithm 1.
Deviations  The inexact prox takes a fixed number of gradient steps. With weights pi, (1/M) sum_S is sum_S pi_i.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.checks import shown
from cofed._util.scalars import entries, known, number, rate, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps, LossCurvature
from cofed.problem import Problem


class Server(NamedTuple):
    xtilde: PyTree  # x-tilde, the mean of all clients' last xhat_i
    xbar: PyTree  # x-bar, the model


class Client(NamedTuple):
    x: PyTree  # x_i, the client's model
    y: PyTree  # y_i, the splitting variable
    xhat: PyTree  # xhat_i, what the server has of it


class FedDR(AbstractServerAlgorithm):
    """Douglas-Rachford splitting over sampled clients (see cofed.algorithms.feddr for the update).

    Parameters
    ----------
    client_lr : float
        eta_c, the step size of the local solver.
    eta : float
        eta, the step size of the splitting.
    alpha : float, default 1.0
        alpha in (0, 2), the relaxation of the splitting.

    Examples
    --------
    >>> import cofed
    >>> cofed.FedDR(client_lr=0.05, eta=1.0)
    FedDR(client_lr=0.05, eta=1.0)
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)
    eta: Hyperparameter = eqx.field(converter=rate)
    alpha: Hyperparameter = eqx.field(converter=number, default=1.0)

    needs: ClassVar[tuple[str, ...]] = ()
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "Tran-Dinh et al. 2021"
    changeable: ClassVar[tuple[str, ...]] = ("client_lr",)

    def __check_init__(self):
        require_positive("FedDR", client_lr=self.client_lr, eta=self.eta, alpha=self.alpha)
        if not (entries(self.alpha) < 2).all():
            raise ValueError(f"FedDR: alpha must be in (0, 2), got {shown(self.alpha)}")

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        # The splitting contracts most for eta = 1/sqrt(L mu); the local problem has the curvature L + 1/eta.
        eta = self.eta if known(self.eta) else (curvature.largest * max(curvature.mu, curvature.largest / 100)) ** -0.5
        return {"eta": float(eta), "client_lr": 1 / (curvature.largest + 1 / float(eta))}

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return self.server(problem, w0)

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        return Client(w0, w0, w0)

    def broadcast(self, server: Server) -> PyTree:
        return server.xbar

    def local(self, problem: Problem, down: PyTree, client: Client, steps: LocalSteps):
        y = trees.axpy(self.alpha, trees.sub(down, client.x), client.y)

        def step(k, x):
            g = trees.axpy(1 / self.eta, trees.sub(x, y), steps.gradient(x, k))
            return trees.axpy(-self.client_lr, g, x)

        x = steps.run(step, client.x)
        xhat = trees.sub(trees.scale(2.0, x), y)
        return trees.sub(xhat, client.xhat), Client(x, y, xhat)

    def aggregate(self, problem: Problem, server: Server, up: PyTree, share: Float[Array, ""]) -> Server:
        return self.server(problem, trees.axpy(share, up, server.xtilde))

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.xbar

    def server(self, problem: Problem, xtilde: PyTree) -> Server:
        """xbar = prox_{eta psi}(xtilde)"""
        return Server(xtilde, problem.regularizer.prox(xtilde, self.eta))
