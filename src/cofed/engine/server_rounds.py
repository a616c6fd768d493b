"""One round as a pure function, all clients as one vmap: through a server (`Centre`), or along a graph (`peers.Peers`).

The two exchanges offer the same: `starts` and `fresh` (the state before a stage), `one_round`, `model` (of the
federation), `average` and `output` (what the next stage begins from), `has_personal` and `personal` (a model per
client), `columns` (what they add to the history), `undo` (a round that went wrong), `keeps` (what a client has between
rounds), `messages`, `first_messages` and `communication` (what goes over the wire). All else of the engine is the same
for both.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from cofed._util import trees
from cofed.algorithms import base
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.engine import collectives, evaluate, sampling
from cofed.engine.data import Data
from cofed.engine.history import Communication
from cofed.engine.plan import Plan
from cofed.engine.steps import make_steps
from cofed.problem import Problem

WHOLE = 2**22  # bytes of whole clients' samples that are worked on at once
EMPTY_ROUNDS = 3  # so many rounds in a row without one finite update end a run


class State(eqx.Module):
    """All that a run carries from round to round. A checkpoint is this pytree."""

    server: PyTree  # the server's state; () without one
    clients: PyTree  # what each client (or node) keeps, stacked; () where nothing
    key: PRNGKeyArray  # of the seed; rounds and clients are folded into it
    round: Int[Array, ""]  # the next round, over all stages; it does not depend on how the run fares
    begun: Int[Array, ""]  # the round in which the present stage began
    empty: Int[Array, "*grid"]  # rounds in a row without a finite update
    failed_at: Int[Array, "*grid"]  # the round that would have made a state non-finite, or -1; all is frozen from it


class Roll(eqx.Module):
    """Who took part in a round (in the records of a chunk: in each of its rounds)."""

    clients: Int[Array, "*rounds participants"]  # positions
    heard: Bool[Array, "*rounds participants"]  # whether the update was finite and so counted
    messages: Int[Array, "*rounds"]  # how many clients (by gossip: links, each way) were served


def in_blocks(block: int | None) -> Callable:
    """A `for_each`: the work of the participants, a block at a time, so that what a step works on stays inside the
    caches; blocks of the largest size up to this one that divides their number.

    `client(position, keeps, own, width)` is one client's work; own is its data, padded to width, where gradients are
    full.
    """

    def for_each(client: Callable, data: Data, plan: Plan, cast: "Cast", kept: PyTree) -> PyTree:
        if follows_sizes(data, plan):
            return by_size(client, data, plan, cast, kept, block)

        def work(position, keeps, own):
            return client(position, keeps, own, data.widest)

        if data.mesh is not None and not plan.everyone:
            few = collectives.block_of(-(-plan.participants // data.mesh.size), plan.block)
            return collectives.only(cast.mine, few)(work, cast.here, kept, None)
        own = None
        if plan.batch is None:
            own = (data.X, data.y) if plan.everyone else (data.X[cast.here], data.y[cast.here])
        return blockwise(work, block, cast.here, kept, own)

    return for_each


together = in_blocks(None)  # all participants at once, as one array axis


def blockwise(work: Callable, block: int | None, *stacked: PyTree) -> PyTree:
    """The work on each entry of the stacks, in blocks."""
    count = jax.tree.leaves(stacked)[0].shape[0]
    size = next(b for b in range(min(block or count, count), 0, -1) if count % b == 0)
    if size == count:
        return jax.vmap(work)(*stacked)
    if size == 1:
        return jax.lax.map(lambda one: work(*one), stacked)
    parts = jax.tree.map(lambda leaf: leaf.reshape(count // size, size, *leaf.shape[1:]), stacked)
    done = jax.lax.map(lambda part: jax.vmap(work)(*part), parts)
    return jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), done)


def follows_sizes(data: Data, plan: Plan) -> bool:
    """Whether clients of different sizes are of different work, and lie so that each can be given its own."""
    if data.tiers is None or data.draw is not None:
        return False
    return plan.batch is None or plan.epochs is not None or plan.batch > sampling.FEW


def by_size(client: Callable, data: Data, plan: Plan, cast: "Cast", kept: PyTree, block: int | None) -> PyTree:
    """The work of the participants, one tier of clients after another."""
    assert data.tiers is not None
    tier, found = data.tier(cast.here), None
    for place, (width, clients) in enumerate(data.tiers):

        def work(position, keeps, width=width):
            own = data.whole(position, width) if plan.batch is None else None
            return client(position, keeps, own, width)

        expected = clients * plan.participants // (plan.clients * (1 if data.mesh is None else data.mesh.size))
        most = max(1, WHOLE // (width * sample_bytes(data))) if plan.batch is None else None
        few = collectives.block_of(max(1, expected), min(most or clients, block or clients))
        found = collectives.only(cast.mine & (tier == place), few)(work, cast.here, kept, found=found)
    return found


def sample_bytes(data: Data) -> int:
    """Bytes of one sample."""
    return data.X.nbytes // math.prod(data.X.shape[: 2 if data.tiers is None else 1])


def started(server: PyTree, clients: PyTree, key: PRNGKeyArray, round: Any) -> State:
    """A state before the first round of a stage."""
    at, zero = jnp.asarray(round, jnp.int32), jnp.zeros((), jnp.int32)
    return State(server, clients, key, at, at, zero, zero - 1)


def moved(state: State, server: PyTree, clients: PyTree, anyone: Array, fails: Array) -> State:
    """The state after a round; what a failed run holds stays as it was."""
    empty = jnp.where(anyone, 0, state.empty + 1)
    fails = fails | (empty >= EMPTY_ROUNDS)
    failed_at = jnp.where((state.failed_at < 0) & fails, state.round, state.failed_at)
    return State(server, clients, state.key, state.round + 1, state.begun, empty, failed_at)


class Centre(eqx.Module):
    """Rounds through a server."""

    def starts(self, w0: PyTree, plan: Plan) -> PyTree:
        """Where the first stage begins."""
        return w0

    def fresh(
        self,
        algorithm: AbstractServerAlgorithm,
        problem: Problem,
        w0: PyTree,
        data: Data,
        key: PRNGKeyArray,
        round: Any,
        plan: Plan,
    ) -> State:
        """The state before the first round of a stage."""
        one = algorithm.init_client(problem, w0)
        return started(algorithm.init(problem, w0), copies(one, data.clients), key, round)

    def one_round(
        self,
        algorithm: AbstractServerAlgorithm,
        problem: Problem,
        data: Data,
        state: State,
        plan: Plan,
        for_each: Callable = together,
        make: Callable = make_steps,
    ) -> tuple[State, Roll]:
        """Sample, broadcast, local steps of all participants, weighted mean, aggregate.

        `for_each` maps a client's work over the participants (see `in_blocks`), `make` gives a client its local steps.
        """
        key = sampling.round_key(state.key, state.round)
        stage_round = (state.round - state.begun).astype(data.dtype)
        down = algorithm.broadcast(state.server)
        who = None if plan.everyone else self.attend(key, state.round, data, plan)
        cast = called(who, data, plan)

        def client(position, keeps, own, width):
            steps = make(problem, data, plan, position, own, key, stage_round, width)
            return algorithm.local(problem, down, keeps, steps)

        kept = state.clients if plan.everyone else jax.tree.map(lambda leaf: leaf[cast.here], state.clients)
        up, keeps = for_each(client, data, plan, cast, kept)
        heard_here = jax.vmap(trees.all_finite)((up, keeps)) & cast.mine
        up = base.expanded(algorithm, up)
        if data.mesh is None:
            (mean, share), heard = weighted_mean(up, data.weights[cast.here], heard_here), heard_here
        else:
            mean, share, heard = mean_over_devices(up, data, cast, heard_here)
        server = algorithm.aggregate(problem, state.server, mean, share)

        new = moved(state, (), (), jnp.any(heard), ~trees.all_finite(server))
        # Participants whose weights are all 0 have nothing to say: the server stays as it is.
        fine = new.failed_at < 0
        go = (share > 0) & fine
        keeps = select(fine & heard_here, keeps, kept)
        if not plan.everyone:  # what is not here is past the end, and dropped
            into = jnp.where(cast.mine, cast.here, data.clients)
            keeps = jax.tree.map(lambda all_, some: all_.at[into].set(some, mode="drop"), state.clients, keeps)
        server = trees.where(go, server, state.server)
        messages = jnp.asarray(plan.participants, jnp.int32)
        return at(new, server, keeps), Roll(cast.who, heard, messages)

    def attend(self, key: PRNGKeyArray, round: Int[Array, ""], data: Data, plan: Plan) -> Int[Array, " participants"]:
        """The positions of those that take part in a round."""
        assert data.places is not None
        return data.places[sampling.participants(key, plan.clients, plan.participants)]

    def undo(self, bad: Bool[Array, ""], state: State, old: State) -> State:
        """The state, or, where the round was bad, a failed one with the model of before."""
        return failed_where(bad, at(state, trees.where(bad, old.server, state.server), state.clients), old)

    def first_messages(self, state: State) -> int:
        """How many messages go before the first round of a stage."""
        return 0

    def communication(self, down_each: int, up_each: int, down: int, up: int) -> Communication:
        """The bytes of a run."""
        return Communication(down_each, up_each, down, up)

    def model(self, algorithm: AbstractServerAlgorithm, problem: Problem, state: State) -> PyTree:
        """The server's model."""
        return algorithm.model(problem, state.server)

    def average(self, algorithm: AbstractServerAlgorithm, problem: Problem, state: State) -> PyTree:
        """The averaged model, or None where the method defines none."""
        return algorithm.average(problem, state.server)

    def output(self, algorithm: AbstractServerAlgorithm, problem: Problem, state: State) -> PyTree:
        """What the next stage begins from."""
        return base.output(algorithm, problem, state.server)

    def has_personal(self, algorithm: AbstractServerAlgorithm) -> bool:
        """Whether the method has a model per client."""
        return algorithm.is_personal

    def talks_first(self, algorithm: AbstractServerAlgorithm) -> bool:
        """Whether there is an exchange before the first round: never with a server."""
        return False

    def personal(self, algorithm: AbstractServerAlgorithm, problem: Problem, state: State) -> PyTree:
        """A model per client, stacked."""
        return jax.vmap(lambda client: algorithm.personal_model(state.server, client))(state.clients)

    def columns(
        self,
        algorithm: AbstractServerAlgorithm,
        problem: Problem,
        data: Data,
        held_out: Data | None,
        metrics: dict[str, Callable],
        per_client: bool,
        state: State,
    ) -> dict[str, Array]:
        """What a server adds to the history: the clients' own models, where the method has such."""
        if not self.has_personal(algorithm):
            return {}
        models = self.personal(algorithm, problem, state)
        return evaluate.personal(problem, data, held_out, metrics, per_client, models)

    def keeps(self, algorithm: AbstractServerAlgorithm, problem: Problem, w0: PyTree) -> PyTree:
        """What one client keeps between rounds."""
        return algorithm.init_client(problem, w0)

    def messages(
        self, algorithm: AbstractServerAlgorithm, problem: Problem, data: Data, plan: Plan, w0: PyTree
    ) -> tuple[PyTree, PyTree]:
        """What goes down to a client and up from it, in one round."""
        down = algorithm.broadcast(algorithm.init(problem, w0))
        steps = first_steps(problem, data, plan)
        return down, algorithm.local(problem, down, algorithm.init_client(problem, w0), steps)[0]


