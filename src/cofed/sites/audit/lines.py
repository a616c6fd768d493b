"""A line of the log of what left a site: JSON, chained to the line before it by a hash, and signed by the site."""

import hashlib
import json
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from cofed.sites.packing import clipped

FORMAT = 1
NOTHING = "0" * 64  # what the first line has in the place of the hash of a line before it
SIGNED_AS = b"cofed/audit/1\n"  # before what is signed, so that the signature stands for nothing else
MOST_NOTE = 1000  # characters

EventName: TypeAlias = Literal["started", "hello", "answer", "refusal", "failure", "ended", "mended"]
Decision: TypeAlias = Literal["allowed", "refused"]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Short = Annotated[str, Field(max_length=200)]
Count = Annotated[int, Field(ge=0)]
Names = Annotated[tuple[Short, ...], Field(strict=False)]
Shape = Annotated[tuple[Count, ...], Field(strict=False)]


class AuditEvent(BaseModel):
    """Something that a site did, as far as its log tells of it: never data, never keys.

    Parameters
    ----------
    event : str
        What happened: `started` and `ended` (the site's process), `hello` (it told what its table is like), `answer`,
        `refusal`, `failure`, `mended` (the log itself).
    study, run, ticket : str
        For which study (its hash), which fit, which of its questions.
    request : str
        The hash of the whole request.
    query, version : str, int
        What was asked.
    sites : sequence of str
        Over whom the answer is summed; empty where the server sees it alone.
    shapes : mapping of str to sequence of int
        The shapes of the arrays that left.
    size : int
        How many bytes left.
    content : str
        The SHA-256 of what left, where it was masked. Of anything else a keyed hash, with a secret of the site's own
        (`SiteKeys.mark`): a plain one would let anybody try out which data give it.
    is_masked : bool
        Whether it was masked, so that nobody can read it alone.
    decision, rule : str
        What the site's rules decided, and by which rule. An answer that they refused is noise, sent where the refusal
        itself would have told of the data.
    epsilon : float
        What the answer took of the privacy budget.
    heads : mapping of str to str
        The last hashes of other sites' logs, which came with the request.
    note : str
        A sentence for people.

    Examples
    --------
    >>> from cofed.sites.audit import AuditEvent
    >>> event = AuditEvent(event="answer", query="look", version=1, size=4096, is_masked=True, decision="allowed")
    >>> event.query, event.size
    ('look', 4096)
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    event: EventName
    study: Short = ""
    run: Short = ""
    ticket: Short = ""
    request: Digest | None = None
    query: Short = ""
    version: int | None = None
    sites: Names = ()
    shapes: dict[Short, Shape] = {}
    size: Count = 0
    content: Digest | None = None
    is_masked: bool = False
    decision: Decision | None = None
    rule: Short = ""
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    heads: dict[Short, Digest] = {}
    note: str = ""

    @field_validator("note")
    @classmethod
    def cut(cls, note: str) -> str:
        """A sentence that is too long is cut: a line is never refused for it."""
        return note if len(note) <= MOST_NOTE else note[: MOST_NOTE - 3] + "..."


class AuditLine(AuditEvent):
    """An event with its place in the log.

    Parameters
    ----------
    format : int
        Of the line.
    seq : int
        Its number, from 1 on.
    prev : str
        The hash of the line before it.
    time : str
        When it was written, in UTC.
    site : str
        Whose log it is.
    cofed : str
        The version of cofed.
    salt : str
        Random, so that the line's hash, which travels, tells nothing of the line.
    signature : str
        The site's signature of all the rest; empty where it has no key.
    """

    format: Literal[1]
    seq: Annotated[int, Field(ge=1)]
    prev: Digest
    time: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")]
    site: Annotated[str, Field(min_length=1, max_length=200)]
    cofed: Short
    salt: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    signature: Annotated[str, Field(pattern="^([0-9a-f]{128})?$")] = ""

    @property
    def question(self) -> str:
        """What was asked, for people."""
        return f"{self.query} {self.version}" if self.version is not None else self.query

    def to_sign(self) -> bytes:
        """What the signature is of."""
        return SIGNED_AS + as_json(self.model_copy(update={"signature": ""}))

    def encoded(self) -> bytes:
        """The line as it stands in the file."""
        return as_json(self) + b"\n"


class BadLine(ValueError):
    """Why bytes are not a line of a log."""


def as_json(line: AuditLine) -> bytes:
    """The one form of a line's JSON; what is empty is left out."""
    fields = line.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def line_hash(data: bytes) -> str:
    """The hash of a line's bytes, its end of line included: the next line, and other sites' logs, hold it."""
    return hashlib.sha256(data).hexdigest()


def read_line(data: bytes) -> AuditLine:
    """The line in bytes that `AuditLine.encoded` made; anything else raises a `BadLine`."""
    try:
        fields = json.loads(data)
        if isinstance(fields, dict) and fields.get("format") not in (None, FORMAT):
            raise BadLine(f"it is of format {clipped(fields['format'])}, and this version of cofed reads {FORMAT}")
        line = AuditLine.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadLine(f"it is not a line of a log: {where + ': ' if where else ''}{first['msg']}") from None
    except BadLine:
        raise
    except (ValueError, RecursionError):
        raise BadLine("it is not JSON") from None
    if line.encoded() != data:
        raise BadLine("its bytes are not in the form in which a log is written")
    return line
