"""One round of any algorithm with a server, as a pure function: all participants are one vmap."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from cofed import trees
from cofed.engine import draws
from cofed.engine.plan import Plan
from cofed.engine.steps import Data, make_steps
from cofed.problem import Problem

EMPTY_ROUNDS = 3  # so many rounds in a row without one finite update end a run


class State(eqx.Module):
    """All that a run carries from round to round. A checkpoint is this pytree."""

    server: PyTree
    clients: PyTree  # what each client keeps, stacked; () where nothing
    key: PRNGKeyArray  # of the seed; rounds and clients are folded into it
    round: Int[Array, ""]  # the next round, over all stages; it does not depend on how the run fares
    begun: Int[Array, ""]  # the round in which the present stage began
    empty: Int[Array, "*grid"]  # rounds in a row without a finite update
    failed_at: Int[
        Array, "*grid"
    ]  # the round that would have made the server non-finite, or -1; nothing changes after it


class Roll(eqx.Module):
    """Who took part in a round (in the records of a chunk: in each of its rounds)."""

    clients: Int[Array, "*rounds participants"]  # positions
    heard: Bool[Array, "*rounds participants"]  # whether the update was finite and so counted


def fresh(algorithm: Any, problem: Problem, w0: PyTree, key: PRNGKeyArray, clients: int, round: Any) -> State:
    """The state before the first round of a stage."""
    one = algorithm.init_client(problem, w0)
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (clients, *leaf.shape)), one)
    at = jnp.asarray(round, jnp.int32)
    zero = jnp.zeros((), jnp.int32)
    return State(algorithm.init(problem, w0), stacked, key, at, at, zero, zero - 1)


def together(client: Callable, *stacked: PyTree) -> PyTree:
    """All participants at once, as one array axis."""
    return jax.vmap(client)(*stacked)


def one_round(
    algorithm: Any,
    problem: Problem,
    data: Data,
    state: State,
    plan: Plan,
    for_each: Callable = together,
    make: Callable = make_steps,
) -> tuple[State, Roll]:
    """Sample, broadcast, local steps of all participants, weighted mean, aggregate.

    `for_each` maps a client's work over the participants, `make` gives a client its local steps.
    """
    key = draws.round_key(state.key, state.round)
    stage_round = (state.round - state.begun).astype(data.X.dtype)
    down = algorithm.broadcast(state.server)

    if plan.everyone:
        who = jnp.arange(plan.clients, dtype=jnp.int32)
        kept, X, y = state.clients, data.X, data.y
    else:
        place = jnp.zeros_like(data.ids).at[data.ids].set(jnp.arange(plan.clients, dtype=jnp.int32))
        who = place[draws.participants(key, plan.clients, plan.participants)]
        kept = jax.tree.map(lambda leaf: leaf[who], state.clients)
        X, y = (data.X[who], data.y[who]) if plan.batch is None else (None, None)

    def client(position, keeps, own):
        steps = make(problem, data, plan, position, own, key, stage_round)
        return algorithm.local(problem, down, keeps, steps)

    up, keeps = for_each(client, who, kept, (X, y) if plan.batch is None else None)
    heard = jax.vmap(trees.all_finite)((up, keeps))
    mean, share = weighted_mean(up, data.weights[who], heard)
    server = algorithm.aggregate(problem, state.server, mean, share)

    anyone = jnp.any(heard)
    empty = jnp.where(anyone, 0, state.empty + 1)
    fails = ~trees.all_finite(server) | (empty >= EMPTY_ROUNDS)
    failed_at = jnp.where((state.failed_at < 0) & fails, state.round, state.failed_at)
    go = anyone & (failed_at < 0)
    keeps = jax.tree.map(lambda new, old: jnp.where(column(go & heard, new), new, old), keeps, kept)
    if not plan.everyone:
        keeps = jax.tree.map(lambda everybody, new: everybody.at[who].set(new), state.clients, keeps)
    state = State(
        server=trees.where(go, server, state.server),  # a failed run keeps its last good model
        clients=keeps,
        key=state.key,
        round=state.round + 1,
        begun=state.begun,
        empty=empty,
        failed_at=failed_at,
    )
    return state, Roll(who, heard)


def weighted_mean(up: PyTree, weights: Array, heard: Bool[Array, " participants"]) -> tuple[PyTree, Array]:
    """The mean of the finite updates, weights renormalised over them, and their share of all clients' weight."""
    counted = jnp.where(heard, weights, 0)
    share = jnp.sum(counted)
    part = counted / jnp.where(share > 0, share, 1)

    def mean(leaf):
        # 0 * NaN is NaN, so what is left out is zeroed first.
        return jnp.tensordot(part, jnp.where(column(heard, leaf), leaf, 0), axes=1)

    return jax.tree.map(mean, up), share


def column(flags: Bool[Array, " n"], leaf: Array) -> Bool[Array, "n ..."]:
    """One flag per client, shaped to select along a stacked leaf's first axis."""
    return flags.reshape(flags.shape + (1,) * (leaf.ndim - 1))