def last_work(
    algorithm: AbstractServerAlgorithm,
    problem: Problem,
    data: Data,
    state: State,
    plan: Plan,
    for_each: Callable = together,
    make: Callable = make_steps,
) -> tuple[State, Bool[Array, " clients"]]:
    """The last piece of local work of all clients, and whose was finite."""
    key, down = sampling.round_key(state.key, state.round), algorithm.broadcast(state.server)
    stage_round = (state.round - state.begun).astype(data.dtype)

    def client(position, keeps, own, width):
        steps = make(problem, data, plan, position, own, key, stage_round, width)
        return algorithm.last_local(problem, down, keeps, steps)

    everybody = dataclasses.replace(plan, participants=plan.clients)
    keeps = for_each(client, data, everybody, called(None, data, everybody), state.clients)
    heard = jax.vmap(trees.all_finite)(keeps)
    return at(state, state.server, select(heard, keeps, state.clients)), data.everybody(heard)


def first_steps(problem: Problem, data: Data, plan: Plan) -> Any:
    """The first client's steps in round 0, to look at shapes."""
    zero = jnp.zeros((), data.dtype)
    return make_steps(problem, data, plan, jnp.zeros((), jnp.int32), None, jax.random.key(0), zero)


def at(state: State, server: PyTree, clients: PyTree) -> State:
    """The state with these parts."""
    return State(server, clients, state.key, state.round, state.begun, state.empty, state.failed_at)


