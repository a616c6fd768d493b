"""Liang et al. (2023), federated dual averaging with gradient tracking: Section 7, Appendix D.1.

The paper streams fresh samples: `liang_linear_stream` and `liang_logistic_stream` do. In `liang_linear` and
`liang_logistic` each client has a fixed set, so the stated optima are those of the population, and a fit to the samples
is near them. Covariates are Gaussian and not truncated, as in D.1.2.
"""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from cofed.datasets.synthetic import (
    Pair,
    Synthetic,
    check_at_most,
    check_choices,
    check_counts,
    check_scale,
    check_sizes,
    federation,
    sigmoid,
)
from cofed.federation import Federation
from cofed.federation.base import Draw


def liang_linear(
    clients: int = 16,
    samples: int = 1024,
    d: int = 1024,
    s: int = 16,
    heterogeneity: float = 1.0,
    noise: float = 1.0,
    seed: int = 0,
    dtype: str = "float32",
) -> Synthetic:
    """x = (1, N(0, I)), y = <x, w_m> + N(0, noise^2): dense, distinct w_m whose average is sparse.

    By Lemma D.1 the optimum w* of the federation is the average of the `local` optima. Open choices: w* is 1
    in its first s entries (the first is the bias, whose feature is 1); w_m - w* is N(0, heterogeneity^2) in
    every entry, less its average over the clients; unit variances.

    Parameters
    ----------
    clients : int
        M, the number of clients.
    samples : int
        n, the number of samples of each client.
    d : int
        The number of features.
    s : int
        How many entries of w* are not zero.
    heterogeneity : float
        The standard deviation of w_m - w*.
    noise : float
        The standard deviation of the noise in y.
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
    >>> data = cofed.datasets.liang_linear(clients=4, samples=5, d=6, s=2)
    >>> data.truth["coef"], bool(np.allclose(data.local["coef"].mean(axis=0), data.truth["coef"]))
    (array([1., 1., 0., 0., 0., 0.]), True)
    """
    check_choices("liang_linear", seed, dtype)
    check_sizes("liang_linear", clients=clients, samples=samples, d=d)
    check_at_most("liang_linear", "s", s, "d", d)
    check_scale("liang_linear", heterogeneity=heterogeneity)
    check_scale("liang_linear", noise=noise)
    rng = np.random.default_rng(seed)
    coef, local = _linear_truths(rng, clients, d, s, heterogeneity)

    def draw() -> Iterable[Pair]:
        for w in local:
            X = rng.standard_normal((samples, d))
            X[:, 0] = 1
            yield X, X @ w + noise * rng.standard_normal(samples)

    return Synthetic(federation(draw(), dtype), {"coef": coef}, {"coef": local})


def liang_logistic(
    clients: int = 16,
    samples: int = 1024,
    d: int = 1024,
    s: int = 16,
    heterogeneity: float = 0.1,
    test_samples: int = 0,
    seed: int = 0,
    dtype: str = "float32",
) -> Synthetic:
    """x ~ N(0, I), P(y = 1) = sigmoid(<x, w_m>), else 0; the w_m come in pairs (alpha, beta), (alpha, -beta).

    Clients 2i and 2i + 1 are a pair. By Lemma D.2 the betas cancel: the federation's optimum is zero after
    its first s entries. It is the `truth`, exact to quadrature: by Stein's identity
    E[sigmoid(<x, w>) x] = k(|w|) w with k(a) = E[sigmoid'(a Z)], so the first-order condition is
    k(|w*|) w* = mean of k(|w_m|) w_m, one equation in |w*|. (The paper runs centralised SGD for it.)
    Open choices: alpha is 1 + N(0, 0.1^2) per entry, beta is N(0, heterogeneity^2).

    Parameters
    ----------
    clients : int
        M, the number of clients.
    samples : int
        n, the number of samples of each client.
    d : int
        The number of features.
    s : int
        How many entries of w* are not zero.
    heterogeneity : float
        The standard deviation of the entries of beta.
    test_samples : int
        How many fresh samples of every client `test` holds; 0 for none.
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
    >>> data = cofed.datasets.liang_logistic(clients=4, samples=5, d=6, s=2, heterogeneity=1.0)
    >>> data.truth["coef"].shape, data.truth["coef"][2:]
    ((6,), array([0., 0., 0., 0.]))
    """
    check_choices("liang_logistic", seed, dtype)
    check_sizes("liang_logistic", clients=clients, samples=samples, d=d, s=s)
    check_at_most("liang_logistic", "s", s, "d", d)
    check_scale("liang_logistic", heterogeneity=heterogeneity)
    check_counts("liang_logistic", test_samples=test_samples)
    rng = np.random.default_rng(seed)
    coef, local = _logistic_truths(rng, clients, d, s, heterogeneity)

    def draw(count: int) -> Iterable[Pair]:
        for w in local:
            X = rng.standard_normal((count, d))
            yield X, (rng.random(count) < sigmoid(X @ w)).astype(np.int32)

    train = federation(draw(samples), dtype)
    test = federation(draw(test_samples), dtype) if test_samples else None
    return Synthetic(train, {"coef": coef}, {"coef": local}, test)


