"""What a user says of every row beside its features and target: its weight, and its offset."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from cofed._util import checks
from cofed._util.types import Given
from cofed.federation import Federation
from cofed.sites.base import AbstractSites
from cofed.sites.intake import Clients, Features, FitFeatures, refuse_unlike_rows, row_order
from cofed.sites.memory import MemorySites

RowNumbers = Given[npt.ArrayLike | pd.Series | str | None]
LARGEST = 1e100  # of a weight; and 1 / LARGEST the least: their sums, and sums of squares, must not overflow


class RowOptions(NamedTuple):
    """Weights and offsets, as they were asked for."""

    X: FitFeatures  # without the columns that hold them; of sites, with their columns chosen
    weight: np.ndarray | None
    offset: np.ndarray | None
    columns: tuple[str, ...]  # of X that hold them


def row_options(owner: str, X: FitFeatures, sample_weight: RowNumbers, offset: RowNumbers) -> RowOptions:
    """Weights and offsets of the rows of X, which are given as numbers or as the name of a column."""
    given = {"sample_weight": sample_weight, "offset": offset}
    if all(one is None for one in given.values()):
        return RowOptions(X, None, None, ())
    if isinstance(X, Federation):
        raise ValueError(f"{owner}: rows of a Federation have neither sample_weight nor offset; give arrays")
    names = tuple(one for one in given.values() if isinstance(one, str))
    if isinstance(X, AbstractSites):
        for what, one in given.items():
            if one is not None and not isinstance(one, str):
                raise ValueError(f"{owner}: {what} of sites is the name of a column of their tables, got {kind(one)}")
        chosen = (one if isinstance(one, str) else None for one in given.values())
        return RowOptions(X.with_columns(*chosen), None, None, ())
    values: dict[str, np.ndarray | None] = {}
    for what, one in given.items():
        values[what] = None if one is None else numbers_of(owner, what, X, one)
    if names and isinstance(X, pd.DataFrame):
        X = X.drop(columns=list(dict.fromkeys(names)))
    return RowOptions(X, values["sample_weight"], values["offset"], names)


def numbers_of(owner: str, what: str, X: Features, given: RowNumbers) -> np.ndarray:
    """A finite number for every row."""
    if isinstance(given, str):
        if not isinstance(X, pd.DataFrame) or given not in X.columns:
            raise ValueError(f"{owner}: {what}={given!r} must name a column of a pandas X, or be one number per row")
        given = X[given]
    refuse_unlike_rows(owner, X, what, given)
    try:
        found = np.asarray(given, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{owner}: {what} must be one number per row, got {kind(given)}") from None
    if what == "offset" and found.ndim == 2 and found.shape[1]:  # of several responses a number for each
        found = found[:, 0] if found.shape[1] == 1 else found
    elif found.ndim != 1:
        raise ValueError(f"{owner}: {what} must be one number per row, got the shape {found.shape}")
    wrong = int(np.sum(~np.isfinite(found.reshape(len(found), -1)).all(axis=1)))
    if wrong:
        raise ValueError(f"{owner}: {what} must be finite numbers, but {wrong} of {len(found)} are not")
    if what == "sample_weight":
        check_weights(owner, found)
    return found


def check_weights(owner: str, weight: np.ndarray) -> None:
    """Refuse weights that are negative, all 0, or too large or small to be added up."""
    below = int(np.sum(weight < 0))
    if below:
        raise ValueError(f"{owner}: sample_weight must be >= 0, but {below} of {len(weight)} are below")
    used = weight[weight > 0]
    if not len(used):
        raise ValueError(f"{owner}: sample_weight must be above 0 for some rows, but all are zero")
    if used.max() > LARGEST or used.min() < 1 / LARGEST:
        raise ValueError(f"{owner}: sample_weight must be 0 or between {1 / LARGEST:g} and {LARGEST:g}")


def with_row_options(owner: str, sites: AbstractSites, given: RowOptions, clients: Clients) -> AbstractSites:
    """The same sites, whose rows have these weights and offsets; rows of weight 0 are left out."""
    if given.weight is None and given.offset is None:
        return sites
    assert isinstance(sites, MemorySites)  # of rows that were given
    n, own = sum(sites.sizes), {}
    order = row_order(owner, given.X, clients, n)
    for what, values in (("weight", given.weight), ("offset", given.offset)):
        if values is not None and len(values) != n:
            name = "sample_weight" if what == "weight" else what
            raise ValueError(f"{owner}: {name} must be one number per row: {n} rows, {len(values)} numbers")
        own[what] = None if values is None else values[order]
    return sites.with_row_numbers(own["weight"], own["offset"])


def refuse_columns(owner: str, given: int, responses: int) -> None:
    """Refuse offsets with another number of columns than there are responses."""
    if given == responses:
        return
    if responses == 1:
        raise ValueError(f"{owner}: offset must be one number per row, got {given} columns")
    raise ValueError(
        f"{owner}: offset must have a column for each of the {responses} responses, got {given} "
        f"{'column' if given == 1 else 'columns'}; where rows stay at their sites, take offsets off the responses there"
    )


def predicted_offset(
    owner: str, X: Features, offset: RowNumbers, rows: int, fitted: bool, responses: int = 1
) -> np.ndarray:
    """What is added to the predictions for new rows; a model that was fitted with an offset must be given it."""
    if offset is None:
        if fitted:
            raise ValueError(
                f"{owner} was fitted with an offset, and predicts with one: give offset=, as in the fit (zeros for "
                "predictions without it)"
            )
        return np.zeros(rows)
    if not fitted:
        raise ValueError(f"{owner} was fitted without an offset, and predicts without one")
    found = numbers_of(owner, "offset", X, offset)
    if len(found) != rows:
        raise ValueError(f"{owner}: offset must be one number per row: {rows} rows, {len(found)} numbers")
    refuse_columns(owner, 1 if found.ndim == 1 else found.shape[1], responses)
    return found


def kind(given: object) -> str:
    """What was given, in a word or two."""
    return f"{given!r}" if given is None or isinstance(given, (int, float, str)) else checks.kind(given)
