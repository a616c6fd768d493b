"""What an experiment will cost, before it runs: `cofed plan`, and `cofed reproduce --plan`."""

import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich import box
from rich.table import Table

from cofed._util import machine
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine import rates
from cofed.engine.forecast import BUILDING, Forecast, duration, forecast, size
from cofed.engine.forecast_tuning import forecast_tuning
from cofed.engine.spec import RunSpec
from cofed.experiments import measure
from cofed.experiments.experiment_file import opened
from cofed.experiments.measure import Tick
from cofed.experiments.specification import Comparison, Experiment, Method, Numbers, Setup

FROM_DISK = 0.02  # seconds to take a compiled program from disk


@dataclasses.dataclass(frozen=True)
class Line:
    """One algorithm of the file: a run of it and, where it has a grid, its tuning."""

    label: str
    configurations: int
    run: Forecast
    tuning: Forecast | None
    first_compile_seconds: float  # here; `run` and `tuning` have what the next process pays
    programs_bytes: int  # that its compiled programs add to the process, which keeps them

    def seconds(self, seeds: int) -> float:
        """Tuning, then a run for each seed; seeds share a program."""
        tuning = 0.0 if self.tuning is None else self.tuning.seconds
        return tuning + self.run.compile_seconds + seeds * self.run.running_seconds

    @property
    def parts(self) -> list[Forecast]:
        """The run, and the tuning where there is one."""
        return [part for part in (self.run, self.tuning) if part is not None]

    @property
    def peak_bytes(self) -> int:
        """The most memory of any part, alone in its process."""
        return max(part.peak_bytes for part in self.parts)


@dataclasses.dataclass(frozen=True)
class Outlook:
    """What a whole file will cost."""

    title: str
    federation: str
    seeds: int
    data_seconds: float  # to make or read the data once
    settled_bytes: int  # of the process with the data, before anything is compiled
    lines: list[Line]

    @property
    def setups(self) -> int:
        """How often the data is made: it is kept while the seed stays the same."""
        return 1 if self.seeds == 1 else len(self.lines) * self.seeds

    @property
    def seconds(self) -> float:
        """Everything but the figure."""
        return self.setups * self.data_seconds + sum(line.seconds(self.seeds) for line in self.lines)

    @property
    def peak_bytes(self) -> int:
        """The most memory that the process will have.

        Programs stay in memory, and the data of the next seed is built beside those of the last. Making the data may be
        the peak too.
        """
        parts = [part for line in self.lines for part in line.parts]
        programs = sum(line.programs_bytes for line in self.lines)
        next_seed = BUILDING * parts[0].data_bytes if self.seeds > 1 else 0
        rounds = max(part.working_bytes + part.kept_bytes for part in parts)
        return max(self.settled_bytes + programs + next_seed + rounds, *(line.peak_bytes for line in self.lines))

    @property
    def bytes_on_wire(self) -> int:
        """Of all runs; tuning is not counted."""
        return self.seeds * sum(line.run.bytes_on_wire for line in self.lines)

    @property
    def tightest(self) -> Forecast:
        """The run that is the first to be too large for this machine as the data grows."""
        return min((line.run for line in self.lines), key=lambda run: run.clients_that_fit or 0)


def look_ahead(path: Path, seeds: int | None, seconds: float, tick: Tick = lambda *_: None) -> Outlook:
    """Forecast every algorithm of an experiment file.

    Parameters
    ----------
    path
        The experiment file.
    seeds
        Repetitions; None is the file's number.
    seconds
        To time each program in.
    tick
        Hears of the progress.
    """
    file, experiment = opened(path)
    return outlook(experiment, experiment.numbers("user"), seeds or file.seeds, seconds, tick)


def outlooks(
    experiment: Experiment, size: str, seeds: int, seconds: float, tick: Tick = lambda *_: None
) -> list[Outlook]:
    """Forecast an experiment of a paper, which must be a comparison: one outlook for each of its panels."""
    return [outlook(experiment, experiment.numbers(size, panel), seeds, seconds, tick) for panel in experiment.panels]


