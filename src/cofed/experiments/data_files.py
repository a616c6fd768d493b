"""The files of the data folder that an experiment reads, by content: with other data, results are others."""

import functools
from collections.abc import Iterable
from pathlib import Path

from cofed._util.files import digest
from cofed.datasets.folder import data_folder

# Where the readers in cofed.datasets look, relative to the data folder.
PATTERNS = {
    "femnist": ("femnist/*.h5", "fed_emnist*.h5"),
    "haxby": ("haxby2001/**/*", "subj[0-9]*/*", "haxby-slice/*", "bold.nii*", "mask.nii*", "labels.txt"),
    "mnist": ("mnist/*-ubyte*", "*-ubyte*"),
}


def data_files(datasets: Iterable[str], folder: str | Path | None = None) -> dict[str, str]:
    """The files that these datasets are read from, with a hash of each.

    Parameters
    ----------
    datasets
        Names of datasets, keys of `PATTERNS`.
    folder
        The data folder; None is that of COFED_DATA.

    Returns
    -------
    dict
        By the file's path below the folder, its size and a hash of its content; empty where there is no such file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t10k-labels-idx1-ubyte").write_bytes(b"abc")
    ...     data_files(["mnist"], folder)
    {'t10k-labels-idx1-ubyte': '3 bytes, ba7816bf8f01cfea'}
    """
    try:
        root = data_folder(folder)
    except FileNotFoundError:
        return {}
    found = {path for name in datasets for pattern in PATTERNS[name] for path in root.glob(pattern) if path.is_file()}
    return {str(path.relative_to(root)): content(path, *state(path)) for path in sorted(found)}


def state(path: Path) -> tuple[int, int]:
    """The size of a file, and when it was last written."""
    about = path.stat()
    return about.st_size, about.st_mtime_ns


@functools.lru_cache(maxsize=1000)  # scans are large: a file that has not been written since is not read again
def content(path: Path, size: int, written: int) -> str:
    """The size of a file and a hash of what it holds."""
    return f"{size} bytes, {digest(path)[:16]}"
