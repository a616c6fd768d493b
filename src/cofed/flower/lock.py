"""One run at a time in a folder: a lock that the system releases however its holder ends, even by SIGKILL."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from cofed._util.files import private_append


@contextlib.contextmanager
def exclusive(folder: Path | None) -> Iterator[None]:
    """Lock a folder for the block, or refuse where another run has locked it; None locks nothing.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed.flower.lock import exclusive
    >>> where = Path(tempfile.mkdtemp())
    >>> with exclusive(where), exclusive(where):  # doctest: +ELLIPSIS
    ...     pass
    Traceback (most recent call last):
    ValueError: ... is in use by another run; wait for its end, or give another folder
    """
    if folder is None:
        yield
        return
    with private_append(folder / ".in-use") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{folder} is in use by another run; wait for its end, or give another folder") from None
        yield
