"""Files that are whole or not there, that only their owner can read where they hold data, and names that are fit to be
names of files.

A run's folder holds copies of data and what was learned from them, so what is written is private (0600, in folders
0700) unless it is made to be shown: a figure, a report, a table of results. The mode is given when a file is made, so
there is no moment at which others can open it.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

PRIVATE_FILE, PRIVATE_FOLDER, SHOWN = 0o600, 0o700, 0o666  # of what is shown, the user's umask takes some away
LONGEST = 100  # characters of a name, so that endings and marks still fit into the 255 bytes of a file system
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}  # on Windows


class NotWritten(OSError):
    """A file could not be written: the disk is full, or nothing may be written there."""

    def __str__(self) -> str:
        return f"{self.filename} cannot be written: {self.strerror}"


def atomically(path: str | Path, write: Callable[[str], Any], *, shown: bool = False) -> None:
    """Write a file under another name in the same folder, then rename: a reader never sees half of it.

    Parameters
    ----------
    path
        Where the file ends up; its folder is made where it is missing.
    write
        Writes the content to the name that it is given, at which an empty file is.
    shown
        Whether the file is made to be shown to others, and so has the permissions of any new file. All others only
        their owner can read, whatever the umask.

    Raises
    ------
    NotWritten
        Where the disk is full or nothing may be written there. What was there before stays, and nothing else is left.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed._util.files import atomically
    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> atomically(target, lambda name: Path(name).write_text("whole"))
    >>> target.read_text(), oct(target.stat().st_mode & 0o777)
    ('whole', '0o600')
    """
    path = Path(path)
    name = path.with_name(f".{path.name}.{secrets.token_hex(4)}{path.suffix}")
    try:
        if shown:
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            private_folder(path.parent)
        os.close(new_file(name, SHOWN if shown else PRIVATE_FILE))
        write(str(name))
        with open(name, "rb+") as file:
            os.fsync(file.fileno())
            if not shown:  # `write` may have put a file of its own there
                os.fchmod(file.fileno(), PRIVATE_FILE)
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            name.unlink()
        if isinstance(error, (OSError, SafetensorError)) and (number := errno_of(error)) is not None:
            raise NotWritten(number, os.strerror(number), str(path)) from error
        raise


def errno_of(error: OSError | SafetensorError) -> int | None:
    """The system's number of an error; safetensors has it in its text only."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None


def digest(path: Path) -> str:
    """The hash of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, content: object, *, shown: bool = False) -> None:
    """Write JSON, whole or not at all.

    Parameters
    ----------
    path
        Where the file ends up.
    content
        What it holds.
    shown
        Whether people are meant to read it: laid out for them, with letters beyond ASCII as they are, and with the
        permissions of any new file.
    """
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n" if shown else json.dumps(content, indent=1)
    atomically(path, lambda name: Path(name).write_text(text, encoding="utf-8"), shown=shown)


class UnreadableJson(ValueError):
    """Why a file holds no JSON, in a sentence that begins with its name."""


def load_json(path: Path) -> Any:
    """Read a JSON file, or raise UnreadableJson."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UnreadableJson(f"{path.name} is not valid JSON (line {error.lineno}: {error.msg})") from error
    except UnicodeDecodeError as error:
        raise UnreadableJson(f"{path.name} is not text in UTF-8") from error
    except RecursionError as error:
        raise UnreadableJson(f"{path.name} is nested too deeply") from error
    except OSError as error:
        raise UnreadableJson(f"{path.name} cannot be read ({error.strerror})") from error


def read_json(path: Path, refusal: str) -> dict[str, Any]:
    """Read a JSON object, or refuse with this sentence."""
    try:
        content = load_json(path)
    except UnreadableJson as error:
        raise ValueError(refusal) from error
    if not isinstance(content, dict):
        raise ValueError(refusal)
    return content


