"""What a policy says of life tables: each time of each group counts as a column, and few rows are not seen alone."""

import numpy as np

from cofed.sites.guard import Refusal
from cofed.sites.policy.case import Case
from cofed.sites.queries import LifeTableMessage


def told_times(case: Case) -> frozenset[str]:
    """The times of a life table, by group, as names that later tables and products of columns are counted with.

    Whether a row's time is at most t is a column of zeros and ones, of which the table tells the sum.
    """
    message = case.message
    if not isinstance(message, LifeTableMessage):
        return frozenset()
    names = case.asked.design.feature_names
    groups = ["", *(names[int(j)] for j in np.asarray(message.groups))]
    return frozenset(f"{group} <= {edge!r}" for group in groups for edge in np.asarray(message.edges).tolist())


def life_cells(case: Case) -> Refusal | None:
    """Whether a count that is seen alone, and not in a sum over sites, stands for too few rows."""
    message, least = case.message, case.policy.rows.cell
    if not isinstance(message, LifeTableMessage) or case.asked.over is not None:
        return None
    own, y = case.X[:, np.asarray(message.groups, int)], case.y
    group = own @ np.arange(1, own.shape[1] + 1)
    cell = np.column_stack([group, np.searchsorted(message.edges, y[:, -2]), y[:, -1]])
    fewest = int(np.unique(cell, axis=0, return_counts=True)[1].min())
    if fewest >= least:
        return None
    why = f"a count of the life table would be of {fewest} rows, and the server would see it alone"
    way = "ask for fewer times, or for masked answers"
    return Refusal("cells", f"{why}; it must be of {least} (rows.cell): {way}", counts_rows=True)
