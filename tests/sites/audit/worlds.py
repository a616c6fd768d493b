"""Logs of a few sites, as a fit leaves them."""

import hashlib
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cofed.sites.audit import AuditEvent, AuditLog

STUDY, RUN = hashlib.sha256(b"a study").hexdigest(), "5f" * 16


class Signer:
    """A site's key, the same for the same name."""

    def __init__(self, site: str):
        self.key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(site.encode()).digest())

    @property
    def public(self) -> str:
        return self.key.public_key().public_bytes_raw().hex()

    def sign(self, words: bytes) -> str:
        return self.key.sign(words).hex()


def request(number: int) -> str:
    """The hash of a request."""
    return hashlib.sha256(f"request {number}".encode()).hexdigest()


def answer(number: int, **fields) -> AuditEvent:
    """An answer to one of a fit's questions."""
    content = hashlib.sha256(f"masked {number}".encode()).hexdigest()
    given = {
        "event": "answer",
        "study": STUDY,
        "run": RUN,
        "ticket": f"{number}.0",
        "request": request(number),
        "query": "look",
        "version": 2,
        "sites": ("bern", "oslo", "rome"),
        "shapes": {"masked": (3, 60)},
        "size": 1440,
        "content": content,
        "is_masked": True,
        "decision": "allowed",
    }
    return AuditEvent(**(given | fields))


def fit(folder: Path, sites: tuple[str, ...] = ("bern", "oslo", "rome"), questions: int = 6) -> dict[str, Path]:
    """The logs of sites that answered the same questions; the heads of all travel with the next question."""
    paths = {site: folder / site / "audit.jsonl" for site in sites}
    logs = {site: AuditLog(path, site, Signer(site).sign) for site, path in paths.items()}
    heads = {site: log.add(AuditEvent(event="hello", study=STUDY, run=RUN, size=900)) for site, log in logs.items()}
    for number in range(questions):
        known = dict(heads)
        for site, log in logs.items():
            others = {other: head for other, head in known.items() if other != site}
            heads[site] = log.add(answer(number, heads=others, sites=sites))
    return paths
