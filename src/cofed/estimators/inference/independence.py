"""Which columns say something new, in the user's order, from their products alone."""

import dataclasses

import numpy as np

LEAST = 1e-12  # of a column's variance must be its own, or it depends on the columns before it
NOTABLE = 1e-4  # a share in a dependence, of the largest one


@dataclasses.dataclass(frozen=True)
class Independence:
    """Columns that depend on none before them, and what the others depend on."""

    kept: np.ndarray  # whether each column is independent of those before it
    smallest: float  # the least part of a kept column's variance that is its own
    shares: np.ndarray  # columns as combinations of the kept ones: X = X[:, kept] @ shares

    @property
    def dependent(self) -> dict[int, list[int]]:
        """The columns that each dependent one is a combination of; none for a column of zeros."""
        kept = np.flatnonzero(self.kept)
        found = {}
        for j in np.flatnonzero(~self.kept):
            size = np.abs(self.shares[:, j])
            found[int(j)] = kept[size > NOTABLE * size.max(initial=0)].tolist()
        return found


def independence(products: np.ndarray, order: np.ndarray) -> Independence:
    """Cholesky's factorisation of the columns' products, in this order, without what depends on what came before.

    >>> import numpy as np
    >>> from cofed.estimators.inference.independence import independence
    >>> X = np.array([[1.0, 2.0, 0.0], [1.0, 2.0, 1.0], [2.0, 4.0, 3.0]])
    >>> found = independence(X.T @ X, np.arange(3))
    >>> found.kept.tolist(), found.dependent
    ([True, False, True], {1: [0]})
    """
    size = np.sqrt(np.diag(products))
    scale = np.where(size > 0, size, 1.0)
    R = products / np.outer(scale, scale)
    least = max(LEAST, 10 * len(R) * np.finfo(float).eps)
    pivots = all_pivots(R[np.ix_(order, order)])
    if pivots is None or pivots.min(initial=1) < least:
        pivots = pivots_without_dependent(R[np.ix_(order, order)], least)
    kept = np.zeros(len(R), bool)
    kept[order] = pivots >= least
    shares = np.eye(len(R))[kept]
    if not kept.all():
        shares[:, ~kept] = np.linalg.solve(R[np.ix_(kept, kept)], R[np.ix_(kept, ~kept)])
        # Columns of zeros are combinations with no share at all, exactly.
        shares = np.where(size > 0, shares, 0.0) * scale / scale[kept][:, None]
    return Independence(kept, float(pivots[pivots >= least].min(initial=1)), shares)


def all_pivots(R: np.ndarray) -> np.ndarray | None:
    """The part of each column's variance that those before it leave; None where some leave nothing."""
    try:
        return np.diag(np.linalg.cholesky(R)) ** 2
    except np.linalg.LinAlgError:
        return None


def pivots_without_dependent(R: np.ndarray, least: float) -> np.ndarray:
    """The same, where columns that depend on others are passed over."""
    left, pivots = R.copy(), np.zeros(len(R))
    for j in range(len(R)):
        pivots[j] = left[j, j]
        if pivots[j] >= least:
            column = left[j:, j] / np.sqrt(pivots[j])
            left[j:, j:] -= np.outer(column, column)
    return pivots
