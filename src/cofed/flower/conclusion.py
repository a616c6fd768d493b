"""The end of a run over the network: the last model goes to all sites, the run is judged, and the result is written."""

import dataclasses
import math
import time
from collections.abc import Mapping

import jax
import numpy as np

from cofed._util import trees
from cofed.engine.ending import blow_up
from cofed.engine.history import Communication, Outcome, Result
from cofed.flower import wire
from cofed.flower.collection import ABSENT, LATE, read_scores
from cofed.flower.progress import Event
from cofed.flower.server_io import RoundArrays, ServerIO, ask
from cofed.flower.state import NetworkState
from cofed.flower.transport import Reply, Request, pause


def conclude(io: ServerIO, state: NetworkState) -> NetworkState:
    """Send everybody the last model, for its evaluation and the last piece of local work, and judge the run."""
    algorithm = state.stage.algorithm
    if algorithm.ends_locally or algorithm.is_personal or state.agreed.settings.due(state.round):
        state = see_who_is_there(io, state)
        arrays = RoundArrays(state)
        for site in sorted(state.membership.present):
            state = ask(io, state, site, arrays, last=True)
        replies = last_replies(io, state, "train")
        missing = {site: ABSENT for site in state.agreed.sites if site not in state.membership.present}
        missing |= {site: reply.trouble for site, reply in replies.items() if reply.content is None}
        missing |= {site: LATE for site in sorted(state.membership.present) if site not in replies}
        state, evaluated = state.evaluated(scores_in(replies))
        state, left_out = state.left_out(missing)
        io.tell(state, [*evaluated, *left_out])
    words = blow_up(state.agreed.spec, state.log.history, lambda column: at_default_start(io, state, column))
    if words is None:
        return state.ended(Outcome.COMPLETED)
    io.tell(state, [Event("stopped", words)])
    return state.ended(Outcome.DIVERGED)


def see_who_is_there(io: ServerIO, state: NetworkState) -> NetworkState:
    """The state with the nodes that are online now; new ones are no longer asked who they are."""
    return state.with_membership(dataclasses.replace(state.membership, online=io.transport.online()))


def last_replies(io: ServerIO, state: NetworkState, kind: str) -> dict[str, Reply]:
    """The replies by the deadline of all sites that are there, each of which was just sent a message of this kind."""
    began, found = time.monotonic(), {}
    pending = set(state.membership.present)
    while pending:
        late = time.monotonic() - began > state.agreed.settings.deadline
        for reply in io.transport.replies():
            site, request = reply.request.site, reply.request
            if site in pending and (request.round, request.kind) == (state.round, kind):
                pending.discard(site)
                found[site] = reply
        if late:
            break
        pause()
    return found


def scores_in(replies: Mapping[str, Reply]) -> dict[str, dict[str, float]]:
    """The scores that the sites have sent."""
    return {site: read_scores(reply.content) for site, reply in replies.items() if reply.content is not None}


def at_default_start(io: ServerIO, state: NetworkState, column: str) -> float:
    """The loss or objective at the problem's own start, evaluated by the sites.

    Where no site answers it is infinite, so that the run does not count as diverged.
    """
    if state.agreed.spec.w0 is None:  # then the run began there
        return float(state.rows[0][column])
    w = state.agreed.spec.default_start()
    state, model = see_who_is_there(io, state), {"model": wire.pack(w)}
    for site in state.membership.present:
        request = Request(state.membership.nodes[site], site, state.round, "evaluate")
        io.transport.send(request, state.instructions(site).entries(), model, state.agreed.settings.patience)
    loss = state.mean_scores(scores_in(last_replies(io, state, "evaluate"))).get("loss", math.inf)
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
    epsilon = None if privacy is None else privacy.epsilon(max(state.spent.values(), default=0))
    io.folder.finish(result, w, epsilon)
    words = f"{outcome.name.lower()} after round {state.round}: {outcome.value}"
    io.tell(state, [Event("end", words, {"outcome": outcome.name})])
    return result
