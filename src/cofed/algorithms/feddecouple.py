"""FedDecouple: drift-corrected composite learning that decouples the prox from the communication.

Problem     min_w  sum_m pi_m F_m(w) + psi(w), F_m possibly non-convex
When        the pooled answer is wanted, clients differ, and all take the same number of steps: the first choice, also
            for networks.
Notation    eta~ = eta_c eta_s K
Start       x = w_0, so that the first model is prox_{eta~}(w_0)
Round       p = prox_{eta~}(x);  zhat = z = p
Local       zhat <- zhat - eta_c (G_k(z) + c_i),  z <- prox_{(k+1) eta_c}(zhat)   (the parameter restarts each round)
Server      x+ = p + eta_s (mean_S zhat - p);  model prox_{eta~}(x+)
Client      from x+ alone:  c_i = (p - x+)/eta~ - mean_k G_k(z)
Wire        one vector down (x), one vector up (zhat - p: the server knows p); the client keeps p and its mean gradient.
            Under sampling two vectors down (x and d), one up; the client keeps its mean gradient.
Rounding    mean c_i of a round is that of the round before, so what rounding adds to it adds up over thousands
            of rounds. Hence clients send how far they moved, which is not rounded to the model's size, and the server
            gives the next x what rounding took from this one (compensated summation).
Assumes     the same K on all clients.
Reference   zhang2025, Algorithm 1 (the paper gives the method no name; this one is ours). Its convex precursor is
            Zhang, Hu, Johansson (2024), Composite federated learning with heterogeneous data, ICASSP (arXiv
            2309.01795): the same algorithm for strongly convex F.

Extension   Partial participation is not in the paper. There the server sends its mean direction d too, and a
            participant takes c_i = d - its last mean gradient g_i (0 before its first round) and sends
            u_i = zhat - p + eta_c K d = -eta_c K (the change of g_i). The server takes
            x+ = p + eta_s (mean_S u - eta_c K d), which is p + eta_s (mean_S zhat - p), and
            d <- d - share mean_S u/(eta_c K). Only participants refresh what they keep, so d stays the mean of all
            clients' last mean gradients, also where an update comes late, from an earlier d. With psi = 0 this is
            Scaffold under sampling. With everybody taking part it is the paper's method. Where everybody is expected
            and a client fails, mean c_i = 0 is lost, which a run in process warns of: an engine that expects failures
            poses the problem with everyone=False.

Compressed  `origin` is -eta_c K d, what every client sends where all gradients are those of its last round, and 0 under
            sampling; so what is compressed is eta_c K times the change of a client's mean gradient (see
            `cofed.Compressed`).
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
    x: PyTree  # x-bar^r, the pre-proximal global model
    direction: PyTree  # d, the clients' mean direction; None where everybody takes part in every round
    p: PyTree  # P(x-bar), where the last round began; None where the server sends d
    lost: PyTree  # what rounding took from x; None where the server sends d


class Down(NamedTuple):
    x: PyTree  # x-bar^r
    direction: PyTree  # d, or None


class Client(NamedTuple):
    p: PyTree  # P(x-bar), where its last round began; None where the server sends d
    gradient: PyTree  # the mean gradient of its last round


class FedDecouple(AbstractServerAlgorithm):
    """Exact in spite of heterogeneous clients, at one vector each way (see cofed.algorithms.feddecouple).

    Parameters
    ----------
    client_lr : float
        eta, the step size of the clients' local steps.
    server_lr : float, default 1.0
        eta_g, the step size of the server along the clients' mean move.

    Examples
    --------
    >>> import cofed
    >>> cofed.FedDecouple(client_lr=0.1, server_lr=2)
    FedDecouple(client_lr=0.1, server_lr=2.0)
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)
    server_lr: Hyperparameter = eqx.field(converter=rate, default=1.0)

    needs: ClassVar[tuple[str, ...]] = ()
    equal_steps: ClassVar[bool] = True
    counts_steps: ClassVar[bool] = True
    paper: ClassVar[str] = "zhang2025"
    missed_round: ClassVar[str | None] = "the corrections of its clients no longer add up to zero"

    def __check_init__(self):
        require_positive("FedDecouple", client_lr=self.client_lr, server_lr=self.server_lr)

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        return curvature.steps(self.client_lr)

    def init(self, problem: Problem, w0: PyTree) -> Server:
        nothing = trees.zeros_like(w0)
        # p = x = w_0 gives d = 0 in round 0, here and at the clients.
        return Server(w0, None, w0, nothing) if problem.everyone else Server(w0, nothing, None, None)

    def init_client(self, problem: Problem, w0: PyTree) -> Client:
        # p = x = w_0 and a zero gradient give c_i = 0 in round 0, as the paper starts.
        return Client(w0 if problem.everyone else None, trees.zeros_like(w0))

    def broadcast(self, server: Server) -> Down:
        return Down(server.x, server.direction)

    def local(self, problem: Problem, down: Down, client: Client, steps: LocalSteps):
        p = self.model(problem, down)
        c = trees.sub(self.direction(problem, down, client.p), client.gradient)

        def step(k, carry):
            moved, z, total = carry  # zhat = p + moved
            g = steps.gradient(z, k)
            moved = trees.axpy(-self.client_lr, trees.add(g, c), moved)
            z = problem.regularizer.prox(trees.add(p, moved), self.local_parameter(problem, k))
            return moved, z, trees.add(total, g)

        nothing = trees.zeros_like(p)
        moved, _, total = steps.run(step, (nothing, p, nothing))
        mean = trees.scale(1 / steps.count, total)
        if down.direction is not None:
            change = trees.sub(mean, client.gradient)
            return trees.scale(-self.total_lr(problem) / self.server_lr, change), Client(None, mean)
        return moved, Client(None if client.p is None else p, mean)

    def aggregate(self, problem: Problem, server: Server, up: PyTree, share: Float[Array, ""]) -> Server:
        p = self.model(problem, server)
        if server.direction is None:
            wanted = trees.axpy(self.server_lr, up, server.lost)
            x = trees.add(p, wanted)
            return Server(x, None, p, trees.sub(wanted, trees.sub(x, p)))
        change = trees.scale(-self.server_lr / self.total_lr(problem), up)
        x = trees.axpy(-self.total_lr(problem), trees.add(server.direction, change), p)
        return Server(x, trees.axpy(share, change, server.direction), None, None)

    def model(self, problem: Problem, server: Server | Down) -> PyTree:
        return problem.regularizer.prox(server.x, self.total_lr(problem))

    def origin(self, problem: Problem, server: Server) -> PyTree | None:
        return None if server.direction is not None else self.expected(problem, server, server.p)

    def local_origin(self, problem: Problem, down: Down, client: Client, steps: LocalSteps) -> PyTree | None:
        return None if down.direction is not None else self.expected(problem, down, client.p)

    def expected(self, problem: Problem, now: Server | Down, p: PyTree) -> PyTree:
        """-eta_c K d, where everybody takes part"""
        return trees.scale(-self.total_lr(problem) / self.server_lr, self.direction(problem, now, p))

    def direction(self, problem: Problem, now: Server | Down, p: PyTree) -> PyTree:
        """d, as the server sends it, or from where the last round began and what came of it: (p - x+)/eta~"""
        if now.direction is not None:
            return now.direction
        return trees.scale(1 / self.total_lr(problem), trees.sub(p, now.x))

    def local_parameter(self, problem: Problem, k: Float[Array, ""]) -> Hyperparameter:
        """(k+1) eta_c, the prox parameter after local step k: with it a client at the optimum stays there."""
        return (k + 1) * self.client_lr

    def total_lr(self, problem: Problem) -> Hyperparameter:
        """eta~ = eta_c eta_s K"""
        assert problem.local_steps is not None, "the engine fills in local_steps"
        return self.client_lr * self.server_lr * problem.local_steps
