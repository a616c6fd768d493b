"""`cofed.forecast`: what a run will cost, before it runs, from a few seconds with the very same compiled program."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from cofed._util import checks, machine
from cofed._util.machine import size
from cofed._util.programs import keep_programs
from cofed.algorithms.base import as_algorithm
from cofed.engine.chunk_loop import Clock, run_chunk
from cofed.engine.history import History, Log
from cofed.engine.job import Job, ReadyStage, prepare
from cofed.engine.run import begin, begin_stage, clock, count_first, failed, next_pace, record
from cofed.engine.server_rounds import copies
from cofed.engine.spec import RunSpec, check_kinds, checked_metrics
from cofed.engine.tune import MEMORY, advance_some, alike, begin_together, number_of, slices
from cofed.federation import Federation
from cofed.gossip.topologies import Topology
from cofed.problem import Problem

NEVER = 2**30  # rounds between evaluations, where there shall be none
ENOUGH = 0.5  # seconds of rounds that tell the time of a run of a few seconds well enough
BUILDING = 2  # while a federation is built, its data is there twice: as it was given, and as padded stacks


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What a run will cost: seconds, bytes of memory and bytes on the wire.

    `seconds_per_round` is the mean over the stages, evaluations apart. `compile_seconds` is what tracing and compiling
    took here; a later process takes the programs from disk. `process_bytes` is the process without data and rounds:
    Python, JAX, compiled programs. `clients_that_fit` and `features_that_fit` say where this machine ends: the largest
    federation of the same kind whose run fits its `memory_bytes`, all else equal, by straight lines.
    """

    algorithm: str
    rounds: int
    evaluations: int
    clients: int
    features: int | None  # None where a sample is no vector
    participants: int
    compile_seconds: float
    seconds_per_round: float
    seconds_per_evaluation: float
    data_bytes: int  # of the federation's arrays, and of the held-out ones
    clients_bytes: int  # what clients keep between rounds
    working_bytes: int  # what a chunk of rounds takes beside the data: the states before and after, updates, records
    kept_bytes: int  # what grows with the rounds: the models of keep_models, the history
    process_bytes: int
    memory_bytes: int  # of this machine; 0 where unknown
    down_per_client: int  # bytes to one client in one round
    up_per_client: int  # bytes from one client in one round; by gossip, of one message to a neighbour
    bytes_per_round: float
    bytes_on_wire: int  # in all
    before_bytes: int = 0  # the most that the process had before: building the data may be the peak

    @property
    def running_seconds(self) -> float:
        """All rounds and evaluations, without compilation."""
        return self.rounds * self.seconds_per_round + self.evaluations * self.seconds_per_evaluation

    @property
    def seconds(self) -> float:
        """The whole run."""
        return self.compile_seconds + self.running_seconds

    @property
    def peak_bytes(self) -> int:
        """The most memory that the process will have."""
        running = self.process_bytes + self.data_bytes + self.working_bytes + self.kept_bytes
        return max(self.before_bytes, running)

    @property
    def everyone(self) -> bool:
        """Whether all clients take part in every round."""
        return self.participants == self.clients

    @property
    def per_client_bytes(self) -> float:
        """What one more client takes."""
        working = self.working_bytes if self.everyone else 2 * self.clients_bytes
        return (BUILDING * self.data_bytes + working) / self.clients

    @property
    def clients_that_fit(self) -> int | None:
        """How many clients like these fit into this machine's memory."""
        if not self.memory_bytes:
            return None
        fixed = self.process_bytes + self.kept_bytes
        fixed += 0 if self.everyone else max(0, self.working_bytes - 2 * self.clients_bytes)
        return max(0, math.floor((self.memory_bytes - fixed) / self.per_client_bytes))

    @property
    def features_that_fit(self) -> int | None:
        """How many features fit into this machine's memory, with as many clients and samples."""
        if not self.memory_bytes or self.features is None:
            return None
        each = (BUILDING * self.data_bytes + self.working_bytes + self.kept_bytes) / self.features
        return max(0, math.floor((self.memory_bytes - self.process_bytes) / each))

    def seconds_with(self, clients: int) -> float:
        """The run's seconds, compilation apart, with so many clients: evaluations pass over all of them."""
        larger = checks.integer("clients", clients, most=10**12) / self.clients
        rounds = self.rounds * self.seconds_per_round * (larger if self.everyone else 1.0)
        return rounds + self.evaluations * self.seconds_per_evaluation * larger

    def __str__(self) -> str:
        whole = f"{self.algorithm}: {self.rounds:,} rounds take about {duration(self.seconds)}"
        lines = [
            f"{whole}: {duration(self.compile_seconds)} to compile, {duration(self.seconds_per_round)} a round, "
            f"{duration(self.seconds_per_evaluation)} an evaluation ({self.evaluations:,} of them).",
            f"Memory: {size(self.peak_bytes)} at most, of which data {size(self.data_bytes)}, rounds "
            f"{size(self.working_bytes + self.kept_bytes)}, the process itself {size(self.process_bytes)}.",
            f"On the wire: {size(self.down_per_client)} down and {size(self.up_per_client)} up per client and round, "
            f"{size(self.bytes_on_wire)} in all.",
        ]
        most = self.clients_that_fit
        if most is not None:
            others = "" if self.features_that_fit is None else f", or {self.features_that_fit:,} features"
            lines.append(
                f"This machine ({size(self.memory_bytes)}) ends at about {most:,} clients like these "
                f"({duration(self.seconds_with(most))}){others}."
            )
        return "\n".join(lines)


