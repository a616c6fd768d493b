"""A run that begins from the whole state of another: of its server and its clients."""

import jax
import numpy as np

from cofed._util import checks
from cofed.engine.ending import gathered
from cofed.engine.history import Result
from cofed.engine.job import Job
from cofed.engine.mesh import spread_state
from cofed.engine.ranking import numbers_of
from cofed.engine.spec import RunSpec
from cofed.engine.state import State
from cofed.federation import Federation


def check_start(spec: RunSpec, start: object) -> None:
    """Refuse what is no run to begin from, and what does not go with one."""
    if start is None:
        return
    if not isinstance(start, Result) or start.state is None:
        raise TypeError(f"start must be the result of a run with its state, got {checks.shown(start)}")
    if spec.w0 is not None:
        raise ValueError("give w0, a model to begin with, or start, a whole run, not both")
    if spec.clock is not None or not isinstance(spec.federation, Federation):
        raise ValueError("start= is for clients in memory without a clock: begin with w0=result.model there")
    method, before = spec.algorithm, start.algorithm
    if method.counts_rounds:
        raise ValueError(
            f"start: what {method.name} does in a round depends on the round's number, and rounds begin anew here: "
            "begin with w0=result.model, or go on from a checkpoint (cofed.resume)"
        )
    if before is None or type(before) is not type(method):
        return  # whose states are compared later
    numbers = dict(numbers_of(before))
    for name, value in numbers_of(method):
        if name.rpartition(".")[2] not in method.changeable and not np.array_equal(value, numbers.get(name, value)):
            raise ValueError(
                f"start: {name} of {method.name} was {float(numbers[name]):g} and is {float(value):g}, but its state "
                "is worth nothing with another one: begin with w0=result.model"
            )


def begun_from(start: Result, job: Job, fresh: State) -> State:
    """The state before round 0 with what server and clients had at the end of another run."""
    template, given = gathered(job, fresh), start.state
    wanted, there = ((state.server, state.clients) for state in (template, given))
    shapes = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)] for tree in (wanted, there)]
    if jax.tree.structure(wanted) != jax.tree.structure(there) or shapes[0] != shapes[1]:
        was = "another method" if start.algorithm is None else start.algorithm.name
        raise ValueError(
            f"start: the state of that run, of {was}, does not fit {job.spec.algorithm.name} on this problem with "
            "these clients; begin with w0=result.model, which takes over the model alone"
        )
    state = template.holding(given.server, given.clients)
    return state if job.spec.mesh is None else spread_state(state, job.spec.mesh)
