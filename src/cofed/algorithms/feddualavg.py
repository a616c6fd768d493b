"""FedDualAvg: federated dual averaging.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), psi convex
When        clients take different numbers of steps (epochs over unequal data) or keep nothing, and the model shall be
            sparse or constrained. A small bias stays where clients differ.
Start       z = grad h(w_0), elapsed = 0
Local       x = D_{elapsed + eta_c k}(z),  z <- z - eta_c G_k(x)
Server      z <- z + eta_s mean_S(z_K - z),  elapsed <- elapsed + eta_s mean_S(eta_c K_m),  model D_elapsed(z)
Geometry    D_t(z) = argmin_w -<z, w> + t psi(w) + h(w), of the mirror h
Reference   yuan2021, Algorithm 3 (FedDualAvg-OSP: Algorithm 5).
Deviations  `elapsed` is averaged like the rest, so that clients may take different numbers of steps; with equal K it is
            the paper's eta_s eta_c r K.

With `client_prox=False` (OSP) a client takes x = D_0 without psi. With K > 1 and heterogeneous clients a bias of order
eta_c^2 remains: FedDecouple and FastFedDA have none in the limit.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import rate, require_flag, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps, LossCurvature
from cofed.mirrors import AbstractMirror, Euclidean, require_mirror
from cofed.problem import Problem


class Server(NamedTuple):
    z: PyTree  # z_r, the dual state
    elapsed: Float[Array, ""]  # eta_s eta_c r K, the weight that psi has gathered so far


class FedDualAvg(AbstractServerAlgorithm):
    """Local dual averaging, averaged in the dual (see cofed.algorithms.feddualavg for the update).

    Parameters
    ----------
    client_lr : float
        eta_c, the step size of the clients' local steps.
    server_lr : float, default 1.0
        eta_s, the step size of the server along the clients' mean move.
    client_prox : bool, default True
        Whether local steps take psi into account; False is FedDualAvg-OSP (only server proximal).
    mirror : AbstractMirror, default Euclidean()
        h, the geometry of the dual averaging.

    Examples
    --------
    >>> import cofed
    >>> cofed.FedDualAvg(client_lr=0.1).server_lr
    1.0
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)
    server_lr: Hyperparameter = eqx.field(converter=rate, default=1.0)
    client_prox: bool = eqx.field(static=True, default=True)
    mirror: AbstractMirror = eqx.field(default_factory=Euclidean)

    needs: ClassVar[tuple[str, ...]] = ("convex",)
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "yuan2021"
    changeable: ClassVar[tuple[str, ...]] = ("client_lr", "server_lr")

    def __check_init__(self):
        require_positive("FedDualAvg", client_lr=self.client_lr, server_lr=self.server_lr)
        require_flag("FedDualAvg", client_prox=self.client_prox)
        require_mirror("FedDualAvg", self.mirror)

    def refuses(self, problem: Problem) -> str | None:
        return self.mirror.refuses(problem.regularizer)

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        return curvature.steps(self.client_lr)

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return Server(self.mirror.to_dual(w0), jnp.zeros((), trees.dtype(w0)))

    def init_client(self, problem: Problem, w0: PyTree) -> tuple[()]:
        return ()

    def broadcast(self, server: Server) -> Server:
        return server

    def local(self, problem: Problem, down: Server, client: tuple[()], steps: LocalSteps):
        def step(k, z):
            if self.client_prox:
                x = self.mirror.to_primal(problem.regularizer, z, down.elapsed + self.client_lr * k)
            else:
                x = self.mirror.to_primal_smooth(z)
            return trees.axpy(-self.client_lr, steps.gradient(x, k), z)

        z = steps.run(step, down.z)
        return Server(trees.sub(z, down.z), self.client_lr * steps.count), client

    def aggregate(self, problem: Problem, server: Server, up: Server, share: Float[Array, ""]) -> Server:
        return trees.axpy(self.server_lr, up, server)

    def model(self, problem: Problem, server: Server) -> PyTree:
        return self.mirror.to_primal(problem.regularizer, server.z, server.elapsed)
