"""Small federations that hide nothing: unequal sizes, heterogeneous data, a start that is not zero."""

import numpy as np

import cofed

SIZES = (4, 9, 6, 5, 7)
D = 6


def linear(sizes=SIZES, d=D, seed=0, dtype=np.float64, names=None):
    """Heterogeneous linear regression."""
    rng = np.random.default_rng(seed)
    clients = []
    for n in sizes:
        X = rng.normal(size=(n, d)) + rng.normal(size=d)
        clients.append((X.astype(dtype), (X @ rng.normal(size=d) + rng.normal(size=n)).astype(dtype)))
    return cofed.Federation.from_arrays(clients, names=names)


def logistic(sizes=SIZES, d=D, seed=0):
    """Heterogeneous logistic regression."""
    rng = np.random.default_rng(seed)
    clients = []
    for n in sizes:
        X = rng.normal(size=(n, d)) + 0.3 * rng.normal(size=d)
        clients.append((X, (X @ rng.normal(size=d) + rng.normal(size=n) > 0).astype(int)))
    return cofed.Federation.from_arrays(clients)


def start(d=D, seed=5):
    """A start that is not zero."""
    return {"coef": np.random.default_rng(seed).normal(size=d)}


def problem(regularizer=None, loss=None):
    """Linear regression without an intercept."""
    return cofed.Problem(cofed.Linear(intercept=False), loss or cofed.Squared(), regularizer or cofed.Zero())


def gradient(federation, client, w, loss="squared"):
    """The full gradient of a client's mean loss, in NumPy."""
    X, y = federation.client(client)
    if loss == "squared":
        return X.T @ (X @ w - y) / len(y)
    s = np.where(y > 0, 1.0, -1.0)
    return X.T @ (-s / (1 + np.exp(s * (X @ w)))) / len(y)


def mean_gradient(federation, w, weights="uniform"):
    """The gradient of sum_m pi_m F_m, in NumPy."""
    pi = np.asarray(federation.weights(weights))
    return sum(pi[m] * gradient(federation, m, w) for m in range(federation.n_clients))


def soft(v, t):
    """Soft thresholding."""
    return np.sign(v) * np.maximum(np.abs(v) - t, 0)


def coefs(result):
    """The trajectory of models as one array."""
    return np.stack([w.coef for w in result.models])
