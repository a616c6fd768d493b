"""Files that are either whole or not there."""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError


class NotWritten(OSError):
    """A file could not be written: the disk is full, or nothing may be written there."""

    def __str__(self) -> str:
        return f"{self.filename} cannot be written: {self.strerror}"


def atomically(path: str | Path, write: Callable[[str], Any]) -> None:
    """Write a file under another name in the same folder, then rename: a reader never sees half of it.

    Parameters
    ----------
    path : str or Path
        The file; missing folders above it are made.
    write : callable
        Writes the content into the file whose name it is given.

    Raises
    ------
    NotWritten
        Where the disk is full or nothing may be written there. What was there before stays, and nothing else is left.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
    >>> atomically(target, lambda f: pathlib.Path(f).write_text("whole"))
    >>> target.read_text()
    'whole'
    """
    path = Path(path)
    name = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
        os.close(handle)
        write(name)
        with open(name, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~current_umask())
        os.replace(name, path)
    except BaseException as error:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        if isinstance(error, (OSError, SafetensorError)) and (number := errno_of(error)) is not None:
            raise NotWritten(number, os.strerror(number), str(path)) from error
        raise


def errno_of(error: OSError | SafetensorError) -> int | None:
    """The system's number of an error; safetensors has it in its text only."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None


def current_umask() -> int:
    """The permissions that new files do not get; mkstemp makes files private, results should not be."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def digest(path: Path) -> str:
    """The hash of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    atomically(path, lambda name: Path(name).write_text(json.dumps(content, indent=1)))


def read_json(path: Path, refusal: str) -> dict[str, Any]:
    """Read a JSON object, or refuse with this sentence."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(refusal) from error
    if not isinstance(content, dict):
        raise ValueError(refusal)
    return content
