"""Simulated studies whose truth is known, of which benchmarks/coverage.py counts how often intervals hold it."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Draw:
    """One simulated study."""

    X: np.ndarray
    y: np.ndarray
    clusters: np.ndarray | None = None
    weight: np.ndarray | None = None
    offset: np.ndarray | None = None
    sites: np.ndarray | None = None


def correlated(rng, n, p, rho=0.5):
    """Rows whose features have the correlation rho^|i - j|."""
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    return X


def followed(z, rng):
    """Times to an event, of which about 40 % are not seen."""
    event, end = rng.exponential(np.exp(-z)), rng.exponential(1.5, len(z))
    return np.column_stack([np.minimum(event, end), event <= end])


OTHERS = {
    "responses": lambda z, rng: np.outer(z, [1.0, -2.0]) + rng.normal(size=(len(z), 2)) * [1.0, 3.0],
    "of sites": lambda z, rng: z + 3.0 * unequal_sites(len(z)) + rng.normal(size=len(z)),
    "times": followed,
    "amounts": lambda z, rng: rng.gamma(2.0, np.exp(z) / 2),
    "sums": lambda z, rng: tweedie(z, rng),
    "heavy": lambda z, rng: z + rng.standard_t(3, size=len(z)),
}


def generalised(n, p, truth, family, extra=0.0):
    """Labels whose mean depends on some features; `extra` is the variance of counts beyond Poisson's."""
    w = np.zeros(p)
    for at, value in truth.items():
        w[at] = value

    def draw(rng):
        X = correlated(rng, n, p)
        z = X @ w
        if family == "linear":
            return Draw(X, z + rng.normal(size=n))
        if family in OTHERS:
            return Draw(X, OTHERS[family](z, rng))
        if family == "logistic":
            return Draw(X, (rng.uniform(size=n) < 1 / (1 + np.exp(-z))).astype(int))
        more = rng.gamma(1 / extra, extra, n) if extra else 1.0
        return Draw(X, rng.poisson(np.exp(0.5 + z) * more).astype(float))

    return draw


def weighted(n, p, truth):
    """Numbers whose weights are their precisions."""

    def draw(rng):
        drawn, weight = generalised(n, p, truth, "linear")(rng), rng.uniform(0.2, 5.0, n)
        z = drawn.X @ [truth.get(at, 0.0) for at in range(p)]
        return dataclasses.replace(drawn, y=z + rng.normal(size=n) / np.sqrt(weight), weight=weight)

    return draw


def exposed(n, p, truth):
    """Counts of unequal times."""

    def draw(rng):
        X, offset = correlated(rng, n, p), np.log(rng.uniform(0.2, 5.0, n))
        z = X @ [truth.get(at, 0.0) for at in range(p)]
        return Draw(X, rng.poisson(np.exp(z + offset)).astype(float), offset=offset)

    return draw


def tweedie(z, rng):
    """Sums of a few amounts, of which there may be none: Tweedie's power 1.5 and dispersion 1."""
    mean = np.exp(0.5 + z)
    count = rng.poisson(2 * np.sqrt(mean))  # mean^(2 - power) / (2 - power)
    return np.where(count > 0, rng.gamma(np.maximum(count, 1), np.sqrt(mean) / 2), 0.0)


def around_sites(count, size, varies):
    """Sites with intercepts of their own, and with slopes of the first feature that vary so much."""

    def draw(rng):
        sites = np.repeat(np.arange(count), size)
        X = rng.normal(size=(len(sites), 3))
        own, slope = rng.normal(size=count), 1 + varies * rng.normal(size=count)
        return Draw(X, own[sites] + slope[sites] * X[:, 0] - 0.5 * X[:, 1] + rng.normal(size=len(sites)), sites=sites)

    return draw


def precisely_around_sites(count, size):
    """Such intercepts, and rows whose weights are their precisions."""

    def draw(rng):
        one, weight = around_sites(count, size, 0.0)(rng), rng.uniform(0.2, 5.0, count * size)
        own = one.X @ [1.0, -0.5, 0.0] + rng.normal(size=count)[one.sites]
        return dataclasses.replace(one, y=own + rng.normal(size=len(weight)) / np.sqrt(weight), weight=weight)

    return draw


def labels_around_sites(count, size, kind):
    """Two classes, or counts, of sites with intercepts of their own."""

    def draw(rng):
        sites = np.repeat(np.arange(count), size)
        X = rng.normal(size=(len(sites), 3))
        z = X @ [1.0, -0.5, 0.0] + 0.7 * rng.normal(size=count)[sites]
        y = rng.uniform(size=len(sites)) < 1 / (1 + np.exp(-z)) if kind == "logistic" else rng.poisson(np.exp(z / 2))
        return Draw(X, y.astype(int if kind == "logistic" else float), sites=sites)

    return draw


