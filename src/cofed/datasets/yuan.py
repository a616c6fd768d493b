"""Yuan, Zaheer, Reddi (2021), Federated Composite Optimization: Section 5 and Appendix B."""

from collections.abc import Iterable

import numpy as np

from cofed._util import checks
from cofed.datasets.synthetic import (
    Pair,
    Synthetic,
    check_at_most,
    check_choices,
    check_counts,
    check_room,
    check_scale,
    check_sizes,
    federation,
    shifted_clients,
    sigmoid,
)


def yuan_lasso(
    clients: int = 64,
    samples: int = 128,
    d: int = 1024,
    nonzeros: int = 512,
    test_clients: int = 8,
    seed: int = 0,
    dtype: str = "float32",
    scale: float = 1.0,
) -> Synthetic:
    """Appendix B.2: sparse linear regression, y = <x, w> + b + N(0, 1) with w = (1, ..., 1, 0, ..., 0).

    b ~ N(0, 1); x = scale (mu_m + N(0, I)), where mu_m ~ N(0, I) is fixed for client m; the paper's scale is 1.
    The defaults are data set I; II and III have nonzeros=64 and 8; IV has clients=256, samples=32.
    Open choice: `test` holds fresh clients (the paper does not say how its validation data are drawn).

    Parameters
    ----------
    clients : int
        M, the number of clients.
    samples : int
        n, the number of samples of each client.
    d : int
        The number of features.
    nonzeros : int
        s, how many entries of w are 1.
    test_clients : int
        How many fresh clients `test` holds; 0 for none.
    seed : int
        The seed of all draws.
    dtype : {"float32", "float64"}
        The dtype of the data. All draws are made in 64 bits and then rounded.
    scale : float
        What the features are multiplied with, before the responses are computed from them.

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
    >>> cofed.datasets.yuan_lasso(clients=4, samples=8, d=16, nonzeros=3).federation.X.shape
    (4, 8, 16)
    """
    check_choices("yuan_lasso", seed, dtype)
    check_sizes("yuan_lasso", clients=clients, samples=samples, d=d)
    check_at_most("yuan_lasso", "nonzeros", nonzeros, "d", d)
    check_counts("yuan_lasso", test_clients=test_clients)
    check_scale("yuan_lasso", scale=scale)
    coef = (np.arange(d) < nonzeros).astype(float)
    return _shifted(coef, scale, (clients, test_clients), samples, seed, dtype)


def yuan_low_rank(
    clients: int = 64,
    samples: int = 128,
    d: int = 32,
    rank: int = 16,
    test_clients: int = 8,
    seed: int = 0,
    dtype: str = "float32",
    scale: float = 1.0,
) -> Synthetic:
    """Appendix B.3: W = diag(1, ..., 1, 0, ..., 0) of the given rank; the rest as in `yuan_lasso`.

    The defaults are data set I; II and III have rank=4 and 1; IV has clients=256, samples=32.

    Parameters
    ----------
    clients : int
        M, the number of clients.
    samples : int
        n, the number of samples of each client.
    d : int
        W is d x d.
    rank : int
        The rank of W.
    test_clients : int
        How many fresh clients `test` holds; 0 for none.
    seed : int
        The seed of all draws.
    dtype : {"float32", "float64"}
        The dtype of the data. All draws are made in 64 bits and then rounded.
    scale : float
        What the features are multiplied with, before the responses are computed from them.

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
    >>> import numpy as np
    >>> import cofed
    >>> data = cofed.datasets.yuan_low_rank(clients=2, samples=3, d=4, rank=2)
    >>> data.federation.X.shape, int(np.linalg.matrix_rank(data.truth["coef"]))
    ((2, 3, 4, 4), 2)
    """
    check_choices("yuan_low_rank", seed, dtype)
    check_sizes("yuan_low_rank", clients=clients, samples=samples, d=d)
    check_room("yuan_low_rank", clients, samples, d * d)
    check_at_most("yuan_low_rank", "rank", rank, "d", d)
    check_counts("yuan_low_rank", test_clients=test_clients)
    check_scale("yuan_low_rank", scale=scale)
    coef = np.diag((np.arange(d) < rank).astype(float))
    return _shifted(coef, scale, (clients, test_clients), samples, seed, dtype)