def forecast(
    problem: Problem,
    federation: Any,
    algorithm: Any,
    *,
    rounds: int,
    local_steps: int | None = None,
    local_epochs: int | None = None,
    batch_size: int | None = None,
    clients_per_round: int | None = None,
    weights: Any = "uniform",
    topology: Topology | None = None,
    link_failure: float = 0.0,
    w0: Any = None,
    seed: int = 0,
    evaluate_every: int = 1,
    keep_models: bool = False,
    metrics: Mapping[str, Callable] | None = None,
    evaluation: Federation | None = None,
    per_client: bool = False,
    seconds: float | int = 2.0,
) -> Forecast:
    """Say what a run will cost before it runs: seconds, memory, bytes on the wire, and where this machine ends.

    Compiles the run's own program and times it on the run's own data, for about `seconds` (one round and one
    evaluation at least), or less where the run itself is short. The other arguments are those of `cofed.run`.

    >>> import numpy as np, cofed
    >>> clients = [(np.eye(3, dtype=np.float32), np.ones(3, np.float32))] * 4
    >>> federation = cofed.Federation.from_arrays(clients)
    >>> ahead = cofed.forecast(cofed.Problem(), federation, cofed.FedAvg(0.1), rounds=1000, seconds=0.1)
    >>> ahead.bytes_on_wire, ahead.peak_bytes > ahead.data_bytes, ahead.seconds > 1000 * ahead.seconds_per_round
    (128000, True, True)
    """
    check_kinds(problem, federation)
    algorithm = as_algorithm(algorithm)
    if algorithm.candidates(problem) is not None:
        raise ValueError(f"{algorithm.name} trains several methods: forecast its candidates one by one")
    budget, before = check_budget(seconds), machine.peak()
    spec = RunSpec(
        problem,
        federation,
        algorithm,
        rounds=rounds,
        local_steps=local_steps,
        local_epochs=local_epochs,
        batch_size=batch_size,
        clients_per_round=clients_per_round,
        weights=weights,
        topology=topology,
        link_failure=link_failure,
        w0=w0,
        seed=seed,
        evaluate_every=checks.integer("evaluate_every", evaluate_every),
        keep_models=keep_models,
        metrics=checked_metrics(metrics),
        evaluation=evaluation,
        per_client=per_client,
    )
    began = time.perf_counter()
    job = prepare(spec)
    start = spec.start()
    log = Log(History([], [], [], federation.names), [])
    begin(job, begin_stage(job, 0, start), log)
    preparing = time.perf_counter() - began
    kinds = {shape_of(stage): number for number, stage in reversed([*enumerate(job.stages)])}
    found = {kind: calibrate(job, number, start, log, budget / len(kinds)) for kind, number in kinds.items()}
    return dataclasses.replace(gathered(job, start, found, preparing), before_bytes=before)


def forecast_tuning(
    problem: Problem,
    federation: Federation,
    grid: Iterable[Any],
    *,
    rounds: int,
    evaluate_every: int,
    memory: int = MEMORY,
    seconds: float | int = 2.0,
    **given: Any,
) -> Forecast:
    """What `cofed.tune` will cost on a grid; the arguments are `tune`'s. Nothing goes over a wire: it is counted as
    `run` would count it, for all configurations together."""
    keep_programs()
    budget, algorithms = check_budget(seconds), list(grid)
    known = {field.name for field in dataclasses.fields(RunSpec)} - {"algorithm", "mesh", "keep_models", "per_client"}
    if set(given) - known:
        raise TypeError(f"forecast_tuning does not know {sorted(set(given) - known)}")
    spec = RunSpec(problem, federation, algorithms[0], rounds=rounds, evaluate_every=evaluate_every, **given)
    start = spec.start()
    groups = alike(algorithms, spec)
    parts = []
    for group in groups:
        job = prepare(dataclasses.replace(spec, algorithm=algorithms[group.members[0]]))
        cut = slices(len(group.members), job, start, memory)
        members = [group.stages[i] for i in cut[0]]
        kinds = {shape_of(stage): number for number, stage in reversed([*enumerate(job.stages)])}
        share = budget / len(kinds) / len(groups)
        found = {kind: calibrate_together(job, number, members, start, share) for kind, number in kinds.items()}
        one_slice = gathered(job, start, found, 0.0)
        times = len(group.members) / len(members)
        parts.append(
            dataclasses.replace(
                one_slice,
                seconds_per_round=one_slice.seconds_per_round * times,
                seconds_per_evaluation=one_slice.seconds_per_evaluation * times,
                bytes_per_round=one_slice.bytes_per_round * len(group.members),
                bytes_on_wire=one_slice.bytes_on_wire * len(group.members),
            )
        )
    largest = max(parts, key=lambda part: part.peak_bytes)
    sums = ("compile_seconds", "seconds_per_round", "seconds_per_evaluation", "bytes_per_round", "bytes_on_wire")
    return dataclasses.replace(largest, **{name: sum(getattr(part, name) for part in parts) for name in sums})