def failed_where(bad: Bool[Array, ""], state: State, old: State) -> State:
    """The state, marked as failed in the old one's round where that was bad and nothing failed before."""
    failed_at = jnp.where(bad & (state.failed_at < 0), old.round, state.failed_at)
    return State(state.server, state.clients, state.key, state.round, state.begun, state.empty, failed_at)


def copies(one: PyTree, count: int) -> PyTree:
    """The same for every client, stacked."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), one)


class Cast(eqx.Module):
    """Who takes part in a round, and which of them live here."""

    who: Int[Array, " participants"]  # positions among all clients
    here: Int[Array, " local"]  # positions on this device; of others, any
    mine: Bool[Array, " local"]  # which of those are real and live here
    slots: Int[Array, " local"]  # where they stand in `who`; padding stands behind its end


def called(who: Int[Array, " participants"] | None, data: Data, plan: Plan) -> Cast:
    """The participants of a round: these, or everybody."""
    here = jnp.arange(data.clients, dtype=jnp.int32)
    if who is None:
        who, first = jnp.arange(plan.clients, dtype=jnp.int32), data.first()
        return Cast(who, here, first + here < plan.clients, first + here)
    mine = who - data.first()
    slots = jnp.arange(plan.participants, dtype=jnp.int32)
    return Cast(who, jnp.clip(mine, 0, here.size - 1), (mine >= 0) & (mine < here.size), slots)


def weighted_mean(up: PyTree, weights: Array, heard: Bool[Array, " participants"]) -> tuple[PyTree, Array]:
    """The mean of the finite updates, weights renormalised over them, and their share of all clients' weight."""
    counted = jnp.where(heard, weights, 0)
    share = jnp.sum(counted)
    part = counted / jnp.where(share > 0, share, 1)
    # 0 * NaN is NaN, so what is left out is zeroed first.
    kept = select(heard, up, trees.zeros_like(up))
    return jax.tree.map(lambda leaf: jnp.tensordot(part, leaf, axes=1), kept), share


def mean_over_devices(
    up: PyTree, data: Data, cast: Cast, heard: Bool[Array, " local"]
) -> tuple[PyTree, Array, Bool[Array, " participants"]]:
    """The same over all devices, in one message, and whose updates were finite."""
    here, share = weighted_mean(up, data.weights[cast.here], heard)
    sums = jax.tree.map(lambda leaf: share * leaf, here)
    flags = jnp.zeros(cast.who.shape, share.dtype).at[cast.slots].set(heard.astype(share.dtype), mode="drop")
    sums, share, flags = data.total((sums, share, flags))
    return jax.tree.map(lambda leaf: leaf / jnp.where(share > 0, share, 1), sums), share, flags > 0


def select(flags: Bool[Array, " clients"], new: PyTree, old: PyTree) -> PyTree:
    """new for the clients whose flag is set, else old."""
    return jax.tree.map(lambda a, b: jnp.where(flags.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)
