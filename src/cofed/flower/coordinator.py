"""The server's loop over a network: one round after another, and what to do when sites fail.

The state of a run is a frozen value (`NetworkState`). The functions here take one state and return the next; in between
they send messages, tell what happens and write checkpoints, all through `ServerIO`. A round's mathematics is the
engine's own: the weighted mean of the updates, then `algorithm.aggregate`.
"""

import time
import uuid

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from cofed._util import trees
from cofed.algorithms import base
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.engine import sampling
from cofed.engine.history import Outcome, Result
from cofed.engine.server_rounds import weighted_mean
from cofed.flower import wire
from cofed.flower.collection import AGAIN, NOT_FINITE, SILENT, Collection, is_finite, read_scores
from cofed.flower.conclusion import conclude, finish
from cofed.flower.flwr_types import Grid
from cofed.flower.membership import Membership
from cofed.flower.messages import Identity, SiteInfo
from cofed.flower.progress import Event, ProgressLog
from cofed.flower.run_folder import RunFolder
from cofed.flower.server_io import RoundArrays, ServerIO, ask
from cofed.flower.settings import NetworkSpec
from cofed.flower.state import NetworkState, ServerStage
from cofed.flower.transport import Reply, Request, Transport, Trouble, pause
from cofed.problem import Problem


def coordinate(grid: Grid, spec: NetworkSpec, folder: RunFolder) -> Result:
    """Do a whole run over the sites of a Grid, or continue the one in the folder."""
    before = folder.definition()
    spec.check_same(before, folder.path)
    run, infos = uuid.uuid4().hex, {}
    if before is not None:
        run = str(before["run"])
        infos = {info.site: info for info in map(SiteInfo.read, before["cards"])}
    io = ServerIO(Transport(grid, Identity.of(spec.problem, spec.algorithm), run), folder, ProgressLog(folder))
    membership = gather(io, Membership.begin(spec, infos))
    state = first_state(io, membership)
    while state.outcome is None and state.round < spec.settings.rounds:
        state = one_round(io, state)
    if state.outcome is None:
        state = conclude(io, state)
    return finish(io, state)


# Before the first round


def gather(io: ServerIO, membership: Membership) -> Membership:
    """Wait until enough sites have said who they are for the run to begin (see `Membership.complete`)."""
    began = news = time.monotonic()
    known, patience = set(), membership.settings.patience
    while True:
        membership = look_around(io, membership)
        for reply in io.transport.replies():
            membership, events = heard_from(membership, reply).introduce(reply)
            io.progress.tell(0, events)
        there, clock = membership.present, time.monotonic()
        news = news if there == known else clock
        known = there
        if membership.complete(clock - began, clock - news):
            return membership.settle()
        if clock - began > patience:
            raise RuntimeError(
                f"only {len(there)} of {membership.wanted} sites have told their names within {patience:g} s "
                f"({', '.join(sorted(there)) or 'none'}); start the others, or give a smaller clients="
            )
        if len(there) < membership.wanted:
            words = f"{len(there)} of {membership.wanted} sites are there; waiting for the others"
            io.progress.remind(0, "sites", words)
        pause()


def look_around(io: ServerIO, membership: Membership) -> Membership:
    """Look which nodes are online, and ask those that are new who they are."""
    membership, new = membership.look_around(io.transport.online())
    for node in new:
        io.transport.send(Request(node), {}, {}, membership.settings.patience)
    return membership


def first_state(io: ServerIO, membership: Membership) -> NetworkState:
    """The state to begin with, or that of the newest checkpoint."""
    loaded = io.folder.newest(membership.agreement.sites)
    if loaded is None:
        state = NetworkState.begin(membership)
        io.write_definition(membership)
        io.save(state)
        return state
    state = NetworkState.resume(membership, loaded, io.folder.spent())
    words = f"going on with the run in {io.folder.path} at round {state.round}"
    io.tell(state, [Event("resumed", words)])
    return state


# A round


def one_round(io: ServerIO, state: NetworkState) -> NetworkState:
    """Do one round. The run ends if the round would make the model non-finite, or if too few sites answer."""
    state = state.current_stage()
    began = time.monotonic()
    ids = participants(state)
    sites = tuple(state.agreed.sites[i] for i in ids)
    state, found = collect(io, state, sites, began)
    if state.outcome is not None:
        return state
    heard = jnp.asarray([site in found.updates for site in sites])
    weights = state.agreed.weights[np.asarray(ids, np.int32)]
    stage, updates = state.stage, stacked(found, state.stage)
    new, finite = aggregated(stage.algorithm, stage.problem, state.server, updates, weights, heard)
    state, evaluated = state.evaluated(found.scores)
    state, left_out = state.left_out(found.troubles)
    io.tell(state, [*evaluated, *left_out])
    if not bool(finite):
        return state.ended(Outcome.DIVERGED)
    state = state.finished_round(new, list(found.updates), len(found.troubles), time.monotonic() - began)
    words = f"round {state.round} of {state.agreed.spec.rounds}: {len(found.updates)} of {len(sites)} sites"
    io.tell(state, [Event("round", words, state.rows[-1])])
    io.save(state)
    return state


