"""The log of what left a site: lines are added and never changed, each on the disk before its answer goes out."""

import contextlib
import datetime
import fcntl
import logging
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from cofed._util.files import NotWritten, private_file, private_folder
from cofed.sites.audit.lines import FORMAT, NOTHING, AuditEvent, AuditLine, BadLine, line_hash, read_line

log = logging.getLogger("cofed")
AUDIT_LOG = "audit.jsonl"  # in the folder that a site keeps
BLOCK = 1 << 16  # bytes that are read at once from the end of the file


class AuditBroken(RuntimeError):
    """The log cannot be continued: it is damaged, is another site's, or was changed since this process wrote to it."""


class AuditLog:
    """The log of what left a site, in one file. Several processes may add to it, one at a time.

    Whoever sends an answer adds its line first: when `add` returns, the line is on the disk, and when it raises,
    nothing may leave. A site that is killed while it writes leaves a line that is cut off, whose answer never left;
    the next line says so.

    Parameters
    ----------
    path : Path
        The file, made where it is missing, for its owner alone.
    site : str
        Whose log it is.
    sign : callable, optional
        Gives the site's signature of bytes (Ed25519), in hexadecimal digits.

    Attributes
    ----------
    head : str
        The hash of the last line, which may go to others: where their logs hold it, this one cannot be cut or
        rewritten without their noticing.

    Raises
    ------
    AuditBroken
        Where the file does not end in a line of this site's log, or others can read it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed.sites.audit import AuditEvent, AuditLog
    >>> path = Path(tempfile.mkdtemp()) / "audit.jsonl"
    >>> own = AuditLog(path, "oslo")
    >>> head = own.add(AuditEvent(event="answer", query="look", version=1, size=4096, is_masked=True))
    >>> head == own.head, path.read_bytes().count(b"\\n")
    (True, 1)
    """

    def __init__(self, path: Path, site: str, sign: Callable[[bytes], str] | None = None):
        self.path, self.site, self.sign = path, site, sign
        self.head = NOTHING
        self.seen = 0  # how long the file was when this process last looked
        with self.opened() as file:
            self.catch_up(file)

    def add(self, event: AuditEvent) -> str:
        """Add a line that is on the disk when this returns, and give the log's new head.

        Parameters
        ----------
        event : AuditEvent
            What happened.
        """
        with self.opened() as file:
            return self.write(file, self.following(self.catch_up(file), event))

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """The file, to which no other process writes in the meantime."""
        if not self.path.exists():
            if self.seen:
                raise AuditBroken(f"{self.path} is gone; nothing leaves this site without a log")
            with contextlib.suppress(FileExistsError):  # another process was faster
                private_file(private_folder(self.path.parent) / self.path.name)
                keep_name(self.path.parent)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            if os.fstat(file).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise AuditBroken(f"{self.path} can be read or changed by others than its owner: chmod 600 it")
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
            yield file
        finally:
            os.close(file)

    def catch_up(self, file: int) -> AuditLine | None:
        """The last line, by this process or another; a line that is cut off is taken away, and a new one says so."""
        end = os.fstat(file).st_size
        if self.seen and (end < self.seen or line_hash(last_line(file, self.seen)[0]) != self.head):
            raise AuditBroken(f"{self.path} has been changed since this process wrote to it; cofed audit says more")
        data, whole = last_line(file, end)
        last = self.checked(data) if data else None
        self.seen, self.head = whole, line_hash(data) if data else NOTHING
        if whole == end:
            return last
        said = f"a line was cut off after {end - whole} bytes: the site was stopped while it wrote it"
        log.warning("cofed: %s: %s", self.path, said)
        os.ftruncate(file, whole)
        mended = self.following(last, AuditEvent(event="mended", note=f"{said}, and its answer did not leave"))
        self.write(file, mended)
        return mended

    def checked(self, data: bytes) -> AuditLine:
        """The last line, which must be one of this site's."""
        try:
            last = read_line(data)
        except BadLine as error:
            raise AuditBroken(
                f"the last line of {self.path} is damaged ({error}); look at it with: cofed audit {self.path}. To go "
                "on, move the file away and keep it; a new log begins then"
            ) from None
        if last.site != self.site:
            raise AuditBroken(f"{self.path} is the log of the site {last.site!r}, not of {self.site!r}")
        return last

    def following(self, last: AuditLine | None, event: AuditEvent) -> AuditLine:
        """The line of an event after the last one, signed."""
        line = AuditLine(
            **event.model_dump(exclude_defaults=True),
            format=FORMAT,
            seq=1 if last is None else last.seq + 1,
            prev=self.head,
            time=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            site=self.site,
            cofed=version("cofed"),
            salt=secrets.token_hex(16),
        )
        if self.sign is None:
            return line
        return line.model_copy(update={"signature": self.sign(line.to_sign())})

    def write(self, file: int, line: AuditLine) -> str:
        """Put a line on the disk; where that fails, nothing of it stays."""
        data, before = line.encoded(), os.fstat(file).st_size
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(file, left) :]
            os.fsync(file)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.ftruncate(file, before)
            if isinstance(error, OSError):
                raise NotWritten(error.errno, error.strerror, str(self.path)) from error
            raise
        self.seen, self.head = before + len(data), line_hash(data)
        return self.head


def keep_name(folder: Path) -> None:
    """Let the names of a folder's new files outlast a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def last_line(file: int, end: int) -> tuple[bytes, int]:
    """The last whole line before a place in a file, and where it ends; nothing, at 0, where there is none."""
    data, start = b"", end
    while start > 0 and data.count(b"\n") < 2:
        step = min(BLOCK, start)
        start -= step
        data = os.pread(file, step, start) + data
    whole = data[: data.rfind(b"\n") + 1]
    begins = whole.rfind(b"\n", 0, -1) + 1
    return whole[begins:], start + len(whole)
