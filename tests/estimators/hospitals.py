"""Small data of unequal, heterogeneous sites: one shape for many tests, so that they share compiled programs."""

import numpy as np

SIZES = {"Oslo": 30, "Rome": 8, "Bern": 22}
SITES = np.repeat(list(SIZES), list(SIZES.values()))
P = 6


def features(seed=0, p=P):
    """Correlated features, each site with means and scales of its own."""
    rng = np.random.default_rng(seed)
    mix = np.eye(p) + 0.5 * rng.normal(size=(p, p))
    return np.concatenate(
        [rng.normal(size=(n, p)) @ mix * rng.uniform(0.5, 2) + rng.normal(size=p) for n in SIZES.values()]
    )


def linear(seed=0):
    """A sparse linear truth with noise."""
    X = features(seed)
    return X, X[:, 0] - 2 * X[:, 2] + np.random.default_rng(seed + 1).normal(size=len(X)) + 3


def counts(seed=0):
    """Counts whose logarithmic mean is linear."""
    X = features(seed)
    return X, np.random.default_rng(seed + 1).poisson(np.exp(0.3 * X[:, 0] - 0.2 * X[:, 2]))


def classes(k=2, seed=0):
    """Labels of k classes."""
    X = features(seed)
    scores = X[:, :k] + np.random.default_rng(seed + 1).gumbel(size=(len(X), k))
    return X, np.array(["a", "b", "c", "d"])[scores.argmax(axis=1)]
