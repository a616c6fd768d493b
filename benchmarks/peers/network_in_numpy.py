"""The convolutional network in NumPy: each convolution is one matrix product over all pixels of a batch."""

import numpy as np

from benchmarks.peers.entropy_in_numpy import cross_entropy, cross_entropy_slope
from benchmarks.peers.models import Leaves


def patches(h: np.ndarray) -> np.ndarray:
    """The 3x3 surroundings of every pixel, padded with 0: a matrix with a row for each pixel of each image."""
    n, height, width, maps = h.shape
    wide = np.pad(h, ((0, 0), (1, 1), (1, 1), (0, 0)))
    found = np.empty((n, height, width, 9, maps), h.dtype)
    for k in range(9):
        i, j = divmod(k, 3)
        found[:, :, :, k] = wide[:, i : i + height, j : j + width]
    return found.reshape(n * height * width, 9 * maps)


def unpatched(rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The transpose of `patches`: each pixel gathers from the surroundings that it is in."""
    n, height, width, maps = shape
    wide = np.zeros((n, height + 2, width + 2, maps), rows.dtype)
    parts = rows.reshape(n, height, width, 9, maps)
    for k in range(9):
        i, j = divmod(k, 3)
        wide[:, i : i + height, j : j + width] += parts[:, :, :, k]
    return wide[:, 1:-1, 1:-1]


def fours(h: np.ndarray) -> np.ndarray:
    """The pixels of each 2x2 block side by side."""
    n, height, width, maps = h.shape
    blocks = h.reshape(n, height // 2, 2, width // 2, 2, maps).transpose(0, 1, 3, 2, 4, 5)
    return blocks.reshape(n, height // 2, width // 2, 4, maps)


def unfours(blocks: np.ndarray) -> np.ndarray:
    """Back from `fours`."""
    n, height, width, _, maps = blocks.shape
    whole = blocks.reshape(n, height, width, 2, 2, maps).transpose(0, 1, 3, 2, 4, 5)
    return whole.reshape(n, 2 * height, 2 * width, maps)


def layers_of(w: Leaves) -> list[tuple[np.ndarray, np.ndarray]]:
    """Kernel and bias, layer by layer."""
    return [(w[f"layers.{i}.kernel"], w[f"layers.{i}.bias"]) for i in range(len(w) // 2)]


def network_scores(w: Leaves, X: np.ndarray) -> tuple[np.ndarray, list]:
    """The network's outputs, and what the way back needs of each layer."""
    h, kept, layers = X[..., None], [], layers_of(w)
    for i, (kernel, bias) in enumerate(layers):
        if kernel.ndim == 4:
            n, height, width, _ = h.shape
            rows = patches(h)
            active = np.maximum(rows @ kernel.reshape(-1, kernel.shape[3]) + bias, np.float32(0))
            blocks = fours(active.reshape(n, height, width, -1))
            which = blocks.argmax(axis=3)[:, :, :, None]
            kept.append((h, rows, which))
            h = np.take_along_axis(blocks, which, axis=3)[:, :, :, 0]
        else:
            flat = h.reshape(len(h), -1)
            kept.append((h, flat, None))
            h = flat @ kernel + bias
            if i < len(layers) - 1:
                h = np.maximum(h, np.float32(0))
    return h, kept


def network_loss(w: Leaves, X: np.ndarray, y: np.ndarray) -> float:
    """Cross-entropy of the network's outputs."""
    return cross_entropy(network_scores(w, X)[0], y)


def network_gradient(w: Leaves, X: np.ndarray, y: np.ndarray) -> Leaves:
    """Of that: back through the layers."""
    h, kept = network_scores(w, X)
    slope, found, layers = cross_entropy_slope(h, y), {}, layers_of(w)
    for i in reversed(range(len(layers))):
        kernel, (entered, rows, which) = layers[i][0], kept[i]
        if which is not None:
            slope = slope.reshape(*which.shape[:3], 1, -1)
            blocks = np.zeros((*which.shape[:3], 4, slope.shape[-1]), slope.dtype)
            np.put_along_axis(blocks, which, slope, axis=3)
            slope = unfours(blocks).reshape(-1, kernel.shape[-1])
        found[f"layers.{i}.kernel"] = (rows.T @ slope).reshape(kernel.shape)
        found[f"layers.{i}.bias"] = slope.sum(axis=0)
        if i == 0:
            break
        back = slope @ kernel.reshape(-1, kernel.shape[-1]).T
        slope = back.reshape(entered.shape) if which is None else unpatched(back, entered.shape)
        slope = slope * (entered > 0)  # what entered this layer left a ReLU
    return {name: found[name] for name in w}
