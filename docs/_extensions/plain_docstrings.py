"""Docstrings are plain text with `code` in backticks; to Sphinx, |w|_1 and coef_ would be links."""

import re

CODE = re.compile(r"(``.*?``|`[^`]*`)")
LINE = re.compile(r"^\s*(>>>|\.\.\.|\.\. |-{3,}\s*$|={3,}\s*$)")


def escaped(text: str) -> str:
    """A line of text in which nothing but code in backticks means anything."""
    parts = CODE.split(text)
    return "".join(part if place % 2 else plain(part) for place, part in enumerate(parts))


def plain(text: str) -> str:
    """A piece of text with its marks escaped."""
    text = re.sub(r"(?<!\\)([|*])", r"\\\1", text)
    return re.sub(r"(?<=\w)_(?!\w)", r"\\_", text)


def escape_docstring(app, what, name, thing, options, lines):
    """Escape what is text. Examples and what follows them up to an empty line stay."""
    example = False
    for place, line in enumerate(lines):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if not example and not LINE.match(line):
            lines[place] = escaped(line)


def setup(app):
    app.connect("autodoc-process-docstring", escape_docstring, priority=100)  # before numpydoc, which makes roles
    return {"parallel_read_safe": True, "parallel_write_safe": True}