class Calibration(NamedTuple):
    """What was measured of a stage's program."""

    compile_seconds: float
    seconds_per_round: float
    seconds_per_evaluation: float
    messages: float  # of one round: clients, or by gossip links each way, that were served
    first: int  # bytes of the exchange before the stage's first round
    argument_bytes: int  # data and states
    output_bytes: int  # states and records
    temporary_bytes: int
    resident_bytes: int  # of the process, with the program compiled and nothing run yet
    rows: int  # numbers in a row of the history


def check_budget(seconds: Any) -> float:
    """Seconds to calibrate in."""
    most = 86_400  # a day: nobody waits longer for a forecast
    given = checks.real("seconds", seconds, "a number > 0", checks.is_real(seconds) and checks.as_float(seconds) > 0)
    return checks.real("seconds", given, f"a number > 0 and at most {most}", given <= most)


def with_programs() -> int:
    """Bytes of a process that has these programs: where they are kept on disk, without what compiling them took."""
    kept: Any = jax.config
    return machine.resident() if kept.jax_compilation_cache_dir is None else machine.settled()


def shape_of(stage: ReadyStage) -> tuple[Any, ...]:
    """Stages that agree in this are one program."""
    return stage.task.plan, jax.tree.structure(stage.task.algorithm)


def calibrate(job: Job, number: int, start: PyTree, log: Log, budget: float) -> Calibration:
    """Compile a stage's program and time it, without evaluations and with one in every round."""
    stage, state = job.stages[number], begin_stage(job, number, start)
    began = time.perf_counter()
    looped: Any = run_chunk
    program = looped.lower(stage.task, state, clock(job, 0, log)).compile()
    compiled, resident, served = time.perf_counter() - began, with_programs(), []

    def going(every: int) -> Callable[[int], float]:
        timed = dataclasses.replace(job, spec=dataclasses.replace(job.spec, rounds=NEVER, evaluate_every=every))
        now = state

        def go(count: int) -> float:
            nonlocal now
            began, first = time.perf_counter(), int(now.round)
            new, records = jax.block_until_ready(program(stage.task, now, clock(timed, first + count, log)))
            records = jax.device_get(records)
            record(timed, stage, log, first, new, records, number, time.perf_counter() - began)
            took = time.perf_counter() - began
            served.append(float(np.mean(records.roll.messages[:count])))
            log.models.clear()
            del log.history.rows[1:], log.history.client_losses[1:]
            now = state if failed(new) else new  # one that diverges begins again
            return took

        return go

    alone, both = paced([going(every) for every in (NEVER, 1)], budget, job.watch.capacity, job.spec.rounds)
    before = log.up
    count_first(job, stage, state, log)
    first, log.up = log.up - before, before
    used = program.compiled.memory_analysis()
    return Calibration(
        compiled,
        alone,
        max(0.0, both - alone),
        float(np.mean(served)),
        first,
        used.argument_size_in_bytes,
        used.output_size_in_bytes,
        used.temp_size_in_bytes,
        resident,
        len(log.history.rows[0]),
    )


def calibrate_together(job: Job, number: int, members: list[list[Any]], start: PyTree, budget: float) -> Calibration:
    """The same for configurations that share a program."""
    stage = job.stages[number]
    algorithms = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(stages[number] for stages in members))
    starts = copies(job.exchange.starts(start, stage.task.plan), len(members))
    began = time.perf_counter()
    state = begin_together(algorithms, stage.task, starts, jax.random.key(job.spec.seed), 0)
    never = Clock(*(number_of(n) for n in (0, NEVER, NEVER)), finite=jnp.asarray(True))
    places = jnp.arange(len(members), dtype=jnp.int32)
    looped: Any = advance_some
    program = looped.lower(algorithms, stage.task, state, state, places, never).compile()
    compiled, resident = time.perf_counter() - began, with_programs()

    def going(every: int) -> Callable[[int], float]:
        now = state

        def go(count: int) -> float:
            nonlocal now
            began = time.perf_counter()
            when = Clock(*(number_of(n) for n in (int(now.round) + count, NEVER, every)), finite=jnp.asarray(True))
            now, rows = jax.block_until_ready(program(algorithms, stage.task, now, now, places, when))
            jax.device_get(rows)
            return time.perf_counter() - began

        return go

    alone, both = paced([going(every) for every in (NEVER, 1)], budget, job.watch.capacity, job.spec.rounds)
    used = program.compiled.memory_analysis()
    return Calibration(
        compiled,
        alone,
        max(0.0, both - alone),
        stage.task.plan.participants,
        0,
        used.argument_size_in_bytes,
        used.output_size_in_bytes,
        used.temp_size_in_bytes,
        resident,
        0,
    )


