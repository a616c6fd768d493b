"""What of a site's table does not fit a study, seen at the site, before anything leaves it."""

import dataclasses

import numpy as np

from cofed._util import naming
from cofed.sites.columns import Column
from cofed.sites.design import Design
from cofed.sites.site_table import SiteTable
from cofed.studies.schema import Study
from cofed.studies.variables import Variable


@dataclasses.dataclass(frozen=True)
class TableCheck:
    """What a check of a table found.

    Parameters
    ----------
    findings : tuple of str
        What does not fit, a sentence each.
    notes : tuple of str
        What is good to know, such as how many values are missing.

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.sites import SiteTable
    >>> from cofed.studies import Study, Variable, check
    >>> variables = {"age": Variable(kind="number", range=[0, 110]), "ill": Variable(kind="binary")}
    >>> table = SiteTable(pd.DataFrame({"age": [50, 999], "ill": [0, 1]}), "Oslo")
    >>> check(Study(study={"name": "demo"}, variables=variables), table).findings
    ("site 'Oslo', column 'age' has 1 of 2 values outside 0 to 110 (from 50 to 999)",)
    """

    findings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether all fits."""
        return not self.findings


def check(study: Study, table: SiteTable) -> TableCheck:
    """Hold a site's table against a study.

    Parameters
    ----------
    study : Study
        What was agreed on.
    table : SiteTable
        The site's table.

    Returns
    -------
    TableCheck
        All that does not fit, and what is good to know.
    """
    findings: list[str] = []
    for name, variable in study.variables.items():
        found = table.findings(Design(features=(variable.feature(name),), missing="keep"))
        findings += found or out_of_bounds(table, name, variable)
    if not findings:
        for analysis in study.analyses:
            found = table.findings(without_fills(study.design(analysis)))
            findings += [f"{one} (analysis {analysis.name!r})" for one in found]
    return TableCheck(tuple(dict.fromkeys(findings)), tuple(notes(study, table)))


def without_fills(design: Design) -> Design:
    """The design as far as one site can check it: what is imputed, all sites agree on later."""
    return design if design.missing != "impute" else design.keeping_missing()


def out_of_bounds(table: SiteTable, name: str, variable: Variable) -> list[str]:
    """Values that are of the right type, but not what the variable may be."""
    column = table.read(name, variable.missing)
    if column.kind == "empty":
        return [f"site {table.site!r}, column {name!r} has no value"]
    if variable.levels is not None:
        return []
    values, where = column.values[~column.missing], f"site {table.site!r}, column {name!r}"
    span = f"(from {values.min():g} to {values.max():g})"
    if variable.kind == "binary":
        odd = int(np.sum(~np.isin(values, (0, 1))))
        return [f"{where} has {odd} of {len(values)} values that are not 0 or 1 {span}"] if odd else []
    found = []
    if variable.kind == "count":
        odd = int(np.sum((values < 0) | (values != np.round(values))))
        found += [f"{where} has {odd} of {len(values)} values that are no counts {span}"] if odd else []
    if variable.range is not None:
        low, high = variable.range
        odd = int(np.sum((values < low) | (values > high)))
        found += [f"{where} has {odd} of {len(values)} values outside {low:g} to {high:g} {span}"] if odd else []
    return found


def notes(study: Study, table: SiteTable) -> list[str]:
    """What is good to know of a table."""
    unused = [name for name in table.frame.columns if name not in study.variables]
    said = [f"not in the study, and not used: {naming.listed(unused)}"] if unused else []
    for name, variable in study.variables.items():
        if name not in table.frame.columns:
            continue
        column = table.read(name, variable.missing)
        if column.missing.any():
            said.append(f"column {name!r}: {int(column.missing.sum())} of {len(column.missing)} values are missing")
        if variable.levels is not None:
            absent = without_rows(column, variable)
            said += [f"column {name!r}: no row has {naming.listed(absent)}"] if absent else []
    return said


def without_rows(column: Column, variable: Variable) -> list[object]:
    """The levels that no row has."""
    levels = variable.levels or ()
    seen = set(column.codes(levels).tolist())
    return [level for place, level in enumerate(levels) if place not in seen]
