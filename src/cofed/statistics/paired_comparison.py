"""Two models per client, compared on the same held-out samples."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd


@dataclasses.dataclass(frozen=True)
class PairedComparison:
    """Held-out losses of two choices, and their difference (first minus second) with its standard error.

    `table` has a row per client: samples, first, second, difference, standard_error, weight (its part of the means).
    Clients without a held-out sample have NaN there and count nothing.

    >>> first, second = [np.array([1.0, 3.0]), np.array([2.0])], [np.array([1.0, 1.0]), np.array([2.0])]
    >>> both = compare(["a", "b"], first, second, weights=[1, 1])
    >>> both.difference, both.table["difference"].tolist()
    (0.5, [1.0, 0.0])
    """

    first: float
    second: float
    difference: float
    standard_error: float
    table: pd.DataFrame


def compare(
    names: Sequence[str],
    first: Sequence[np.ndarray],
    second: Sequence[np.ndarray],
    weights: Any,
    groups: Sequence[np.ndarray] | None = None,
) -> PairedComparison:
    """Compare the losses of the clients' held-out samples, client by client and in the weighted mean.

    The standard error is that of a mean of paired differences, the clients taken as given; samples of one group, such
    as one person, count as one draw.
    """
    sizes = np.array([len(losses) for losses in first])
    weights = np.where(sizes > 0, np.asarray(weights, float), 0.0)
    if not weights.sum() > 0:
        raise ValueError("no client that counts has a held-out sample to compare on")
    weights = weights / weights.sum()
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    labels = [np.arange(len(gap)) for gap in gaps] if groups is None else groups
    variances = np.array([variance_of_mean(gap, group) for gap, group in zip(gaps, labels, strict=True)])
    # A client with one draw says nothing of its own spread: it is taken to be that of the others.
    one_draw = np.isnan(variances) & (sizes > 0)
    spread = np.nanmean(variances * sizes) if np.any(~np.isnan(variances)) else np.nan
    used = np.where(one_draw, spread / np.maximum(sizes, 1), variances)
    mean = lambda parts: np.array([part.mean() if len(part) else np.nan for part in parts])  # noqa: E731
    table = pd.DataFrame(
        {
            "samples": sizes,
            "first": mean(first),
            "second": mean(second),
            "difference": mean(gaps),
            "standard_error": np.sqrt(variances),
            "weight": weights,
        },
        index=pd.Index(names, name="client"),
    )
    counted = weights > 0
    total = {name: float(weights[counted] @ table[name].to_numpy()[counted]) for name in ("first", "second")}
    return PairedComparison(
        **total,
        difference=float(weights[counted] @ table["difference"].to_numpy()[counted]),
        standard_error=float(np.sqrt(weights[counted] ** 2 @ used[counted])),
        table=table,
    )


def variance_of_mean(values: np.ndarray, groups: np.ndarray) -> float:
    """The variance of the mean of values that come in independent groups; NaN where there are fewer than two."""
    _, places = np.unique(groups, return_inverse=True)
    count = int(places.max()) + 1 if len(places) else 0
    if count < 2:
        return float("nan")
    sums = np.bincount(places, weights=values - values.mean())
    return float(count / (count - 1) * np.sum(sums**2) / len(values) ** 2)
