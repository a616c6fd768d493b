"""The end of a run over the network: the last model goes to all sites, the run is judged, and the result is written."""

import dataclasses
import math
import time

import jax
import numpy as np

from cofed._util import trees
from cofed.engine.ending import blow_up
from cofed.engine.history import Communication, Outcome, Result
from cofed.flower import wire
from cofed.flower.collection import Collection
from cofed.flower.progress import Event
from cofed.flower.round_sums import AbstractRoundSum, ask, round_sum
from cofed.flower.server_io import RoundArrays, ServerIO
from cofed.flower.state import NetworkState
from cofed.flower.transport import Reply, Request, Trouble, pause


def conclude(io: ServerIO, state: NetworkState) -> NetworkState:
    """Send everybody the last model, for its evaluation and the last piece of local work, and judge the run."""
    algorithm = state.stage.algorithm
    if algorithm.ends_locally or algorithm.is_personal or state.agreed.settings.due(state.round):
        state = see_who_is_there(io, state)
        sums = round_sum(io.transport, state, RoundArrays(state), last=True)
        found = Collection(state.agreed.sites, sums.cohorts(state))
        for site in sorted(state.membership.present):
            message = sums.message(state, found, site)
            if message is not None:
                found = found.asked(site, state.membership.nodes[site], 0.0, math.inf)
                state = ask(io, state, site, message)
        found = last_replies(io, state, sums, found, "train").closed(state.membership.present)
        state, evaluated = state.evaluated(sums.scores(state, found))
        state, left_out = state.left_out(found.troubles)
        io.tell(state, [*evaluated, *left_out])
    words = blow_up(state.agreed.spec, state.log.history, lambda column: at_default_start(io, state, column))
    if words is None:
        return state.ended(Outcome.COMPLETED)
    io.tell(state, [Event("stopped", words)])
    return state.ended(Outcome.DIVERGED)


def see_who_is_there(io: ServerIO, state: NetworkState) -> NetworkState:
    """The state with the nodes that are online now; new ones are no longer asked who they are."""
    return state.with_membership(dataclasses.replace(state.membership, online=io.transport.online()))


def last_replies(io: ServerIO, state: NetworkState, sums: AbstractRoundSum, found: Collection, kind: str) -> Collection:
    """What all sites answer by the deadline that were asked just now, in a message of this kind."""
    began, pending = time.monotonic(), set(found.nodes)
    while pending:
        late = time.monotonic() - began > state.agreed.settings.deadline
        for reply in io.transport.replies():
            site, request = reply.request.site, reply.request
            if site in pending and (request.round, request.kind) == (state.round, kind):
                pending.discard(site)
                found = taken(state, sums, found, reply)
        if late:
            break
        pause()
    return found


def taken(state: NetworkState, sums: AbstractRoundSum, found: Collection, reply: Reply) -> Collection:
    """The collection after a reply to the last message."""
    site, trouble = reply.request.site, reply.trouble
    assert site is not None
    if reply.content is not None:
        try:
            got = sums.read(state, site, reply.request.mark, reply.content)
        except wire.WireError as error:
            trouble = Trouble("WireError", str(error))
        else:
            return sums.judged(state, found.heard(site, got.update, got.scores), site)
    return found.troubled(site, trouble, math.inf)


def at_default_start(io: ServerIO, state: NetworkState, column: str) -> float:
    """The loss or objective at the problem's own start, evaluated by the sites.

    Where no site answers it is infinite, so that the run does not count as diverged.
    """
    if state.agreed.spec.w0 is None:  # then the run began there
        return float(state.rows[0][column])
    w = state.agreed.spec.default_start()
    state = see_who_is_there(io, state)
    sums = round_sum(io.transport, state, RoundArrays(state, w))
    found = Collection(state.agreed.sites, sums.cohorts(state))
    for site in sorted(state.membership.present):
        message, node = sums.message(state, found, site), state.membership.nodes[site]
        if message is not None:
            request = Request(node, site, state.round, "evaluate", message.mark)
            io.transport.send(request, message.head, message.arrays, state.agreed.settings.patience)
            found = found.asked(site, node, 0.0, math.inf)
    found = last_replies(io, state, sums, found, "evaluate")
    loss = sums.scores(state, found).get("loss", math.inf)
    return loss + float(state.stage.problem.regularizer.value(w)) if column == "objective" else loss


def finish(io: ServerIO, state: NetworkState) -> Result:
    """The result, which is also written to disk."""
    stage, privacy, outcome = state.stage, state.membership.spec.privacy, state.outcome
    assert outcome is not None
    w = jax.tree.map(np.asarray, stage.algorithm.model(stage.problem, state.server))
    down, up = trees.nbytes(stage.algorithm.broadcast(state.server)), trees.nbytes(stage.up_shape)
    result = Result(
        model=state.membership.spec.problem.ready(w),
        history=state.log.history,
        outcome=outcome,
        communication=Communication(down, up, state.log.down, state.log.up),
        average=stage.algorithm.average(stage.problem, state.server),
    )
    epsilon, plain, spent = None, state.agreed.settings.plain, max(state.spent.values(), default=0)
    if privacy is not None:
        size = sum(leaf.size for leaf in jax.tree.leaves(stage.up_shape))
        epsilon = privacy.epsilon(spent) if plain else privacy.epsilon_of_sums(spent, size)
    io.folder.finish(result, w, epsilon, is_masked=not plain)
    words = f"{outcome.name.lower()} after round {state.round}: {outcome.value}"
    io.tell(state, [Event("end", words, {"outcome": outcome.name})])
    return result
