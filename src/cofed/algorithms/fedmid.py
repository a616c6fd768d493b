"""FedMiD: federated mirror descent, Euclidean.

Problem     min_w  sum_m pi_m F_m(w) + psi(w)
When        something to compare with is needed: it shows what averaging sparse models does.
Local       x <- D_{eta_c}(x - eta_c G_k(x)),  D_t = prox of t psi
Server      w <- D_{eta_s eta_c K}(w + eta_s mean_S(x_K - w))
Reference   yuan2021, Algorithm 2 (FedMiD-OSP: Algorithm 4).
Deviations  Where clients take different numbers of steps, K is the participants' mean. The printed server
            step adds a primal to a dual vector, which only the Euclidean geometry allows: others are refused.

As printed, both prox steps act, so for a finite psi the fixed point is that of 2 psi: FedMiD does NOT converge to the
minimiser of the problem. That is the paper's algorithm (and its "curse of primal averaging"), not an error here.
With `client_prox=False` (OSP, only server proximal) the client step leaves psi out.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import rate, require_flag, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps, LossCurvature
from cofed.mirrors import AbstractMirror, Euclidean, require_mirror
from cofed.problem import Problem


class Server(NamedTuple):
    w: PyTree  # w_r, the global model


class Up(NamedTuple):
    delta: PyTree  # x_K - w, the client's move
    elapsed: Float[Array, ""]  # eta_c K_m, the length of its path


class FedMiD(AbstractServerAlgorithm):
    """Local proximal steps, averaged in the primal, and a proximal step of the server (see cofed.algorithms.fedmid).

    Parameters
    ----------
    client_lr : float
        eta_c, the step size of the clients' local steps.
    server_lr : float, default 1.0
        eta_s, the step size of the server along the clients' mean move.
    client_prox : bool, default True
        Whether local steps take the prox of psi; False is FedMiD-OSP (only server proximal).
    mirror : Euclidean, default Euclidean()
        The geometry; any other than the Euclidean is refused.

    Examples
    --------
    >>> import cofed
    >>> cofed.FedMiD(client_lr=0.1, client_prox=False).client_prox
    False
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)
    server_lr: Hyperparameter = eqx.field(converter=rate, default=1.0)
    client_prox: bool = eqx.field(static=True, default=True)
    mirror: AbstractMirror = eqx.field(default_factory=Euclidean)

    needs: ClassVar[tuple[str, ...]] = ()
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "yuan2021"
    changeable: ClassVar[tuple[str, ...]] = ("client_lr", "server_lr")

    def __check_init__(self):
        require_positive("FedMiD", client_lr=self.client_lr, server_lr=self.server_lr)
        require_flag("FedMiD", client_prox=self.client_prox)
        require_mirror("FedMiD", self.mirror)
        if not isinstance(self.mirror, Euclidean):
            raise ValueError(
                f"FedMiD needs the mirror Euclidean(), got {type(self.mirror).__name__}: its server step adds a "
                "primal to a dual vector, which only the Euclidean geometry allows; FedDualAvg takes any mirror"
            )

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        return curvature.steps(self.client_lr)

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return Server(w0)

    def init_client(self, problem: Problem, w0: PyTree) -> tuple[()]:
        return ()

    def broadcast(self, server: Server) -> PyTree:
        return server.w

    def local(self, problem: Problem, down: PyTree, client: tuple[()], steps: LocalSteps):
        def step(k, x):
            x = trees.axpy(-self.client_lr, steps.gradient(x, k), x)
            return problem.regularizer.prox(x, self.client_lr) if self.client_prox else x

        x = steps.run(step, down)
        return Up(trees.sub(x, down), self.client_lr * steps.count), client

    def aggregate(self, problem: Problem, server: Server, up: Up, share: Float[Array, ""]) -> Server:
        moved = trees.axpy(self.server_lr, up.delta, server.w)
        return Server(problem.regularizer.prox(moved, self.server_lr * up.elapsed))

    def model(self, problem: Problem, server: Server) -> PyTree:
        return server.w