def without_nonfinite(value: Any, say: Callable[[float], str | None]) -> Any:
    """The same JSON value with infinities and NaN, which JSON does not have, replaced by what `say` makes of them.

    >>> from cofed._util.files import without_nonfinite
    >>> without_nonfinite({"a": [float("nan"), 1.0]}, str)
    {'a': ['nan', 1.0]}
    """
    if isinstance(value, dict):
        return {key: without_nonfinite(item, say) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nonfinite(item, say) for item in value]
    return say(value) if isinstance(value, float) and not math.isfinite(value) else value


def new_file(path: Path, mode: int = PRIVATE_FILE) -> int:
    """A new, empty file of this mode, open for writing."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
    if mode == PRIVATE_FILE:
        os.fchmod(handle, mode)  # a umask can also take away what the owner needs
    return handle


def private_file(path: Path) -> Path:
    """The path of a new, empty file that only its owner can read, for others to write into."""
    os.close(new_file(path))
    return path


def private_folder(path: Path) -> Path:
    """The folder, made where it is missing, and then for its owner alone. One that is there is left as it is."""
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # another process was faster
            path.mkdir(mode=PRIVATE_FOLDER)
            path.chmod(PRIVATE_FOLDER)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{path} is a file, and a folder is needed there")
    return path


@contextlib.contextmanager
def private_append(path: Path, mode: str = "a") -> Iterator[IO[Any]]:
    """A private file to add to, in a private folder.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed._util.files import private_append
    >>> log = Path(tempfile.mkdtemp()) / "log"
    >>> for line in ("one", "two"):
    ...     with private_append(log) as file:
    ...         _ = file.write(line)
    >>> log.read_text()
    'onetwo'
    """
    private_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        private_file(path)
    with open(path, mode) as file:
        yield file


def plain_names(names: Sequence[Any], what: str) -> list[str]:
    """The names, which must be fit to be names of files on any system, and different ones; `what` says what they name.

    Raises
    ------
    TypeError, ValueError
        Where one is no text, is empty or too long, leads to another folder, has characters that a system does not
        allow in names, or where two would be the same file on a system that does not tell capitals from small letters.

    Examples
    --------
    >>> from cofed._util.files import plain_names
    >>> plain_names(["oslo", "St. Olav"], "a site")
    ['oslo', 'St. Olav']
    >>> plain_names(["../outside"], "a site")
    Traceback (most recent call last):
    ValueError: '../outside' cannot name a site: it becomes a file's name, which has no / in it
    """
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{name!r} cannot name {what}: a name is a text, not {type(name).__name__}")
        if why := unfit(name):
            raise ValueError(f"{name!r} cannot name {what}: it becomes a file's name, which {why}")
        if name.casefold() in seen:
            other = seen[name.casefold()]
            raise ValueError(f"{other!r} and {name!r} cannot both name {what}: they would be the same file")
        seen[name.casefold()] = name
    return list(names)


def unfit(name: str) -> str:
    """Why a text cannot be the name of a file, on one system or another; empty where it can."""
    if not name.strip():
        return "is not empty"
    if len(name.encode(errors="replace")) > LONGEST:
        return f"has at most {LONGEST} bytes"
    for bad in '/\\:*?"<>|':
        if bad in name:
            return f"has no {bad} in it"
    if not name.isprintable():
        return "has no control characters in it"
    if name[0] in ".-" or name[0] == " " or name[-1] in ". ":
        return "does not begin with a dot, a dash or a space, nor end with a dot or a space"
    if name.split(".")[0].strip().lower() in RESERVED:
        return "is not one that Windows keeps for devices"
    return ""


def file_stem(text: str) -> str:
    """A file's name for any text, another one for another text.

    >>> from cofed._util.files import file_stem
    >>> file_stem("FedAvg"), file_stem("lr = 0.1 / a") == file_stem("lr = 0.1 . a")
    ('FedAvg', False)
    """
    safe = re.sub("[^A-Za-z0-9=-]+", "_", text)
    if safe == text and len(text) <= LONGEST // 2 and not unfit(text):
        return text
    return f"{safe[: LONGEST // 2].strip('_-') or 'x'}_{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:12]}"
