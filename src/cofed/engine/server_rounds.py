"""Rounds through a server, as pure functions of the state: all clients of a round as one vmap."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cofed._util import trees
from cofed.algorithms import base
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.engine import evaluate, sampling
from cofed.engine.client_loop import AbstractClientLoop, Participants, Vectorized, chosen, everyone
from cofed.engine.data import Data
from cofed.engine.history import Communication
from cofed.engine.state import State, copies, select
from cofed.engine.steps import ClientView, RoundContext
from cofed.engine.task import AbstractTask, Messages, Participation
from cofed.means import AbstractMean
from cofed.samplers import AbstractSampler


class KnownParticipants(eqx.Module):
    """The clients of some rounds, drawn before: of clients on disk, whose data are read ahead."""

    positions: Int[Array, "rounds participants"]
    first: Int[Array, ""]  # the first of these rounds


class ServerTask(AbstractTask[AbstractServerAlgorithm]):
    """Rounds through a server: sample, broadcast, local steps of all participants, weighted mean, aggregate."""

    sampler: AbstractSampler | None = eqx.field(kw_only=True, default=None)  # who takes part; None: everybody
    mean: AbstractMean | None = eqx.field(kw_only=True, default=None)  # None: by the weights
    known: KnownParticipants | None = eqx.field(kw_only=True, default=None)  # None: drawn in each round

    def spread_start(self, w0: PyTree) -> PyTree:
        return w0

    def begin(self, starts: PyTree, key: PRNGKeyArray, round: int | Int[Array, ""]) -> State:
        clients = copies(self.client_state(starts), self.data.clients)
        return State.before_stage(self.algorithm.init(self.problem, starts), clients, key, round)

    def one_round(self, state: State, loop: AbstractClientLoop | None = None) -> tuple[State, Participation]:
        algorithm, problem, data, plan = self.algorithm, self.problem, self.data, self.plan
        loop, context = loop or Vectorized(plan.block), self.context(state)
        down = algorithm.broadcast(state.server)
        participants = self.participants(context.key, state.round)

        def local(client: ClientView, keeps: PyTree) -> tuple[PyTree, PyTree]:
            return algorithm.local(problem, down, keeps, loop.steps(self, client, context))

        kept = state.clients if plan.everyone else jax.tree.map(lambda leaf: leaf[participants.here], state.clients)
        up, keeps = loop.map(local, self, participants, kept)
        heard_here = jax.vmap(trees.all_finite)((up, keeps)) & participants.mine
        new, took = self.gather(state, participants, up, heard_here, data.weights[participants.here])
        keeps = select((new.failed_at < 0) & heard_here, keeps, kept)
        if not plan.everyone:  # what is not here is past the end, and dropped
            into = jnp.where(participants.mine, participants.here, data.clients)
            keeps = jax.tree.map(lambda all_, some: all_.at[into].set(some, mode="drop"), state.clients, keeps)
        return new.holding(new.server, keeps), took

    def gather(
        self,
        state: State,
        participants: Participants,
        up: PyTree,
        heard_here: Bool[Array, " local"],
        weights: Float[Array, " local"],
    ) -> tuple[State, Participation]:
        """The server's part of a round: the mean of the finite updates by these weights, and its step.

        What clients keep is left out of the state.
        """
        algorithm, problem, data = self.algorithm, self.problem, self.data
        up = base.expanded(algorithm, up)
        if participants.chance is not None:
            mean, share, heard = unbiased_mean(up, data, participants, heard_here)
        elif data.mesh is None:
            own = None if self.mean is None else OwnMean(self.mean, sampling.mean_key(self.context(state).key))
            (mean, share), heard = weighted_mean(up, weights, heard_here, own), heard_here
        else:
            mean, share, heard = mean_over_devices(up, data, participants, heard_here)
        server = algorithm.aggregate(problem, state.server, mean, share)

        present = jnp.ones_like(heard) if participants.present is None else participants.present
        new = state.after_round(jnp.any(heard) | ~jnp.any(present), ~trees.all_finite(server), share <= 0)
        # Participants whose weights are all 0 have nothing to say: the server stays as it is.
        go = (share > 0) & (new.failed_at < 0)
        server = trees.where(go, server, state.server)
        served = jnp.sum(present, dtype=jnp.int32)
        return new.holding(server, ()), Participation(participants.who, present & ~heard, served, served)

    def context(self, state: State) -> RoundContext:
        """What the clients' local steps depend on in the state's round."""
        return RoundContext(sampling.round_key(state.key, state.round), state.number(self.data.dtype), self.batches)

    def participants(self, key: PRNGKeyArray, round: Int[Array, ""]) -> Participants:
        """The clients that take part in a round."""
        data, plan = self.data, self.plan
        if plan.everyone:
            return everyone(data, plan)
        assert self.sampler is not None
        draw = self.sampler.draw(sampling.sampler_key(key), round, plan.clients)
        if self.known is not None:
            return chosen(self.known.positions[round - self.known.first], data, draw)
        assert data.places is not None
        return chosen(data.places[draw.clients], data, draw)

    def undo(self, bad: Bool[Array, ""], state: State, old: State) -> State:
        return state.holding(trees.where(bad, old.server, state.server), state.clients).failed_where(bad, old)

    def model(self, state: State) -> PyTree:
        return self.algorithm.model(self.problem, state.server)

    def average(self, state: State) -> PyTree | None:
        return self.algorithm.average(self.problem, state.server)

    def next_start(self, state: State) -> PyTree:
        return base.output(self.algorithm, self.problem, state.server)

    @property
    def is_personal(self) -> bool:
        return self.algorithm.is_personal

    def personal(self, state: State) -> PyTree:
        own = lambda client: self.algorithm.personal_model(state.server, client)  # noqa: E731
        # Clients that keep nothing leave vmap no array to see their number in.
        return jax.vmap(own, axis_size=self.data.clients)(state.clients)

    def columns(self, state: State, w: PyTree, data: Data) -> dict[str, Array]:
        if not self.is_personal:
            return {}
        models = self.personal(state)
        return evaluate.personal(self.problem, data, self.held_out, self.metrics, self.recording.per_client, models)

    def client_state(self, w0: PyTree) -> PyTree:
        return self.algorithm.init_client(self.problem, w0)

    def messages(self, w0: PyTree) -> Messages:
        down = self.algorithm.broadcast(self.algorithm.init(self.problem, w0))
        up, _ = self.algorithm.local(self.problem, down, self.client_state(w0), self.first_steps())
        return Messages(down, up, ())

    def communication(self, each: tuple[int, int], total: tuple[int, int]) -> Communication:
        return Communication(*each, *total)

    @property
    def ends_locally(self) -> bool:
        return self.algorithm.ends_locally

    def conclude(self, state: State, loop: AbstractClientLoop | None = None) -> tuple[State, Bool[Array, " clients"]]:
        loop, context = loop or Vectorized(self.plan.block), self.context(state)
        down = self.algorithm.broadcast(state.server)
        everybody = dataclasses.replace(self, plan=dataclasses.replace(self.plan, participants=self.plan.clients))

        def last(client: ClientView, keeps: PyTree) -> PyTree:
            return self.algorithm.last_local(self.problem, down, keeps, loop.steps(self, client, context))

        keeps = loop.map(last, everybody, everyone(self.data, self.plan), state.clients)
        heard = jax.vmap(trees.all_finite)(keeps)
        return state.holding(state.server, select(heard, keeps, state.clients)), self.data.everybody(heard)


class OwnMean(NamedTuple):
    """What is taken in place of the mean by the weights, and the key of its draws."""

    mean: AbstractMean
    key: PRNGKeyArray


def weighted_mean(
    up: PyTree, weights: Array, heard: Bool[Array, " participants"], own: OwnMean | None = None
) -> tuple[PyTree, Array]:
    """The mean of the finite updates, weights renormalised over them, and their share of all clients' weight."""
    counted = jnp.where(heard, weights, 0)
    share = jnp.sum(counted)
    part = counted / jnp.where(share > 0, share, 1)
    # 0 * NaN is NaN, so what is left out is zeroed first.
    kept = select(heard, up, trees.zeros_like(up))
    if own is not None:
        return own.mean.drawn(kept, part, own.key), share
    return jax.tree.map(lambda leaf: jnp.tensordot(part, leaf, axes=1), kept), share


