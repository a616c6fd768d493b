"""Asynchronous rounds through a server, on a simulated clock: nobody waits for the slowest.

Clients     each works on the model that it was last given, for as long as the clock says
Round       ends when the first B of them have finished; their updates, begun t rounds ago, count pi_m (1 + t)^-a, the
            weights renormalised over the B; these B clients get the new model and begin again at once
Draws       a client's batches are those of the round whose model it has, so that B = all is the synchronous run
Reference   Nguyen et al. 2022, AISTATS (FedBuff)
Deviations  There a client that has sent its update goes on at once with the model of before, or another is drawn; here
            it waits for the next model, so that nobody counts twice in a round and no work is done twice. There the sum
            of the weighted updates is divided by B, and so shrinks where updates are late; here it is a mean, as what
            clients of some methods send is no change but a state.

A model is kept for each client: that of the round in which it began.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cofed._util import trees
from cofed.clocks import Clock, first_to_finish
from cofed.engine import sampling
from cofed.engine.client_loop import AbstractClientLoop, Participants, Vectorized, chosen, everyone
from cofed.engine.data import Data
from cofed.engine.server_rounds import ServerTask
from cofed.engine.state import State, copies, select
from cofed.engine.steps import ClientView, RoundContext
from cofed.engine.task import Participation


class AtWork(eqx.Module):
    """What the clients keep, and what they are working on; stacked."""

    own: PyTree  # what the method keeps at a client
    down: PyTree  # what the server sent when the client began
    told: Int[Array, "*clients"]  # the round whose model that is
    began: Float[Array, "*clients"]  # when, in simulated seconds
    finish: Float[Array, "*clients"]  # when its update will be there


class BufferedTask(ServerTask):
    """Rounds that end when the first of the clients have finished."""

    clock: Clock = eqx.field(kw_only=True)

    def begin(self, starts: PyTree, key: PRNGKeyArray, round: int | Int[Array, ""]) -> State:
        state = super().begin(starts, key, round)
        count = self.data.clients
        told = jnp.full(count, round, jnp.int32)
        down = copies(self.algorithm.broadcast(state.server), count)
        seconds = self.clock.work(key, told, self.data.ids)
        return state.holding(state.server, AtWork(state.clients, down, told, jnp.zeros_like(seconds), seconds))

    def one_round(self, state: State, loop: AbstractClientLoop | None = None) -> tuple[State, Participation]:
        data, plan, working = self.data, self.plan, state.clients
        loop = loop or Vectorized(plan.block)
        participants = self.finished(working)
        mine = working if plan.everyone else jax.tree.map(lambda leaf: leaf[participants.here], working)

        def local(client: ClientView, at: AtWork) -> tuple[PyTree, PyTree]:
            number = jnp.maximum(state.number(data.dtype) - (state.round - at.told).astype(data.dtype), 0)
            context = RoundContext(sampling.round_key(state.key, at.told), number, self.batches)
            return self.algorithm.local(self.problem, at.down, at.own, loop.steps(self, client, context))

        up, own = loop.map(local, self, participants, mine)
        heard = jax.vmap(trees.all_finite)((up, own))
        weights = data.weights[participants.here] * self.clock.weight(state.round - mine.told)
        new, took = self.gather(state, participants, up, heard, weights)

        now = jnp.max(mine.finish)
        down = copies(self.algorithm.broadcast(new.server), plan.participants)
        told = jnp.full_like(mine.told, new.round)
        finish = now + self.clock.work(state.key, jnp.full_like(working.told, new.round), data.ids)[participants.here]
        after = AtWork(select(heard, own, mine.own), down, told, jnp.full_like(finish, now), finish)
        after = trees.where(new.failed_at < 0, after, mine)
        if not plan.everyone:
            after = jax.tree.map(lambda all_, some: all_.at[participants.here].set(some), working, after)
        return new.holding(new.server, after), took

    def finished(self, working: AtWork) -> Participants:
        """The clients whose updates end the round."""
        if self.plan.everyone:
            return everyone(self.data, self.plan)
        return chosen(first_to_finish(working.finish, self.data.ids, self.plan.participants), self.data)

    def personal(self, state: State) -> PyTree:
        return super().personal(state.holding(state.server, state.clients.own))

    def columns(self, state: State, w: PyTree, data: Data) -> dict[str, Array]:
        return super().columns(state, w, data) | {"simulated_seconds": jnp.max(state.clients.began)}

    def conclude(self, state: State, loop: AbstractClientLoop | None = None) -> tuple[State, Bool[Array, " clients"]]:
        ended, heard = super().conclude(state.holding(state.server, state.clients.own), loop)
        own = eqx.tree_at(lambda working: working.own, state.clients, ended.clients)
        return ended.holding(ended.server, own), heard
