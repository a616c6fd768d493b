"""Bao, Crawshaw, Luo, Liu (2022), Fast Composite Optimization and Statistical Recovery in FL: Section 4."""

import numpy as np

from cofed._util import checks
from cofed.datasets.synthetic import (
    Synthetic,
    check_at_most,
    check_choices,
    check_room,
    check_sizes,
    federation,
    shifted_clients,
)


def bao_sparse(
    clients: int = 64,
    samples: int = 128,
    d: int = 1024,
    nonzeros: int = 512,
    correlation: float = 0.5,
    seed: int = 0,
    dtype: str = "float32",
) -> Synthetic:
    """Sparse linear regression: x = delta_k + N(0, Sigma), Sigma_ij = 0.5^|i-j|, y = <x, w> + N(0, 1).

    w = (1, ..., 1, 0, ..., 0) and delta_k ~ N(0, I), fixed per client. The noise's variance is that of
    Example 3.1; s = 512 of p = 1024 is the paper's.

    Parameters
    ----------
    clients : int
        M, the number of clients.
    samples : int
        n, the number of samples of each client.
    d : int
        p, the number of features.
    nonzeros : int
        s, how many entries of w are 1.
    correlation : float
        rho in Sigma_ij = rho^|i-j|, between -1 and 1.
    seed : int
        The seed of all draws.
    dtype : {"float32", "float64"}
        The dtype of the data. All draws are made in 64 bits and then rounded.

    Returns
    -------
    Synthetic
        The federation, and the truth that it was drawn from.

    Raises
    ------
    ValueError
        If a number is out of range, or the data would not fit into memory.

    Examples
    --------
    >>> import cofed
    >>> data = cofed.datasets.bao_sparse(clients=2, samples=3, d=8, nonzeros=4)
    >>> data.federation.X.shape, data.truth["coef"]
    ((2, 3, 8), array([1., 1., 1., 1., 0., 0., 0., 0.]))
    """
    check_choices("bao_sparse", seed, dtype)
    check_sizes("bao_sparse", clients=clients, samples=samples, d=d)
    check_at_most("bao_sparse", "nonzeros", nonzeros, "d", d)
    inside = checks.is_real(correlation) and -1 < checks.as_float(correlation) < 1
    checks.real("bao_sparse: correlation", correlation, "between -1 and 1 (both excluded)", inside)
    coef = (np.arange(d) < nonzeros).astype(float)
    rng = np.random.default_rng(seed)

    def autoregressive(shape: tuple[int, ...]) -> np.ndarray:
        # z_j = rho z_{j-1} + sqrt(1 - rho^2) e_j has this covariance, without a d x d matrix.
        z = rng.standard_normal(shape)
        z[:, 1:] *= np.sqrt(1 - correlation**2)
        for j in range(1, shape[1]):
            z[:, j] += correlation * z[:, j - 1]
        return z

    return Synthetic(
        federation(shifted_clients(rng, clients, samples, coef, 0.0, autoregressive), dtype), {"coef": coef}
    )


def bao_low_rank(
    clients: int = 64, samples: int = 128, d: int = 32, rank: int = 16, seed: int = 0, dtype: str = "float32"
) -> Synthetic:
    """Low-rank matrix estimation: X = Z_k + A_i with N(0, 1) entries, y = <X, W> + N(0, 1), W = diag(1_r, 0).

    The size 32 x 32 and r = 16 are those of the experiment's figure; there is no intercept.

    Parameters
    ----------
    clients : int
        M, the number of clients.
    samples : int
        n, the number of samples of each client.
    d : int
        W is d x d.
    rank : int
        r, the rank of W.
    seed : int
        The seed of all draws.
    dtype : {"float32", "float64"}
        The dtype of the data. All draws are made in 64 bits and then rounded.

    Returns
    -------
    Synthetic
        The federation, and the truth that it was drawn from.

    Raises
    ------
    ValueError
        If a number is out of range, or the data would not fit into memory.

    Examples
    --------
    >>> import cofed
    >>> cofed.datasets.bao_low_rank(clients=2, samples=3, d=4, rank=1).federation.X.shape
    (2, 3, 4, 4)
    """
    check_choices("bao_low_rank", seed, dtype)
    check_sizes("bao_low_rank", clients=clients, samples=samples, d=d)
    check_room("bao_low_rank", clients, samples, d * d)
    check_at_most("bao_low_rank", "rank", rank, "d", d)
    coef = np.diag((np.arange(d) < rank).astype(float))
    rng = np.random.default_rng(seed)
    pairs = shifted_clients(rng, clients, samples, coef, 0.0, rng.standard_normal)
    return Synthetic(federation(pairs, dtype), {"coef": coef})
