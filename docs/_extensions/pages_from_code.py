"""Pages that are made from code before the site is built: algorithms, regularizers, commands, the API's lists."""

import inspect
import os
import pkgutil
import re
from pathlib import Path

import algorithm_pages
import regularizer_pages
import writing
from plain_docstrings import escaped

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
ABOUT = {
    "Running": "Pose a problem and run it: `cofed.Problem`, `cofed.run`, `cofed.tune`, results, pooled solutions.",
    "Data": "`cofed.Federation`, and ways to deal pooled samples out to clients.",
    "Algorithms": "Every method, with a server and without, what wraps them, and what your own derives from.",
    "Regularizers and geometries": "Penalties and constraints with their proximal maps; mirrors.",
    "Losses and models": "What is minimised, and of what: linear models, matrices, networks.",
    "Studies and statistics": "Table 1, survival curves, meta-analysis, how different clients are, privacy.",
    "Estimators": "scikit-learn's interface: `cofed.estimators`.",
}
# Modules that users import from: those that `cofed` has, and those that the pages name beside them.
MODULES = (
    "transformers",
    "datasets",
    "disk",
    "topologies",
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
    "sites",
    "sites.policy",
    "sites.audit",
)
# Where an example of the gallery leads. Roles in its own text would stand unread in the notebook that is made of it.
LEADS = {
    "01_curse_of_primal_averaging": ("algorithms/fedmid", "algorithms/feddualavg", "results/README"),
    "02_four_hospitals": ("estimators", "fit"),
    "03_path_with_intervals": ("estimators",),
    "04_cox_over_sites": ("survival",),
    "05_low_rank_matrix": ("regularizers/nuclear",),
    "06_fmri_weights": ("data", "results/README"),
    "07_network_with_l1": ("algorithms/feddecouple", "regularizers/on"),
    "08_gossip_on_six_graphs": ("algorithms/nids", "algorithms/index"),
    "09_one_model_or_a_model_each": ("site-effects", "algorithms/alternative"),
    "10_compression": ("compression",),
    "12_privacy_against_error": ("privacy",),
    "13_your_own_algorithm": ("adding-an-algorithm",),
    "14_many_clients_on_disk": ("disk",),
    "15_stragglers": ("runs",),
}
NUMBERS = ("benchmarks/README",)
EXAMPLE = re.compile(r"\]\((?:\.\./)+examples/gallery/(\w+)\.py\)")  # a link to an example, as the repository has it
SHOWN = ("algorithms", "estimators", "gossip", "regularizers")  # their names have pages already


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
    lines = [
        *writing.title("Commands"),
        "What ``cofed COMMAND --help`` says. ``cofed --install-completion`` lets your shell complete commands, "
        "options, and values that are chosen from a list.",
        "",
    ]
    for words in every_command(get_command(app), []):
        shown = runner.invoke(app, [*words, "--help"], prog_name="cofed", color=False).output
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
    pages, rooms = {}, public_names()
    for room, names in rooms.items():
        about = ABOUT.get(room) or (inspect.getdoc(pkgutil.resolve_name(room)) or "").split("\n")[0]
        pages[write_room(folder, room, names)] = about
    modules = {name for name in cofed.__all__ if inspect.ismodule(getattr(cofed, name))}
    if lost := sorted(modules - {*MODULES, *SHOWN}):
        raise ValueError(f"docs/_extensions/pages_from_code.py: MODULES lacks {', '.join(lost)}")
    text = "Every public name, from its docstring. What is not here is private and may change."
    listed = writing.table(
        ["page", "what is there"], [[f":doc:`{page}`", escaped(said)] for page, said in pages.items()]
    )
    lines = [*writing.title("API reference"), text, "", *listed, *writing.contents(list(pages))]
    writing.write(folder / "index.rst", lines)
    kept = {folder / f"{page}.rst" for page in [*pages, "index"]}
    kept |= {folder / "names" / f"{name}.rst" for names in rooms.values() for name in names}
    for old in set(folder.rglob("*.rst")) - kept:  # of a name that there is no more
        old.unlink()


