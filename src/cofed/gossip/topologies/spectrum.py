"""The gossip matrix of a list of edges, and its second eigenvalue."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_array as SparseMatrix
else:  # scipy.sparse is loaded where it is used
    SparseMatrix = Any


def gossip_matrix(first: np.ndarray, second: np.ndarray, weight: np.ndarray, nodes: int) -> SparseMatrix:
    """U as a sparse matrix; its diagonal is what the edges leave of each row's sum of 1."""
    import scipy.sparse

    rows, columns = np.concatenate([first, second]), np.concatenate([second, first])
    off = scipy.sparse.coo_array((np.tile(weight, 2).astype(float), (rows, columns)), shape=(nodes, nodes)).tocsr()
    own = 1.0 - np.bincount(rows, np.tile(weight, 2), minlength=nodes)
    return (off + scipy.sparse.diags_array(own)).tocsr()


def second_eigenvalue(U: SparseMatrix, nodes: int) -> float:
    """sigma_2: the spectral norm of U - J/M."""
    import scipy.sparse.linalg

    if nodes == 1:
        return 0.0
    if nodes <= 500:
        return float(np.abs(np.linalg.eigvalsh(U.toarray() - 1 / nodes)).max().round(12))
    # Both ends of the spectrum; the upper one, crowded below 1, by inverting U - (1 + 1e-6) I, which is sparse.
    start = np.random.default_rng(0).normal(size=nodes)
    eigenvalues: Any = scipy.sparse.linalg.eigsh
    options = {"v0": start, "return_eigenvectors": False}
    top = eigenvalues(U.tocsc(), k=2, sigma=1 + 1e-6, **options).min()
    least = eigenvalues(U, k=1, which="SA", **options).min()
    return float(max(top, -least))
