"""What left a site, added up by study, fit and question, and in sentences."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

from cofed._util.machine import size
from cofed.sites.audit.lines import AuditLine
from cofed.sites.audit.verification import AuditVerdict


@dataclasses.dataclass(frozen=True)
class WhatLeft:
    """The answers of a site to one question in one fit.

    Attributes
    ----------
    study, run, question : str
        Of what.
    answers : int
        How many left.
    plain : int
        How many of them were not masked, so that the server saw them as they are.
    refused, failed : int
        How often the site's rules refused, and how often it could not answer.
    size : int
        Bytes that left.
    sites : tuple of int
        Over how many sites at least and at most the masked answers were summed; empty where none was.
    epsilon : float
        What they took of the privacy budget.
    last : str
        When the last line of them was written.
    """

    study: str
    run: str
    question: str
    answers: int
    plain: int
    refused: int
    failed: int
    size: int
    sites: tuple[int, ...]
    epsilon: float
    last: str


def what_left(lines: Sequence[AuditLine]) -> list[WhatLeft]:
    """What left by study, fit and question, in the order in which they came.

    Parameters
    ----------
    lines : sequence of AuditLine
        The lines of a log.
    """
    groups: dict[tuple[str, str, str], list[AuditLine]] = {}
    for line in lines:
        if line.event in ("hello", "answer", "refusal", "failure"):
            asked = line.question or line.event
            groups.setdefault((line.study, line.run, asked), []).append(line)
    return [added_up(*key, group) for key, group in groups.items()]


def added_up(study: str, run: str, question: str, lines: Sequence[AuditLine]) -> WhatLeft:
    """What left for one question of a fit."""
    sent = [line for line in lines if is_sent(line)]
    over = [len(line.sites) for line in sent if line.is_masked]
    return WhatLeft(
        study,
        run,
        question,
        answers=len(sent),
        plain=sum(is_plain(line) for line in lines),
        refused=sum(line.decision == "refused" or line.event == "refusal" for line in lines),
        failed=sum(line.event == "failure" for line in lines),
        size=sum(line.size for line in lines),
        sites=(min(over), max(over)) if over else (),
        epsilon=sum(line.epsilon or 0.0 for line in lines),
        last=lines[-1].time,
    )


def is_sent(line: AuditLine) -> bool:
    """Whether something left that was asked for."""
    return line.event in ("hello", "answer")


def is_plain(line: AuditLine) -> bool:
    """Whether an answer left as it is."""
    return line.event == "answer" and not line.is_masked


def in_words(found: AuditVerdict) -> list[str]:
    """What left, in sentences."""
    lines = found.sound
    if not lines:
        return []
    answers = [line for line in lines if line.event == "answer"]
    plain = sum(is_plain(line) for line in answers)
    if not answers:
        masked = "No answer has left."
    elif plain == 0 and not found.holds:
        masked = f"{counted(len(answers), 'answer')} left by these lines, all masked; but the log does not hold."
    elif plain == 0:
        masked = f"{counted(len(answers), 'answer')} left, all masked: nobody saw them but as part of a sum."
        if any(line.event == "hello" for line in lines):
            masked += " What the site says of itself (hello: its name, rows and columns) went as it is."
    else:
        masked = (
            f"{counted(len(answers), 'answer')} left, {plain} of them plain: not masked, so that the server saw what "
            "this site alone answered."
        )
    said = [masked]
    rules = Counter(line.rule or "no rule named" for line in lines if line.decision == "refused")
    if rules:
        named = ", ".join(f"{printable(rule)} ({many})" for rule, many in rules.most_common())
        said.append(f"The site's rules refused {counted(sum(rules.values()), 'question')}: {named}.")
    epsilon = sum(line.epsilon or 0.0 for line in lines)
    if epsilon:
        said.append(f"The answers took an epsilon of {epsilon:.4g}, added up plainly; the fit's own count is sharper.")
    mended = sum(line.event == "mended" for line in lines)
    if mended:
        said.append(f"The site was stopped {'once' if mended == 1 else f'{mended} times'} while it wrote a line.")
    return said


def facts(found: AuditVerdict) -> list[str]:
    """The log in a few words: its length, when it was written, its head."""
    out = [counted(len(found.lines), "line")]
    if found.lines:
        first, last = minute(found.lines[0].time), minute(found.lines[-1].time)
        out += [f"{first} to {last} UTC" if first != last else f"{first} UTC", f"head {found.head[:16]}"]
    return out


def bytes_of(lines: Sequence[AuditLine]) -> str:
    """Bytes that left, for people."""
    return size(sum(line.size for line in lines))


def counted(many: int, word: str) -> str:
    """A number of things.

    >>> from cofed.sites.audit.summary import counted
    >>> counted(1, "line"), counted(1200, "line")
    ('1 line', '1,200 lines')
    """
    return f"{many:,} {word}{'' if many == 1 else 's'}"


def minute(time: str) -> str:
    """A time of a line, to the minute.

    >>> from cofed.sites.audit.summary import minute
    >>> minute("2026-11-17T14:32:22.123456Z")
    '2026-11-17 14:32'
    """
    return time[:16].replace("T", " ")


def printable(text: str) -> str:
    """Text that came from elsewhere, without characters that a terminal would obey."""
    return text if text.isprintable() else repr(text)[1:-1]


def span(sites: tuple[int, ...]) -> str:
    """Over how many sites sums were.

    >>> from cofed.sites.audit.summary import span
    >>> span((3, 3)), span((3, 5)), span(())
    ('3', '3 to 5', '-')
    """
    if not sites:
        return "-"
    low, high = sites
    return f"{low}" if low == high else f"{low} to {high}"
