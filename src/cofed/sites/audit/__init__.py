"""The log of what left a site: one line per answer, chained by hashes, signed, and checked by whoever wants to."""

from cofed.sites.audit.lines import AuditEvent, AuditLine
from cofed.sites.audit.log import AUDIT_LOG, AuditBroken, AuditLog
from cofed.sites.audit.verification import AuditVerdict, verify

__all__ = [
    "AUDIT_LOG",
    "AuditBroken",
    "AuditEvent",
    "AuditLine",
    "AuditLog",
    "AuditVerdict",
    "verify",
]
