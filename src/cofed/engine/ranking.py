"""Rank the configurations of a grid: which did best, which diverged, and which were not done."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd

from cofed._util.files import atomically
from cofed._util.types import Given
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.history import Outcome
from cofed.engine.saved import write_results
from cofed.metrics import Density, Distance, HigherIsBetter, Rank

NAMED = 5  # a warning names at most this many configurations
ORDER = (Outcome.COMPLETED, Outcome.INTERRUPTED, Outcome.DIVERGED)  # best first


@dataclasses.dataclass(frozen=True)
class Tuning:
    """A tuned grid.

    Parameters
    ----------
    table : pandas.DataFrame
        One row per configuration, best first: its hyperparameters, its score, its outcome and its last row of the
        history. The index is the place in the grid.
    best : algorithm or None
        The best configuration; None where none was completed.
    score : float
        Its score.
    curves : dict of str to array
        For every column of the history an array (configurations as given, evaluated rounds).
    rounds : array of int
        The evaluated rounds.
    outcome : Outcome
        INTERRUPTED where Ctrl-C has stopped the tuning: what was done by then is ranked, and the table says what was
        not.
    maximise : bool
        Whether the largest score is the best.
    """

    table: pd.DataFrame
    best: AbstractAlgorithm | None
    score: float
    curves: dict[str, np.ndarray]
    rounds: np.ndarray
    outcome: Outcome = Outcome.COMPLETED
    maximise: bool = False

    def save(self, folder: Given[str | Path], label: Given[str | None] = None) -> None:
        """Write the ranking and all curves into a folder of its own, which `cofed report folder` shows.

        Parameters
        ----------
        folder : str or Path
            A new folder, or one without a result: config.json, tuning.parquet (the table), numbers.parquet (the curves
            of the first configuration of the table) and curves.parquet (those of all, by their places in the grid) are
            written.
        label : str, optional
            What the first configuration is called in the report; None is its method's name.
        """
        first = int(self.table.index[0])
        curves = pd.concat(
            [curve_of(self, i).assign(configuration=i) for i in sorted(self.table.index)], ignore_index=True
        )
        ended = {"outcome": self.outcome.name.lower(), "configurations": len(self.table), "maximise": self.maximise}
        name = str(self.table["algorithm"].iloc[0]) if label is None else label
        place = write_results(folder, name, self.best, curve_of(self, first), ended)
        table = self.table.rename_axis("configuration").reset_index()
        for file, rows in (("tuning.parquet", table), ("curves.parquet", curves)):
            atomically(place / file, lambda path, rows=rows: rows.to_parquet(path, index=False))


def curve_of(tuning: Tuning, configuration: int) -> pd.DataFrame:
    """A row for each evaluated round of one configuration of the grid, with the columns of the history."""
    return pd.DataFrame(
        {"round": tuning.rounds} | {name: values[configuration] for name, values in tuning.curves.items()}
    )


class AllDiverged(ValueError):
    """Every configuration of a grid diverged; the attribute `tuning` has their table and curves."""

    def __init__(self, tuning: Tuning):
        super().__init__("every configuration of the grid diverged; add smaller learning rates")
        self.tuning = tuning


def maximised(score: str, metrics: Mapping[str, Callable], asked: bool | None) -> bool:
    """Whether more of a score is better: as the user says, or else as is known of the column or the metric.

    >>> import cofed
    >>> from cofed.engine.ranking import maximised
    >>> maximised("test_accuracy", {}, None), maximised("objective", {}, None)
    (True, False)
    >>> maximised("f1", {"f1": cofed.metrics.f1([1.0, 0.0])}, None)
    True
    """
    if asked is not None:
        if not isinstance(asked, bool):
            raise TypeError(f"maximise must be True, False or None, got {asked!r}")
        return asked
    of_nodes = [score.removesuffix(ending) for ending in ("_min", "_mean", "_max") if score.endswith(ending)]
    on_data = [score.removeprefix("personal_"), score.removeprefix("personal_").removeprefix("test_")]
    for name in (score, *of_nodes, *on_data):
        if name in metrics:
            metric = metrics[name]
            if isinstance(metric, HigherIsBetter):
                return True
            if isinstance(metric, (Density, Distance, Rank)):
                return False
            raise ValueError(
                f"score={score!r} is a metric of your own: say whether more of it is better, by maximise=True or "
                "maximise=False (or cofed.metrics.higher_is_better around the metric)"
            )
    return score.endswith("accuracy")


def is_number(value: object) -> bool:
    """Whether a column of the table can show a value: a number, or a tuple of numbers."""
    return isinstance(value, (bool, int, float, tuple)) or (
        isinstance(value, (jax.Array, np.ndarray)) and value.ndim == 0
    )


def numbers_of(module: eqx.Module, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers of a method by name, and those of its parts: `algorithm.client_lr`, `mirror.p`."""
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        if is_number(value):
            yield prefix + field.name, value
        elif isinstance(value, eqx.Module):
            yield from numbers_of(value, f"{prefix}{field.name}.")


