"""Between which numbers values are counted."""

import numpy as np


def around(n: int, mean: float, sd: float, bins: int) -> np.ndarray:
    """Edges that hold all values between them: none is further than sqrt(n) standard deviations from the mean.

    They are close to each other near the mean, and further apart away from it.

    >>> from cofed.sites.histogram_edges import around
    >>> edges = around(100, 5.0, 2.0, 128)
    >>> len(edges), bool(edges[0] < 5 - 2 * 10), bool(edges[-1] > 5 + 2 * 10)
    (129, True, True)
    """
    size = sd if sd > 0 else max(abs(mean), 1.0)
    reach = np.arcsinh(np.sqrt(max(n, 1)) + 1)
    return distinct(mean + size * np.sinh(np.linspace(-reach, reach, bins + 1)))


def distinct(edges: np.ndarray) -> np.ndarray:
    """The edges, where two that rounding has made the same are a step apart."""
    while (np.diff(edges) <= 0).any():
        edges = np.maximum(edges, np.nextafter(np.concatenate([edges[:1] - 1, edges[:-1]]), np.inf))
    return edges
