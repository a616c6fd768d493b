"""The shape of the project: which room knows which, examples that run, names that are documented."""

import ast
import doctest
import importlib
import pkgutil
from pathlib import Path

import jax
import pytest

import cofed

ROOT = Path(cofed.__file__).parent
FREE = {"scalars", "trees"}  # plain helpers that everybody may use
# What a room may import of cofed, beside itself and the helpers.
ARROWS = {
    "regularizers": set(),
    "mirrors": {"regularizers"},
    "losses": set(),
    "models": set(),
    "federation": set(),
    "partition": {"federation"},
    "datasets": {"federation"},
    "metrics": set(),
    "problem": {"regularizers", "losses", "models", "federation"},
    "algorithms": {"problem", "regularizers", "mirrors", "losses", "models"},
    "engine": {"algorithms.base", "problem", "federation", "metrics"},
}


def imports(path: Path) -> set[str]:
    """The rooms of cofed that a file imports when it is loaded."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "cofed":
            inner = node.module.split(".")[1:]
            names = [[*inner, alias.name] for alias in node.names] if len(inner) <= 1 else [inner]
            found |= {".".join(parts[:2] if parts[0] == "algorithms" else parts[:1]) for parts in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("cofed.")}
    return found


@pytest.mark.parametrize("room", ARROWS)
def test_rooms_import_only_what_they_may(room):
    paths = list((ROOT / room).rglob("*.py")) or [ROOT / f"{room}.py"]
    for path in paths:
        known = {name for name in imports(path) if name.split(".")[0] not in {room, *FREE}}
        assert known <= ARROWS[room], f"{path.name} imports {known - ARROWS[room]}"


def test_the_engine_never_asks_which_algorithm_it_runs():
    for path in (ROOT / "engine").glob("*.py"):
        assert "isinstance(algorithm" not in path.read_text().replace("isinstance(algorithm, type)", "")


MODULES = sorted(
    name for _, name, _ in pkgutil.walk_packages(cofed.__path__, "cofed.") if name not in ("cofed.__main__",)
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


PUBLIC = [name for name, value in vars(cofed).items() if name[0] != "_" and "cofed" in str(value)]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_have_docstrings_with_an_example(name):
    value = getattr(cofed, name)
    assert value.__doc__
    if not callable(value) or name in WITHOUT_EXAMPLE:
        return
    texts = (
        [value.__doc__] + [getattr(getattr(value, m), "__doc__", "") or "" for m in vars(value) if m[0] != "_"]
        if isinstance(value, type)
        else [value.__doc__]
    )
    assert any(">>>" in text for text in texts), f"{name} has no example"


# What a user reads but never makes: shown in the examples of what gives it.
WITHOUT_EXAMPLE = {"Communication", "DebugFailure", "LeftOut", "Outcome", "Result", "Solution", "Tuning"}
