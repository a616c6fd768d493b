"""Zhang, Hu, Johansson (2025), Non-convex composite FL with heterogeneous data: Section 4.1."""

from collections.abc import Iterable

import numpy as np

from cofed._util import checks
from cofed.datasets.synthetic import Pair, Synthetic, check_choices, check_scale, check_sizes, federation


def zhang_logistic(
    alpha: float = 50.0,
    beta: float = 50.0,
    clients: int = 30,
    samples: int = 100,
    d: int = 20,
    normalize: bool = False,
    by_coordinate: bool = False,
    seed: int = 0,
    dtype: str = "float64",
) -> Synthetic:
    """The (alpha, beta) data of Li et al. (2018, FedProx), with labels -1 and +1.

    Client k draws u_k ~ N(0, alpha) and B_k ~ N(0, beta); its model has entries w_k ~ N(u_k, 1) and
    c_k ~ N(u_k, 1); its features are x ~ N(v_k, diag(j^-1.2)) with v_k ~ N(B_k, 1) in every entry. So alpha
    says how much the models differ, beta how much the features do.

    Open choices: alpha and beta are variances, as written by Li et al. (their program takes them as standard
    deviations). Their label is the larger of ten scores; two scores would cancel u_k, so the label here
    is the sign of the single score <x, w_k> + c_k. With alpha = beta = 50 most clients see a single label.
    `normalize=True` divides each x by its norm, which the papers do not mention: as drawn, the features have
    norms of about 25, the problem is badly conditioned and steps must stay below 0.01. With one B_k for all
    coordinates nearly all features lie along (1, ..., 1); `by_coordinate=True` draws u_k and B_k for each coordinate
    apart, as the public generator of Noble et al. (2022) does, and clients then differ in direction too.
    `local` holds the clients' models; there is no common `truth`.

    Parameters
    ----------
    alpha : float
        The variance of u_k: how much the models differ.
    beta : float
        The variance of B_k: how much the features differ.
    clients : int
        M, the number of clients.
    samples : int
        n, the number of samples of each client.
    d : int
        The number of features.
    normalize : bool
        Divide each x by its norm.
    by_coordinate : bool
        Draw u_k and B_k for each coordinate apart.
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
    >>> data = cofed.datasets.zhang_logistic(clients=3, samples=4, d=5)
    >>> data.federation.X.shape, set(data.federation.pooled()[1].tolist()) <= {-1, 1}
    ((3, 4, 5), True)
    """
    check_choices("zhang_logistic", seed, dtype)
    check_sizes("zhang_logistic", clients=clients, samples=samples, d=d)
    check_scale("zhang_logistic", alpha=alpha, beta=beta)
    checks.flag("zhang_logistic: normalize", normalize)
    checks.flag("zhang_logistic: by_coordinate", by_coordinate)
    rng = np.random.default_rng(seed)
    # One number for all entries of a client's model, or one for each: the last is the intercept's.
    u = np.sqrt(alpha) * rng.standard_normal((clients, d + 1 if by_coordinate else 1))
    B = np.sqrt(beta) * rng.standard_normal((clients, d if by_coordinate else 1))
    coef = (u[:, :-1] if by_coordinate else u) + rng.standard_normal((clients, d))
    intercept = u[:, -1] + rng.standard_normal(clients)
    mean = B + rng.standard_normal((clients, d))
    scale = np.arange(1, d + 1) ** -0.6  # the standard deviations of diag(j^-1.2)

    def draw() -> Iterable[Pair]:
        for w, c, v in zip(coef, intercept, mean, strict=True):
            X = v + scale * rng.standard_normal((samples, d))
            y = np.where(X @ w + c > 0, 1, -1)
            yield (X / np.linalg.norm(X, axis=1, keepdims=True) if normalize else X), y

    return Synthetic(federation(draw(), dtype), {}, {"coef": coef, "intercept": intercept})