def yuan_fmri_like(
    clients: int = 59,
    samples: int = 18,
    d: int = 39_912,
    regions: int = 10,
    region_size: int = 20,
    smoothness: int = 9,
    signal: float = 8.0,
    test_clients: int = 12,
    seed: int = 0,
    dtype: str = "float32",
) -> Synthetic:
    """A generated stand-in for the fMRI scans of Section 5.3 and Appendix B.4: their shape, not real data.

    59 sessions of 18 scans of 39,912 voxels, and 12 sessions to test on. All that follows is chosen here:

    - the truth is zero but for `regions` blocks of `region_size` neighbouring voxels, each of one sign;
    - voxels are standard Gaussian noise averaged over `smoothness` neighbours and scaled to variance 1,
      plus a session's own offset, made the same way with standard deviation 0.3;
    - labels are 1 with probability sigmoid(<x, w>), with w scaled so that <x, w> has standard deviation
      `signal` over scans of one session: at 8 the true w predicts about nine labels of ten.

    Parameters
    ----------
    clients : int
        Sessions to train on.
    samples : int
        Scans of a session.
    d : int
        Voxels.
    regions : int
        Blocks of voxels that matter.
    region_size : int
        Voxels of such a block.
    smoothness : int
        How many neighbours a voxel is averaged over.
    signal : float
        The standard deviation of <x, w>.
    test_clients : int
        Sessions to test on; 0 for none.
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
    >>> import numpy as np
    >>> import cofed
    >>> data = cofed.datasets.yuan_fmri_like(clients=3, samples=4, d=300, regions=2, region_size=5, test_clients=1)
    >>> data.federation.X.shape, int(np.count_nonzero(data.truth["coef"]))
    ((3, 4, 300), 10)
    """
    check_choices("yuan_fmri_like", seed, dtype)
    check_sizes("yuan_fmri_like", clients=clients, samples=samples, d=d)
    for name, value in (("regions", regions), ("region_size", region_size), ("smoothness", smoothness)):
        if checks.integer(f"yuan_fmri_like: {name}", value) > d:
            raise ValueError(f"yuan_fmri_like: {name} must be at most d={d}, got {value}")
    check_at_most("yuan_fmri_like", "regions * region_size", regions * region_size, "d", d)
    check_counts("yuan_fmri_like", test_clients=test_clients)
    check_scale("yuan_fmri_like", signal=signal)
    rng = np.random.default_rng(seed)

    # Regions start in different slots of width region_size, so that they never overlap.
    slots = rng.choice(d // region_size, size=regions, replace=False)
    coef = np.zeros(d)
    for slot, sign in zip(slots, rng.permutation(np.arange(regions) % 2 * 2.0 - 1), strict=True):
        coef[slot * region_size : (slot + 1) * region_size] = sign
    # <x, w> is white noise times w smoothed, so its variance is the squared norm of the latter.
    coef *= signal / np.linalg.norm(np.convolve(coef, np.full(smoothness, smoothness**-0.5)))

    def smooth(rows: int) -> np.ndarray:
        total = np.cumsum(rng.standard_normal((rows, d + smoothness)), axis=1)
        return (total[:, smoothness:] - total[:, :-smoothness]) / np.sqrt(smoothness)

    def sessions(count: int) -> Iterable[Pair]:
        for _ in range(count):
            X = smooth(samples) + 0.3 * smooth(1)
            yield X, (rng.random(samples) < sigmoid(X @ coef)).astype(np.int32)

    train = federation(sessions(clients), dtype)
    test = federation(sessions(test_clients), dtype, "test") if test_clients else None
    return Synthetic(train, {"coef": coef, "intercept": 0.0}, test=test)


def _shifted(coef: np.ndarray, scale: float, counts: tuple[int, int], samples: int, seed: int, dtype: str) -> Synthetic:
    """Clients to train on and fresh ones to test on; `counts` says how many of each."""
    rng = np.random.default_rng(seed)
    intercept = float(rng.standard_normal())

    def drawn(clients: int) -> Iterable[Pair]:
        for X, y in shifted_clients(rng, clients, samples, coef, intercept, rng.standard_normal):
            # All scales share the draws: the response changes by what its features do, and keeps its noise.
            yield scale * X, y + (scale - 1) * (X.reshape(samples, -1) @ coef.ravel())

    train = federation(drawn(counts[0]), dtype)
    test = federation(drawn(counts[1]), dtype, "test") if counts[1] else None
    return Synthetic(train, {"coef": coef, "intercept": intercept}, test=test)
