"""Levels of columns, on which all sites agree, and how often each is there: from counts alone."""

import dataclasses

import numpy as np

from cofed.sites import Design, Feature, TableMismatch
from cofed.sites.agreement import union, usable
from cofed.sites.columns import Label, as_number
from cofed.sites.feature_intake import GatheredTables
from cofed.sites.queries import MomentsMessage, observed


@dataclasses.dataclass(frozen=True)
class CountedLevels:
    """The levels of a column, in scikit-learn's order, and the rows of all sites that have each."""

    labels: np.ndarray  # numbers, or texts as objects
    counts: np.ndarray

    @property
    def most_frequent(self) -> Label:
        """The level of most rows, the first of several."""
        return self.labels.tolist()[int(np.argmax(self.counts))]


def check_columns(owner: str, tables: GatheredTables) -> None:
    """Refuse columns that are neither numbers nor levels, or not the same of the two at all sites."""
    findings: list[str] = []
    for feature in tables.features:
        usable(feature.name, tables.told(feature.name), findings)
    raise_findings(owner, findings)


def raise_findings(owner: str, findings: list[str]) -> None:
    """Refuse tables for all that was found."""
    if findings:
        raise TableMismatch([f"{owner}: {finding}" for finding in findings])


def holds_text(tables: GatheredTables, name: str) -> bool:
    """Whether a column holds texts."""
    return any(info.kind == "text" for info in tables.told(name).values())


def count_levels(owner: str, tables: GatheredTables) -> list[CountedLevels]:
    """The levels of every column with their counts, in one exchange."""
    check_columns(owner, tables)
    findings: list[str] = []
    names = [feature.name for feature in tables.features]
    levels = [union(name, tables.told(name), findings) for name in names]
    raise_findings(owner, findings)
    factors = tuple(
        Feature(name=feature.name, levels=own, markers=feature.markers)
        for feature, own in zip(tables.features, levels, strict=True)
    )
    sums = level_sums(tables, Design(features=factors, missing="keep"))
    found, place = [], 0
    for name, own in zip(names, levels, strict=True):
        others = np.rint(sums[place : place + len(own) - 1]).astype(int)
        place += len(own) - 1
        counts = np.concatenate([[tables.n_rows - tables.missing(name) - others.sum()], others])
        found.append(in_order(np.array(own, object), counts, holds_text(tables, name)))
    return found


def level_sums(tables: GatheredTables, design: Design) -> np.ndarray:
    """How many rows have each level but the first of its column."""
    width = len(design.feature_names)
    if width == 0:  # a level each, so that there is nothing to count
        return np.zeros(0)
    return np.asarray(tables.sites_of(design).ask(observed, MomentsMessage(np.zeros(width))).X)


def in_order(texts: np.ndarray, counts: np.ndarray, is_text: bool) -> CountedLevels:
    """Texts in the order of their characters, numbers in theirs."""
    labels = texts if is_text else np.array([as_number(float(one)) for one in texts])
    order = np.argsort(labels)
    return CountedLevels(labels[order], counts[order])
