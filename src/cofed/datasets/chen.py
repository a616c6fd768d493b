"""Chen, Zheng, Long, Su (2021), A Theorem of the Alternative for Personalized FL: Section 4.1."""

from collections.abc import Iterable, Sequence

import numpy as np

from cofed._util import checks
from cofed.datasets.synthetic import (
    Pair,
    Synthetic,
    check_choices,
    check_counts,
    check_scale,
    check_sizes,
    federation,
    sigmoid,
)


def chen_logistic(
    clients: int = 20,
    samples: int | Sequence[int] = 50,
    d: int = 5,
    heterogeneity: float = 0.5,
    norm: float = 1.0,
    test_samples: int = 0,
    seed: int = 0,
    dtype: str = "float64",
) -> Synthetic:
    """Logistic regression with bounded features; the clients' models differ by exactly R = `heterogeneity`.

    P(y = +1) = sigmoid(<x, w_i>), labels are -1 and +1. The models are w_i = w_avg + deviations with
    sum_i (n_i / N) |w_i - w_avg|^2 = R^2 and w_avg = sum_i (n_i / N) w_i, both exactly (Assumption B(a)).
    `truth` is w_avg, `local` the w_i. `samples` is one number, or one per client; `test` has `test_samples`
    fresh samples of every client.

    Open choices: features are uniform on [-1, 1]; w_avg has a random direction and the given norm; deviations
    are Gaussian before they are centred and scaled. The same seed with another R gives the same directions.

    Parameters
    ----------
    clients : int
        M, the number of clients.
    samples : int or sequence of int
        n_i: one number, or one per client.
    d : int
        The number of features.
    heterogeneity : float
        R.
    norm : float
        The norm of w_avg.
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
    >>> data = cofed.datasets.chen_logistic(clients=4, samples=[5, 6, 7, 8], d=3, heterogeneity=2.0)
    >>> gaps = data.local["coef"] - data.truth["coef"]
    >>> round(float(data.federation.weights("samples") @ (gaps**2).sum(axis=1)), 12)
    4.0
    """
    check_choices("chen_logistic", seed, dtype)
    check_sizes("chen_logistic", clients=clients, d=d)
    check_counts("chen_logistic", test_samples=test_samples)
    one = isinstance(samples, (int, np.integer))
    sizes = [samples] * clients if one else checks.items("chen_logistic: samples", samples, "sizes, or one number")
    if not sizes:
        raise ValueError("chen_logistic: samples is empty; give one number, or one per client")
    for i, n in enumerate(sizes):
        check_sizes("chen_logistic", **{f"samples[{i}]": n})
    check_sizes("chen_logistic", samples=sum(sizes), d=d)
    if len(sizes) != clients:
        raise ValueError(f"chen_logistic: samples holds {len(sizes)} numbers for {clients} clients")
    check_scale("chen_logistic", heterogeneity=heterogeneity)
    check_scale("chen_logistic", norm=norm)
    if clients == 1 and heterogeneity > 0:
        raise ValueError("chen_logistic: one client alone cannot differ; heterogeneity must be 0")
    rng = np.random.default_rng(seed)
    share = np.array(sizes) / sum(sizes)
    direction = rng.standard_normal(d)
    average = norm * direction / np.linalg.norm(direction)
    deviations = rng.standard_normal((clients, d))
    deviations -= share @ deviations
    spread = np.sqrt(share @ np.sum(deviations**2, axis=1))
    local = average + (heterogeneity / spread * deviations if heterogeneity else 0 * deviations)

    def draw(counts: Sequence[int]) -> Iterable[Pair]:
        for w, count in zip(local, counts, strict=True):
            X = rng.uniform(-1, 1, (count, d))
            yield X, np.where(rng.random(count) < sigmoid(X @ w), 1, -1)

    train = federation(draw(sizes), dtype)
    test = federation(draw([test_samples] * clients), dtype) if test_samples else None
    return Synthetic(train, {"coef": average}, {"coef": local}, test, float(heterogeneity))
