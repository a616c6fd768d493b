"""The lines that a site writes into its log of what left (`keep/audit.jsonl`) when it answers the messages of a run."""

import hashlib
from pathlib import Path

import numpy as np

from cofed.flower import wire
from cofed.flower.flwr_types import RecordDict
from cofed.flower.messages import SumTerms
from cofed.flower.site_policy import RoundRefused
from cofed.sites.audit import AUDIT_LOG, AuditEvent, AuditLog
from cofed.sites.base import QuestionRefused
from cofed.sites.secure.cards import RUN
from cofed.sites.secure.keys import SiteKeys

VERSION = 1  # of what the answers to the messages of a run hold
QUERIES = {"train": "update", "evaluate": "evaluation"}  # by Flower's message type


def write_line(folder: Path, kind: str, request: RecordDict, reply: RecordDict, note: str = "") -> None:
    """Add a line to a site's log for a reply; it is on the disk when this returns.

    Parameters
    ----------
    folder : Path
        The site's own.
    kind : str
        Flower's type of the message.
    request : RecordDict
        What was asked.
    reply : RecordDict
        What will be sent.
    note : str
        Why it was refused: a sentence that may stay at the site, where the server hears the rule's name alone.
    """
    keys, head = SiteKeys.of_folder(folder), reply.config_records["cofed"]
    trouble = str(head["kind"])
    if trouble:
        is_refusal = trouble in (QuestionRefused.__name__, RoundRefused.__name__)
        config = request.config_records.get("cofed")
        run = "" if config is None else str(config.get("run", ""))
        event = AuditEvent(
            event="refusal" if is_refusal else "failure",
            run=run if RUN.fullmatch(run) else "",
            query=QUERIES.get(kind, ""),
            decision="refused" if is_refusal else None,
            rule=str(head["rule"]),
            note=note if is_refusal else trouble,  # the words of what fails may quote data
        )
    elif kind == "query":
        event = AuditEvent(event="hello", run=str(request.config_records["cofed"]["run"]))
    else:
        event = answer_line(QUERIES[kind], request, reply, keys)
    AuditLog(folder / AUDIT_LOG, str(head["site"]), keys.sign).add(event)


def answer_line(query: str, request: RecordDict, reply: RecordDict, keys: SiteKeys) -> AuditEvent:
    """The line for an update or an evaluation: never its numbers, and a hash of them that nobody can try out."""
    arrays = {
        f"{part}:{name}": array.numpy()
        for part, record in reply.array_records.items()
        for name, array in record.items()
    }
    for part, record in reply.metric_records.items():
        arrays |= {f"{part}:{name}": np.asarray(value) for name, value in record.items()}
    data = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
    head = wire.head_of(request)
    about: dict[str, object] = {"content": keys.mark(b"content", data).hex()}
    if "sum" in head:
        total = SumTerms.read(head).total
        about = {
            "content": hashlib.sha256(data).hexdigest(),
            "is_masked": True,
            "request": wire.digest(request),
            "sites": total.names,
            "ticket": "/".join(map(str, total.ticket)),
        }
    about |= {"event": "answer", "decision": "allowed", "query": query, "version": VERSION, "run": str(head["run"])}
    about |= {"shapes": {name: array.shape for name, array in arrays.items()}, "size": len(data)}
    return AuditEvent.model_validate(about)
