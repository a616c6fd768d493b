"""The shape of the project: which room knows which, examples that run, names that are documented."""

import ast
import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import cofed
from tests import worlds
from tests.pages import script

ROOT = Path(cofed.__file__).parent
# Plain helpers that everybody may use.
FREE = {"_util"}
# What a room may import of cofed, beside itself and the helpers.
ARROWS = {
    "regularizers": set(),
    "mirrors": {"regularizers"},
    "losses": set(),
    "models": set(),
    "disk": {"federation"},
    "federation": set(),
    "partition": {"federation"},
    "datasets": {"federation", "partition"},
    "metrics": set(),
    "compressors": set(),
    "problem": {"regularizers", "losses", "models", "federation"},
    "solvers": {"problem", "losses", "federation", "models", "engine"},
    "algorithms": {
        *("compressors", "problem", "regularizers", "mirrors", "losses", "models"),
        *("solvers.curvature", "solvers.quadratic"),
    },
    "gossip": {"algorithms.base", "problem", "regularizers", "mirrors"},
    "statistics": {"problem", "federation", "solvers.glm", "solvers.newton"},
    "engine": {
        *("algorithms.base", "problem", "federation", "disk", "metrics", "regularizers", "gossip.topologies"),
        *("statistics.paired_comparison", "solvers.curvature", "algorithms.probe", "losses"),
    },
    "loggers": {"engine"},
    "report": {"engine", "plotting"},
    "estimators": {
        *("algorithms", "engine", "federation", "losses", "models", "plotting", "problem", "regularizers"),
        *("algorithms.FedDecouple", "algorithms.FedFISTA", "algorithms.FedNewton"),
        *("algorithms.base", "solvers.curvature", "solvers.quadratic"),
    },
    "flower": {"algorithms.base", "algorithms.probe", "engine", "problem", "federation", "metrics", "regularizers"},
}


def imports(path: Path) -> set[str]:
    """The rooms of cofed that a file imports when it is loaded."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "cofed":
            inner = node.module.split(".")[1:]
            names = [[*inner, alias.name] for alias in node.names] if len(inner) <= 1 else [inner]
            found |= {
                ".".join(parts[:2] if parts[0] in ("algorithms", "gossip", "solvers", "statistics") else parts[:1])
                for parts in names
            }
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


PUBLIC = sorted(cofed.__all__)


def test_public_names_are_loaded_when_they_are_used():
    asked = (
        "import sys, cofed; {}; print([m for m in ('jax', 'sklearn', 'matplotlib', 'scipy.stats') if m in sys.modules])"
    )
    loaded = lambda code: subprocess.run(  # noqa: E731
        [sys.executable, "-c", asked.format(code)], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert loaded("import cofed.cli") == "[]"
    assert loaded("cofed.run") == "['jax']"
    assert set(PUBLIC) <= set(dir(cofed))
    scope: dict = {}
    exec("from cofed import *", scope)
    assert set(scope) - {"__builtins__"} == set(PUBLIC)
    assert cofed.regularizers.L1 is cofed.L1
    with pytest.raises(AttributeError, match="no attribute 'FedAverage'"):
        _ = cofed.FedAverage


def test_an_algorithm_needs_no_tables():
    heavy = ("pandas", "pyarrow", "sklearn")
    code = f"import sys, cofed.algorithms.fedavg; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_types_are_shipped():
    assert (ROOT / "py.typed").is_file()
    assert (ROOT / "__init__.pyi").is_file()


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
WITHOUT_EXAMPLE = {
    *("Communication", "DebugFailure", "ExcessRisk", "Heterogeneity", "LeftOut", "Outcome", "Result", "Solution"),
    *("Forecast", "Tuning"),
}


def test_the_skeleton_of_an_algorithm_works():
    scope: dict = {"__name__": "heavyball"}
    exec(script("docs/adding-an-algorithm.md"), scope)
    problem = worlds.problem()
    result = cofed.run(
        problem, worlds.linear(), scope["HeavyBall"](0.01), rounds=300, local_steps=2, clients_per_round=4
    )
    assert result.history["objective"][-1] < 0.5 * result.history["objective"][0]
    with pytest.raises(ValueError, match="HeavyBall does not fit the regularizer L1"):
        cofed.run(worlds.problem(cofed.L1(0.1)), worlds.linear(), scope["HeavyBall"](0.01), rounds=1)
