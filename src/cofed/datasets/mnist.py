"""MNIST: the four idx files of LeCun, Cortes and Burges, or scikit-learn's download."""

import dataclasses
import gzip
import math
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cofed import partition
from cofed._util import checks
from cofed._util.extras import imported
from cofed.datasets.folder import data_folder, first_file
from cofed.federation import Federation

FILES = {
    "train_X": "train-images-idx3-ubyte",
    "train_y": "train-labels-idx1-ubyte",
    "test_X": "t10k-images-idx3-ubyte",
    "test_y": "t10k-labels-idx1-ubyte",
}
SIDE, CLASSES = 28, 10


class Images(NamedTuple):
    """Images to train and to test on, with their labels.

    >>> import numpy as np
    >>> import cofed
    >>> train, test = np.zeros((6, 28, 28), "float32"), np.zeros((2, 28, 28), "float32")
    >>> images = cofed.datasets.Images(train, np.arange(6), test, np.arange(2))
    >>> images.train_X.shape, len(images.test_y)
    ((6, 28, 28), 2)
    """

    train_X: np.ndarray  # float32 in [0, 1], of shape (n, 28, 28); 0 is paper, 1 is ink
    train_y: np.ndarray  # int32
    test_X: np.ndarray
    test_y: np.ndarray


def mnist(folder: str | Path | None = None, *, download: bool = False) -> Images:
    """MNIST, 60,000 images to train on and 10,000 to test on, from its four idx files.

    The files (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte; each
    as it is or with .gz) lie in `folder`/mnist or in `folder` itself, where the folder is that of `data_folder`.
    With `download=True`, scikit-learn gets the images from OpenML where the files are not there, and keeps them in
    `folder`, or else in its own cache.

    Parameters
    ----------
    folder : path, optional
        The folder with the data; without, the one that the variable COFED_DATA names.
    download : bool
        Let scikit-learn get the images from OpenML where the files are not there.

    Returns
    -------
    Images
        The images and their labels.

    Raises
    ------
    FileNotFoundError
        If the folder or a file is not there; the sentence says which.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import cofed
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("train", "t10k"):
    ...         pixels, labels = np.zeros((5, 28, 28), np.uint8), np.arange(5, dtype=np.uint8)
    ...         for file, array in ((f"{name}-images-idx3-ubyte", pixels), (f"{name}-labels-idx1-ubyte", labels)):
    ...             head = [0, 0, 8, array.ndim, *np.array(array.shape, ">u4").tobytes()]
    ...             _ = Path(folder, file).write_bytes(bytes(head) + array.tobytes())
    ...     cofed.datasets.mnist(folder).train_X.shape
    (5, 28, 28)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cofed.datasets.mnist(folder)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    FileNotFoundError: MNIST: ... has no train-images-idx3-ubyte.gz (nor train-images-idx3-ubyte)...
    """
    checks.flag("mnist: download", download)
    try:
        root = data_folder(folder)
        paths = {part: _path(root, name) for part, name in FILES.items()}
    except FileNotFoundError:
        if not download:
            raise
        return _downloaded(folder)
    found = {part: _read_idx(path, axes=3 if part.endswith("X") else 1) for part, path in paths.items()}
    for side in ("train", "test"):
        _check_pair(found[f"{side}_X"], found[f"{side}_y"], paths[f"{side}_X"], paths[f"{side}_y"])
    return _images(**found)


def mnist_by_writer(
    images: Images, writers: int = 340, alpha: float = 1.0, min_size: int = 10, seed: int = 0
) -> Federation:
    """MNIST's training images handed out to pseudo-writers: a stand-in for FEMNIST, where that is not to be had.

    MNIST does not say who wrote an image. So this is not a split by writers: pseudo-writers differ in which digits
    they have (`cofed.partition.dirichlet` with this alpha), not in their hand. Features are the images' 784 pixels.

    Parameters
    ----------
    images : Images
        What `mnist` gives.
    writers : int
        The number of clients.
    alpha : float
        How alike the clients are; see `cofed.partition.dirichlet`.
    min_size : int
        The fewest images of a client.
    seed : int
        The seed of all draws.

    Returns
    -------
    Federation
        The pseudo-writers.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of these, or there are not enough images.

    Examples
    --------
    >>> import numpy as np
    >>> import cofed
    >>> train, test = np.zeros((60, 28, 28), "float32"), np.zeros((1, 28, 28))
    >>> images = cofed.datasets.Images(train, np.arange(60) % 10, test, np.zeros(1))
    >>> fed = cofed.datasets.mnist_by_writer(images, writers=3, min_size=2)
    >>> fed.names, fed.n_samples, fed.feature_shape
    (('pseudo-writer 0', 'pseudo-writer 1', 'pseudo-writer 2'), 60, (784,))
    """
    if not isinstance(images, Images):
        raise TypeError(f"mnist_by_writer: images must be those of mnist(), got {checks.shown(images)}")
    checks.integer("mnist_by_writer: writers", writers)
    flat = images.train_X.reshape(len(images.train_X), -1)
    fed = partition.dirichlet(flat, images.train_y, writers, alpha, min_size, seed)
    return dataclasses.replace(fed, names=tuple(f"pseudo-writer {name}" for name in fed.names))