def unbiased_mean(
    up: PyTree, data: Data, participants: Participants, heard: Bool[Array, " local"]
) -> tuple[PyTree, Array, Bool[Array, " participants"]]:
    """sum_S (pi_m / chance_m) up_m over the finite updates, whose expectation is the mean over all clients."""
    assert participants.chance is not None
    weights = jnp.where(heard, data.weights[participants.here], 0)
    part = weights / participants.chance
    kept = select(heard, up, trees.zeros_like(up))
    sums = jax.tree.map(lambda leaf: jnp.tensordot(part, leaf, axes=1), kept)
    flags = jnp.zeros(participants.who.shape, part.dtype)
    flags = flags.at[participants.slots].set(heard.astype(part.dtype), mode="drop")
    sums, share, flags = data.total((sums, jnp.sum(weights), flags))
    return sums, share, flags > 0


def mean_over_devices(
    up: PyTree, data: Data, participants: Participants, heard: Bool[Array, " local"]
) -> tuple[PyTree, Array, Bool[Array, " participants"]]:
    """The same over all devices, in one message, and whose updates were finite."""
    here, share = weighted_mean(up, data.weights[participants.here], heard)
    sums = jax.tree.map(lambda leaf: share * leaf, here)
    flags = jnp.zeros(participants.who.shape, share.dtype)
    flags = flags.at[participants.slots].set(heard.astype(share.dtype), mode="drop")
    sums, share, flags = data.total((sums, share, flags))
    return jax.tree.map(lambda leaf: leaf / jnp.where(share > 0, share, 1), sums), share, flags > 0
