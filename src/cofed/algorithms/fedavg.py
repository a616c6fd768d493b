"""FedAvg, with the regularizer by subgradients.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), psi finite
When        something to compare with is needed, or nothing has to be sparse and clients are alike.
Local       w <- w - eta_c (G_k(w) + s(w)),  s a subgradient of psi at the same w, sign(0) = 0
Server      w <- w + eta_s mean_S(w_K - w)
Assumes     a finite psi; an indicator has no subgradient to follow.
Reference   McMahan et al. 2017, AISTATS; the subgradient form is the baseline FEDAVG(d) of yuan2021, Section 1.
Deviations  none. It is biased where clients differ and K > 1, and its models are not sparse: that is its point here.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import rate, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps, LossCurvature
from cofed.problem import Problem


class Server(NamedTuple):
    w: PyTree  # w_r, the global model


class FedAvg(AbstractServerAlgorithm):
    """Local subgradient steps, averaged (see cofed.algorithms.fedavg for the update).

    Parameters
    ----------
    client_lr : float
        eta_c, the step size of the clients' local steps.
    server_lr : float, default 1.0
        eta_s, the step size of the server along the clients' mean move.

    Examples
    --------
    >>> import cofed
    >>> cofed.FedAvg(client_lr=0.1)
    FedAvg(client_lr=0.1)
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)
    server_lr: Hyperparameter = eqx.field(converter=rate, default=1.0)

    needs: ClassVar[tuple[str, ...]] = ("finite",)
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "McMahan et al. 2017"
    changeable: ClassVar[tuple[str, ...]] = ("client_lr", "server_lr")

    def __check_init__(self):
        require_positive("FedAvg", client_lr=self.client_lr, server_lr=self.server_lr)

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        return curvature.steps(self.client_lr)

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return Server(w0)

    def init_client(self, problem: Problem, w0: PyTree) -> tuple[()]:
        return ()

    def broadcast(self, server: Server) -> PyTree:
        return server.w

    def local(self, problem: Problem, down: PyTree, client: tuple[()], steps: LocalSteps):
        def step(k, w):
            g = trees.add(steps.gradient(w, k), problem.regularizer.subgradient(w))
            return trees.axpy(-self.client_lr, g, w)

        w = steps.run(step, down)
        return trees.sub(w, down), client

    def aggregate(self, problem: Problem, server: Server, up: PyTree, share: Float[Array, ""]) -> Server:
        return Server(trees.axpy(self.server_lr, up, server.w))

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.w

    def with_model(self, server: Server, w: PyTree) -> Server:
        return Server(w)
