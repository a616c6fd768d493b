"""A site's own table: what it tells of it, and the rows of numbers that a design makes of it."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd

from cofed._util import naming
from cofed._util.checks import kind
from cofed._util.pandas_types import Frame
from cofed._util.types import Given
from cofed.sites.columns import WORDS, Column, Label, TableInfo, level_text, numbers_of, read_column
from cofed.sites.design import Design, Feature, RowColumn, Target
from cofed.sites.follow_up import mistake
from cofed.sites.rows import Latest, SiteRows

Part: TypeAlias = Feature | Target | RowColumn
POINTS = "write them with decimal points"


class TableMismatch(ValueError):
    """A site's table does not fit what was agreed: all that does not fit, a line each."""

    def __init__(self, findings: Sequence[str]):
        super().__init__("\n".join(findings))
        self.findings = tuple(findings)


class SiteTable:
    """The table of one site.

    Parameters
    ----------
    frame : pandas.DataFrame
        The rows, with columns in any order.
    site : str
        The site's name, for sentences and for its folds.

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.sites import Design, Feature, SiteTable, Target
    >>> table = SiteTable(pd.DataFrame({"sex": ["male", "female"], "age": [61, 52], "ill": ["no", "yes"]}), "Oslo")
    >>> [(column.name, column.kind, column.levels) for column in table.info().columns][0]
    ('sex', 'text', ('female', 'male'))
    >>> age, sex = Feature(name="age"), Feature(name="sex", levels=("female", "male"))
    >>> design = Design(features=(age, sex), target=Target(name="ill", classes=("no", "yes")))
    >>> rows = table.rows(design)
    >>> rows.X.tolist(), rows.y.tolist()
    ([[61.0, 1.0], [52.0, 0.0]], [0, 1])
    """

    def __init__(self, frame: Given[pd.DataFrame], site: str = "this site"):
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"site {site!r}: the table must be a pandas DataFrame, got {kind(frame)}")
        if not len(frame) or not len(frame.columns):
            found = f"{len(frame)} rows and {len(frame.columns)} columns"
            raise ValueError(f"site {site!r}: the table has {found}; expected at least one of each")
        names = [naming.as_text(f"site {site!r}: the names of columns", name) for name in frame.columns]
        naming.require_different(f"site {site!r}: the names of columns", names)
        self.site = site
        self.frame: Frame = frame.set_axis(names, axis=1)
        self.columns: dict[tuple[str, tuple[Label, ...]], Column] = {}
        self.encoded: Latest[SiteRows] = Latest()

    @functools.cached_property
    def row_hashes(self) -> np.ndarray:
        """A hash of each row, for the site alone: the same for the same content, wherever the row stands."""
        cells: Callable[..., pd.Series] = pd.util.hash_pandas_object  # pyright: ignore[reportAttributeAccessIssue]
        return cells(self.frame, index=False).to_numpy()

    @functools.cached_property
    def digest(self) -> bytes:
        """A hash of all that the table holds, for the site alone: it would tell whoever can guess the table."""
        names = json.dumps([*self.frame.columns, *map(str, self.frame.dtypes)]).encode()
        cells = self.row_hashes
        return hashlib.sha256(names + cells.tobytes()).digest()

    def info(self, markers: Mapping[str, Sequence[Label]] | None = None) -> TableInfo:
        """What the site tells of its table.

        Parameters
        ----------
        markers
            By column, what a missing value looks like beside an empty cell.
        """
        own = markers or {}
        columns = tuple(self.read(name, tuple(own.get(name, ()))).info(name) for name in self.frame.columns)
        return TableInfo(rows=len(self.frame), columns=columns)

    def read(self, name: str, markers: tuple[Label, ...] = ()) -> Column:
        """The values of a column, read once."""
        if (name, markers) not in self.columns:
            self.columns[name, markers] = read_column(self.frame[name], markers)
        return self.columns[name, markers]

    def findings(self, design: Design) -> list[str]:
        """All that keeps the table from fitting a design, a sentence each."""
        found = [finding for feature in design.features for finding in self.misfits(feature, feature.levels)]
        for column in () if design.target is None else design.target.columns:
            found += self.misfits(column, column.classes)
        for column in row_columns(design):
            # Groups and clusters are whatever stands there.
            is_label = column in (design.group, design.cluster)
            found += self.absent(column) if is_label else self.misfits(column, None)
        if not found and design.weight is not None:
            found += self.negative(design.weight)
        if found:
            return found
        if design.missing == "refuse":
            found = [self.refused(part) for part in parts(design) if self.read(part.name, part.markers).missing.any()]
        if not found and not self.kept(design).any():
            without = "with missing values" + (" or a weight of 0" if design.weight is not None else "")
            found = [f"site {self.site!r}: no row is left of {len(self.frame)} without those {without}"]
        if not found and design.target is not None and design.target.event is not None and design.missing != "keep":
            wrong = mistake(self.labels(design)[self.kept(design)])
            found = [] if wrong is None else [f"site {self.site!r}: of the target {design.target.name!r}, {wrong}"]
        return found

    def absent(self, part: Part) -> list[str]:
        """Why there is no such column."""
        if part.name in self.frame.columns:
            return []
        near = naming.listed(self.frame.columns)
        return [f"site {self.site!r} has no column {part.name!r}; its columns are {near}"]

    def misfits(self, part: Part, levels: Sequence[Label] | None) -> list[str]:
        """Why a column is not what was agreed."""
        if part.name not in self.frame.columns:
            return self.absent(part)
        column = self.read(part.name, part.markers)
        where = f"site {self.site!r}, column {part.name!r}"
        if column.kind == "empty":
            return []
        if column.kind in ("date", "mixed"):
            return [f"{where} holds {WORDS[column.kind]}; turn them into numbers, such as days, or into levels"]
        if levels is None:
            if column.has_decimal_commas:
                return [f"{where} holds {WORDS['decimal commas']}; {POINTS}"]
            if not column.is_numeric:
                odd = first_odd(column)
                return [f"{where} must hold numbers, but has {odd!r}; correct it, or say that it marks a missing value"]
            infinite = int(np.isinf(column.values).sum())
            return [f"{where} is infinite in {infinite} rows"] if infinite else []
        unknown = sorted(set(column.texts()[(column.codes(levels) < 0) & ~column.missing]), key=naming.natural)
        known = naming.listed(level_text(level) for level in levels)
        return [f"{where} has {naming.listed(unknown)}, but the levels are {known}"] if unknown else []

    def negative(self, weight: RowColumn) -> list[str]:
        """Why a column cannot be a weight."""
        column = self.read(weight.name, weight.markers)
        below = 0 if column.kind == "empty" else int(np.sum(column.values[~column.missing] < 0))
        where = f"site {self.site!r}, column {weight.name!r}"
        return [f"{where} must hold weights >= 0, but is below 0 in {below} rows"] if below else []

    def refused(self, part: Part) -> str:
        """Why a column with missing values is refused."""
        missing = int(self.read(part.name, part.markers).missing.sum())
        return (
            f"site {self.site!r}, column {part.name!r} has no value in {missing} of {len(self.frame)} rows; "
            f"{remedy(not isinstance(part, Feature))}"
        )

    def kept(self, design: Design) -> np.ndarray:
        """Which rows the design keeps."""
        keep = np.ones(len(self.frame), bool)
        for part in parts(design):
            if design.missing == "drop" or (design.missing == "impute" and not isinstance(part, Feature)):
                keep &= ~self.read(part.name, part.markers).missing
        if design.weight is not None:
            keep &= self.values(design.weight) > 0
        return keep

    def values(self, part: RowColumn) -> np.ndarray:
        """The numbers of a column, NaN where one is missing."""
        column = self.read(part.name, part.markers)
        return np.full(len(self.frame), np.nan) if column.kind == "empty" else column.values.astype(np.float64)

    def rows(self, design: Design) -> SiteRows:
        """The rows of numbers that a design makes of the table; the latest are kept.

        Raises
        ------
        TableMismatch
            Where the table does not fit, with all that does not.
        """
        return self.encoded.get(design, lambda: self.encode(design))

    def encode(self, design: Design) -> SiteRows:
        """The rows of numbers that a design makes of the table."""
        if design.needs_fills:
            raise ValueError("a design that imputes needs the values that all sites agreed on")
        found = self.findings(design)
        if found:
            raise TableMismatch(found)
        keep = self.kept(design)
        X = np.empty((int(keep.sum()), len(design.table_names)))
        place = 0
        for feature in design.features:
            width = len(feature.encoded)
            X[:, place : place + width] = self.numbers(feature, design.missing)[keep]
            place += width
        for step in design.steps:
            X = step.apply(X)
        y = self.labels(design)[keep] if design.target else np.zeros(0)
        weight = None if design.weight is None else self.values(design.weight)[keep]
        if design.class_weight is not None:
            weight = np.asarray(design.class_weight)[y.astype(int)] * (1 if weight is None else weight)
        offset = None if design.offset is None else self.values(design.offset)[keep]
        rows = SiteRows.of_sites((self.site,), [X], [y])
        group, cluster = (
            None if part is None else pd.factorize(self.read(part.name, part.markers).texts()[keep])[0].astype(np.int32)
            for part in (design.group, design.cluster)
        )
        return dataclasses.replace(rows, weight=weight, offset=offset, group=group, cluster=cluster)

    def numbers(self, feature: Feature, missing: str) -> np.ndarray:
        """The columns of X that a feature becomes."""
        column = self.read(feature.name, feature.markers)
        if feature.levels is None:
            values = column.values.astype(np.float64)
            fill = np.nan if feature.fill is None else feature.fill
            return (np.where(column.missing, fill, values) if missing == "impute" else values)[:, None]
        codes = column.codes(feature.levels)
        if missing == "impute" and feature.fill is not None:
            codes = np.where(column.missing, feature.levels.index(str(feature.fill)), codes)
        X = (codes[:, None] == np.arange(1, len(feature.levels))).astype(np.float64)
        X[codes < 0] = np.nan
        return X

    def labels(self, design: Design) -> np.ndarray:
        """The targets: numbers, positions of classes, or rows of the time to an event or of several responses."""
        assert design.target is not None
        if len(design.target.columns) > 1:
            columns = [self.read(one.name, one.markers).values for one in design.target.columns]
            return np.column_stack([column.astype(np.float64) for column in columns])
        column = self.read(design.target.name, design.target.markers)
        if design.target.classes is None:
            return column.values.astype(np.float64)
        return column.codes(design.target.classes)


def parts(design: Design) -> list[Part]:
    """The columns that a design is about."""
    return [*design.features, *(() if design.target is None else design.target.columns), *row_columns(design)]


def row_columns(design: Design) -> list[RowColumn]:
    """The columns that are weights, offsets, groups or clusters, each once."""
    return list({column.name: column for column in design.row_columns.values()}.values())


def remedy(is_needed: bool) -> str:
    """What can be done about missing values of a column that is needed, such as the target, or of a feature; an option
    and an argument are named."""
    if is_needed:
        return "leave such rows out (missing='drop', or --missing-values drop)"
    return "drop such rows or impute the values (missing='drop' or 'impute', or --missing-values)"


def first_odd(column: Column) -> str:
    """The first value that is no number."""
    present = column.values[~column.missing]
    return str(present[np.isnan(numbers_of(present))][0])
