"""PureLocal: every client trains alone.

Problem     min_w  F_i(w) + psi(w)  over ||w|| <= radius, for each client i
When        something to compare with is needed: what clients reach alone.
Local       w_i <- P(prox_{eta_k psi}(w_i - eta_k G_k(w_i))), from the client's OWN last model, in every round that it
            takes part in, and once more, all clients, after the last; P projects on the ball
Steps       eta_k = 1/(mu (k+1)), restarting in every round, or a given constant
Wire        nothing is sent; the server's model stays the common start w_0
Assumes     with the paper's steps: F_i mu-strongly convex.
Reference   chen2021, Section 1 (PureLocalTraining); the steps are those of Lemma B.1 with lambda = 0.
Deviations  psi and its prox (the paper has none). It is FedProx with strength 0, without the messages.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from cofed._util.scalars import optional_number, optional_rate
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps, LossCurvature
from cofed.algorithms.proximal_steps import check_steps, proximal_steps
from cofed.problem import Problem


class Server(NamedTuple):
    w: PyTree  # w_0, where everybody began


class Client(NamedTuple):
    w: PyTree  # w_t^(i), the client's own model


class PureLocal(AbstractServerAlgorithm):
    """Every client alone, a model each (see cofed.algorithms.purelocal for the update).

    Parameters
    ----------
    client_lr : float, optional
        A constant eta_k, the step size of the local steps; None takes the paper's falling steps, which need `mu`.
    mu : float, optional
        mu, the strong convexity of the clients' losses.
    radius : float, optional
        The radius of the ball W that local models stay in; None leaves it out.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> federation = cofed.Federation.from_arrays([(np.eye(2), np.ones(2)), (np.eye(2), np.zeros(2))])
    >>> result = cofed.run(cofed.Problem(cofed.Linear(intercept=False)), federation, cofed.PureLocal(1.0), rounds=50)
    >>> result.personal_models.coef.round(6).tolist(), result.communication.total
    ([[1.0, 1.0], [0.0, 0.0]], 0)
    """

    client_lr: Hyperparameter | None = eqx.field(converter=optional_rate, default=None)
    mu: Hyperparameter | None = eqx.field(converter=optional_rate, default=None)
    radius: Hyperparameter | None = eqx.field(converter=optional_number, default=None)

    needs: ClassVar[tuple[str, ...]] = ()
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "chen2021"

    def __check_init__(self):
        check_steps("PureLocal", self.client_lr, self.mu, self.radius)

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        return {"client_lr": 1 / curvature.largest, "mu": curvature.mu}

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return Server(w0)

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        return Client(w0)

    def broadcast(self, server: Server) -> tuple[()]:
        return ()

    def local(self, problem: Problem, down: tuple[()], client: Client, steps: LocalSteps):
        return (), self.last_local(problem, down, client, steps)

    def last_local(self, problem: Problem, down: tuple[()], client: Client, steps: LocalSteps) -> Client:
        return Client(proximal_steps(problem, steps, steps.gradient, client.w, self.step_size, self.radius))

    def step_size(self, k: Float[Array, ""]) -> Hyperparameter:
        if self.client_lr is not None:
            return self.client_lr
        assert self.mu is not None, "check_steps refuses neither"
        return 1 / (self.mu * (k + 1))

    def aggregate(self, problem: Problem, server: Server, up: tuple[()], share: Float[Array, ""]) -> Server:
        return server

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.w

    def personal_model(self, server: Server, client: Client) -> PyTree:
        return client.w
