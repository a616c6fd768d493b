"""The end of a run: how it went, and the result that it gives."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
import pandas as pd
from jaxtyping import PyTree

from cofed._util.caller import warn_caller
from cofed.engine.chunk_loop import conclude, model_and_average, personal
from cofed.engine.debug import OneByOne
from cofed.engine.history import NOT_FINITE, History, LeftOut, Log, Outcome, Result
from cofed.engine.job import Job, ReadyStage
from cofed.engine.mesh import whole
from cofed.engine.spec import RunSpec
from cofed.engine.state import EMPTY_ROUNDS, State
from cofed.engine.task import AbstractTask, PersonalModels
from cofed.federation import Federation

# A run whose objective ends so many times above where it began has diverged, also where all numbers are still finite.
# Too large steps multiply the distance from the optimum in every round, so such a run passes any factor within a few
# rounds; one that only settles at the noise of its steps, or rises a little before it falls, stays far below this one.
FAR = 1000.0
SHOWN = 5  # names in a sentence
BOTTOMLESS = 1e12  # an objective so many times below zero has no minimum that float64 could tell from it


def gathered(job: Job, state: State) -> State:
    """The state in one place: what is saved, and what the results are read from."""
    return state if job.stages[0].task.data.mesh is None else whole(state, len(job.spec.federation.names))


def blown_up(values: Sequence[float] | np.ndarray, usual: float = 0.0) -> bool:
    """Whether an objective has ended far above its start, as that of a method with too large steps does.

    Parameters
    ----------
    values
        The objective from the start to the end.
    usual
        The objective of the problem's own start. A run may begin at a model that is almost the optimum, and the noise
        of its steps is then many times the objective there.

    Returns
    -------
    bool
        Whether it rose by more than `FAR` times the largest of: its size at the start, its size at the problem's own
        start, and what it fell below the start in between. Or whether it fell below zero by `BOTTOMLESS` times these
        sizes, as that of a problem without a minimum does.

    Examples
    --------
    >>> from cofed.engine.ending import blown_up
    >>> blown_up([0.25, 0.3, 1.9e14]), blown_up([0.25, 0.9, 0.1]), blown_up([1e-12, 1e-3]), blown_up([1e-12, 1e-3], 5.0)
    (True, False, True, False)
    """
    start, end = float(values[0]), float(values[-1])
    if -end > BOTTOMLESS * max(abs(start), abs(usual)) > 0:
        return True
    size = max(abs(start), start - float(np.nanmin(np.asarray(values, float))), abs(usual))
    return end - start > FAR * size


def judged_by(first: Mapping[str, float | int], last: Mapping[str, float | int]) -> str:
    """The column that tells how a run went: the objective (the clients' own, of personal methods) or, where that is
    infinite outside a constraint, the loss."""
    kind = "personal_" if "personal_objective" in first else ""
    finite = math.isfinite(first[f"{kind}objective"]) and math.isfinite(last[f"{kind}objective"])
    return f"{kind}objective" if finite else f"{kind}loss"


def usual_start(job: Job, column: str) -> float:
    """A column at the problem's own start."""
    task, key = job.stages[0].task, jax.random.key(job.spec.seed)
    starts = task.spread_start(job.spec.default_start())
    state = job.storage.enter(task, starts, key, jax.numpy.zeros((), "int32"))
    return float(np.asarray(job.storage.look(task, state)[column]))


def judge(job: Job, state: State, log: Log) -> Outcome:
    """How the run ended, with a warning where it diverged, or cannot end at the optimum."""
    if failed(state):
        warn_caller(f"{job.spec.algorithm.name} diverged in round {int(state.failed_at)}, {why(state)}.")
        return Outcome.DIVERGED
    warn_of_missed_rounds(job, state, log)
    if int(state.round) < job.spec.rounds:
        return Outcome.INTERRUPTED
    words = blow_up(job.spec, log.history, lambda column: usual_start(job, column))
    if words is None:
        return Outcome.COMPLETED
    warn_caller(f"{words}.")
    return Outcome.DIVERGED


def warn_of_missed_rounds(job: Job, state: State, log: Log) -> None:
    """Say so where updates were missing from some rounds, and the method cannot make up for that."""
    method, plan, rounds = job.spec.algorithm, job.stages[0].here.plan, rounds_done(state)
    if method.missed_round is None or not plan.everyone:
        return
    missed = Counter(event.client for event in log.history.left_out if event.round < rounds)
    some = [client for client, times in missed.items() if times < rounds]  # who was never there changes nothing
    if some:
        warn_caller(
            f"{method.name}: {', '.join(some[:SHOWN])} sent no finite update in some rounds "
            f"(result.history.left_out), after which {method.missed_round}: the model may be far from the optimum. "
            "Mend what was not finite, and begin anew from the model (w0=result.model)"
        )


def blow_up(spec: RunSpec, history: History, at_default_start: Callable[[str], float]) -> str | None:
    """Say why a completed run, whose numbers are all finite, has diverged nevertheless; None where it has not.

    `at_default_start` gives a column of the history at the start that the problem has of its own.
    """
    ill = {event.client for event in history.left_out if event.why == NOT_FINITE}
    if 0 < len(ill) <= spec.federation.n_clients / 2:  # their data are the cause, not the steps; the history names them
        return None
    rows = history.rows
    column = judged_by(rows[0], rows[-1])
    values = [row[column] for row in rows]
    if not math.isfinite(values[0]) or not blown_up(values) or not blown_up(values, at_default_start(column)):
        return None
    way = "rose" if values[-1] > values[0] else "fell"
    return (
        f"{spec.algorithm.name} diverged: its {column.replace('_', ' ')} {way} from {values[0]:.3g} to "
        f"{values[-1]:.3g} in {spec.rounds} rounds. Smaller steps (client_lr, server_lr) usually help"
    )


def why(state: State) -> str:
    """What made a run fail."""
    if int(state.empty) >= EMPTY_ROUNDS:
        reason = (
            f"no client has sent a finite update in {EMPTY_ROUNDS} rounds; result.history.left_out names them, and "
            "debug=True the step where it begins"
        )
    else:
        reason = "the next model, or its loss, would not be finite. Smaller steps (client_lr, server_lr) usually help"
    return f"the result holds the last good model: {reason}"


def failed(state: State) -> bool:
    """Whether the run has diverged."""
    return int(state.failed_at) >= 0


def rounds_done(state: State) -> int:
    """The rounds that brought the model to where it is."""
    return int(state.failed_at) if failed(state) else int(state.round)


def finish(job: Job, stage: ReadyStage, state: State, log: Log, outcome: Outcome, debug: bool) -> Result:
    """The result."""
    ready = lambda w: job.spec.problem.ready(to_numpy(w))  # noqa: E731
    last = end_of_clients(job, stage, state, log, debug)
    state, here, spec = gathered(job, state), stage.here, job.spec
    model, average = model_and_average(here, state)
    in_memory = isinstance(spec.federation, Federation)
    return Result(
        model=ready(model),
        history=log.history,
        outcome=outcome,
        communication=here.communication((stage.down, stage.up), (log.down, log.up)),
        models=[job.spec.problem.ready(w) for w in log.models] if job.spec.keep_models else None,
        average=None if average is None else ready(average),
        personal_models=None if last is None else to_numpy(last.models),
        clients=None if last is None else client_table(job, stage.task, last),
        state=state,
        algorithm=spec.algorithm,
        weights=np.asarray(spec.federation.weights(spec.weights)) if in_memory else None,
        local_steps=here.plan.steps if here.plan.equal else None,
    )


def end_of_clients(job: Job, stage: ReadyStage, state: State, log: Log, debug: bool) -> PersonalModels | None:
    """The clients' own models, after the last piece of work where the method has such: counted, failures named."""
    task = stage.task
    if not task.is_personal:
        return None
    if task.ends_locally and not failed(state):
        if debug:
            with jax.disable_jit():
                state, heard = task.conclude(state, OneByOne(job.spec.federation.names, int(state.round)))
        else:
            state, heard = conclude(task, state)
        log.down += stage.down * len(job.spec.federation.names)  # the last model goes to everybody
        left = np.flatnonzero(~np.asarray(heard)).tolist()
        log.history.left_out += [LeftOut(int(state.round), job.spec.federation.names[m]) for m in left]
    return personal(task, state)


def client_table(job: Job, task: AbstractTask, last: PersonalModels) -> pd.DataFrame:
    """A row per client: how many samples it has, and how its own model does on them."""
    table = pd.DataFrame({"samples": np.asarray(last.sizes)}, index=pd.Index(job.spec.federation.names, name="client"))
    for name, values in last.scores.items():
        table[name] = np.asarray(values)
    if last.tests and task.held_out is not None:
        names = [job.spec.federation.names[m] for m in np.asarray(task.held_out.owners)]
        tests = {"samples": np.asarray(task.held_out.sizes), **{n: np.asarray(v) for n, v in last.tests.items()}}
        for name, values in tests.items():
            table[f"test_{name}"] = pd.Series(values, index=names)
    return table


def to_numpy(w: PyTree) -> PyTree:
    """The model's arrays as NumPy arrays."""
    return jax.tree.map(np.asarray, w)
