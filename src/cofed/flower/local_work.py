"""One client's work in a round, compiled: the same batches and the same mathematics as in the engine."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cofed._util import trees
from cofed.algorithms.base import AbstractServerAlgorithm, LocalSteps
from cofed.engine import evaluate, sampling
from cofed.engine.data import Data
from cofed.engine.plan import Plan
from cofed.engine.steps import ClientView, RoundContext, make_steps
from cofed.problem import Problem


class RoundWork(eqx.Module):
    """Everything that one client's work in a round depends on."""

    algorithm: AbstractServerAlgorithm
    problem: Problem
    data: Data  # of this one client
    plan: Plan
    seed: PRNGKeyArray
    round: Int[Array, ""]
    stage_round: Float[Array, ""]  # the round, counted from the start of the stage
    down: PyTree  # what the server broadcasts
    kept: PyTree  # what the client has kept since its last round

    def steps(self) -> LocalSteps:
        """The client's local steps."""
        client = ClientView(jnp.zeros((), jnp.int32))
        context = RoundContext(sampling.round_key(self.seed, self.round), self.stage_round)
        return make_steps(self.problem, self.data, self.plan, client, context)

    def local(self) -> tuple[PyTree, PyTree]:
        """The client's update, and what it keeps."""
        return self.algorithm.local(self.problem, self.down, self.kept, self.steps())


@eqx.filter_jit
def local_work(work: RoundWork) -> tuple[PyTree, PyTree, Bool[Array, ""]]:
    """The client's update, what it keeps, and whether all of it is finite."""
    up, kept = work.local()
    return up, kept, trees.all_finite((up, kept))


@eqx.filter_jit
def last_work(work: RoundWork) -> tuple[PyTree, Bool[Array, ""]]:
    """What a client keeps after the last piece of local work, and whether it is finite."""
    kept = work.algorithm.last_local(work.problem, work.down, work.kept, work.steps())
    return kept, trees.all_finite(kept)


@eqx.filter_jit
def evaluated(problem: Problem, data: Data, w: PyTree) -> dict[str, Float[Array, ""]]:
    """The model's loss on the site's data, and its accuracy where the loss has one."""
    loss, accuracy = evaluate.fits(problem, data, w)
    return {"loss": loss} | ({} if accuracy is None else {"accuracy": accuracy})
