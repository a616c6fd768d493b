"""Links between pages: names in code lead to their pages, and a link to a page shows its title."""

import re

from docutils import nodes
from pages_from_code import every_command

import cofed
import cofed.estimators
import cofed.transformers

LONG = 28  # "DFedDA(gradient_tracking=True)" is longer
NAME = re.compile(r"([A-Za-z_][\w.]*)(?:\(.*\))?", re.DOTALL)  # a name, alone or called
THUMBNAIL = re.compile(r"sphx_glr_(plot_\w+)_thumb")


def pages_of_names(found: set[str]) -> dict[str, str]:
    """What may stand in a text, and the page where it leads."""
    pages = {}
    for room in (cofed, cofed.estimators, cofed.transformers):
        for name in room.__all__:
            page = f"api/names/{room.__name__}.{name}"
            short = [name, f"cofed.{name}"] if name[:1].isupper() else []  # `run` alone may be any run
            pages |= dict.fromkeys([*short, f"{room.__name__}.{name}"], page)
    for folder in ("api/", "api/names/"):  # modules, and what is in them
        pages |= {page.removeprefix(folder): page for page in found if page.startswith(f"{folder}cofed.")}
    for folder, names in (
        ("algorithms", (*cofed.algorithms.__all__, *cofed.gossip.__all__)),
        ("regularizers", cofed.regularizers.__all__),
    ):
        for name in names:
            page = f"{folder}/{name.lower()}"
            if page in found:  # an abstract class has none there
                pages |= dict.fromkeys([name, f"cofed.{name}"], page)
    return {name: page for name, page in pages.items() if page in found}


def places_of_commands() -> dict[str, str]:
    """The commands, and where their help is; longer ones first."""
    from typer.main import get_command

    from cofed.cli import app

    known = sorted((" ".join(["cofed", *words]) for words in every_command(get_command(app), [])), key=len)
    return {command: f"#{command.replace(' ', '-')}" for command in reversed(known)}


def target(text: str, pages: dict[str, str], commands: dict[str, str]) -> tuple[str, str] | None:
    """The page where a piece of code leads, and the place on it."""
    for command, place in commands.items():
        if text == command or text.startswith(command + " "):
            return "commands", place
    name = NAME.fullmatch(text)
    page = pages.get(name[1]) if name else None
    return None if page is None else (page, "")


def outside_links(literal: nodes.literal) -> bool:
    """Whether a piece of code stands in text: not in a heading, and not in a link already."""
    above = literal.parent
    while above is not None:
        if isinstance(above, (nodes.reference, nodes.title)):
            return False
        above = above.parent
    return True


def link_names(app, doctree, page: str) -> None:
    """Make links of the names on a page."""
    if app.builder.format != "html":
        return
    pages, commands = app.env.cofed_names
    for literal in list(doctree.findall(nodes.literal)):
        found = target(literal.astext(), pages, commands)
        if found is not None and found[0] != page and outside_links(literal):
            address = app.builder.get_relative_uri(page, found[0]) + found[1]
            literal.replace_self(nodes.reference("", "", literal.deepcopy(), internal=True, refuri=address))


def break_names(app, doctree, page: str) -> None:
    """Let the longest code in a table's cells break after "(" and "_", and not within a word."""
    if app.builder.format != "html":
        return
    for cell in doctree.findall(nodes.entry):
        for literal in [each for each in cell.findall(nodes.literal) if len(each.astext()) > LONG]:
            first, *rest = re.split(r"(?<=[(_])(?=.)", literal.astext())
            literal.children = [nodes.Text(first)]
            for part in rest:
                literal += [nodes.raw("", "<wbr>", format="html"), nodes.Text(part)]


def name_pages(app, doctree, page: str) -> None:
    """Where a link shows the file of a page, show the page's title."""
    for link in doctree.findall(nodes.reference):
        file = link.astext()
        title = app.env.titles.get(file.removesuffix(".md").removeprefix("docs/"))
        if file.endswith(".md") and title is not None and "://" not in link.get("refuri", ""):
            link.children = [nodes.inline("", title.astext())]


def describe_thumbnails(app, doctree, page: str) -> None:
    """Let a picture of the gallery's first page say which example it is of, to those who do not see it."""
    for picture in doctree.findall(nodes.image) if page == "gallery/index" else ():
        example = THUMBNAIL.search(picture["uri"])
        if example:
            picture["alt"] = f"The figure of: {app.env.titles[f'gallery/{example[1]}'].astext()}"


def collect(app, env) -> None:
    """Look once at what there is to link to."""
    env.cofed_names = (pages_of_names(set(env.found_docs)), places_of_commands())


def setup(app):
    app.connect("env-updated", collect)
    app.connect("doctree-resolved", link_names)
    app.connect("doctree-resolved", name_pages)
    app.connect("doctree-resolved", break_names)
    app.connect("doctree-resolved", describe_thumbnails)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
