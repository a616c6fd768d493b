"""The rule about columns that the steps of a design have made of the table's."""

import numpy as np

from cofed.sites.guard import Refusal
from cofed.sites.host_rows import columns_of
from cofed.sites.policy.case import Case


def makes_new_sums(case: Case) -> bool:
    """Whether sums of what the steps make are not known from those of the table's columns."""
    return not all(step.is_linear for step in case.asked.design.steps)


def column_names(case: Case) -> tuple[frozenset[str], ...]:
    """The names by which each column is counted: the same name, made by other steps, is another column.

    Products of what is linear in the table's columns are combinations of theirs, so that those are counted: else
    projections in many directions would tell them all under one name.
    """
    design = case.asked.design
    if makes_new_sums(case):
        made = " ".join(step.digest for step in design.steps)
        return tuple(frozenset([f"{name} {made}"]) for name in design.feature_names)
    found = [frozenset([name]) for name in design.table_names]
    for step in design.steps:
        found = [frozenset(name for j in own for name in found[j]) for own in step.origins]
    return tuple(found)


def steps(case: Case) -> Refusal | None:
    """Whether a column that steps have made differs from its usual value in too few rows, or by one row mostly.

    Knots, edges and powers are the server's choice: without this they could cut single rows out.
    """
    if not makes_new_sums(case):
        return None
    rows, least = case.asked.rows.X, case.policy.rows.cell
    X = columns_of(rows, np.arange(rows.shape[1]))
    if not np.isfinite(X).all():
        return Refusal("steps", "a column that a step makes is not finite here", is_silent=True)
    off = np.abs(X - np.median(X, axis=0))
    squares = (off**2).sum(axis=0)
    told = squares > 0
    alike = (off.sum(axis=0)[told] ** 2 / squares[told]).min(initial=np.inf)
    if alike >= least:
        return None
    why = f"a column that a step makes is as one of {alike:.3g} rows of this site"
    return Refusal("steps", f"{why}; {least} must share it (rows.cell): use fewer bins or knots", is_silent=True)
