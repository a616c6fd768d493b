"""A log of what left as a table for a terminal, and as what its page shows."""

from collections.abc import Sequence
from typing import TypeAlias

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cofed._util.machine import size
from cofed.sites.audit.lines import AuditLine
from cofed.sites.audit.summary import bytes_of, facts, in_words, minute, printable, span, what_left
from cofed.sites.audit.verification import AuditVerdict

MOST = 5000  # lines that a page lists
LEFT = [
    *("asked", "fit", "study", "answers", "plain", "refused", "failed", "bytes", "sites in the sum", "epsilon"),
    "last (UTC)",
]
LINE = [
    *("line", "time (UTC)", "event", "asked", "sites in the sum", "arrays", "bytes", "masked", "rules", "fit"),
    "hash of what left",
]
Cell: TypeAlias = str | int | float | None
JSON: TypeAlias = dict[str, object]


def terminal(found: AuditVerdict) -> Group:
    """A verdict on a log, and what left by it, for a terminal.

    Parameters
    ----------
    found : AuditVerdict
        What `verify` found.
    """
    head = Text.assemble((printable(found.site), "bold"), f"  {found.path}")
    sign = Text("✓ It holds", style="green") if found.holds else Text("✗ It does not hold", style="red")
    parts: list[RenderableType] = [head, Text.assemble(sign, ": ", ", ".join(facts(found)), ".")]
    parts += [Padding(Text(sentence(problem), style="red"), (0, 2)) for problem in found.problems]
    parts += [Padding(Text(sentence(note), style="dim"), (0, 2)) for note in found.notes]
    groups = what_left(found.sound)
    if groups:
        out = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)  # most questions fit into 80 columns
        out.add_column("study/fit", no_wrap=True)
        out.add_column("asked", overflow="fold")
        for name in ("answers", "plain", "refused", "failed", "bytes", "sites"):
            out.add_column(name, justify="right", no_wrap=True)
        for one in groups:
            numbers = (one.answers, one.plain, one.refused, one.failed)
            words = (f"{brief(one.study, 6)}/{brief(one.run, 6)}", printable(one.question) or "-")
            counts = (str(many) if many else "-" for many in numbers)
            out.add_row(*map(Text, (*words, *counts, size(one.size), span(one.sites))))
        parts.append(out)
    parts += [Text(words) for words in in_words(found)]
    return Group(*parts, Text())


def content(verdicts: Sequence[AuditVerdict]) -> JSON:
    """What the page of logs shows, as JSON.

    Parameters
    ----------
    verdicts : sequence of AuditVerdict
        What `verify` found of each.
    """
    names = ", ".join(found.site for found in verdicts)
    return {
        "title": f"What left {names}" if len(verdicts) <= 3 else f"What left {len(verdicts)} sites",
        "verdict": verdict(all(found.holds for found in verdicts)),
        "logs": [log_content(found) for found in verdicts],
    }


def verdict(holds: bool) -> dict[str, str]:
    """The verdict as a sign and words."""
    kind, sign, name = ("good", "✓", "it holds") if holds else ("bad", "✗", "it does not hold")
    return {"kind": kind, "sign": sign, "name": name}


def log_content(found: AuditVerdict) -> JSON:
    """What the page shows of one log."""
    answers = [line for line in found.sound if line.event == "answer"]
    refused = sum(line.decision == "refused" for line in found.sound)
    plain = sum(not line.is_masked for line in answers)
    return {
        "site": found.site,
        "facts": [str(found.path), *facts(found)],
        "verdict": verdict(found.holds),
        "problems": [sentence(problem) for problem in found.problems],
        "words": in_words(found),
        "notes": [sentence(note) for note in found.notes],
        "tiles": [
            [str(len(answers)), "answers left", ""],
            [bytes_of(found.sound), "left", ""],
            [str(plain), "plain, not masked", "bad" if plain else ""],
            [str(refused), "refused", ""],
        ],
        "left": {
            "columns": LEFT,
            "rows": [
                [
                    *(one.question, brief(one.run), brief(one.study), one.answers, one.plain, one.refused, one.failed),
                    *(one.size, span(one.sites), one.epsilon or None, minute(one.last)),
                ]
                for one in what_left(found.sound)
            ],
        },
        "lines": {
            "columns": LINE,
            "rows": [cells(line) for line in found.lines[-MOST:]],
        },
        "said": [f"Line {line.seq}, {minute(line.time)}: {line.note}" for line in found.lines[-MOST:] if line.note],
        "earlier": max(0, len(found.lines) - MOST),
    }


def cells(line: AuditLine) -> list[Cell]:
    """A line of the log as a row of the page's table."""
    masked = ("yes" if line.is_masked else "no") if line.event == "answer" else None
    rules = f"{line.decision}{': ' if line.rule else ''}{line.rule}" if line.decision else None
    return [
        *(line.seq, line.time[:19].replace("T", " "), line.event, line.question or None),
        *(", ".join(line.sites) or None, arrays(line) or None, line.size or None, masked, rules),
        *(brief(line.run), (line.content or "")[:16] or None),
    ]


def arrays(line: AuditLine) -> str:
    """The shapes of what left."""
    return ", ".join(f"{name} {' x '.join(map(str, shape)) or '1'}" for name, shape in line.shapes.items())


def brief(text: str, most: int = 10) -> str:
    """The beginning of a hash or a name."""
    return printable(text[:most]) or "-"


def sentence(words: str) -> str:
    """Words as a sentence of their own."""
    return f"{words[:1].upper()}{words[1:]}."