def public_names() -> dict[str, list[str]]:
    """The names that have an entry, for each page: kinds of names, and modules."""
    import cofed.estimators

    names = [name for name in cofed.__all__ if not inspect.ismodule(getattr(cofed, name))]
    rooms = {room: [name for name in names if home(name).startswith(homes)] for room, homes in ROOMS.items()}
    placed = {name for room in rooms.values() for name in room}
    rooms["Regularizers and geometries"].append("regularizers.AbstractNorm")
    rooms["Studies and statistics"] = [name for name in names if name not in placed and not name.startswith("__")]
    found = {room: [f"cofed.{name}" for name in members] for room, members in rooms.items()}
    found["Estimators"] = [f"cofed.estimators.{name}" for name in cofed.estimators.__all__]
    for module in MODULES:  # what has a page under another name is not told twice
        there = {id(named(name)) for members in found.values() for name in members}
        members = names_of(f"cofed.{module}")
        found[f"cofed.{module}"] = [name for name in members if id(named(name)) not in there]
    return found


def named(name: str) -> object:
    """What a name stands for, where a file may have the same name: `cofed.sites.table_sites` is in table_sites.py."""
    module, _, last = name.rpartition(".")
    return getattr(pkgutil.resolve_name(module), last)


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
    thing, last = named(name), name.rpartition(".")[2]
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


def names_of(module: str) -> list[str]:
    """The public names of a module, which may have another name where it is: `cofed.topologies` is below gossip."""
    loaded = pkgutil.resolve_name(module)
    names = getattr(loaded, "__all__", None) or sorted(
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith(loaded.__name__) and callable(value)
    )
    return [f"{module}.{name}" for name in names if not isinstance(getattr(loaded, name), str)]  # no files' names


def refuse_undocumented(app, what, name, thing, options, lines) -> None:
    """Stop at a public name that says nothing."""
    if what in ("class", "function") and not any(line.strip() for line in lines):
        raise ValueError(f"{name} is public and has no docstring")


def skip_what_is_inherited(app, what, name, thing, skip, options) -> bool | None:
    """Leave out methods that other libraries document or make."""
    if re.fullmatch(r"set_\w+_request|get_metadata_routing", name):
        return True
    return True if (getattr(thing, "__module__", "") or "").startswith(("sklearn", "equinox", "pydantic")) else None


def told_signature(app, what, name, thing, options, signature, returns):
    """The signature of a class's `__init__` where its `__new__` hides it."""
    if what != "class" or signature is None or "**given" not in signature:
        return None
    told = inspect.signature(thing)
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in told.parameters.values()]
    return str(told.replace(parameters=bare, return_annotation=inspect.Signature.empty)), returns


def point_inside(app, page: str, source: list[str]) -> None:
    """On the site, a page links to the site's form of a text that is elsewhere in the repository."""
    source[0] = source[0].replace("](../examples/hospitals/README.md)", "](hospitals.md)")
    source[0] = EXAMPLE.sub(r"](/gallery/\1.rst)", source[0])
    if page.startswith("gallery/plot_"):
        leads = ", ".join(f":doc:`/{target}`" for target in LEADS[page.removeprefix("gallery/plot_")])
        source[0] = source[0].replace(".. code-block:: Python", f"Read on: {leads}.\n\n.. code-block:: Python", 1)


def leave_out_of_search(app, env) -> None:
    """Keep pages of numbers out of the search: they name every method and would come before what says what it is."""
    for page in NUMBERS:
        env.metadata[page]["no-search"] = ""


def setup(app):
    app.connect("autodoc-skip-member", skip_what_is_inherited)
    app.connect("autodoc-process-signature", told_signature)
    app.connect("source-read", point_inside)
    app.connect("config-inited", write_pages)  # before Sphinx looks for its pages
    app.connect("env-updated", leave_out_of_search)
    app.connect("autodoc-process-docstring", refuse_undocumented, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
