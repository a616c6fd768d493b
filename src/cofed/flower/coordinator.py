"""The server's loop over a network: one round after another, and what to do when sites fail.

The state of a run is a frozen value (`NetworkState`). The functions here take one state and return the next; in between
they send messages, tell what happens and write checkpoints, all through `ServerIO`. A round's mathematics is the
engine's own: the weighted mean of the updates, then `algorithm.aggregate`.
"""

import time
import uuid

import jax
import jax.numpy as jnp
import numpy as np

from cofed.engine import sampling
from cofed.engine.history import Outcome, Result
from cofed.flower import wire
from cofed.flower.collection import AGAIN, NOT_FINITE, SILENT, Collection, is_finite
from cofed.flower.conclusion import conclude, finish
from cofed.flower.flwr_types import Grid
from cofed.flower.membership import Membership
from cofed.flower.messages import Identity, SiteInfo
from cofed.flower.progress import Event, ProgressLog
from cofed.flower.round_sums import AbstractRoundSum, ask, round_sum
from cofed.flower.run_folder import RunFolder
from cofed.flower.server_io import RoundArrays, ServerIO
from cofed.flower.settings import NetworkSpec
from cofed.flower.state import NetworkState
from cofed.flower.transport import Reply, Request, Transport, Trouble, pause
from cofed.sites.secure.site_end import PadUsed, StaleCard


def coordinate(grid: Grid, spec: NetworkSpec, folder: RunFolder) -> Result:
    """Do a whole run over the sites of a Grid, or continue the one in the folder."""
    before = folder.definition()
    spec.check_same(before, folder.path)
    run, infos = uuid.uuid4().hex, {}
    if before is not None:
        run = str(before["run"])
        infos = {info.site: info for info in map(SiteInfo.read, before["cards"])}
    io = ServerIO(Transport(grid, Identity.of(spec.problem, spec.algorithm), run), folder, ProgressLog(folder))
    membership = gather(io, Membership.begin(spec, infos, run))
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
        head: wire.Head = {"masked": not membership.settings.plain}
        io.transport.send(Request(node), head, {}, membership.settings.patience)
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
    sites, sums = participants(state), round_sum(io.transport, state, RoundArrays(state))
    state, found = collect(io, state, sites, sums)
    if state.outcome is not None:
        return state
    new, finite = sums.step(state, found)
    state, evaluated = state.evaluated(sums.scores(state, found))
    state, left_out = state.left_out(found.troubles)
    io.tell(state, [*evaluated, *left_out])
    if not finite:
        return state.ended(Outcome.DIVERGED)
    state = state.finished_round(new, list(found.updates), len(found.troubles), time.monotonic() - began)
    words = f"round {state.round} of {state.agreed.spec.rounds}: {len(found.updates)} of {len(sites)} sites"
    io.tell(state, [Event("round", words, state.rows[-1])])
    io.save(state)
    return state


