"""Pages that are made from code before the site is built: algorithms, regularizers, commands, the API's lists."""

import importlib
import inspect
import os
import re
from pathlib import Path

import algorithm_pages
import regularizer_pages
import writing

import cofed

# Rooms whose classes have the methods of their contract, which the abstract class documents.
FINAL = ("cofed.algorithms", "cofed.gossip", "cofed.regularizers", "cofed.losses", "cofed.models", "cofed.mirrors")

ROOMS = {
    "Running": ("cofed.engine", "cofed.problem", "cofed.solvers"),
    "Data": ("cofed.federation", "cofed.partition"),
    "Algorithms": ("cofed.algorithms", "cofed.gossip", "cofed.compressors"),
    "Regularizers and geometries": ("cofed.regularizers", "cofed.mirrors"),
    "Losses and models": ("cofed.losses", "cofed.models"),
}
# Modules that users import from: those that `cofed` has, and those that the pages name beside them.
MODULES = (
    "transformers",
    "datasets",
    "disk",
    "gossip.topologies",
    "metrics",
    "partition",
    "samplers",
    "batches",
    "means",
    "callbacks",
    "loggers",
    "plotting",
    "report",
    "flower",
    "privacy",
    "studies",
    "sites.policy",
    "sites.audit",
)
SHOWN = ("algorithms", "estimators", "gossip", "regularizers", "topologies")  # their names have pages already


def write_pages(app, config) -> None:
    """Write them all."""
    root = Path(app.srcdir)
    algorithm_pages.write_all(root / "algorithms")
    regularizer_pages.write_all(root / "regularizers")
    write_commands(root / "commands.rst")
    write_api(root / "api")


def write_commands(path: Path) -> None:
    """The help of every command, as the terminal shows it."""
    os.environ |= {"COLUMNS": "96", "TERM": "dumb", "NO_COLOR": "1", "TERMINAL_WIDTH": "96"}
    from typer.main import get_command
    from typer.testing import CliRunner

    from cofed.cli import app

    runner = CliRunner()
    lines = [*writing.title("Commands"), "What ``cofed COMMAND --help`` says.", ""]
    for words in every_command(get_command(app), []):
        shown = runner.invoke(app, [*words, "--help"], color=False).output
        lines += [
            *writing.title(" ".join(["cofed", *words]), "-"),
            *writing.literal(without_colours(shown).strip("\n")),
        ]
    writing.write(path, lines)


def every_command(command, words: list[str]):
    """The words of every command, those of groups too."""
    for name, one in sorted(command.commands.items()):
        yield [*words, name]
        if hasattr(one, "commands"):
            yield from every_command(one, [*words, name])


def without_colours(text: str) -> str:
    """What a terminal shows, without its control sequences and the spaces at line ends."""
    return "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).split("\n"))


def write_api(folder: Path) -> None:
    """A page per kind of public name, with an entry for each; a name without a docstring stops the build."""
    import cofed.estimators

    names = [name for name in cofed.__all__ if not inspect.ismodule(getattr(cofed, name))]
    rooms = {room: [name for name in names if home(name).startswith(homes)] for room, homes in ROOMS.items()}
    placed = {name for room in rooms.values() for name in room}
    rooms["Regularizers and geometries"].append("regularizers.AbstractNorm")
    rooms["Studies and statistics"] = [name for name in names if name not in placed and not name.startswith("__")]
    pages = []
    for room, members in rooms.items():
        pages.append(write_room(folder, room, [f"cofed.{name}" for name in members]))
    pages.append(write_room(folder, "Estimators", [f"cofed.estimators.{name}" for name in cofed.estimators.__all__]))
    pages += [write_module(folder, f"cofed.{module}") for module in MODULES]
    modules = {name for name in cofed.__all__ if inspect.ismodule(getattr(cofed, name))}
    if lost := sorted(modules - {*MODULES, *SHOWN}):
        raise ValueError(f"docs/_extensions/pages_from_code.py: MODULES lacks {', '.join(lost)}")
    text = "Every public name, from its docstring. What is not here is private and may change."
    listed = [f"- :doc:`{page}`" for page in pages]
    writing.write(
        folder / "index.rst", [*writing.title("API reference"), text, "", *listed, "", *writing.contents(pages)]
    )


def home(name: str) -> str:
    """The module where a public name is defined."""
    return getattr(getattr(cofed, name), "__module__", "") or ""


def write_room(folder: Path, room: str, members: list[str]) -> str:
    """The page of a kind of names, and a page for each of them."""
    lines = [*writing.title(room), ".. autosummary::", "   :nosignatures:", "", *(f"   {name}" for name in members), ""]
    page = room.lower().replace(" ", "-")
    writing.write(folder / f"{page}.rst", [*lines, *writing.contents([f"names/{name}" for name in members])])
    for name in members:
        writing.write(folder / "names" / f"{name}.rst", entry(name))
    return page


def entry(name: str) -> list[str]:
    """The page of one name. Methods are listed where a user calls or writes them: not those of finished methods."""
    module, _, last = name.rpartition(".")
    thing = getattr(importlib.import_module(module), last)
    if not inspect.isclass(thing):
        kind = "autofunction" if callable(thing) else "autodata"
        return [*writing.title(last), f".. {kind}:: {name}", ""]
    lines = [*writing.title(last), f".. autoclass:: {name}"]
    final = thing.__module__.startswith(FINAL) and not last.startswith("Abstract")
    members = (
        []
        if final
        else ["   :members:", "   :inherited-members: BaseEstimator, BaseModel, Exception, Module, Enum, tuple"]
    )
    return [*lines, *members, ""]


def write_module(folder: Path, module: str) -> str:
    """The page of a module whose functions are public."""
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None) or sorted(
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith(module) and callable(value)
    )
    # A file's name has no page, and what `cofed` has under the same name has one already.
    things = {name: getattr(loaded, name) for name in names}
    told = [
        name for name, thing in things.items() if not isinstance(thing, str) and thing is not getattr(cofed, name, None)
    ]
    return write_room(folder, module, [f"{module}.{name}" for name in told])


def refuse_undocumented(app, what, name, thing, options, lines) -> None:
    """Stop at a public name that says nothing."""
    if what in ("class", "function") and not any(line.strip() for line in lines):
        raise ValueError(f"{name} is public and has no docstring")


def skip_what_is_inherited(app, what, name, thing, skip, options) -> bool | None:
    """Leave out methods that other libraries document or make."""
    if re.fullmatch(r"set_\w+_request|get_metadata_routing", name):
        return True
    return True if (getattr(thing, "__module__", "") or "").startswith(("sklearn", "equinox", "pydantic")) else None


def point_inside(app, page: str, source: list[str]) -> None:
    """On the site, a page links to the site's form of a text that is elsewhere in the repository."""
    source[0] = source[0].replace("](../examples/hospitals/README.md)", "](hospitals.md)")


def setup(app):
    app.connect("autodoc-skip-member", skip_what_is_inherited)
    app.connect("source-read", point_inside)
    app.connect("config-inited", write_pages)  # before Sphinx looks for its pages
    app.connect("autodoc-process-docstring", refuse_undocumented, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
