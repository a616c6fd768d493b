"""The jobs' losses, gradients and prox steps in NumPy: for the NumPy loop, and to judge every contender's model."""

from collections.abc import Callable

import numpy as np

from benchmarks.peers.entropy_in_numpy import cross_entropy, cross_entropy_slope
from benchmarks.peers.jobs import Job
from benchmarks.peers.models import L1, Leaves, Multinomial, Network, Nuclear, Squares
from benchmarks.peers.network_in_numpy import network_gradient, network_loss

JUDGED = 128  # samples of each client that the objective is computed on


def soft(v: np.ndarray, t: np.float32) -> np.ndarray:
    """Towards 0 by t."""
    return np.sign(v) * np.maximum(np.abs(v) - t, np.float32(0))


def low_rank(v: np.ndarray, t: np.float32) -> np.ndarray:
    """The singular values towards 0 by t."""
    u, s, vt = np.linalg.svd(v, full_matrices=False)
    return (u * soft(s, t)) @ vt


SHRINK = {L1: soft, Nuclear: low_rank}
SIZE = {
    L1: lambda leaf: np.abs(leaf).sum(dtype=np.float64),
    Nuclear: lambda leaf: np.linalg.svd(leaf.astype(np.float64), compute_uv=False).sum(),
}


def prox_of(job: Job) -> Callable[[Leaves, float], Leaves]:
    """(w, step) -> the prox of step times the regularizer, leaf by leaf."""
    shrink, strength = SHRINK[type(job.regularizer)], job.regularizer.strength
    return lambda w, step: {name: shrink(leaf, np.float32(step * strength)) for name, leaf in w.items()}


def squares_loss(w: Leaves, X: np.ndarray, y: np.ndarray) -> float:
    """The mean of (<x, coef> - y)^2 / 2."""
    return float(np.mean((X.reshape(len(X), -1) @ w["coef"].ravel() - y) ** 2, dtype=np.float64)) / 2


def squares_gradient(w: Leaves, X: np.ndarray, y: np.ndarray) -> Leaves:
    """Of that."""
    coef = w["coef"]
    rows = X.reshape(len(X), -1)
    return {"coef": (((rows @ coef.ravel() - y) / np.float32(len(y))) @ rows).reshape(coef.shape)}


def multinomial_loss(w: Leaves, X: np.ndarray, y: np.ndarray) -> float:
    """Cross-entropy of X coef + intercept."""
    return cross_entropy(X @ w["coef"] + w["intercept"], y)


def multinomial_gradient(w: Leaves, X: np.ndarray, y: np.ndarray) -> Leaves:
    """Of that."""
    slope = cross_entropy_slope(X @ w["coef"] + w["intercept"], y)
    return {"coef": X.T @ slope, "intercept": slope.sum(axis=0)}


LOSSES = {Squares: squares_loss, Multinomial: multinomial_loss, Network: network_loss}
GRADIENTS = {Squares: squares_gradient, Multinomial: multinomial_gradient, Network: network_gradient}


def gradient_of(job: Job) -> Callable[[Leaves, np.ndarray, np.ndarray], Leaves]:
    """(w, X, y) -> the gradient of the mean loss."""
    return GRADIENTS[type(job.model)]


def objective(job: Job, w: Leaves, X: np.ndarray, y: np.ndarray) -> float:
    """The clients' mean loss, on some samples of each, and the regularizer."""
    some = (slice(None), slice(JUDGED))
    X, y = (a[some].reshape(-1, *a.shape[2:]) for a in (X, y))
    size = SIZE[type(job.regularizer)]
    return LOSSES[type(job.model)](w, X, y) + job.regularizer.strength * sum(size(leaf) for leaf in w.values())
