"""Which row is in which fold: decided by each site for its own rows."""

import hashlib

import numpy as np

from cofed.sites.table import Folds


def deal(folds: Folds, site: str, y: np.ndarray) -> np.ndarray:
    """The fold of each row of a site: shuffled, and dealt in turn from a random fold on, class by class.

    The draw depends on the seed and the site's name alone, so it is the same wherever the site is.

    >>> deal(Folds(3), "Oslo", np.zeros(7)).tolist()
    [1, 0, 2, 1, 2, 1, 0]
    """
    words = hashlib.sha256(f"cofed folds {folds.seed} {site}".encode()).digest()
    rng = np.random.default_rng(np.frombuffer(words, np.uint32))
    dealt = np.empty(len(y), np.int32)
    y = y if y.ndim == 1 else y[:, -1]  # of the time to an event, whether there was one
    for label in np.unique(y) if folds.by_class else [None]:
        rows = np.arange(len(y)) if label is None else np.flatnonzero(y == label)
        first = int(rng.integers(folds.count))  # else every site's leftovers would fall to the first folds
        dealt[rng.permutation(rows)] = (first + np.arange(len(rows))) % folds.count
    return dealt
