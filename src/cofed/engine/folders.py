"""Folders that a run writes into: created, checked, and locked against other runs."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from cofed._util.files import private_folder


def writable(folder: Path, parameter: str) -> Path:
    """Create a folder if it is missing, and refuse it where nothing can be written into it.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed.engine.folders import writable
    >>> file = tempfile.NamedTemporaryFile()
    >>> writable(Path(file.name), "checkpoint")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: checkpoint: ... is a file, or a part of it is; give the name of a folder
    """
    try:
        private_folder(folder)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"{parameter}: {folder} is a file, or a part of it is; give the name of a folder") from None
    except OSError as error:
        raise ValueError(f"{parameter}: the folder {folder} cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{parameter}: nothing can be written into {folder}; give another folder")
    return folder


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock a folder for this run; the system releases the lock when the process ends, however it ends.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed.engine.folders import held
    >>> folder = Path(tempfile.mkdtemp())
    >>> with held(folder), held(folder):  # doctest: +ELLIPSIS
    ...     pass
    Traceback (most recent call last):
    ValueError: another run writes into ... at this moment; wait for it to end, or give another folder
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another run writes into {folder} at this moment; wait for it to end, or give another folder"
            ) from None
        except OSError:  # a file system without locks: go on unlocked
            pass
        yield
    finally:
        os.close(handle)


def set_aside(path: Path) -> Path:
    """Rename a file or folder to the first free of NAME.old-1, NAME.old-2, ..., and return the new path.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed.engine.folders import set_aside
    >>> folder = Path(tempfile.mkdtemp()) / "results"
    >>> folder.mkdir()
    >>> set_aside(folder).name
    'results.old-1'
    """
    number = 1
    while (aside := path.with_name(f"{path.name}.old-{number}")).exists():
        number += 1
    os.rename(path, aside)
    return aside