def outlook(experiment: Experiment, numbers: Numbers, seeds: int, seconds: float, tick: Tick) -> Outlook:
    """Forecast every algorithm of a comparison with these numbers; the other arguments are those of `look_ahead`."""
    what = experiment.measure
    assert isinstance(what, Comparison)
    tick(0.0, 1.0, "data")
    began = time.perf_counter()
    setup = measure.check_methods(what, what.setup(numbers, 0), numbers)
    jax.block_until_ready(setup.federation.rows.X)
    made, most, settled, lines = time.perf_counter() - began, machine.peak(), machine.resident(), []
    methods = what.methods(numbers)
    for i, method in enumerate(methods):
        tick(float(i), float(len(methods)), method.label)
        line = line_of(setup, method, numbers, seconds)
        # What compiling took here, the next process does not: only the making of the data counts as before.
        lines.append(dataclasses.replace(line, run=dataclasses.replace(line.run, before_bytes=most)))
    tick(1.0, 1.0, "")
    return Outlook(experiment.title, repr(setup.federation), seeds, made, settled, lines)


def line_of(setup: Setup, method: Method, numbers: Numbers, seconds: float) -> Line:
    """Forecast one algorithm: a run of it and, where it has a grid, the tuning."""
    given, grid = measure.arguments(setup, method, 0), [rates.stand_in(one) for one in method.algorithms()]

    def one(seconds: float) -> Forecast:
        return forecast_run(setup, grid[0], given | {"seconds": seconds})

    def many(seconds: float) -> Forecast:
        tuned: dict[str, Any] = given | {"evaluate_every": vars(numbers).get("tune_every"), "per_client": False}
        return forecast_tuning(RunSpec(setup.problem, setup.federation, grid[0], **tuned), grid, seconds=seconds)

    here, run, alone = grown(one, seconds)
    if len(grid) == 1:
        return Line(method.label, 1, run, None, here.compile_seconds, alone)
    also, tuning, beside = grown(many, seconds)
    return Line(method.label, len(grid), run, tuning, here.compile_seconds + also.compile_seconds, alone + beside)


def forecast_run(setup: Setup, algorithm: AbstractAlgorithm, given: dict[str, Any]) -> Forecast:
    """Forecast a run; `given` are the other arguments of `cofed.forecast`.

    Of a method that chooses between others it is the sum of what it trains: both candidates and, where it
    cross-validates, both once for each fold and once more on all data (of which it needs only the better one).
    """
    candidates = algorithm.candidates(setup.problem)
    if candidates is None:
        return forecast(setup.problem, setup.federation, algorithm, **given)
    times = 1 if candidates.folds is None else candidates.folds + 1
    halves = given | {"seconds": given["seconds"] / 2}
    both = [forecast(setup.problem, setup.federation, one, **halves) for one in (candidates.shared, candidates.local)]
    largest = max(both, key=lambda part: part.peak_bytes)
    repeated = ("seconds_per_round", "seconds_per_evaluation", "bytes_per_round", "bytes_on_wire")
    once = ("compile_seconds", "down_per_client", "up_per_client")
    sums = {name: sum(getattr(part, name) for part in both) for name in (*repeated, *once)}
    sums |= {name: times * sums[name] for name in repeated}
    return dataclasses.replace(largest, algorithm=algorithm.name, **sums)


class Compiled(NamedTuple):
    """What the compiler has done in this process so far."""

    programs: int
    seconds: float


class Compiler:
    """Counts compiled programs and their seconds, as JAX reports them."""

    def __init__(self) -> None:
        self.so_far = Compiled(0, 0.0)
        jax.monitoring.register_event_duration_secs_listener(self.hear)

    def hear(self, event: str, duration_secs: float, **_: object) -> None:
        """Count a program, whether it was compiled or taken from disk."""
        if event == "/jax/core/compile/backend_compile_duration":
            self.so_far = Compiled(self.so_far.programs + 1, self.so_far.seconds + duration_secs)


@functools.cache
def compiler() -> Compiler:
    """The one listener of this process."""
    return Compiler()


def grown(predict: Callable[[float], Forecast], seconds: float) -> tuple[Forecast, Forecast, int]:
    """Forecast: as of now, as of the next process, and the bytes that the compiled programs have added to this one."""
    before, began = machine.resident(), compiler().so_far
    found = predict(seconds)
    return found, as_next_time(found, began, compiler().so_far), max(0, found.process_bytes + found.data_bytes - before)


def as_next_time(found: Forecast, began: Compiled, ended: Compiled) -> Forecast:
    """The forecast for the next process, which traces again, but takes compiled programs from disk if they are kept."""
    kept: Any = jax.config
    if kept.jax_compilation_cache_dir is None:
        return found
    tracing = found.compile_seconds - (ended.seconds - began.seconds)
    return dataclasses.replace(found, compile_seconds=max(0.0, tracing) + FROM_DISK * (ended.programs - began.programs))


