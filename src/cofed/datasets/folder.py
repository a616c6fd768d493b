"""Where real data lie: one folder for all of them."""

import os
from collections.abc import Iterable
from pathlib import Path

from cofed._util import checks

VARIABLE = "COFED_DATA"


def data_folder(given: str | Path | None = None) -> Path:
    """The folder that holds the data: the one given, else that of the variable COFED_DATA.

    Everything that is missing (the setting, the folder, later a file in it) is a FileNotFoundError.

    Parameters
    ----------
    given : path, optional
        The folder; without, the one that the variable COFED_DATA names.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    FileNotFoundError
        If no folder is given, or it is not there.

    Examples
    --------
    >>> import tempfile
    >>> import cofed
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     str(cofed.datasets.data_folder(folder)) == folder
    True
    >>> cofed.datasets.data_folder("no/such/folder")
    Traceback (most recent call last):
        ...
    FileNotFoundError: there is no folder no/such/folder, which was given as the data folder
    """
    source = "which was given as the data folder"
    if given is None:
        given, source = os.environ.get(VARIABLE), f"which the variable {VARIABLE} names as the data folder"
    if given is None or (isinstance(given, str) and not given):
        raise FileNotFoundError(
            "the folder with the data is not known: give it (folder=..., on the command line --data DIR) or set the "
            f"variable {VARIABLE} to it"
        )
    folder = checks.path("the data folder given as folder=", given).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}, {source}")
    return folder


def first_file(folders: Iterable[Path], names: Iterable[str]) -> Path | None:
    """The first of these files that exists, folder by folder."""
    names = list(names)
    return next((path for folder in folders for name in names if (path := folder / name).is_file()), None)
