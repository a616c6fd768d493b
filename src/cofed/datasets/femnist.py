"""FEMNIST, handwritten characters by writer, in the HDF5 files of TensorFlow Federated."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from cofed._util import checks, naming
from cofed._util.extras import imported
from cofed.datasets.folder import data_folder, first_file
from cofed.datasets.synthetic import check_choices, check_sizes
from cofed.federation import Federation


def femnist(
    folder: str | Path | None = None,
    *,
    test: bool = False,
    digits_only: bool = True,
    writers: int | Iterable[str] | None = None,
    flat: bool = True,
    dtype: str = "float32",
) -> Federation:
    """FEMNIST by writer: 3,383 writers of digits, or 3,400 of digits and letters with `digits_only=False`.

    The files are those of TensorFlow Federated, fed_emnist_digitsonly_train.h5 and ..._test.h5 (with letters
    fed_emnist_train.h5 and ..._test.h5), in `folder`/femnist or in `folder` itself, where the folder is that of
    `data_folder`. Train and test hold different images of the same writers. Pixels are as in the file: 1 is paper, 0
    is ink, the other way round than in MNIST.

    Parameters
    ----------
    folder : path, optional
        The folder with the data; without, the one that the variable COFED_DATA names.
    test : bool
        Whether to read the test images.
    digits_only : bool
        Whether to leave the letters out.
    writers : int or iterable of str, optional
        The first so many in the order of their names, or their names, as in
        `femnist(test=True, writers=train.names)`. Without, all of them: 341,873 images to train on.
    flat : bool
        Images as vectors of 784 pixels instead of 28 x 28.
    dtype : {"float32", "float64"}
        The dtype of the pixels.

    Returns
    -------
    Federation
        One client per writer.

    Raises
    ------
    FileNotFoundError
        If the folder or a file is not there; the sentence says which.

    Examples
    --------
    >>> import h5py, tempfile
    >>> import numpy as np
    >>> import cofed
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(f"{folder}/fed_emnist_digitsonly_train.h5", "w") as file:
    ...         for writer, count in (("f0000_14", 3), ("f0001_41", 2)):
    ...             file[f"examples/{writer}/pixels"] = np.ones((count, 28, 28), "float32")
    ...             file[f"examples/{writer}/label"] = np.arange(count, dtype="int32")
    ...     fed = cofed.datasets.femnist(folder)
    >>> fed.names, fed.sizes.tolist(), fed.feature_shape
    (('f0000_14', 'f0001_41'), [3, 2], (784,))
    """
    for name, value in (("test", test), ("digits_only", digits_only), ("flat", flat)):
        checks.flag(f"femnist: {name}", value)
    check_choices("femnist", 0, dtype)
    writers = _wanted(writers)
    h5py = imported("h5py", "Reading FEMNIST", "h5py", "data")
    kind, part = "_digitsonly" if digits_only else "", "test" if test else "train"
    path = _path(data_folder(folder), f"fed_emnist{kind}_{part}.h5")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{path} is not a whole HDF5 file ({error}); get it again") from None
    with file:
        if not isinstance(file.get("examples"), h5py.Group) or not len(file["examples"]):
            raise ValueError(f"{path} has no writers: expected is a group 'examples' with a group per writer")
        examples = file["examples"]
        chosen = _chosen(list(examples), writers, path)
        clients = {name: _client(examples, name, flat, path) for name in chosen}
    return Federation.from_arrays(clients, dtype=dtype)


def _path(root: Path, name: str) -> Path:
    found = first_file((root / "femnist", root), (name,))
    if found is None:
        raise FileNotFoundError(
            f"FEMNIST: {root} has no {name}, and neither has its subfolder femnist. The file is in the archive of the "
            "same name, without _train or _test, that tff.simulation.datasets.emnist.load_data of TensorFlow "
            "Federated downloads"
        )
    return found


def _wanted(writers: int | Iterable[str] | None) -> int | list[str] | None:
    if writers is None:
        return None
    if isinstance(writers, str):
        raise TypeError(f"femnist: writers must be a number or a list of names, got the string {writers!r}")
    if isinstance(writers, Iterable):
        wanted = checks.items("femnist: writers", writers, "names")
        for name in wanted or [None]:
            checks.text("femnist: each of writers", name)
        return wanted
    check_sizes("femnist", writers=writers)
    return int(writers)


def _chosen(names: list[str], writers: int | list[str] | None, path: Path) -> list[str]:
    names = sorted(names, key=naming.natural)
    if writers is None:
        return names
    if isinstance(writers, list):
        known = set(names)
        absent = [name for name in writers if name not in known]
        if absent:
            raise ValueError(f"{path} has no writer {naming.listed(absent)}; it has {naming.listed(names)}")
        return writers
    if writers > len(names):
        raise ValueError(f"femnist: writers must be at most the {len(names)} writers of {path}, got {writers}")
    return names[:writers]


def _client(examples: Any, name: str, flat: bool, path: Path) -> tuple[np.ndarray, np.ndarray]:
    writer = examples[name]
    lacks = [part for part in ("pixels", "label") if part not in writer]
    if lacks:
        raise ValueError(f"{path}: writer {name!r} has no {naming.listed(lacks)}")
    pixels, labels = writer["pixels"], writer["label"][()].reshape(-1)  # some copies have labels of shape (n, 1)
    if pixels.ndim != 3 or pixels.shape[1:] != (28, 28) or len(pixels) != len(labels):
        raise ValueError(
            f"{path}: writer {name!r} has pixels of shape {pixels.shape} and {len(labels)} labels, expected pixels of "
            "shape (n, 28, 28) and n labels"
        )
    X = pixels[()]
    return (X.reshape(len(X), -1) if flat else X), labels