def participants(state: NetworkState) -> tuple[str, ...]:
    """The sites that are asked in this round: the same that the engine draws, or whole cohorts, drawn likewise."""
    plan, sites, cohorts = state.agreed.plans[state.stage.number], state.agreed.sites, state.agreed.settings.cohorts
    if plan.everyone:
        return sites
    seed = jax.random.key(state.agreed.spec.seed)
    key = sampling.round_key(seed, jnp.asarray(state.round, jnp.int32))
    units = cohorts or tuple((site,) for site in sites)
    drawn = sampling.participants(key, len(units), plan.participants // len(units[0]))
    return tuple(site for place in np.asarray(drawn).tolist() for site in units[place])


def collect(
    io: ServerIO, state: NetworkState, sites: tuple[str, ...], sums: AbstractRoundSum
) -> tuple[NetworkState, Collection]:
    """Ask these sites for their updates until the round can be closed, or the run must end."""
    settings, began = state.agreed.settings, time.monotonic()
    found = Collection(sites, tuple(cohort for cohort in sums.cohorts(state) if cohort[0] in sites))
    io.transport.forget(state.round)
    while True:
        state = state.with_membership(look_around(io, state.membership))
        found = sums.current(state, found)
        there, clock = (
            state.membership.present,
            time.monotonic(),
        )  # a site that joins below is first waited for next time
        for site in found.due(state.membership, clock):
            message = sums.message(state, found, site)
            if message is not None:
                found = found.asked(site, state.membership.nodes[site], clock, settings.deadline)
                state = ask(io, state, site, message)
        for reply in io.transport.replies():
            state, found = take(io, state, sums, found, reply)
        seconds = clock - began
        if found.hopeless:
            return end_hopeless(io, state, found), found
        if found.done(there, settings, seconds):
            return state, found.closed(there)
        if seconds > settings.patience or found.is_short(settings.quorum):
            return end_starved(io, state, found, seconds), found
        if found.waiting(there, settings, seconds):
            io.progress.remind(state.round, "quorum", f"{so_far(state, found)}; waiting")
        pause()


def so_far(state: NetworkState, found: Collection) -> str:
    """How many sites have answered."""
    needed = state.agreed.settings.quorum
    return f"round {state.round}: {len(found.counting)} of {needed} sites that it needs have answered"


def end_hopeless(io: ServerIO, state: NetworkState, found: Collection) -> NetworkState:
    """End a run in which nobody's update is finite any more."""
    state, events = state.left_out(found.troubles)
    io.tell(state, events)
    return state.ended(Outcome.DIVERGED)


def end_starved(io: ServerIO, state: NetworkState, found: Collection, seconds: float) -> NetworkState:
    """End a run whose quorum was not reached in time, or cannot be."""
    words = f"{so_far(state, found)} in {seconds:.0f} s; missing: {', '.join(found.missing)}"
    state, events = state.left_out({site: found.troubles.get(site, SILENT) for site in found.missing})
    io.tell(state, [*events, Event("stopped", words)])
    return state.ended(Outcome.STARVED)


def take(
    io: ServerIO, state: NetworkState, sums: AbstractRoundSum, found: Collection, reply: Reply
) -> tuple[NetworkState, Collection]:
    """Take in a reply: a site's update, why there is none, or who a node is."""
    membership, site = heard_from(state.membership, reply), reply.request.site
    state = state.with_membership(membership)
    if site is None:
        return introduced(io, state, reply), found
    message = sums.message(state, found, site)
    if reply.request.round != state.round or site in found.updates or message is None:
        return state, found
    if reply.request.mark != message.mark:  # the cohort has been asked anew since
        return state, found
    trouble = reply.trouble
    if reply.content is not None:
        try:
            got = sums.read(state, site, message.mark, reply.content)
        except wire.WireError as error:
            trouble = Trouble("WireError", str(error))
        else:
            state = state.received(got.size)
            if is_finite(got.update):
                details = {"site": site, "work": wire.head_of(reply.content).get("seconds")}
                io.tell(state, [Event("heard", f"round {state.round}: {site} has answered", details)])
                return state, sums.judged(state, found.heard(site, got.update, got.scores), site)
            trouble = NOT_FINITE
    if trouble.kind == "Lost" and state.counted[site] >= 0:
        state, events = state.lost(site, trouble.words)
        io.tell(state, events)
        return state, found.ask_at_once(site)
    return troubled(io, state, found, site, trouble)


def troubled(
    io: ServerIO, state: NetworkState, found: Collection, site: str, trouble: Trouble
) -> tuple[NetworkState, Collection]:
    """The state after a site has answered badly, and what is asked for then."""
    if trouble.kind == PadUsed.__name__:  # the same masks must not cover other numbers
        return state, found.anew(found.cohort_of(site))
    if trouble.kind == StaleCard.__name__:  # its keys are gone: it is asked for its card again
        return state.with_membership(state.membership.node_failed(state.membership.nodes[site])), found
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