def table(outlook: Outlook) -> Table:
    """The figures of all algorithms, one per column, so that the table fits a narrow terminal."""
    shown = Table(title=f"{outlook.title}: {outlook.federation}", box=box.SIMPLE_HEAD, title_justify="left")
    shown.add_column("", no_wrap=True)
    for line in outlook.lines:
        shown.add_column(line.label, justify="right", overflow="fold")
    figures: dict[str, Callable[[Line], str]] = {
        "a round": lambda line: duration(line.run.seconds_per_round),
        "an evaluation": lambda line: duration(line.run.seconds_per_evaluation),
        "compiling": lambda line: duration(sum(part.compile_seconds for part in line.parts)),
        "tuning": lambda line: duration(line.tuning.running_seconds) if line.tuning else "",
        "a run": lambda line: duration(line.run.running_seconds),
        "in all": lambda line: duration(line.seconds(outlook.seeds)),
        "memory": lambda line: size(line.peak_bytes),
        "down to each client": lambda line: size(line.run.down_per_client),
        "up from each client": lambda line: size(line.run.up_per_client),
        "bytes of a run": lambda line: size(line.run.bytes_on_wire),
    }
    for name, figure in figures.items():
        shown.add_row(name, *(figure(line) for line in outlook.lines))
    return shown


def words(outlook: Outlook) -> list[str]:
    """What the file will cost in all, in sentences."""
    first, memory = outlook.lines[0].run, machine.memory()
    grids = sum(line.configurations for line in outlook.lines if line.tuning)
    tuned = f"{grids} configurations are tuned, then " if grids else ""
    count = len(outlook.lines) * outlook.seeds
    runs = f"1 run of {first.rounds:,} rounds" if count == 1 else f"{count} runs of {first.rounds:,} rounds each"
    said = [
        f"In all about {duration(outlook.seconds)} on this machine: {tuned}{runs}, evaluated {first.evaluations:,} "
        f"times. The data takes {duration(outlook.data_seconds)} to make or read.",
        f"Memory: {size(outlook.peak_bytes)} at most"
        + (f" of this machine's {size(memory)}" if memory else "")
        + f", of which data {size(first.data_bytes)}. On the wire, if the runs were real federations: "
        + f"{size(outlook.bytes_on_wire)}.",
    ]
    tight = outlook.tightest
    most = tight.clients_that_fit
    if most is not None and most < tight.clients:
        said.append(f"[bold red]It does not fit into this machine's memory[/]: {tight.algorithm} needs more.")
    elif most is not None:
        features = "" if tight.features_that_fit is None else f", or {rounded(tight.features_that_fit)} features"
        said.append(
            f"One machine like this runs out of memory at about {rounded(most)} such clients{features} "
            f"({tight.algorithm}; a run would take "
            f"{duration(tight.seconds_with(most))} with so many clients)."
        )
    return said


def rounded(count: int) -> str:
    """A large number as precisely as an estimate deserves: two digits.

    >>> rounded(1_862_938), rounded(20_412), rounded(73)
    ('1.9 million', '20,000', '73')
    """
    digits = float(f"{count:.2g}")
    return f"{digits / 1e6:,g} million" if digits >= 1e6 else f"{int(digits):,}"


def to_dict(outlook: Outlook) -> dict[str, Any]:
    """The outlook for programs: seconds and bytes."""
    totals = ("running_seconds", "seconds", "peak_bytes", "clients_that_fit", "features_that_fit")

    def whole(part: Forecast | None) -> Any:
        return part and dataclasses.asdict(part) | {name: getattr(part, name) for name in totals}

    return {
        "title": outlook.title,
        "federation": outlook.federation,
        "seeds": outlook.seeds,
        "seconds": outlook.seconds,
        "data_seconds": outlook.data_seconds,
        "setups": outlook.setups,
        "peak_bytes": outlook.peak_bytes,
        "memory_bytes": machine.memory(),
        "bytes_on_wire": outlook.bytes_on_wire,
        "algorithms": [
            {
                "label": line.label,
                "configurations": line.configurations,
                "seconds": line.seconds(outlook.seeds),
                "first_compile_seconds": line.first_compile_seconds,
                "run": whole(line.run),
                "tuning": whole(line.tuning),
            }
            for line in outlook.lines
        ],
    }
