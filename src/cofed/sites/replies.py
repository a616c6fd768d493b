"""What the server reads of a site's reply, and how it is refused where that is not as it must be."""

import numpy as np

from cofed.sites.base import QuestionRefused, SiteRefused
from cofed.sites.columns import TableInfo
from cofed.sites.guard import rule_in
from cofed.sites.link import NumbersChanged
from cofed.sites.packing import Head, Malformed, clipped, unpack
from cofed.sites.secure.site_end import PadUsed, StaleCard

Reply = tuple[Head, dict[str, np.ndarray]]


def opened(site: str, mark: str, reply: bytes) -> Reply:
    """The head and arrays of a site's reply to the request with this hash."""
    head, arrays = unpack(reply)
    kind, trouble = head.get("kind"), head.get("trouble")
    if not isinstance(kind, str) or not isinstance(trouble, str):
        raise Malformed("the reply does not say whether it went well")
    words = trouble[:400] if trouble.isprintable() else clipped(trouble, 400)
    if kind == QuestionRefused.__name__:
        raise SiteRefused(f"the site {site} does not answer: {words}", site, rule_in(words))
    if kind == PadUsed.__name__:
        raise NumbersChanged(f"{site} would answer the same request with other numbers than before")
    if kind == StaleCard.__name__:
        raise StaleCard(words)
    if kind or trouble:
        raise Malformed(words)
    if head.get("answers") != mark or head.get("site") != site:
        raise Malformed("the reply answers something else, or is of another site")
    return head, arrays


def whole_number(value: object) -> int:
    """A number of rows that a site has told."""
    if type(value) is not int or not 0 < value < 2**40:
        raise Malformed(f"the reply speaks of {clipped(value)} rows")
    return value


def read_info(head: Head) -> TableInfo:
    """What a site tells of its table."""
    try:
        info = TableInfo.model_validate(head.get("info"))
    except ValueError:
        raise Malformed("the reply tells nothing of a table") from None
    if not 0 < info.rows < 2**40 or not info.columns:
        raise Malformed(f"the reply speaks of {info.rows} rows and {len(info.columns)} columns")
    return info
