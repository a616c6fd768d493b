"""`cofed.forecast`: what a run will cost, measured in a few seconds with the very program that it will run."""

import dataclasses
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy.typing as npt
from jaxtyping import PyTree

from cofed._util import checks, machine, trees
from cofed._util.machine import size
from cofed._util.types import Given
from cofed.algorithms.base import AbstractAlgorithm, as_algorithm
from cofed.batches import AbstractBatches
from cofed.clocks import Clock
from cofed.engine.calibration import Calibration, calibrate, stages_by_program
from cofed.engine.grid import state_shapes
from cofed.engine.history import History, Log
from cofed.engine.job import Job, linear_algebra, prepare, program_of
from cofed.engine.spec import RunSpec, check_kinds, checked_metrics
from cofed.engine.spreading import spread
from cofed.federation import Federation
from cofed.gossip.topologies import Topology
from cofed.means import AbstractMean
from cofed.problem import Problem
from cofed.samplers import AbstractSampler, Drawing

BUILDING = 2  # while a federation is built, its data are in memory twice: as given, and as padded stacks


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What a run will cost: seconds, bytes of memory and bytes on the wire.

    Parameters
    ----------
    algorithm : str
        The method's name.
    rounds, evaluations, clients, participants : int
        The size of the run; `participants` is the number of clients per round.
    features : int or None
        The features of a sample; None where a sample is not a vector.
    compile_seconds : float
        What tracing and compiling took here; a later process loads the programs from disk.
    seconds_per_round : float
        The mean over the stages, without evaluations.
    seconds_per_evaluation : float
        What an evaluation adds to a round.
    data_bytes : int
        Of the federation's arrays, and of the held-out ones.
    clients_bytes : int
        What clients keep between rounds.
    working_bytes : int
        What a chunk of rounds takes beside the data: the states before and after, updates, records.
    kept_bytes : int
        What grows with the rounds: the models of `keep_models`, the history.
    process_bytes : int
        The process without data and rounds: Python, JAX, compiled programs.
    memory_bytes : int
        Of this machine; 0 where unknown.
    down_per_client, up_per_client : int
        Bytes to and from one client in one round; without a server, of one message to a neighbour.
    bytes_per_round : float
        Of all messages of a round.
    bytes_on_wire : int
        Of the whole run.
    before_bytes : int
        The most memory that the process had before the forecast: building the data may be the peak.
    """

    algorithm: str
    rounds: int
    evaluations: int
    clients: int
    features: int | None
    participants: int
    compile_seconds: float
    seconds_per_round: float
    seconds_per_evaluation: float
    data_bytes: int
    clients_bytes: int
    working_bytes: int
    kept_bytes: int
    process_bytes: int
    memory_bytes: int
    down_per_client: int
    up_per_client: int
    bytes_per_round: float
    bytes_on_wire: int
    before_bytes: int = 0

    @property
    def running_seconds(self) -> float:
        """Seconds of all rounds and evaluations, without compilation."""
        return self.rounds * self.seconds_per_round + self.evaluations * self.seconds_per_evaluation

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return self.compile_seconds + self.running_seconds

    @property
    def peak_bytes(self) -> int:
        """The most memory that the process will take."""
        running = self.process_bytes + self.data_bytes + self.working_bytes + self.kept_bytes
        return max(self.before_bytes, running)

    @property
    def everyone(self) -> bool:
        """Whether all clients take part in every round."""
        return self.participants == self.clients

    @property
    def per_client_bytes(self) -> float:
        """The memory that one more client takes."""
        working = self.working_bytes if self.everyone else 2 * self.clients_bytes
        return (BUILDING * self.data_bytes + working) / self.clients

    @property
    def clients_that_fit(self) -> int | None:
        """How many clients like these fit into this machine's memory, all else equal; None where that is unknown."""
        if not self.memory_bytes:
            return None
        fixed = self.process_bytes + self.kept_bytes
        fixed += 0 if self.everyone else max(0, self.working_bytes - 2 * self.clients_bytes)
        return max(0, math.floor((self.memory_bytes - fixed) / self.per_client_bytes))

    @property
    def features_that_fit(self) -> int | None:
        """How many features fit into this machine's memory, all else equal; None where that is unknown."""
        if not self.memory_bytes or self.features is None:
            return None
        each = (BUILDING * self.data_bytes + self.working_bytes + self.kept_bytes) / self.features
        return max(0, math.floor((self.memory_bytes - self.process_bytes) / each))

    def seconds_with(self, clients: Given[int]) -> float:
        """Seconds of the same run with another number of clients.

        Parameters
        ----------
        clients : int
            How many clients there would be. Evaluations pass over all of them, rounds only over the participants.

        Returns
        -------
        float
            Seconds, without compilation.

        Raises
        ------
        ValueError
            Where `clients` is not a positive integer.
        """
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
            features = self.features_that_fit
            others = "" if features is None else f", or at about {roughly(features)} features"
            took = f" ({duration(self.seconds_with(most))})" if most else ""
            lines.append(
                f"This machine ({size(self.memory_bytes)}) runs out of memory at about {roughly(most)} clients like "
                f"these{took}{others}."
            )
        return "\n".join(lines)