def liang_linear_stream(
    clients: int = 16,
    d: int = 1024,
    s: int = 16,
    heterogeneity: float = 1.0,
    noise: float = 1.0,
    samples: int = 256,
    seed: int = 0,
    dtype: str = "float32",
) -> Synthetic:
    """`liang_linear` with fresh samples at every local step; the history shows `samples` fixed ones per client.

    Parameters
    ----------
    clients : int
        M, the number of clients.
    d : int
        The number of features.
    s : int
        How many entries of w* are not zero.
    heterogeneity : float
        The standard deviation of w_m - w*.
    noise : float
        The standard deviation of the noise in y.
    samples : int
        How many fixed samples of each client the history is measured on.
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
    >>> cofed.datasets.liang_linear_stream(clients=4, d=6, s=2, samples=5).federation
    Federation(4 clients, a stream, 6 features, float32)
    """
    check_choices("liang_linear_stream", seed, dtype)
    check_sizes("liang_linear_stream", clients=clients, samples=samples, d=d)
    check_at_most("liang_linear_stream", "s", s, "d", d)
    check_scale("liang_linear_stream", heterogeneity=heterogeneity)
    check_scale("liang_linear_stream", noise=noise)
    coef, local = _linear_truths(np.random.default_rng(seed), clients, d, s, heterogeneity)
    return linear_stream(coef, local, noise, samples, seed, dtype)


def liang_logistic_stream(
    clients: int = 16,
    d: int = 1024,
    s: int = 16,
    heterogeneity: float = 0.1,
    samples: int = 256,
    seed: int = 0,
    dtype: str = "float32",
) -> Synthetic:
    """`liang_logistic` with fresh samples at every local step; the history shows `samples` fixed ones per client.

    Parameters
    ----------
    clients : int
        M, the number of clients.
    d : int
        The number of features.
    s : int
        How many entries of w* are not zero.
    heterogeneity : float
        The standard deviation of the entries of beta.
    samples : int
        How many fixed samples of each client the history is measured on.
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
    >>> cofed.datasets.liang_logistic_stream(clients=4, d=6, s=2, samples=5).federation
    Federation(4 clients, a stream, 6 features, float32)
    """
    check_choices("liang_logistic_stream", seed, dtype)
    check_sizes("liang_logistic_stream", clients=clients, samples=samples, d=d, s=s)
    check_at_most("liang_logistic_stream", "s", s, "d", d)
    check_scale("liang_logistic_stream", heterogeneity=heterogeneity)
    coef, local = _logistic_truths(np.random.default_rng(seed), clients, d, s, heterogeneity)
    return logistic_stream(coef, local, samples, seed, dtype)


def linear_stream(
    coef: np.ndarray, local: np.ndarray, noise: float, samples: int, seed: int, dtype: str = "float32"
) -> Synthetic:
    """Fresh samples x = (1, N(0, I)), y = <x, w_m> + N(0, noise^2) for given optima w_m, whose average is `coef`."""
    known, d = local.astype(dtype), len(coef)

    def draw(key, client, size):
        # One call: the features, and the noise in the last column.
        sample = jax.random.normal(key, (size, d + 1), dtype)
        X = sample[:, :d].at[:, 0].set(1)
        return X, X @ jnp.asarray(known)[client] + jnp.asarray(noise, dtype) * sample[:, d]

    return _stream(draw, coef, local, samples, seed)


def logistic_stream(coef: np.ndarray, local: np.ndarray, samples: int, seed: int, dtype: str = "float32") -> Synthetic:
    """Fresh samples x ~ N(0, I), P(y = 1) = sigmoid(<x, w_m>) for given w_m; `coef` is the federation's optimum."""
    known, d = local.astype(dtype), len(coef)

    def draw(key, client, size):
        features, labels = jax.random.split(key)
        X = jax.random.normal(features, (size, d), dtype)
        chance = jax.nn.sigmoid(X @ jnp.asarray(known)[client])
        return X, (jax.random.uniform(labels, (size,), dtype) < chance).astype(jnp.int32)

    return _stream(draw, coef, local, samples, seed)


def _stream(draw: Draw, coef: np.ndarray, local: np.ndarray, samples: int, seed: int) -> Synthetic:
    """A stream for each client, and the truth."""
    federation = Federation.from_stream(draw, len(local), samples=samples, seed=seed)
    return Synthetic(federation, {"coef": coef}, {"coef": local})


def _linear_truths(
    rng: np.random.Generator, clients: int, d: int, s: int, heterogeneity: float
) -> tuple[np.ndarray, np.ndarray]:
    """w*, and dense w_m whose average it is."""
    coef = (np.arange(d) < s).astype(float)
    deviations = rng.standard_normal((clients, d))
    return coef, coef + heterogeneity * (deviations - deviations.mean(axis=0))


def _logistic_truths(
    rng: np.random.Generator, clients: int, d: int, s: int, heterogeneity: float
) -> tuple[np.ndarray, np.ndarray]:
    """w*, and the w_m in pairs (alpha, beta), (alpha, -beta)."""
    if clients % 2:
        raise ValueError(f"liang_logistic: clients come in pairs, so their number must be even, got {clients}")
    alpha = 1 + 0.1 * rng.standard_normal((clients // 2, s))
    beta = heterogeneity * rng.standard_normal((clients // 2, d - s))
    pairs = np.stack([np.hstack([alpha, beta]), np.hstack([alpha, -beta])], axis=1)
    local = pairs.reshape(clients, d)
    return logistic_optimum(local, s), local


def logistic_optimum(local: np.ndarray, s: int) -> np.ndarray:
    """The w with k(|w|) w = mean_m k(|w_m|) w_m, zero after s entries; k(a) a grows with a, so bisection finds |w|."""
    z = np.linspace(-9.0, 9.0, 20_001)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])

    def k(a: float) -> float:
        p = sigmoid(a * z)
        return float(np.sum(p * (1 - p) * density))

    goal = np.mean([k(float(np.linalg.norm(w))) * w for w in local], axis=0)
    size = float(np.linalg.norm(goal))
    low, high = 0.0, float(np.linalg.norm(local, axis=1).max())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if k(middle) * middle < size else (low, middle)
    optimum = goal / size * high
    optimum[s:] = 0  # in pairs the rest cancels, but for rounding
    return optimum