def different_sites(n, p, truth, family):
    """Four unequal sites, each with an intercept of its own."""
    of = {
        "logistic": lambda z, rng: (rng.uniform(size=n) < 1 / (1 + np.exp(-z))).astype(int),
        "counts": lambda z, rng: rng.poisson(np.exp(z)).astype(float),
        "amounts": OTHERS["amounts"],
    }

    def draw(rng):
        X = correlated(rng, n, p)
        z = X @ [truth.get(at, 0.0) for at in range(p)] + 0.5 * (unequal_sites(n) - 1.5)
        return Draw(X, of[family](z, rng))

    return draw


def related_sites(count, size):
    """Rows that are related within their site, and a feature that all rows of a site share."""

    def draw(rng):
        one = clustered(count, size)(rng)
        return dataclasses.replace(one, sites=one.clusters, clusters=None)

    return draw


def related_counts(n_clusters, size):
    """Counts of clusters, some of which have more of them than others, whatever their features."""

    def draw(rng):
        whose = np.repeat(np.arange(n_clusters), size)
        X = rng.normal(size=(len(whose), 4))
        X[:, 0] = rng.normal(size=n_clusters)[whose]
        more = rng.gamma(4.0, 0.25, n_clusters)[whose]
        return Draw(X, rng.poisson(np.exp(0.4 * X[:, 0] - 0.2 * X[:, 1]) * more).astype(float), whose)

    return draw


def related_times(n_clusters, size, share=0.7):
    """Times of clusters with positive stable frailties: hazards of all rows are proportional, too.

    The hazard ratios of rows of one cluster to the power of `share` are those of all rows.
    """

    def draw(rng):
        whose = np.repeat(np.arange(n_clusters), size)
        turn, one = np.pi * rng.random(n_clusters), rng.exponential(size=n_clusters)
        stable = np.sin(share * turn) / np.sin(turn) ** (1 / share)
        stable *= (np.sin((1 - share) * turn) / one) ** ((1 - share) / share)
        X = rng.normal(size=(len(whose), 4))
        X[:, 0] = rng.normal(size=n_clusters)[whose]
        z = (X @ [1.0, -0.5, 0.0, 0.0]) / share
        event, end = rng.exponential(np.exp(-z) / stable[whose]), rng.exponential(2.0, len(whose))
        return Draw(X, np.column_stack([np.minimum(event, end), event <= end]), whose)

    return draw


def counted_times(n, p, truth):
    """Times to an event of rows whose weights say nothing of them."""

    def draw(rng):
        one = generalised(n, p, truth, "times")(rng)
        return dataclasses.replace(one, weight=rng.uniform(0.2, 5.0, n))

    return draw


def factors(n, truth):
    """Two factors of four levels, as columns for all but their first, and two numbers."""

    def draw(rng):
        own = [np.eye(4)[rng.integers(0, 4, n), 1:] for _ in range(2)]
        X = np.column_stack([*own, rng.normal(size=(n, 2))])
        return Draw(X, X @ [truth.get(at, 0.0) for at in range(8)] + rng.normal(size=n))

    return draw


def days(n):
    """Whole days to an event, 100 in the mean, with others after which rows are not followed."""

    def draw(rng):
        event, end = np.ceil(rng.exponential(100.0, n)), np.ceil(rng.exponential(200.0, n))
        return Draw(np.zeros((n, 1)), np.column_stack([np.minimum(event, end), event <= end]))

    return draw


def unequal_sites(n):
    """The site of each row."""
    return np.repeat(range(4), [n // 2, n // 4, n // 8, n - n // 2 - n // 4 - n // 8])


def classes(n, p, truth):
    """Three classes; the truth is of the log odds of the second and the third against the first."""
    w = np.zeros((p, 3))
    for at, value in truth.items():
        w[at // 2, 1 + at % 2] = value

    def draw(rng):
        X = correlated(rng, n, p)
        return Draw(X, (X @ w + rng.gumbel(size=(n, 3))).argmax(axis=1))

    return draw


def clustered(n_clusters, size):
    """A feature that clusters share, one whose size makes the errors larger, and two more; errors of clusters."""

    def draw(rng):
        whose = np.repeat(np.arange(n_clusters), size)
        n = len(whose)
        X = rng.normal(size=(n, 4))
        X[:, 0] = rng.normal(size=n_clusters)[whose]
        noise = rng.normal(size=n) * np.sqrt(0.3 + X[:, 1] ** 2)
        return Draw(X, X[:, 0] - X[:, 1] + rng.normal(size=n_clusters)[whose] * 0.5 + noise, whose)

    return draw
