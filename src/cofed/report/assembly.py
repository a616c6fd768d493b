"""One file of HTML from its parts: a template, styles, scripts, and what they show as JSON."""

import base64
import hashlib
import json
import string
from collections.abc import Sequence
from importlib import resources

SHARED = ("chart.js", "parts.js")  # what the scripts of all pages use


def assembled(template: str, styles: Sequence[str], script: str, content: object, connect: str = "'none'") -> str:
    """A page as text; its content security policy allows its own style and scripts and nothing else.

    Parameters
    ----------
    template, styles, script
        Names of files beside this one.
    content
        What the script finds in the element `data`.
    connect
        Where the script may ask for more; by default nowhere.

    Examples
    --------
    >>> from cofed.report.assembly import assembled
    >>> page = assembled("fit.html", ("page.css",), "fit.js", {"title": "A fit"})
    >>> "default-src 'none'" in page, '{"title":"A fit"}' in page
    (True, True)
    """
    files = resources.files("cofed.report")
    style = "\n".join((files / name).read_text("utf-8") for name in styles)
    shared = "\n".join((files / name).read_text("utf-8") for name in SHARED)
    sources = [shared, (files / script).read_text("utf-8")]
    allowed = " ".join(digest(source) for source in sources)
    return string.Template((files / template).read_text("utf-8")).substitute(
        policy=f"default-src 'none'; style-src {digest(style)}; script-src {allowed}; connect-src {connect}",
        style=style,
        scripts="\n".join(f"<script>{source}</script>" for source in sources),
        data=embedded(content),
    )


def embedded(content: object) -> str:
    r"""JSON to embed in a page: no text in it can close the element that it stands in.

    >>> from cofed.report.assembly import embedded
    >>> print(embedded({"label": "</script><b>"}))
    {"label":"\u003c/script\u003e\u003cb\u003e"}
    """
    encoded = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def digest(source: str) -> str:
    """The hash by which a content security policy names a source."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