def forecast(
    problem: Given[Problem],
    federation: Given[Federation],
    algorithm: Given[AbstractAlgorithm],
    *,
    rounds: int,
    local_steps: Given[int | Sequence[int] | None] = None,
    local_epochs: int | None = None,
    batch_size: Given[int | AbstractBatches | None] = None,
    clients_per_round: Given[int | AbstractSampler | Drawing | None] = None,
    weights: Given[str | npt.ArrayLike] = "uniform",
    topology: Topology | None = None,
    link_failure: float = 0.0,
    clock: Clock | None = None,
    mean: AbstractMean | None = None,
    w0: PyTree = None,
    seed: int = 0,
    evaluate_every: int = 1,
    keep_models: bool = False,
    metrics: Mapping[str, Callable] | None = None,
    evaluation: Federation | None = None,
    per_client: bool = False,
    seconds: Given[float] = 2.0,
) -> Forecast:
    """Forecast what a run will cost: seconds, memory, bytes on the wire, and how much fits into this machine.

    Compiles the run's own program and times it on the run's own data.

    Parameters
    ----------
    problem : Problem
        The model, the loss and the regularizer.
    federation : Federation
        The clients' data, in memory.
    algorithm : AbstractAlgorithm
        The method.
    rounds, local_steps, local_epochs, batch_size, clients_per_round, weights, topology, link_failure, \
    clock, mean, w0, seed, evaluate_every, keep_models, metrics, evaluation, per_client
        As for `cofed.run`.
    seconds : float
        About how long to measure: at least one round and one evaluation, and less than this where the run is short.

    Returns
    -------
    Forecast
        The cost; `print` shows it in words.

    Raises
    ------
    TypeError, ValueError
        Where an argument is not as above, or does not fit the others.

    Examples
    --------
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
        local_steps=local_steps,  # pyright: ignore[reportArgumentType]  # a list is settled there
        local_epochs=local_epochs,
        batch_size=batch_size,
        clients_per_round=clients_per_round,  # pyright: ignore[reportArgumentType]  # a function is settled there
        weights=weights,
        topology=topology,
        link_failure=link_failure,
        clock=clock,
        mean=mean,
        w0=w0,
        seed=seed,
        evaluate_every=checks.integer("evaluate_every", evaluate_every),
        keep_models=keep_models,
        metrics=checked_metrics(metrics),
        evaluation=evaluation,
        per_client=per_client,
    )
    began = time.perf_counter()
    job = prepare(spread(spec, None))
    start = spec.start()
    preparing = time.perf_counter() - began
    log = Log(History([], [], [], federation.names), [])
    programs = stages_by_program(job)
    with linear_algebra(spec):
        measured = {
            program: calibrate(job, number, start, log, budget / len(programs)) for program, number in programs.items()
        }
    return dataclasses.replace(combined(job, start, measured, preparing), before_bytes=before)


def check_budget(seconds: object) -> float:
    """Check the seconds to measure in."""
    most = 86_400  # a day: nobody waits longer for a forecast
    given = checks.real("seconds", seconds, "a number > 0", checks.is_real(seconds) and checks.as_float(seconds) > 0)
    return checks.real("seconds", given, f"a number > 0 and at most {most}", given <= most)


def combined(job: Job, start: PyTree, measured: Mapping[Hashable, Calibration], preparing: float) -> Forecast:
    """The forecast of a whole run, from what was measured of its programs."""
    spec, task = job.spec, job.stages[0].task
    data = trees.nbytes((task.data, task.held_out))
    plan, total, on_wire, done = task.plan, 0.0, 0.0, 0
    for stage in job.stages:
        mine = measured[program_of(stage.task)]
        total += (stage.end - done) * mine.seconds_per_round
        on_wire += (stage.end - done) * mine.messages * (stage.down + stage.up) + mine.first_bytes
        done = stage.end
    last = job.stages[-1]
    if last.task.algorithm.ends_locally:  # the last model goes to everybody
        on_wire += last.down * plan.clients
    evaluations = spec.rounds // spec.evaluate_every + (spec.rounds % spec.evaluate_every > 0)
    calibrations = list(measured.values())
    widest = max(calibrations, key=lambda c: c.argument_bytes + c.output_bytes + c.temporary_bytes)
    row = 100 * widest.columns  # bytes of a Python float and its key
    row += spec.client_entries * task.data.X.dtype.itemsize
    kept = evaluations * row + spec.keep_models * spec.rounds * trees.nbytes(start)
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
        clients_bytes=trees.nbytes(state_shapes(job, start).clients),
        working_bytes=states + widest.output_bytes + widest.temporary_bytes,
        kept_bytes=int(kept),
        process_bytes=max(0, max(c.resident_bytes for c in calibrations) - data - states),
        memory_bytes=machine.memory(),
        down_per_client=last.down,
        up_per_client=last.up,
        bytes_per_round=on_wire / spec.rounds,
        bytes_on_wire=round(on_wire),
    )


def roughly(count: int) -> str:
    """An estimated count, to three digits.

    >>> from cofed.engine.forecast import roughly
    >>> roughly(1_473_567), roughly(12)
    ('1,470,000', '12')
    """
    return f"{float(f'{count:.3g}'):,.0f}"


def duration(seconds: float | int) -> str:
    """A time span in words.

    >>> from cofed.engine.forecast import duration
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
