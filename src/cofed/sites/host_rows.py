"""Rows of features where nothing is compiled: arrays, or sparse rows."""

from typing import Any

import numpy as np
import scipy.sparse


class SparseRows:
    """Rows of which most values are 0: the others are stored by row, each once.

    Parameters
    ----------
    values : sparse matrix of SciPy
        The rows; they are copied.

    Attributes
    ----------
    shape : tuple of int
        n, p
    data, indices, indptr : ndarray
        The stored values, their columns, and where every row begins (and the last one ends).

    Examples
    --------
    >>> import scipy
    >>> from cofed.sites.host_rows import SparseRows
    >>> rows = SparseRows(scipy.sparse.coo_array(([1.0, 2.0, 0.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 3)))
    >>> rows.data.tolist(), rows.indices.tolist(), rows.indptr.tolist()
    ([3.0], [1], [0, 1, 1])
    """

    def __init__(self, values: Any):
        held: Any = scipy.sparse.csr_array(values, dtype=np.float64, copy=True)
        held.sum_duplicates()
        held.eliminate_zeros()
        self.held = held
        self.shape: tuple[int, int] = held.shape
        self.data: np.ndarray = held.data
        self.indices: np.ndarray = held.indices
        self.indptr: np.ndarray = held.indptr
        self.dtype = held.dtype

    def __len__(self) -> int:
        """n"""
        return self.shape[0]

    def __getitem__(self, which: slice | np.ndarray) -> "SparseRows":
        """Some of the rows."""
        return SparseRows(self.held[which])

    def __matmul__(self, V: np.ndarray) -> np.ndarray:
        """Their products."""
        return self.held @ V

    def columns(self, where: np.ndarray) -> np.ndarray:
        """Some columns, as an array."""
        return self.held[:, where].toarray()

    def without(self, is_left_out: np.ndarray) -> "SparseRows":
        """The same rows, with zeros in some columns."""
        return SparseRows(self.held @ scipy.sparse.diags_array(np.where(is_left_out, 0.0, 1.0)))

    def with_rows(self, again: np.ndarray) -> "SparseRows":
        """These rows, and some of them once more."""
        return SparseRows(scipy.sparse.vstack([self.held, self.held[again]])) if len(again) else self


HostRows = np.ndarray | SparseRows  # n x p


def joined(parts: list[HostRows]) -> HostRows:
    """Rows, one after another: all are arrays, or none is."""
    sparse = [part.held for part in parts if isinstance(part, SparseRows)]
    if sparse:
        return SparseRows(scipy.sparse.vstack(sparse))
    return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])


def stored(X: HostRows) -> np.ndarray:
    """The values that may be other than 0."""
    return X if isinstance(X, np.ndarray) else X.data


def columns_of(X: HostRows, where: np.ndarray) -> np.ndarray:
    """Some columns, as an array."""
    return X[:, where] if isinstance(X, np.ndarray) else X.columns(where)