def settings_of(module: eqx.Module, prefix: str = "") -> dict[str, Any]:
    """The numbers of a method by name, and those of its parts, also where they are in a mapping.

    >>> import cofed, optax
    >>> from cofed.engine.ranking import settings_of
    >>> settings_of(cofed.ServerOptimizer(cofed.FedAvg(0.1, 0.5), optax.sgd, {"learning_rate": 0.2}))
    {'algorithm.client_lr': 0.1, 'algorithm.server_lr': 0.5, 'options.learning_rate': 0.2}
    """
    found = {}
    for field in dataclasses.fields(module):
        name, value = prefix + field.name, getattr(module, field.name)
        inside = value.items() if isinstance(value, Mapping) else [("", value)]
        for key, one in inside:
            if is_number(one):
                found[f"{name}.{key}" if key else name] = one
            elif isinstance(one, eqx.Module):
                found |= settings_of(one, f"{name}.")
    return found


@dataclasses.dataclass
class Trial:
    """What is known of one configuration."""

    curve: dict[str, np.ndarray]
    failed_at: int = -1  # the round that would have made it non-finite
    outcome: Outcome = Outcome.INTERRUPTED

    def known(self, column: str) -> np.ndarray:
        """A column of the curve, as far as an interrupted configuration has come."""
        values = self.curve.get(column, np.empty(0))
        if self.outcome is not Outcome.INTERRUPTED:
            return values
        reached = np.flatnonzero(~np.isnan(np.stack(list(self.curve.values()))).all(axis=0)) if self.curve else []
        return values[: reached[-1] + 1] if len(reached) else values[:0]


@dataclasses.dataclass(frozen=True)
class Criterion:
    """What configurations are ranked by."""

    column: str
    last: int  # averaged over this many of the last evaluations
    maximise: bool

    def score(self, trial: Trial) -> float:
        """The score of a configuration, of one that was interrupted by what it had reached; NaN where it has none."""
        values = trial.known(self.column)
        return float(np.mean(values[-self.last :])) if values.size else math.nan


def rank(
    algorithms: Sequence[AbstractAlgorithm], trials: Sequence[Trial], rounds: np.ndarray, criterion: Criterion
) -> Tuning:
    """Rank the configurations of a grid, and warn of those that were completed without a finite score."""
    tuning, unscored = ranked(algorithms, trials, rounds, criterion)
    if unscored:
        warn_of_missing_scores([algorithms[i] for i in unscored], len(trials), criterion.column)
    if np.all(np.asarray(tuning.table["diverged"])):
        raise AllDiverged(tuning)
    return tuning


def ranked(
    algorithms: Sequence[AbstractAlgorithm], trials: Sequence[Trial], rounds: np.ndarray, criterion: Criterion
) -> tuple[Tuning, list[int]]:
    """The configurations of a grid in their order, and those that were completed without a finite score."""
    sign = -1 if criterion.maximise else 1
    scores = [criterion.score(trial) for trial in trials]
    outcomes = [trial.outcome for trial in trials]
    unscored = [
        i for i, trial in enumerate(trials) if trial.outcome is Outcome.COMPLETED and not math.isfinite(scores[i])
    ]
    for i in unscored:
        outcomes[i] = Outcome.DIVERGED
    records = [
        {"algorithm": algorithm.name}
        | settings_of(algorithm)
        | {"score": score, "outcome": outcome.name.lower(), "diverged": outcome is Outcome.DIVERGED}
        | {"diverged_at": trial.failed_at if trial.failed_at >= 0 else None}
        | {name: float(trial.known(name)[-1]) for name in trial.curve if trial.known(name).size}
        for algorithm, trial, score, outcome in zip(algorithms, trials, scores, outcomes, strict=True)
    ]
    order = sorted(range(len(records)), key=lambda i: (ORDER.index(outcomes[i]), sign * np.nan_to_num(scores[i])))
    found = outcomes[order[0]] is Outcome.COMPLETED
    names = {name: None for trial in trials for name in trial.curve}
    nothing = np.full(len(rounds), np.nan)
    tuning = Tuning(
        table=pd.DataFrame(records).iloc[order],
        best=algorithms[order[0]] if found else None,
        score=scores[order[0]] if found else math.nan,
        curves={name: np.stack([trial.curve.get(name, nothing) for trial in trials]) for name in names},
        rounds=rounds,
        outcome=Outcome.INTERRUPTED if Outcome.INTERRUPTED in outcomes else Outcome.COMPLETED,
        maximise=criterion.maximise,
    )
    return tuning, unscored


def warn_of_missing_scores(algorithms: Sequence[AbstractAlgorithm], count: int, column: str) -> None:
    """Say which configurations could not be ranked although they completed their rounds."""
    named = ", ".join(described(algorithm) for algorithm in algorithms[:NAMED])
    more = f" and {len(algorithms) - NAMED} more" if len(algorithms) > NAMED else ""
    warnings.warn(
        f"{len(algorithms)} of {count} configurations completed their rounds but are ranked last, as diverged, since "
        f"their {column!r} is not finite: {named}{more}",
        RuntimeWarning,
        stacklevel=4,
    )


def described(algorithm: AbstractAlgorithm) -> str:
    """A configuration by its name and numbers.

    >>> import cofed
    >>> from cofed.engine.ranking import described
    >>> described(cofed.FedAvg(0.1))
    'FedAvg(client_lr=0.1, server_lr=1.0)'
    """
    return f"{algorithm.name}({', '.join(f'{name}={value}' for name, value in settings_of(algorithm).items())})"
