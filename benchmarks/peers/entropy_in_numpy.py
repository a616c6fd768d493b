"""Cross-entropy in NumPy."""

import numpy as np


def cross_entropy(scores: np.ndarray, y: np.ndarray) -> float:
    """The mean of log sum exp(scores) - scores[y]."""
    top = scores.max(axis=1)
    total = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top
    return float(np.mean(total - scores[np.arange(len(y)), y], dtype=np.float64))


def cross_entropy_slope(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Its derivative by the scores."""
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return p / np.float32(len(y))
