"""`cofed.replicate`: one run for each of several seeds, and how far they lie apart.

The seed is a number to the compiled program, so all seeds share one; each run is the very run that `cofed.run` makes of
its seed, to the last bit.
"""

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cofed._util import checks
from cofed._util.types import Given
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.callbacks import AbstractCallback, Row
from cofed.engine.history import Outcome, Result
from cofed.engine.progress import Bar, interruptible, wanted
from cofed.engine.run import run
from cofed.engine.saved import write_model, write_results
from cofed.federation import AbstractFederation
from cofed.problem import Problem

OWN = ("problem", "federation", "algorithm", "rounds", "seed", "checkpoint", "progress", "callbacks")


@dataclasses.dataclass(frozen=True)
class Replicates:
    """What `cofed.replicate` returns: the runs of several seeds.

    `cofed.plotting.plot_history({"FedAvg": replicates})` draws their median with a band.

    Parameters
    ----------
    results : dict of int to Result
        The runs by seed, in the order of the seeds. Ctrl-C leaves those that had begun.
    """

    results: Mapping[int, Result]

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """How the run of each seed ended."""
        return {seed: result.outcome for seed, result in self.results.items()}

    def to_pandas(self) -> pd.DataFrame:
        """The rows of all histories, one below the other.

        Returns
        -------
        pandas.DataFrame
            The columns of a history, after a first column `seed`.
        """
        tables = [result.history.to_pandas().assign(seed=seed) for seed, result in self.results.items()]
        table = pd.concat(tables, ignore_index=True)
        return table.loc[:, ["seed", *(name for name in table if name != "seed")]]

    def bands(
        self, column: Given[str] = "objective", low: Given[float] = 0.1, high: Given[float] = 0.9
    ) -> pd.DataFrame:
        """The median of a column over the seeds, and a band around it, row by row of the history.

        Parameters
        ----------
        column : str
            A column of the history.
        low, high : float
            The quantiles of the band's ends: 0 and 1 are the smallest and the largest seed.

        Returns
        -------
        pandas.DataFrame
            By round: median, low, high and `seeds`, how many have got that far with a number: a seed that diverged
            is missing from then on.

        Raises
        ------
        TypeError, ValueError
            Where a quantile is not in [0, 1], or the histories have no such column.
        """
        checks.text("column", column)
        ends = [quantile(name, value) for name, value in (("low", low), ("high", high))]
        table = self.to_pandas()
        if column not in table:
            raise ValueError(f"column: the histories have no {column!r}; they have {list(table.columns[1:])}")
        values = table[column].where(np.isfinite(table[column]))
        by_round = values.groupby(table["round"])
        band = {name: by_round.quantile(end) for name, end in zip(("low", "high"), sorted(ends), strict=True)}
        return pd.DataFrame({"median": by_round.median(), **band, "seeds": by_round.count()})

    def save(self, folder: Given[str | Path], label: Given[str | None] = None) -> None:
        """Write the histories and models of all seeds into a folder of its own, which `cofed report folder` shows.

        Parameters
        ----------
        folder : str or Path
            A new folder, or one without a result: config.json, numbers.parquet and model-seed-3.safetensors, one for
            each seed, are written.
        label : str, optional
            What the runs are called in the report; None is the method's name.
        """
        ended = {"outcomes": {str(seed): outcome.name.lower() for seed, outcome in self.outcomes.items()}}
        place = write_results(folder, label, next(iter(self.results.values())).algorithm, self.to_pandas(), ended)
        for seed, result in self.results.items():
            write_model(place / f"model-seed-{seed}.safetensors", result.model)

    def __repr__(self) -> str:
        last = np.array([result.history.rows[-1]["objective"] for result in self.results.values()])
        ended = [outcome is Outcome.COMPLETED for outcome in self.outcomes.values()]
        return (
            f"Replicates({len(last)} seeds, {sum(ended)} completed, objective {np.median(last):.6g} "
            f"({last.min():.6g} to {last.max():.6g}))"
        )


class Ticks(AbstractCallback):
    """Moves one bar forward over the rounds of all seeds."""

    def __init__(self, bar: Bar, before: int):
        self.bar, self.before = bar, before

    def on_row(self, row: Row) -> None:
        self.bar.update(self.before + row["round"], row["objective"])


