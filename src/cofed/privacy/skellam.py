"""Skellam noise: the difference of two Poisson numbers, whose sums are Skellam again. Drawn from a secret seed.

The Poisson numbers are those of Hörmann's transformed rejection (PTRS, 1993), as in NumPy, with two differences that
privacy needs. The random words are SHAKE-256 of the seed, which nobody can continue who has seen some of them. And the
logarithm of the probability is computed around the mean: in the usual form it is a difference of numbers near 1e13
where the mean is 2^39, and wrong in the third digit. Here every probability is right to about nine digits.
"""

import hashlib

import numpy as np

LEAST_MEAN = 1000  # for smaller ones Stirling's series would need more terms


def skellam(seed: bytes, variance: int, size: int) -> np.ndarray:
    """Independent Skellam numbers with the mean 0.

    Parameters
    ----------
    seed : bytes
        A secret, used for nothing else: the same seed gives the same numbers.
    variance : int
        Of each number: even, and at least 2000.
    size : int
        How many.

    Returns
    -------
    ndarray of int64
        The numbers.

    Examples
    --------
    >>> from cofed.privacy import skellam
    >>> noise = skellam(b"secret", 2**20, 10_000)
    >>> noise.dtype.name, bool(abs(noise.std() / 2**10 - 1) < 0.05)
    ('int64', True)
    """
    if variance % 2 or variance < 2 * LEAST_MEAN:
        raise ValueError(f"the variance of Skellam noise must be even and at least {2 * LEAST_MEAN}, got {variance}")
    return around_mean(seed + b"+", variance // 2, size) - around_mean(seed + b"-", variance // 2, size)


def around_mean(seed: bytes, mean: int, size: int) -> np.ndarray:
    """Poisson numbers less their mean."""
    root = np.sqrt(mean)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    easy = 0.9277 - 3.6224 / (b - 2)
    found, left, turn = np.zeros(size, np.int64), np.arange(size), 0
    while len(left):
        u, v = uniforms(seed + turn.to_bytes(8, "big"), 2 * len(left)).reshape(2, -1)
        u, turn = u - 0.5, turn + 1
        edge = 0.5 - np.abs(u)
        away = np.floor((2 * a / edge + b) * u + 0.43)
        height = np.log(v * inverse_alpha / (a / edge**2 + b))
        taken = (edge >= 0.07) & (v <= easy)
        possible = (away >= -mean) & ((edge >= 0.013) | (v <= edge))
        taken |= possible & (height <= log_probability(np.where(possible, away, 0.0), mean))
        found[left[taken]] = away[taken].astype(np.int64)
        left = left[~taken]
    return found


def log_probability(away: np.ndarray, mean: int) -> np.ndarray:
    """log P(Poisson = mean + away), by Stirling's series: nothing large is subtracted."""
    k = mean + away
    some = np.maximum(k, 1.0)
    bend = np.where(k > 0, k * np.log1p(np.maximum(away / mean, -1 + 1e-16)) - away, mean)
    series = (1 / 12 - (1 / 360 - 1 / (1260 * some**2)) / some**2) / some
    return np.where(k > 0, -bend - np.log(2 * np.pi * some) / 2 - series, -float(mean))


def uniforms(seed: bytes, size: int) -> np.ndarray:
    """Numbers between 0 and 1, neither included, with 53 random bits each."""
    words = np.frombuffer(hashlib.shake_256(seed).digest(8 * size), "<u8")
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
