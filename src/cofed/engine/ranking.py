"""A tuned grid: which configurations did best, which diverged, and which were not done."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd

from cofed.engine.history import Outcome
from cofed.metrics import Density, Distance, HigherIsBetter, Rank

ORDER = (Outcome.COMPLETED, Outcome.INTERRUPTED, Outcome.DIVERGED)  # best first


@dataclasses.dataclass(frozen=True)
class Tuning:
    """A tuned grid: `table` has one row per configuration, best first; `best` is the best algorithm with its `score`.

    `curves` maps a column of the history to an array (configurations as given, evaluated rounds); `rounds` are those.
    `outcome` is INTERRUPTED where Ctrl-C has stopped it: what was done by then is ranked, the rest is marked in the
    table, and `best` is None where nothing was done. `maximise` says whether the largest score was taken for the best.
    """

    table: pd.DataFrame
    best: Any
    score: float
    curves: dict[str, np.ndarray]
    rounds: np.ndarray
    outcome: Outcome = Outcome.COMPLETED
    maximise: bool = False


class AllDiverged(ValueError):
    """No configuration of a grid came to a good end; `tuning` has what there is."""

    def __init__(self, tuning: Tuning):
        super().__init__("every configuration of the grid diverged; add smaller learning rates")
        self.tuning = tuning


def maximised(score: str, metrics: Mapping[str, Callable], asked: bool | None) -> bool:
    """Whether more of a score is better: as asked, else as the column or the metric says.

    >>> import cofed
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
    for name in (score, *of_nodes):
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


def is_number(value: Any) -> bool:
    """What a column of the table can show: a number, or a few."""
    return isinstance(value, (bool, int, float, tuple)) or (
        isinstance(value, (jax.Array, np.ndarray)) and value.ndim == 0
    )


def numbers_of(module: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers of a method by name, and those of what it is made of: `algorithm.client_lr`, `mirror.p`."""
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        if is_number(value):
            yield prefix + field.name, value
        elif isinstance(value, eqx.Module):
            yield from numbers_of(value, f"{prefix}{field.name}.")


@dataclasses.dataclass
class Tried:
    """What is known of one configuration."""

    curve: dict[str, np.ndarray]
    failed_at: int = -1  # the round that would have made it non-finite
    outcome: Outcome = Outcome.INTERRUPTED


def rank(
    algorithms: list[Any], tried: list[Tried], rounds: np.ndarray, score: str, last: int, maximise: bool
) -> Tuning:
    """The table, best first."""
    sign, records, outcomes = -1 if maximise else 1, [], []
    for algorithm, one in zip(algorithms, tried, strict=True):
        value = float(np.mean(one.curve[score][-last:])) if score in one.curve else math.nan
        outcome = one.outcome
        if outcome is Outcome.COMPLETED and not math.isfinite(value):
            outcome = Outcome.DIVERGED
        outcomes.append(outcome)
        records.append(
            {"algorithm": algorithm.name}
            | dict(numbers_of(algorithm))
            | {"score": value, "outcome": outcome.name.lower(), "diverged": outcome is Outcome.DIVERGED}
            | {"diverged_at": one.failed_at if one.failed_at >= 0 else None}
            | {name: float(values[-1]) for name, values in one.curve.items()}
        )
    places = range(len(records))
    order = sorted(places, key=lambda i: (ORDER.index(outcomes[i]), sign * np.nan_to_num(records[i]["score"])))
    found = outcomes[order[0]] is Outcome.COMPLETED
    names = {name: values.dtype for one in tried for name, values in one.curve.items()}
    nothing = np.full(len(rounds), np.nan)
    tuning = Tuning(
        table=pd.DataFrame(records).iloc[order],
        best=algorithms[order[0]] if found else None,
        score=records[order[0]]["score"] if found else math.nan,
        curves={name: np.stack([one.curve.get(name, nothing) for one in tried]) for name in names},
        rounds=rounds,
        outcome=Outcome.INTERRUPTED if Outcome.INTERRUPTED in outcomes else Outcome.COMPLETED,
        maximise=maximise,
    )
    if all(outcome is Outcome.DIVERGED for outcome in outcomes):
        raise AllDiverged(tuning)
    return tuning