def replicate(
    problem: Given[Problem],
    federation: Given[AbstractFederation],
    algorithm: Given[AbstractAlgorithm],
    *,
    seeds: Given[int | Iterable[int]],
    rounds: Given[int],
    checkpoint: Given[str | Path | None] = None,
    progress: Given[bool | None] = None,
    callbacks: Given[Iterable[object]] = (),
    **options: Any,
) -> Replicates:
    """Run an algorithm once for each of several seeds, by one compiled program.

    The run of a seed has the bits of `cofed.run(..., seed=seed)`. Ctrl-C returns what is done.

    Parameters
    ----------
    problem : Problem
        The model, the loss and the regularizer.
    federation : AbstractFederation
        The clients' data, the same for all seeds.
    algorithm : AbstractAlgorithm
        The method with its hyperparameters.
    seeds : int or iterable of int
        The seeds, such as [1, 2, 3]; a number n is the seeds 0 to n - 1.
    rounds : int
        Rounds of every run.
    checkpoint : str or Path, optional
        A folder with a folder for each seed, such as ``seed-3``, from which `cofed.resume` goes on.
    progress : bool, optional
        Whether to show a progress bar over the rounds of all seeds; None shows it where there is a terminal.
    callbacks : iterable of AbstractCallback
        Objects that are told of every seed's run.
    **options
        What else `cofed.run` takes, such as `local_steps`, `batch_size` or `clients_per_round`.

    Returns
    -------
    Replicates
        The results by seed, their histories as one table, and bands.

    Raises
    ------
    TypeError, ValueError
        Where an argument is not what it should be, or the parts of the run do not fit each other.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> rng = np.random.default_rng(0)
    >>> clients = [(X := rng.normal(size=(20, 3)), X @ np.array([1.0, 0.0, 2.0])) for _ in range(4)]
    >>> federation = cofed.Federation.from_arrays(clients)
    >>> options = {"rounds": 20, "local_steps": 2, "batch_size": 4}
    >>> found = cofed.replicate(cofed.Problem(), federation, cofed.FedAvg(0.1), seeds=5, **options)
    >>> bands = found.bands("objective")
    >>> len(bands), bool((bands["low"] <= bands["median"]).all()), found.results[3].outcome.name
    (21, True, 'COMPLETED')
    """
    wanted_seeds = checked_seeds(seeds)
    unknown = [name for name in options if name not in inspect.signature(run).parameters or name in OWN]
    if unknown:
        instead = "; the seeds are given by seeds=" if "seed" in unknown else ""
        raise TypeError(f"cofed.replicate has no option {unknown[0]!r}: it takes those of cofed.run{instead}")
    checks.optional_flag("progress", progress)
    total = checks.integer("rounds", rounds)
    folder = None if checkpoint is None else checks.folder("checkpoint", checkpoint)
    given = checks.items("callbacks", callbacks, "callbacks")
    found: dict[int, Result] = {}
    with interruptible() as stop, Bar("seeds", total * len(wanted_seeds), 0, wanted(progress)) as bar:
        for number, seed in enumerate(wanted_seeds):
            if stop.is_set():
                break
            found[seed] = run(
                problem,
                federation,
                algorithm,
                rounds=total,
                seed=seed,
                checkpoint=None if folder is None else folder / f"seed-{seed}",
                progress=False,
                callbacks=[*given, *([Ticks(bar, number * total)] if wanted(progress) else [])],
                **options,
            )
    return Replicates(found)


def quantile(name: str, value: object) -> float:
    """A number from 0 to 1."""
    return checks.real(name, value, "a number from 0 to 1", checks.is_real(value) and 0 <= checks.as_float(value) <= 1)


def checked_seeds(seeds: object) -> list[int]:
    """The seeds, each once; a number stands for that many."""
    if checks.is_integer(seeds):
        return list(range(checks.integer("seeds", seeds)))
    given = [checks.seed("each of seeds", seed) for seed in checks.items("seeds", seeds, "seeds")]
    if not given:
        raise ValueError("seeds is empty: give at least one seed")
    twice = sorted({seed for seed in given if given.count(seed) > 1})
    if twice:
        raise ValueError(f"seeds: {twice[0]} is there twice, and would give the same run twice")
    return given