def paced(ways: list[Callable[[int], float]], budget: float, capacity: int, rounds: int | None = None) -> list[float]:
    """Seconds per round of each way to go, in chunks that grow as those of a run do. They take turns: a machine that
    is busier for a while is so for all. The first rounds only warm up, unless they take so long that they have to do.

    The budget is not used up where the run itself, of so many rounds, will hardly be longer.
    """
    seconds = [go(1) for go in ways]
    if sum(seconds) > budget:
        return seconds
    paces, spent, done = [1] * len(ways), [0.0] * len(ways), [0] * len(ways)
    while sum(spent) < budget:
        run = math.inf if rounds is None else rounds * max(seconds[i] / paces[i] for i in range(len(ways)))
        if sum(spent) > max(ENOUGH, run / 5):
            break
        for i, go in enumerate(ways):
            paces[i] = next_pace(paces[i], seconds[i], capacity)
            seconds[i] = go(paces[i])
            spent[i], done[i] = spent[i] + seconds[i], done[i] + paces[i]
    return [took / rounds for took, rounds in zip(spent, done, strict=True)]


def gathered(job: Job, start: PyTree, found: dict[Any, Calibration], preparing: float) -> Forecast:
    """The stages together."""
    spec, task = job.spec, job.stages[0].task
    nbytes = lambda tree: sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))  # noqa: E731
    data = nbytes((task.data, task.held_out))
    clients = nbytes(jax.eval_shape(lambda: begin_shapes(job, start)).clients)
    plan, total, on_wire, done = task.plan, 0.0, 0.0, 0
    for stage in job.stages:
        mine = found[shape_of(stage)]
        total += (stage.end - done) * mine.seconds_per_round
        on_wire += (stage.end - done) * mine.messages * (stage.down + stage.up) + mine.first
        done = stage.end
    last = job.stages[-1]
    if last.task.algorithm.ends_locally:  # the last model goes to everybody
        on_wire += last.down * plan.clients
    evaluations = spec.rounds // spec.evaluate_every + (spec.rounds % spec.evaluate_every > 0)
    calibrations = [*found.values()]
    widest = max(calibrations, key=lambda c: c.argument_bytes + c.output_bytes + c.temporary_bytes)
    row = (
        100 * widest.rows + spec.per_client * plan.clients * task.data.X.dtype.itemsize
    )  # a float and its key, in Python
    kept = evaluations * row + spec.keep_models * spec.rounds * nbytes(start)
    states = max(0, widest.argument_bytes - data)
    return Forecast(
        algorithm=spec.algorithm.name,
        rounds=spec.rounds,
        evaluations=evaluations,
        clients=plan.clients,
        features=task.data.n_features,
        participants=plan.participants,
        compile_seconds=preparing + sum(c.compile_seconds for c in calibrations),
        seconds_per_round=total / spec.rounds,
        seconds_per_evaluation=sum(c.seconds_per_evaluation for c in calibrations) / len(calibrations),
        data_bytes=data,
        clients_bytes=clients,
        working_bytes=states + widest.output_bytes + widest.temporary_bytes,
        kept_bytes=int(kept),
        process_bytes=max(0, max(c.resident_bytes for c in calibrations) - data - states),
        memory_bytes=machine.memory(),
        down_per_client=last.down,
        up_per_client=last.up,
        bytes_per_round=on_wire / spec.rounds,
        bytes_on_wire=round(on_wire),
    )


def begin_shapes(job: Job, start: PyTree) -> Any:
    """The state of the first stage, for its shapes."""
    task = job.stages[0].task
    return task.begin(job.exchange.starts(start, task.plan), jax.random.key(0), 0)


def duration(seconds: float | int) -> str:
    """A time, for people.

    >>> [duration(s) for s in (0.00004, 0.0123, 3.21, 75, 7500, 400000)]
    ['0.04 ms', '12.3 ms', '3.2 s', '1 min 15 s', '2 h 5 min', '4.6 days']
    """
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 48 * 60 else f"{minutes / 60 / 24:,.1f} days"