def _path(root: Path, name: str) -> Path:
    found = first_file((root / "mnist", root), (f"{name}.gz", name))
    if found is None:
        raise FileNotFoundError(
            f"MNIST: {root} has no {name}.gz (nor {name}), and neither has its subfolder mnist. Expected are the four "
            f"files {', '.join(FILES.values())}, with or without .gz; get them from any mirror of MNIST, or let "
            "scikit-learn get the images: mnist(download=True)"
        )
    return found


def _read_idx(path: Path, axes: int) -> np.ndarray:
    """The array of an idx file of unsigned bytes with so many axes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is not a whole gzip file ({error}); get it again") from None
    expected = bytes([0, 0, 8, axes])
    if raw[:4] != expected:
        raise ValueError(
            f"{path} begins with the bytes {raw[:4].hex(' ') or '(none)'}, expected {expected.hex(' ')}, which stand "
            f"for an idx file of unsigned bytes with {axes} {'axis' if axes == 1 else 'axes'}"
        )
    start = 4 + 4 * axes
    if len(raw) < start:
        raise ValueError(f"{path} ends within its header, after {len(raw)} bytes; get it again")
    shape = tuple(int(n) for n in np.frombuffer(raw, ">u4", axes, offset=4))
    if len(raw) - start != math.prod(shape):
        raise ValueError(
            f"{path} has {len(raw) - start} bytes of data, but its header announces {math.prod(shape)} "
            f"({' x '.join(map(str, shape))}); get it again"
        )
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def _check_pair(X: np.ndarray, y: np.ndarray, images: Path, labels: Path) -> None:
    if len(X) != len(y):
        raise ValueError(f"{images} has {len(X)} images, but {labels} has {len(y)} labels; they must be of one set")
    if X.shape[1:] != (SIDE, SIDE):
        raise ValueError(f"{images} has images of {X.shape[1]} x {X.shape[2]} pixels, expected {SIDE} x {SIDE}")
    if not len(y):
        raise ValueError(f"{labels} has no label in it, expected at least one")
    if y.max() >= CLASSES:
        raise ValueError(f"{labels} has the label {y.max()}, expected labels from 0 to {CLASSES - 1}")


def _images(train_X: np.ndarray, train_y: np.ndarray, test_X: np.ndarray, test_y: np.ndarray) -> Images:
    def scaled(pixels: np.ndarray) -> np.ndarray:
        scaled = pixels.astype(np.float32)
        scaled /= 255  # in place: the training images are 188 MB
        return scaled

    return Images(scaled(train_X), train_y.astype(np.int32), scaled(test_X), test_y.astype(np.int32))


def _downloaded(home: str | Path | None) -> Images:
    sklearn = imported("sklearn.datasets", "Downloading MNIST", "scikit-learn", "data")
    try:
        found = sklearn.fetch_openml(
            "mnist_784", version=1, as_frame=False, data_home=None if home is None else str(home)
        )
    except Exception as error:  # a network has many ways to fail
        raise ConnectionError(
            f"scikit-learn could not download MNIST ({type(error).__name__}: {error}); put the four files "
            f"{', '.join(FILES.values())} into a folder and give that instead"
        ) from error
    # OpenML has the images to train on first, then those to test on.
    X, y = found.data.reshape(-1, SIDE, SIDE), found.target.astype(np.int32)
    return _images(X[:60_000], y[:60_000], X[60_000:], y[60_000:])
