"""Two models per client, compared on the same held-out samples."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd


@dataclasses.dataclass(frozen=True)
class PairedComparison:
    """The held-out losses of two choices, and their difference (first minus second) with its standard error.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.statistics.paired_comparison import compare
    >>> first, second = [np.array([1.0, 3.0]), np.array([2.0])], [np.array([1.0, 1.0]), np.array([2.0])]
    >>> both = compare(["a", "b"], first, second, weights=[1, 1])
    >>> both.difference, both.table["difference"].tolist()
    (0.5, [1.0, 0.0])
    """

    first: float
    second: float
    difference: float
    standard_error: float
    # A row per client: samples, first, second, difference, standard_error, weight (its part of the means). A client
    # without a held-out sample has NaN there, and weight 0.
    table: pd.DataFrame


def compare(
    names: Sequence[str],
    first: Sequence[np.ndarray],
    second: Sequence[np.ndarray],
    weights: npt.ArrayLike,
    groups: Sequence[np.ndarray] | None = None,
) -> PairedComparison:
    """Compare the losses of the clients' held-out samples, client by client and in the weighted mean.

    The standard error is that of a mean of paired differences, for these clients (they are not taken as a sample of
    others). Samples of one group, such as one person, count as one draw.
    """
    sizes = np.array([len(losses) for losses in first])
    p = np.where(sizes > 0, np.asarray(weights, float), 0.0)
    if not p.sum() > 0:
        raise ValueError("no client that counts has a held-out sample to compare on")
    p = p / p.sum()
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    labels = [np.arange(len(gap)) for gap in gaps] if groups is None else groups
    variances = np.array([variance_of_mean(gap, group) for gap, group in zip(gaps, labels, strict=True)])
    # A single draw says nothing of a client's spread, which is then taken to be that of the others.
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
            "weight": p,
        },
        index=pd.Index(names, name="client"),
    )
    counted = p > 0
    total = {name: float(p[counted] @ table[name].to_numpy()[counted]) for name in ("first", "second")}
    return PairedComparison(
        **total,
        difference=float(p[counted] @ table["difference"].to_numpy()[counted]),
        standard_error=float(np.sqrt(p[counted] ** 2 @ used[counted])),
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
