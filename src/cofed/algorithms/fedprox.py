"""FedProx: a model for each client, held near a common one.

Problem     min over w, w_1..w_M  sum_i p_i (F_i(w_i) + psi(w_i) + lambda/2 ||w_i - w||^2),  ||w_i|| <= radius
When        clients need models of their own that learn from each other: between one model for all and PureLocal.
Local       w_i <- P(prox_{eta_k psi}(w_i - eta_k (G_k(w_i) + lambda (w_i - w)))), from the client's OWN last model;
            P projects on the ball
Server      w <- w - lambda eta_t (M/|S|) sum_S p_i (w - w_i)
Last stage  after the last round every client trains once more, from its own model towards the last w
Steps       eta_k = 1/((mu+lambda)(k+1)), restarting in every round, or a given constant;
            eta_t = 2(mu+lambda)/(lambda mu (t+1)), or given, or 1/lambda: plain averaging
Assumes     with the paper's steps: F_i mu-strongly convex.
Reference   chen2021, Algorithm 3 (both stages), Lemmas B.1 and B.2.
Deviations  The printed branches of "if i in C_t" are swapped; here participants train. psi and its prox are added (the
            projection after the prox is exact where psi is a norm, or zero). Only local steps are projected. A client
            whose update is not finite counts as one that agrees with the server. strength = 0 is PureLocal. Under
            sampling with unequal weights a heavy client alone moves w by M p_i/|S| times its distance, as printed: give
            a smaller server_lr there. The paper's eta_t begins at lambda eta_0 = 2 + 2 lambda/mu: with lambda far above
            mu it overshoots for long.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import number, optional_number, optional_rate, require_nonnegative, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps, LossCurvature
from cofed.algorithms.proximal_steps import check_steps, proximal_steps
from cofed.problem import Problem


class Server(NamedTuple):
    w: PyTree  # w_t^(global), the common model
    t: Float[Array, ""]  # t, the round


class Client(NamedTuple):
    w: PyTree  # w_t^(i), the client's own model


class FedProx(AbstractServerAlgorithm):
    """A model for each client, pulled to a common one (see cofed.algorithms.fedprox for the update).

    Parameters
    ----------
    strength : float
        lambda >= 0, the pull to the common model: 0 leaves everybody alone, a large one gives one model for all.
    client_lr : float, optional
        A constant eta_k, the step size of the local steps; None takes the paper's falling steps, which need `mu`.
    server_lr : float, optional
        A constant eta_t; None takes the paper's falling steps where `mu` is given, else 1/lambda: plain averaging.
    mu : float, optional
        mu, the strong convexity of the clients' losses.
    radius : float, optional
        The radius of the ball W that local models stay in; None leaves it out.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> federation = cofed.Federation.from_arrays([(np.eye(2), np.ones(2)), (np.eye(2), np.zeros(2))])
    >>> algorithm = cofed.FedProx(strength=0.5, client_lr=0.5)
    >>> result = cofed.run(cofed.Problem(cofed.Linear(intercept=False)), federation, algorithm, rounds=50)
    >>> result.model.coef.round(6).tolist(), result.personal_models.coef.round(6).tolist()
    ([0.5, 0.5], [[0.75, 0.75], [0.25, 0.25]])
    """

    strength: Hyperparameter = eqx.field(converter=number)
    client_lr: Hyperparameter | None = eqx.field(converter=optional_rate, default=None)
    server_lr: Hyperparameter | None = eqx.field(converter=optional_rate, default=None)
    mu: Hyperparameter | None = eqx.field(converter=optional_rate, default=None)
    radius: Hyperparameter | None = eqx.field(converter=optional_number, default=None)

    needs: ClassVar[tuple[str, ...]] = ()
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "chen2021"

    def __check_init__(self):
        require_nonnegative("FedProx", strength=self.strength)
        check_steps("FedProx", self.client_lr, self.mu, self.radius)
        if self.server_lr is not None:
            require_positive("FedProx", server_lr=self.server_lr)

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        return {"client_lr": 1 / (curvature.largest + float(self.strength)), "mu": curvature.mu}

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return Server(w0, jnp.zeros((), trees.dtype(w0)))

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        return Client(w0)

    def broadcast(self, server: Server) -> PyTree:
        return server.w

    def local(self, problem: Problem, down: PyTree, client: Client, steps: LocalSteps):
        client = self.last_local(problem, down, client, steps)
        return trees.sub(client.w, down), client

    def last_local(self, problem: Problem, down: PyTree, client: Client, steps: LocalSteps) -> Client:
        def gradient(w, k):
            return trees.axpy(self.strength, trees.sub(w, down), steps.gradient(w, k))

        return Client(proximal_steps(problem, steps, gradient, client.w, self.step_size, self.radius))

    def step_size(self, k: Float[Array, ""]) -> Hyperparameter:
        if self.client_lr is not None:
            return self.client_lr
        assert self.mu is not None, "check_steps refuses neither"
        return 1 / ((self.mu + self.strength) * (k + 1))

    def aggregate(self, problem: Problem, server: Server, up: PyTree, share: Float[Array, ""]) -> Server:
        # up is the mean by weight over S, so (M/|S|) sum_S p_i (...) is share M/|S| times it.
        part = share / problem.participation
        return Server(trees.axpy(part * self.global_step(server.t), up, server.w), server.t + 1)

    def global_step(self, t: Float[Array, ""]) -> Hyperparameter:
        """lambda eta_t"""
        if self.server_lr is not None:
            return self.strength * self.server_lr
        return 1.0 if self.mu is None else 2 * (self.mu + self.strength) / (self.mu * (t + 1))

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.w

    def with_model(self, server: Server, w: PyTree) -> Server:
        return server._replace(w=w)

    def personal_model(self, server: Server, client: Client) -> PyTree:
        return client.w
