"""Whether a log is whole: its chain of hashes, its signatures, and what other sites' logs know of it."""

import dataclasses
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from cofed._util.extras import imported
from cofed.sites.audit.lines import NOTHING, AuditLine, BadLine, line_hash, read_line
from cofed.sites.secure.keys import is_signed


@dataclasses.dataclass(frozen=True)
class LogOnDisk:
    """A log as it was read: its lines up to the first that is not what it should be.

    Attributes
    ----------
    path : Path
        The file.
    lines : tuple of AuditLine
        The lines.
    hashes : tuple of str
        The hash of each.
    problem : str
        What is wrong with the first bad line; empty where there is none.
    cut_off : int
        Bytes after the last whole line.
    """

    path: Path
    lines: tuple[AuditLine, ...]
    hashes: tuple[str, ...]
    problem: str = ""
    cut_off: int = 0

    @property
    def site(self) -> str:
        """Whose log it is; the file's name where no line can be read."""
        return self.lines[0].site if self.lines else self.path.name


@dataclasses.dataclass(frozen=True)
class AuditVerdict:
    """What `verify` found.

    Attributes
    ----------
    path : Path
        The file.
    site : str
        Whose log it is.
    lines : tuple of AuditLine
        The lines before the first bad one; all of them where there is none.
    head : str
        The hash of the last of them.
    problems : tuple of str
        What is wrong, a sentence each; empty where the log holds.
    notes : tuple of str
        What else is to be known, such as what could not be checked.
    bad_line : int or None
        The number of the first bad line.
    sound : tuple of AuditLine
        The lines that can be believed: all where the log holds, else those before the first that may have been changed.
        Where a line does not follow on the one before it, that may be either, unless signatures were checked.
    """

    path: Path
    site: str
    lines: tuple[AuditLine, ...]
    head: str
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    bad_line: int | None = None
    sound: tuple[AuditLine, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(path: Path, public_key: str | None = None, others: Sequence[Path] = ()) -> AuditVerdict:
    """Check a log: the chain, the signatures, and what other sites' logs know of it.

    A chain alone shows that no line was changed, taken out or put in between. That none was cut off at the end, and
    that the log was not written anew, is shown by the heads of it which other sites' logs hold.

    Parameters
    ----------
    path : Path
        The log.
    public_key : str, optional
        The site's public key (Ed25519), as the study file has it: 64 hexadecimal digits. Without it signatures are not
        checked.
    others : sequence of Path
        Logs of other sites, or other copies of this one.

    Raises
    ------
    OSError
        Where a file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed.sites.audit import AuditEvent, AuditLog, verify
    >>> path = Path(tempfile.mkdtemp()) / "audit.jsonl"
    >>> for size in (100, 200):
    ...     head = AuditLog(path, "oslo").add(AuditEvent(event="answer", query="look", size=size))
    >>> verify(path).holds
    True
    >>> _ = path.write_bytes(path.read_bytes().replace(b'"size":100', b'"size":900'))
    >>> verify(path).problems
    ('line 2 does not follow on line 1, which was changed, or a line between them taken out',)
    """
    return judge(read_lines(path), public_key, [read_lines(other) for other in others])


def judge(log: LogOnDisk, public_key: str | None, others: Sequence[LogOnDisk]) -> AuditVerdict:
    """The verdict on a log that has been read."""
    problems, notes = [log.problem] if log.problem else [], []
    bad = len(log.lines) + 1 if log.problem else None
    if log.cut_off:
        notes.append(
            f"after the last line there are {log.cut_off} bytes of one that was being written when the site was "
            "stopped, and then its answer did not leave; or the file was cut"
        )
    for number, sentence in (unsigned(log, public_key, notes), repeated(log)):
        if sentence:
            problems.append(sentence)
            bad = number if bad is None else min(bad, number)
    problems += unwitnessed(log, [other for other in others if other.site != log.site], notes)
    problems += parted(log, [other for other in others if other.site == log.site and other is not log])
    sound = log.lines
    if bad is not None:
        sound = log.lines[: bad - 1 if bad <= len(log.lines) or public_key is not None else -1]
        notes.insert(0, f"only the first {len(sound)} lines are counted here: those after them may have been changed")
    head = log.hashes[-1] if log.hashes else NOTHING
    return AuditVerdict(log.path, log.site, log.lines, head, tuple(problems), tuple(notes), bad, sound)


def read_lines(path: Path) -> LogOnDisk:
    """The lines of a log, up to the first that is no line or does not follow on the one before it."""
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    lines: list[AuditLine] = []
    hashes: list[str] = []
    problem = ""
    for one in whole.split(b"\n")[:-1]:
        try:
            line = read_line(one + b"\n")
        except BadLine as error:
            problem = f"line {len(lines) + 1} cannot be read: {error}"
            break
        problem = misplaced(line, lines[-1] if lines else None, hashes[-1] if hashes else NOTHING)
        if problem:
            break
        lines.append(line)
        hashes.append(line_hash(one + b"\n"))
    return LogOnDisk(path, tuple(lines), tuple(hashes), problem, len(data) - len(whole))


def misplaced(line: AuditLine, last: AuditLine | None, head: str) -> str:
    """Why a line cannot be the next one; empty where it can."""
    number = 1 if last is None else last.seq + 1
    if line.prev != head:
        if last is None:
            return f"the first line is number {line.seq}: the lines before it are missing"
        return f"line {number} does not follow on line {last.seq}, which was changed, or a line between them taken out"
    if line.seq != number:
        return f"line {number} calls itself number {line.seq}"
    if last is not None and line.site != last.site:
        return f"line {number} is of the site {line.site!r}, the line before it of {last.site!r}"
    return ""


def unsigned(log: LogOnDisk, public_key: str | None, notes: list[str]) -> tuple[int, str]:
    """The first line whose signature is not the site's, and what is wrong with it."""
    if public_key is None:
        some = any(line.signature for line in log.lines)
        notes.append("the signatures were not checked, for no key was given" if some else "the lines are not signed")
        return 0, ""
    imported("cryptography", "Checking signatures", "cryptography", "flower")
    for line in log.lines:
        if not line.signature:
            return line.seq, f"line {line.seq} is not signed"
        if not is_signed(public_key, line.to_sign(), line.signature):
            return line.seq, f"line {line.seq} is not signed with the site's key"
    if log.lines:
        notes.append("every line is signed with the site's key")
    return 0, ""


def repeated(log: LogOnDisk) -> tuple[int, str]:
    """The first masked answer that differs from an earlier one to the same request: their difference is not masked."""
    first: dict[str, AuditLine] = {}
    for line in log.lines:
        if line.event != "answer" or not line.is_masked or line.request is None:
            continue
        before = first.setdefault(line.request, line)
        if before.content != line.content:
            return line.seq, (
                f"line {line.seq} is another answer than line {before.seq} to the same request, under the same mask: "
                "whoever has both can read their difference"
            )
    return 0, ""


def unwitnessed(log: LogOnDisk, others: Sequence[LogOnDisk], notes: list[str]) -> list[str]:
    """What is wrong by the heads of this log that other sites' logs hold; only the first of each is named."""
    known, problems = {*log.hashes, NOTHING}, []
    seen, witnesses = set(), []
    for other in others:
        held = [(line, line.heads[log.site]) for line in other.lines if log.site in line.heads]
        lost = [line for line, head in held if head not in known]
        seen |= {head for _, head in held} & set(log.hashes)
        if held:
            witnesses.append(other.site)
        if lost:
            problems.append(
                f"line {lost[0].seq} of the log of {other.site!r} ({lost[0].time[:16].replace('T', ' ')} UTC) holds a "
                f"head of {log.site!r} that is not here: lines were cut off, the log was put back to an earlier state "
                "or written anew, or the server passed on a wrong head"
            )
    if witnesses:
        notes.append(f"{len(seen)} of its heads are in the logs of {', '.join(sorted(witnesses))}")
    elif others:
        notes.append("no other site's log that was given holds a head of it")
    else:
        notes.append(
            "lines cut off at the end would not show, nor a changed last line without the site's key: give other "
            "sites' logs, too, which hold heads of it"
        )
    return problems


def parted(log: LogOnDisk, copies: Sequence[LogOnDisk]) -> list[str]:
    """Where this log says something else than another file with a log of the same site."""
    problems = []
    for copy in copies:
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(log.hashes, copy.hashes, strict=False)))
        if alike < min(len(log.hashes), len(copy.hashes)):
            problems.append(f"from line {alike + 1} on it differs from {copy.path}, another log of {log.site!r}")
    return problems
