"""Weights of classes: which are allowed, and whether every class has rows."""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from cofed._util.types import Given
from cofed.estimators.checks import check_number
from cofed.sites.queries import SumsAnswer

Label: TypeAlias = bool | int | float | str


def check_class_weight(owner: str, given: Given[Mapping[Label, float] | str | None]) -> None:
    """Refuse what is neither "balanced" nor numbers above 0 by class."""
    if given is None or (isinstance(given, str) and given == "balanced"):
        return
    if not isinstance(given, Mapping):
        raise ValueError(f"{owner}: class_weight must be 'balanced' or a dict of classes and numbers, got {given!r}")
    for label, weight in given.items():
        check_number(owner, f"class_weight[{label!r}]", weight, low=0, strict=True)


def class_counts(found: SumsAnswer) -> np.ndarray:
    """How many rows each class has, or what they count, all together."""
    labels = np.sum(np.asarray(found.labels), axis=0)
    return labels if len(labels) > 1 else np.append(np.sum(found.n) - labels, labels)


def check_counts(owner: str, counts: np.ndarray, classes: list[Label]) -> None:
    """Refuse a class without rows, which has no probability to begin from."""
    for label, count in zip(classes, counts.tolist(), strict=True):
        if not count > 0:
            raise ValueError(f"{owner}: no row of the class {label!r} counts: leave the class out, or weigh its rows")
