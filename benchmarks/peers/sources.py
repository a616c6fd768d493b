"""Where the jobs' numbers come from: each source gives X of shape (clients, samples, ...) and y, from a seed."""

from collections.abc import Callable

import numpy as np

from benchmarks import rounds

Data = tuple[np.ndarray, np.ndarray]
Source = Callable[[int, int, tuple[int, ...], np.random.Generator], Data]  # of clients, samples, a sample's shape


def lasso(clients: int, samples: int, shape: tuple[int, ...], rng: np.random.Generator) -> Data:
    """The data of benchmarks/rounds.py, which has its own seed and sizes."""
    return rounds.data()


def trace(clients: int, samples: int, shape: tuple[int, ...], rng: np.random.Generator) -> Data:
    """Matrix covariates with standard normal entries, a truth of rank 4, and noise."""
    side = shape[0]
    truth = rng.normal(size=(side, 4)) @ rng.normal(size=(4, side)) / np.sqrt(side)
    X = rng.standard_normal((clients, samples, *shape), dtype=np.float32)
    y = np.einsum("mnij,ij->mn", X, truth.astype(np.float32)) + rng.normal(size=X.shape[:2])
    return X, y.astype(np.float32)


def mnist_two_labels(clients: int, samples: int, shape: tuple[int, ...], rng: np.random.Generator) -> Data:
    """MNIST sorted by label, cut into twice as many shards as clients, two for each."""
    X, y = mnist()
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")][: clients * samples]
    shards = order.reshape(2 * clients, -1)[rng.permutation(2 * clients)]
    rows = shards.reshape(clients, samples)
    return X[rows].reshape(clients, samples, *shape), y[rows]


def mnist_half_by_label(clients: int, samples: int, shape: tuple[int, ...], rng: np.random.Generator) -> Data:
    """As in zhang2025: half of a client's images are of its own label, half are dealt out evenly; equal sizes."""
    X, y = mnist()
    order, half = rng.permutation(len(y)), samples // 2
    own = np.stack([order[y[order] == label][:half] for label in range(clients)])
    rest = rng.permutation(np.setdiff1d(order, own))
    rows = np.concatenate([own, rest[: clients * half].reshape(clients, half)], axis=1)
    return X[rows], y[rows]


def mnist() -> Data:
    """MNIST's training images. Only the environment that makes the files needs cofed."""
    import cofed

    images = cofed.datasets.mnist()
    return images.train_X, images.train_y
