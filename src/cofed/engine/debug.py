"""The debug engine: the same rounds, eagerly, client by client, stopping at the first failure with its address."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from cofed._util import trees
from cofed._util.caller import raised_at
from cofed.engine.chunk_loop import ChunkRecords, ChunkSchedule
from cofed.engine.client_loop import AbstractClientLoop, Participants, Work
from cofed.engine.state import State
from cofed.engine.steps import ClientView, RoundContext, Steps
from cofed.engine.task import AbstractTask


class DebugFailure(RuntimeError):
    """The first failure of a run with `debug=True`.

    Parameters
    ----------
    client : str
        The name of the client where it happened.
    round : int
        The round, over all stages.
    step : int or None
        The local step; None where it happened outside the local steps.
    what : str
        What went wrong.
    """

    def __init__(self, client: str, round: int, step: int | None, what: str):
        place = f"client {client!r}, round {round}" + ("" if step is None else f", local step {step}")
        super().__init__(f"{place}: {what}")
        self.client, self.round, self.step = client, round, step


class WatchedSteps(Steps):
    """Local steps that look at every point and every gradient."""

    at: int = eqx.field(static=True, kw_only=True)  # the round, over all stages
    name: str = eqx.field(static=True, kw_only=True)

    def gradient(self, w: PyTree, k: Float[Array, ""]) -> PyTree:
        """G_k(w), or the failure that it is."""
        return self.loss_and_gradient(w, k)[1]

    def loss_and_gradient(self, w: PyTree, k: Float[Array, ""]) -> tuple[Float[Array, ""], PyTree]:
        """The loss and G_k(w), or the failure that they are."""
        if not trees.all_finite(w):
            raise DebugFailure(self.name, self.at, int(k), "the model is not finite before the gradient")
        try:
            loss, gradient = super().loss_and_gradient(w, k)
        except Exception as error:
            raise DebugFailure(self.name, self.at, int(k), f"{type(error).__name__}: {error}") from error
        if not jnp.isfinite(loss):
            raise DebugFailure(self.name, self.at, int(k), f"the loss is {loss} (||w|| = {float(trees.norm(w)):.3g})")
        if not trees.all_finite(gradient):
            bad = [
                name
                for name, leaf in zip(trees.names(gradient), jax.tree.leaves(gradient), strict=True)
                if not jnp.all(jnp.isfinite(leaf))
            ]
            size = float(trees.norm(w))
            raise DebugFailure(
                self.name,
                self.at,
                int(k),
                f"the gradient of {', '.join(bad)} is not finite (||w|| = {size:.3g})",
            )
        return loss, gradient


@dataclasses.dataclass(frozen=True)
class OneByOne(AbstractClientLoop):
    """Clients one after another, with local steps that look at every point."""

    names: Sequence[str]
    round: int  # over all stages

    def map(self, work: Work, task: AbstractTask, participants: Participants, states: PyTree) -> PyTree:
        data, results = task.data, []
        for i, position in enumerate(participants.here):
            width = data.widest if data.tiers is None else data.tiers[int(data.tier(position))][0]
            state = jax.tree.map(lambda leaf, i=i: leaf[i], states)
            try:
                results.append(work(ClientView(position, None, width), state))
            except DebugFailure:
                raise
            except Exception as error:
                what = f"{type(error).__name__}: {error}{raised_at(error, task.algorithm)}"
                raise self.failure(position, what) from error
            if not trees.all_finite(results[-1]):
                raise self.failure(position, "its update is not finite after the last step")
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *results)

    def failure(self, position: Int[Array, ""], what: str) -> DebugFailure:
        """A failure outside the local steps."""
        return DebugFailure(self.names[int(position)], self.round, None, what)

    def steps(self, task: AbstractTask, client: ClientView, context: RoundContext) -> Steps:
        steps = super().steps(task, client, context)
        fields = {field.name: getattr(steps, field.name) for field in dataclasses.fields(steps)}
        return WatchedSteps(**fields, at=self.round, name=self.names[int(client.position)])


def debug_advance(
    task: AbstractTask, state: State, schedule: ChunkSchedule, names: Sequence[str]
) -> tuple[State, ChunkRecords]:
    """What `chunk_loop.advance` does, without compilation."""
    done: list[ChunkRecords] = []
    rounds = min(int(schedule.stop - state.round), task.recording.capacity)
    while len(done) < rounds and int(state.failed_at) < 0:
        state, participation = task.one_round(state, OneByOne(names, int(state.round)))
        model = task.model(state) if task.recording.keep_models else None
        done.append(ChunkRecords(task.row(state), model, participation))
    return state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *done)