def participants(state: NetworkState) -> list[int]:
    """The ids of the sites that are asked in this round: the same that the engine draws."""
    plan = state.agreed.plans[state.stage.number]
    if plan.everyone:
        return list(range(plan.clients))
    seed = jax.random.key(state.agreed.spec.seed)
    key = sampling.round_key(seed, jnp.asarray(state.round, jnp.int32))
    return np.asarray(sampling.participants(key, plan.clients, plan.participants)).tolist()


def collect(io: ServerIO, state: NetworkState, sites: tuple[str, ...], began: float) -> tuple[NetworkState, Collection]:
    """Ask these sites for their updates until the round can be closed, or the run must end."""
    settings, arrays, found = state.agreed.settings, RoundArrays(state), Collection(sites)
    io.transport.forget(state.round)
    while True:
        state = state.with_membership(look_around(io, state.membership))
        there, clock = (
            state.membership.present,
            time.monotonic(),
        )  # a site that joins below is first waited for next time
        for site in found.due(state.membership, clock):
            found = found.asked(site, state.membership.nodes[site], clock, settings.deadline)
            state = ask(io, state, site, arrays)
        for reply in io.transport.replies():
            state, found = take(io, state, found, reply)
        seconds = clock - began
        if found.hopeless:
            return end_hopeless(io, state, found), found
        if found.done(there, settings, seconds):
            return state, found.closed()
        if seconds > settings.patience:
            return end_starved(io, state, found), found
        if found.waiting(there, settings, seconds):
            io.progress.remind(state.round, "quorum", f"{so_far(state, found)}; waiting")
        pause()


def so_far(state: NetworkState, found: Collection) -> str:
    """How many sites have answered."""
    needed = state.agreed.settings.quorum
    return f"round {state.round}: {len(found.updates)} of {needed} sites that it needs have answered"


def end_hopeless(io: ServerIO, state: NetworkState, found: Collection) -> NetworkState:
    """End a run in which nobody's update is finite any more."""
    state, events = state.left_out(found.troubles)
    io.tell(state, events)
    return state.ended(Outcome.DIVERGED)


def end_starved(io: ServerIO, state: NetworkState, found: Collection) -> NetworkState:
    """End a run whose quorum was not reached in time."""
    patience = state.agreed.settings.patience
    words = f"{so_far(state, found)} in {patience:g} s; missing: {', '.join(found.missing)}"
    state, events = state.left_out({site: found.troubles.get(site, SILENT) for site in found.missing})
    io.tell(state, [*events, Event("stopped", words)])
    return state.ended(Outcome.STARVED)


def take(io: ServerIO, state: NetworkState, found: Collection, reply: Reply) -> tuple[NetworkState, Collection]:
    """Take in a reply: a site's update, why there is none, or who a node is."""
    membership, site = heard_from(state.membership, reply), reply.request.site
    state = state.with_membership(membership)
    if site is None:
        return introduced(io, state, reply), found
    if reply.request.round != state.round or site in found.updates:
        return state, found
    trouble = reply.trouble
    if reply.content is not None:
        try:
            update = wire.unpack(reply.content, "up", state.stage.up_shape)
        except wire.WireError as error:
            trouble = Trouble("WireError", str(error))
        else:
            state = state.received(wire.array_bytes(reply.content.array_records["up"]))
            if is_finite(update):
                details = {"site": site, "work": wire.head_of(reply.content).get("seconds")}
                io.tell(state, [Event("heard", f"round {state.round}: {site} has answered", details)])
                return state, found.heard(site, update, read_scores(reply.content))
            trouble = NOT_FINITE
    if trouble.kind == "Lost" and state.counted[site] >= 0:
        state, events = state.lost(site, trouble.words)
        io.tell(state, events)
        return state, found.ask_at_once(site)
    if found.troubles.get(site) != trouble:
        io.tell(state, [Event("trouble", f"round {state.round}: {site}: {trouble.words}", {"site": site})])
    again = time.monotonic() + min(AGAIN, state.agreed.settings.deadline)
    return state, found.troubled(site, trouble, again)


def heard_from(membership: Membership, reply: Reply) -> Membership:
    """The membership after a reply, whatever it says."""
    return membership.node_failed(reply.request.node) if reply.node_failed else membership


def introduced(io: ServerIO, state: NetworkState, reply: Reply) -> NetworkState:
    """The state after a node has said who it is. A site that has come late is written into the run's definition."""
    membership, events = state.membership.introduce(reply)
    if membership.infos is not state.membership.infos:
        io.write_definition(membership)
    io.tell(state, events)
    return state.with_membership(membership)


def stacked(found: Collection, stage: ServerStage) -> PyTree:
    """The updates of all sites that were asked, with zeros for those that are missing."""
    empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), stage.up_shape)
    updates = [found.updates.get(site, empty) for site in found.sites]
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *updates)


@eqx.filter_jit
def aggregated(
    algorithm: AbstractServerAlgorithm,
    problem: Problem,
    server: PyTree,
    updates: PyTree,
    weights: Float[Array, " asked"],
    heard: Bool[Array, " asked"],
) -> tuple[PyTree, Bool[Array, ""]]:
    """The server's step on the updates that were heard, and whether it is finite."""
    mean, share = weighted_mean(base.expanded(algorithm, updates), weights, heard)
    new = algorithm.aggregate(problem, server, mean, share)
    return trees.where(share > 0, new, server), trees.all_finite(new)
