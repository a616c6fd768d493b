"""MReFedDA-GT: multi-stage ReFedDA-GT, with a server or by gossip.

Problem     min_w  mean_m F_m(w)   (psi = 0), the solution s-sparse
When        the model is sparse in high dimension, and its sparsity and distance from the start are known roughly; with
            a server or without.
Stages      n = 0, 1, ...: ReFedDA-GT with Q_n = Q_0 2^-n, restarted (trackers back to 0) from the last stage's output;
            K_n = K g^n local steps of eta_c g^-n, so that K_n eta_n stays (Theorem C.2 has g = 2, the default is 1)
Reference   liang2023, Algorithm 4, Theorem 6.1: the squared l1 error halves per stage.
Deviations  The run's rounds are split evenly over the stages (the first ones take the remainder). By gossip each node
            restarts from its own output, and the nodes' starts are mixed like z (one vector more per message), since
            a disagreement in w_0 would otherwise stay for ever.
"""

from typing import ClassVar

import equinox as eqx

from cofed._util.scalars import number, rate, require_count, require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import AbstractAlgorithm, AbstractStagedAlgorithm, Stage
from cofed.gossip.refeddagt import ReFedDAGT
from cofed.mirrors import AbstractMirror, PNorm, require_mirror
from cofed.problem import Problem


class MReFedDAGT(AbstractStagedAlgorithm):
    """ReFedDA-GT in stages of shrinking balls (see cofed.gossip.mrefeddagt).

    Parameters
    ----------
    client_lr : float
        eta_c, the step size of the clients' local steps.
    radius_squared : float
        Q_0, the squared radius of the first stage's ball; each stage halves it.
    sparsity : int
        s, how many entries each stage's output keeps.
    server_lr : float, default 1.0
        eta_s, the step size of the server (by gossip, of a node) along the moves.
    stages_count : int, default 4
        The number of stages.
    mirror : AbstractMirror, default PNorm()
        h, the geometry.
    steps_growth : int, default 1
        g, by which each stage multiplies the local steps and divides their size: with 2 the noise of stochastic
        gradients falls as fast as the ball shrinks. The run then needs `local_steps`.

    Examples
    --------
    >>> import cofed
    >>> method = cofed.MReFedDAGT(client_lr=0.1, radius_squared=4.0, sparsity=3, stages_count=2)
    >>> [stage.algorithm.radius_squared for stage in method.stages(cofed.Problem(), 10, None)]
    [4.0, 2.0]
    >>> doubling = cofed.MReFedDAGT(0.1, radius_squared=4.0, sparsity=3, stages_count=2, steps_growth=2)
    >>> [(stage.algorithm.client_lr, stage.local_steps) for stage in doubling.stages(cofed.Problem(), 10, 5)]
    [(0.1, 5), (0.05, 10)]
    """

    client_lr: Hyperparameter = eqx.field(converter=rate)
    radius_squared: Hyperparameter = eqx.field(converter=number)
    sparsity: int = eqx.field(static=True)
    server_lr: Hyperparameter = eqx.field(converter=rate, default=1.0)
    stages_count: int = eqx.field(static=True, default=4)
    mirror: AbstractMirror = eqx.field(default_factory=PNorm)
    steps_growth: int = eqx.field(static=True, default=1)

    needs: ClassVar[tuple[str, ...]] = ("zero",)
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "liang2023"
    stage_form: ClassVar[type[AbstractAlgorithm]] = ReFedDAGT

    def __check_init__(self):
        require_positive("MReFedDAGT", client_lr=self.client_lr, radius_squared=self.radius_squared)
        require_positive("MReFedDAGT", server_lr=self.server_lr)
        require_count("MReFedDAGT", sparsity=self.sparsity, stages_count=self.stages_count)
        require_count("MReFedDAGT", steps_growth=self.steps_growth)
        require_mirror("MReFedDAGT", self.mirror)

    def stages(self, problem: Problem, rounds: int, local_steps: int | None) -> list[Stage]:
        """One ReFedDA-GT per ball."""
        count = self.stages_count
        if rounds < count:
            raise ValueError(f"MReFedDAGT has {count} stages and needs as many rounds at least, got rounds={rounds}")
        if self.steps_growth > 1 and local_steps is None:
            raise ValueError(
                f"MReFedDAGT: steps_growth={self.steps_growth} multiplies local_steps, so give local_steps"
            )
        return [
            Stage(
                ReFedDAGT(
                    self.client_lr / self.steps_growth**n,
                    self.server_lr,
                    self.radius_squared / 2**n,
                    self.sparsity,
                    self.mirror,
                    mix_start=n > 0,
                ),
                rounds // count + (n < rounds % count),
                None if local_steps is None else local_steps * self.steps_growth**n,
            )
            for n in range(count)
        ]
