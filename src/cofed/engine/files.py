"""Files that are either whole or not there."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def atomically(path: str | Path, write: Callable[[str], Any]) -> None:
    """Write a file under another name in the same folder, then rename: a reader never sees half of it.

    >>> import tempfile, pathlib
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
    >>> atomically(target, lambda f: pathlib.Path(f).write_text("whole"))
    >>> target.read_text()
    'whole'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(handle)
    try:
        write(name)
        with open(name, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~current_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def current_umask() -> int:
    """The permissions that new files do not get; mkstemp makes files private, results should not be."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
