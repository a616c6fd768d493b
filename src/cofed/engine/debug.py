"""The debug engine: the same rounds, eagerly, client by client, stopping at the first failure with its address."""

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed.engine.chunk_loop import Clock, Records, Task
from cofed.engine.data import Data
from cofed.engine.plan import Plan
from cofed.engine.server_rounds import Cast, State
from cofed.engine.steps import Steps, make_steps


class DebugFailure(RuntimeError):
    """The first failure of a debugged run: `client` (its name), `round` and `step` (None outside the local steps)."""

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


def watched(names: Sequence[str], at: int) -> tuple[Callable, Callable]:
    """Clients one by one, with steps that look at every point: `for_each` and `make` of a round."""

    def one_by_one(client: Callable, data: Data, plan: Plan, cast: Cast, kept: PyTree) -> PyTree:
        results = []
        for i, position in enumerate(cast.here):
            width = data.widest if data.tiers is None else data.tiers[int(data.tier(position))][0]
            mine = jax.tree.map(lambda leaf, i=i: leaf[i], kept)
            try:
                results.append(client(position, mine, None, width))
            except DebugFailure:
                raise
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                raise DebugFailure(names[int(position)], at, None, what) from error
            if not trees.all_finite(results[-1]):
                raise DebugFailure(names[int(position)], at, None, "its update is not finite after the last step")
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *results)

    def make(problem, data, plan, client, *rest):
        steps = make_steps(problem, data, plan, client, *rest)
        fields = {field.name: getattr(steps, field.name) for field in dataclasses.fields(steps)}
        return WatchedSteps(**fields, at=at, name=names[int(client)])

    return one_by_one, make


def debug_advance(task: Task, state: State, clock: Clock, names: Sequence[str]) -> tuple[State, Records]:
    """What `loop.advance` does, without compilation."""
    done: list[Records] = []
    rounds = min(int(clock.stop - state.round), task.watch.capacity)
    while len(done) < rounds and int(state.failed_at) < 0:
        state, roll = task.exchange.one_round(
            task.algorithm, task.problem, task.data, state, task.plan, *watched(names, int(state.round))
        )
        done.append(Records(task.row(state), task.model(state) if task.watch.keep_models else None, roll))
    return state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *done)
