"""What a tuning will cost: the programs of its grid, timed on its own data."""

import dataclasses
from collections.abc import Sequence

from cofed._util.programs import keep_programs
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.calibration import calibrate_slice, stages_by_program
from cofed.engine.forecast import Forecast, check_budget, combined
from cofed.engine.grid import MEMORY, group_by_program, slices
from cofed.engine.job import prepare
from cofed.engine.spec import RunSpec


def forecast_tuning(
    spec: RunSpec, grid: Sequence[AbstractAlgorithm], memory: int = MEMORY, seconds: float | int = 2.0
) -> Forecast:
    """Forecast what `cofed.tune` will cost on a grid.

    Parameters
    ----------
    spec
        A run of one configuration of the grid; the others are run alike.
    grid
        The configurations.
    memory
        Bytes that the configurations that run together may take.
    seconds
        About how long to measure.

    Returns
    -------
    Forecast
        The cost of the whole grid. Nothing goes over a wire in a tuning; the bytes are those that runs of all
        configurations would send.
    """
    keep_programs()
    budget = check_budget(seconds)
    unknown = [name for name, given in (("keep_models", spec.keep_models), ("per_client", spec.per_client)) if given]
    if unknown:
        raise TypeError(f"forecast_tuning does not know {unknown}")
    start = spec.start()
    groups = group_by_program(grid, spec)
    parts = []
    for group in groups:
        job = prepare(dataclasses.replace(spec, algorithm=grid[group.members[0]]))
        first = slices(len(group.members), job, start, memory)[0]
        members = [group.stages[i] for i in first]
        programs = stages_by_program(job)
        share = budget / len(programs) / len(groups)
        measured = {
            program: calibrate_slice(job, number, members, start, share) for program, number in programs.items()
        }
        one = combined(job, start, measured, 0.0)
        times = len(group.members) / len(members)
        parts.append(
            dataclasses.replace(
                one,
                seconds_per_round=one.seconds_per_round * times,
                seconds_per_evaluation=one.seconds_per_evaluation * times,
                bytes_per_round=one.bytes_per_round * len(group.members),
                bytes_on_wire=one.bytes_on_wire * len(group.members),
            )
        )
    largest = max(parts, key=lambda part: part.peak_bytes)
    return dataclasses.replace(
        largest,
        compile_seconds=sum(part.compile_seconds for part in parts),
        seconds_per_round=sum(part.seconds_per_round for part in parts),
        seconds_per_evaluation=sum(part.seconds_per_evaluation for part in parts),
        bytes_per_round=sum(part.bytes_per_round for part in parts),
        bytes_on_wire=sum(part.bytes_on_wire for part in parts),
    )
