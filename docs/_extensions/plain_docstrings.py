"""Docstrings are plain text with `code` in backticks; to Sphinx, |w|_1 and coef_ would be links."""

import inspect
import re

UPDATE = re.compile(r" ?\(?[Ss]ee cofed\.(?:algorithms|gossip)\.(\w+)(?: for the update)?[).]")
PAGE = re.compile(r'(?<=the page )"([\w/-]+)"')
OBJECT = re.compile(r"<[^<>]*>")  # <factory>, <jax._src.custom_derivatives.custom_jvp object at 0x...>
FORMULA = re.compile(r"[\w., =]*\(.*\)$")
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


def is_formula(docstring: str) -> bool:
    """Whether a docstring begins with a formula alone, such as "max(v, 0)", which numpydoc takes for a signature."""
    return bool(FORMULA.match(docstring.strip().split("\n\n")[0]))


def linked(text: str, page: str, pages: set[str]) -> str:
    """A line whose files are links to the site's pages; on an algorithm's own page its file is not named."""

    def update(found: re.Match) -> str:
        there = f"algorithms/{found[1]}"
        link = f":doc:`the update </{there}>`"
        shown = f"See {link}." if found[0].startswith("See") else f" ({link})"
        return "" if page == there else shown if there in pages else found[0]

    text = UPDATE.sub(update, text)
    return PAGE.sub(lambda found: f":doc:`/{found[1]}`" if found[1] in pages else found[0], text)


def escape_docstring(app, what, name, thing, options, lines):
    """Escape what is text, and link the pages that it names. Examples up to an empty line stay."""
    example, page, pages = False, app.env.docname, app.env.found_docs
    if what == "class" and page.startswith("regularizers/"):  # the page begins with the first line already
        del lines[0]
    if is_formula("\n".join(lines)):
        lines[0] += "."
    for place, line in enumerate(lines):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if not example and not LINE.match(line):
            lines[place] = escaped(linked(line, page, pages))


def plain_signature(app, what, name, thing, options, signature, returns):
    """Keep the signature where a docstring is a formula, and show `...` for a default that has no name of its own."""
    if signature and (OBJECT.search(signature) or is_formula(inspect.getdoc(thing) or "")):
        return OBJECT.sub("...", signature), returns
    return None


def setup(app):
    app.connect("autodoc-process-signature", plain_signature, priority=100)
    app.connect("autodoc-process-docstring", escape_docstring, priority=100)  # before numpydoc, which makes roles
    return {"parallel_read_safe": True, "parallel_write_safe": True}
