"""How the clients of a round are worked through: many at once, as one array axis, a block at a time.

The debug engine (debug.py) has another way, one client after another.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from cofed._util.draws import FEW
from cofed.engine import collectives
from cofed.engine.data import Data
from cofed.engine.plan import Plan
from cofed.engine.steps import ClientView, RoundContext, Steps, make_steps
from cofed.samplers import Draw

if TYPE_CHECKING:
    from cofed.engine.task import AbstractTask

    Task = AbstractTask[Any]
else:
    Task = Any  # at run time, task.py imports this file

WHOLE = 2**22  # bytes of whole clients' samples that are worked on at once

Work = Callable[[ClientView, PyTree], PyTree]  # of one client, with what it keeps: whatever its round gives


class Participants(eqx.Module):
    """Who takes part in a round, and which of them live on this device."""

    who: Int[Array, " participants"]  # positions among all clients
    here: Int[Array, " local"]  # positions on this device; of others, any
    mine: Bool[Array, " local"]  # which of those are real and live here
    slots: Int[Array, " local"]  # where they stand in `who`; padding stands behind its end
    present: Bool[Array, " participants"] | None = None  # which of `who` take part; None: all
    chance: Float[Array, " participants"] | None = None  # with which they were drawn, where they count by it


def everyone(data: Data, plan: Plan) -> Participants:
    """All clients."""
    here, first = jnp.arange(data.clients, dtype=jnp.int32), data.first()
    return Participants(jnp.arange(plan.clients, dtype=jnp.int32), here, first + here < plan.clients, first + here)


def chosen(who: Int[Array, " participants"], data: Data, draw: Draw | None = None) -> Participants:
    """The clients at these positions, of whom a draw may say more."""
    mine = who - data.first()
    inside = (mine >= 0) & (mine < data.clients)
    slots, present, chance = jnp.arange(who.size, dtype=jnp.int32), None, None
    if draw is not None:
        present, chance = draw.present, draw.chance
    mine_there = inside if present is None else inside & present
    return Participants(who, jnp.clip(mine, 0, data.clients - 1), mine_there, slots, present, chance)


class AbstractClientLoop(ABC):
    """How the work of a round's clients is done."""

    @abstractmethod
    def map(self, work: Work, task: Task, participants: Participants, states: PyTree) -> PyTree:
        """The work of each participant on its state, stacked."""

    def steps(self, task: Task, client: ClientView, context: RoundContext) -> Steps:
        """A client's local steps."""
        return make_steps(task.problem, task.data, task.plan, client, context)


@dataclasses.dataclass(frozen=True)
class Vectorized(AbstractClientLoop):
    """Clients as one array axis, in blocks of at most so many; None: all at once.

    What a step works on then stays inside the caches. Blocks are of the largest size that divides the number of
    participants.
    """

    block: int | None = None

    def map(self, work: Work, task: Task, participants: Participants, states: PyTree) -> PyTree:
        data, plan = task.data, task.plan
        if follows_sizes(data, plan):
            return self.by_size(work, task, participants, states)

        def one(position: Array, state: PyTree, own: tuple[Array, Array] | None) -> PyTree:
            return work(ClientView(position, own, data.widest), state)

        if data.mesh is not None and not plan.everyone:
            few = collectives.block_of(-(-plan.participants // data.mesh.size), plan.block)
            return collectives.only(participants.mine, few)(one, participants.here, states, None)
        own = None
        if plan.batch is None:
            own = (data.X, data.y) if plan.everyone else (data.X[participants.here], data.y[participants.here])
        stacked = (participants.here, states, own)
        count = participants.here.size
        size = next(b for b in range(min(self.block or count, count), 0, -1) if count % b == 0)
        if size == count:
            return jax.vmap(one)(*stacked)
        if size == 1:
            return jax.lax.map(lambda each: one(*each), stacked)
        parts = jax.tree.map(lambda leaf: leaf.reshape(count // size, size, *leaf.shape[1:]), stacked)
        done = jax.lax.map(lambda part: jax.vmap(one)(*part), parts)
        return jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), done)

    def by_size(self, work: Work, task: Task, participants: Participants, states: PyTree) -> PyTree:
        """The work of clients of very different sizes, one tier of similar sizes after another."""
        data, plan = task.data, task.plan
        assert data.tiers is not None
        tier, found = data.tier(participants.here), None
        for place, (width, clients) in enumerate(data.tiers):

            def one(position: Array, state: PyTree, width: int = width) -> PyTree:
                own = data.whole(position, width) if plan.batch is None else None
                return work(ClientView(position, own, width), state)

            expected = clients * plan.participants // (plan.clients * (1 if data.mesh is None else data.mesh.size))
            most = max(1, WHOLE // (width * sample_bytes(data))) if plan.batch is None else None
            few = collectives.block_of(max(1, expected), min(most or clients, self.block or clients))
            found = collectives.only(participants.mine & (tier == place), few)(
                one, participants.here, states, found=found
            )
        return found


def follows_sizes(data: Data, plan: Plan) -> bool:
    """Whether larger clients are more work, and the data lie so that each client can be given its own amount."""
    if data.tiers is None or data.draw is not None:
        return False
    return plan.batch is None or plan.epochs is not None or plan.batch > FEW


def sample_bytes(data: Data) -> int:
    """Bytes of one sample."""
    return data.X.nbytes // math.prod(data.X.shape[: 2 if data.tiers is None else 1])
