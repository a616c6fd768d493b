"""Levels of columns, on which all sites agree, and how often each is there: from counts alone."""

import dataclasses

import numpy as np

from cofed.sites import Design, TableMismatch
from cofed.sites.agreement import union, usable
from cofed.sites.columns import Label, as_number
from cofed.sites.feature_intake import GatheredTables
from cofed.sites.queries import HistogramMessage, histogram


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
    by_design = {one.name: one.levels for one in tables.kept.features}
    levels = [by_design[name] or union(name, tables.told(name), findings) for name in names]
    raise_findings(owner, findings)
    design = with_levels(tables, dict(zip(names, levels, strict=True)))
    # The values of each feature, as upper edges of bins; factors are zeros and ones, of which the zeros are counted.
    values = [
        sorted(map(float, own)) if feature.levels is None else [0.0]
        for feature, own in zip(design.features, levels, strict=True)
    ]
    width = max(map(len, values))
    edges = [
        [*own, *(own[-1] + 1 + np.arange(width - len(own)))]
        for feature, own in zip(design.features, values, strict=True)
        for _ in feature.encoded
    ]
    counts = counted(tables, design, np.array(edges))
    found, place = [], 0
    for feature, own, told in zip(design.features, levels, values, strict=True):
        mine = counts[place : place + len(feature.encoded)]
        place += len(mine)
        if feature.levels is None:
            found.append(CountedLevels(np.array(list(map(as_number, told))), mine[0, : len(told)]))
            continue
        there = tables.n_rows - tables.missing(feature.name)
        others = there - mine[:, 0]
        each = np.concatenate([[there - others.sum()], others])
        found.append(in_order(np.array(own, object), each, holds_text(tables, feature.name)))
    return found


def with_levels(tables: GatheredTables, levels: dict[str, tuple[str, ...]]) -> Design:
    """The design of a question about levels: texts are factors, and numbers stay numbers."""
    features = [
        one.model_copy(update={"levels": levels[one.name]})
        if one.levels is None and holds_text(tables, one.name)
        else one
        for one in tables.kept.features
    ]
    return tables.kept.model_copy(update={"features": tuple(features)})


def counted(tables: GatheredTables, design: Design, edges: np.ndarray) -> np.ndarray:
    """How many rows have a value up to each edge and above the one before."""
    if not len(edges):  # a level each, so that there is nothing to count
        return np.zeros((0, 1), int)
    message = HistogramMessage(np.arange(len(edges), dtype=np.int32), edges)
    return np.rint(np.asarray(tables.sites_of(design).ask(histogram, message))).astype(int)


def in_order(texts: np.ndarray, counts: np.ndarray, is_text: bool) -> CountedLevels:
    """Texts in the order of their characters, numbers in theirs."""
    labels = texts if is_text else np.array([as_number(float(one)) for one in texts])
    order = np.argsort(labels)
    return CountedLevels(labels[order], counts[order])
