"""Scaffold: stochastic controlled averaging.

Problem     min_w  sum_m pi_m F_m(w)   (psi = 0)
When        there is no regularizer, clients differ and can keep state; they may be sampled.
Local       y <- y - eta_c (G_k(y) - c_i + c), from y = x
Client      c_i+ = c_i - c + (x - y_K)/(K eta_c)   (option II)
Server      x <- x + eta_s mean_S(y_K - x),  c <- c + (1/M) sum_S (c_i+ - c_i); all c start at 0
Reference   Karimireddy et al. 2020, ICML, Algorithm 1.
Deviations  With weights pi, (1/M) sum_S is sum_S pi_i, so that c stays the weighted mean of all c_i.
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
    x: PyTree  # x, the global model
    c: PyTree  # c, the server's control variate


class Up(NamedTuple):
    x: PyTree  # y_K - x, the client's move
    c: PyTree  # c_i+ - c_i, the change of its control variate


class Client(NamedTuple):
    c: PyTree  # c_i, the client's control variate


class Scaffold(AbstractServerAlgorithm):
    """Drift-corrected averaging for smooth problems (see cofed.algorithms.scaffold for the update).

    Parameters
    ----------
    client_lr : float
        eta_l, the step size of the clients' local steps.
    server_lr : float, default 1.0
        eta_g, the step size of the server along the clients' mean move.

    Examples
    --------
    >>> import cofed
    >>> cofed.Scaffold(client_lr=0.1)
    Scaffold(client_lr=0.1)
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)
    server_lr: Hyperparameter = eqx.field(converter=rate, default=1.0)

    needs: ClassVar[tuple[str, ...]] = ("zero",)
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "Karimireddy et al. 2020"
    changeable: ClassVar[tuple[str, ...]] = ("client_lr", "server_lr")

    def __check_init__(self):
        require_positive("Scaffold", client_lr=self.client_lr, server_lr=self.server_lr)

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        return curvature.steps(self.client_lr)

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return Server(w0, trees.zeros_like(w0))

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        return Client(trees.zeros_like(w0))

    def broadcast(self, server: Server) -> Server:
        return server

    def local(self, problem: Problem, down: Server, client: Client, steps: LocalSteps):
        correction = trees.sub(down.c, client.c)

        def step(k, y):
            return trees.axpy(-self.client_lr, trees.add(steps.gradient(y, k), correction), y)

        move = trees.sub(steps.run(step, down.x), down.x)
        # c_i+ - c_i = -c - (y_K - x)/(K eta_c)
        change = trees.scale(-1.0, trees.axpy(1 / (steps.count * self.client_lr), move, down.c))
        return Up(move, change), Client(trees.add(client.c, change))

    def aggregate(self, problem: Problem, server: Server, up: Up, share: Float[Array, ""]) -> Server:
        return Server(trees.axpy(self.server_lr, up.x, server.x), trees.axpy(share, up.c, server.c))

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.x

    def with_model(self, server: Server, w: PyTree) -> Server:
        return server._replace(x=w)
