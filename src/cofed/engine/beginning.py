"""A run that begins from the whole state of another: of its server and its clients."""

from collections.abc import Sequence

import jax
import numpy as np

from cofed._util import checks
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.ending import gathered
from cofed.engine.history import Result
from cofed.engine.job import Job
from cofed.engine.mesh import spread_state
from cofed.engine.ranking import numbers_of
from cofed.engine.spec import RunSpec
from cofed.engine.state import State
from cofed.federation import Federation

SHOWN = 5  # names and numbers in a sentence


def check_start(spec: RunSpec, start: object, asked: AbstractAlgorithm) -> None:
    """Refuse what is no run to begin from, and what does not go with one; `asked` is the method as it was given."""
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
    if before is not None and type(before) is type(method):  # the states of others are compared later
        check_kept_numbers(method, asked, before)


def check_kept_numbers(method: AbstractAlgorithm, asked: AbstractAlgorithm, before: AbstractAlgorithm) -> None:
    """Refuse numbers that the state depends on where they were others, or are to be settled anew."""
    were, given = dict(numbers_of(before)), dict(numbers_of(asked))
    for name, value in numbers_of(method):
        if name.rpartition(".")[2] in method.changeable:
            continue
        if name not in given and name in were:
            raise ValueError(
                f"start: {name} of {method.name} was {float(were[name]):g}, on which its state depends: give that "
                "number, not 'auto', or begin with w0=result.model"
            )
        if not np.array_equal(value, were.get(name, value)):
            raise ValueError(
                f"start: {name} of {method.name} was {float(were[name]):g} and is {float(value):g}, but its state "
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
    check_same_clients(start, job)
    state = template.holding(given.server, given.clients)
    return state if job.spec.mesh is None else spread_state(state, job.spec.mesh)


def check_same_clients(start: Result, job: Job) -> None:
    """Refuse other clients, weights or local steps than those that what clients keep is of."""
    spec, plan = job.spec, job.stages[0].here.plan
    if not jax.tree.leaves(start.state.clients):
        return
    advice = "begin with w0=result.model, which takes over the model alone"
    if list(start.history.names) != list(spec.federation.names):
        raise ValueError(
            f"start: the clients of that run were {shown(start.history.names)} and are {shown(spec.federation.names)}, "
            f"and each keeps something of its own: give them in that order, or {advice}"
        )
    weights = np.asarray(spec.federation.weights(spec.weights))
    if start.weights is not None and not np.allclose(start.weights, weights, rtol=1e-5):
        raise ValueError(
            f"start: the clients counted {shown(start.weights)} and now count {shown(weights)}, but what server and "
            f"clients keep was added up by those weights: {advice}"
        )
    if spec.algorithm.counts_steps and start.local_steps not in (None, plan.steps):
        raise ValueError(
            f"start: clients took {start.local_steps} local steps and are to take {plan.steps}, but what "
            f"{spec.algorithm.name} keeps is of {start.local_steps}: {advice}"
        )


def shown(values: Sequence[str] | np.ndarray) -> str:
    """The first few of some names or numbers."""
    listed = [str(value) if isinstance(value, str) else f"{value:.3g}" for value in values[:SHOWN]]
    return ", ".join(listed) + (", ..." if len(values) > SHOWN else "")
