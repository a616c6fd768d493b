"""The shape of the project: which room knows which, examples that run, names that are documented."""

import ast
import doctest
import graphlib
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import pytest

import cofed
from tests import worlds
from tests.pages import blocks, script

ROOT = Path(cofed.__file__).parent
TESTS = Path(__file__).parent
PUBLIC = sorted(cofed.__all__)
# Plain helpers that everybody may use.
HELPERS = "_util"
# The layers, from the bottom up: what each room may import of cofed, beside itself and the helpers. Imports inside
# functions and for type checkers count too. A file that may know more or less than its room has a line of its own.
ARROWS = {
    "_util": set(),
    # Mathematics, which knows nothing of clients.
    "regularizers": set(),
    "losses": set(),
    "models": set(),
    "compressors": set(),
    "metrics": set(),
    "mirrors": {"regularizers"},
    # Who takes part, and with which samples.
    "samplers": set(),
    "batches": set(),
    "clocks": set(),
    "means": set(),
    # Noise and what it costs.
    "privacy": set(),
    # Data.
    "federation": set(),
    "disk": {"federation"},
    "partition": {"federation"},
    "datasets": {"federation", "partition"},
    # Problems, what solves them on one machine, and algorithms, which know no engine.
    "problem": {"regularizers", "losses", "models", "federation"},
    "solvers": {"problem", "federation", "losses", "models"},
    "statistics": {"problem", "federation", "solvers"},
    "algorithms.base": {"problem", "regularizers"},
    "algorithms.probe": {"algorithms.base"},
    "algorithms": {
        "algorithms.base",
        "algorithms.probe",
        "problem",
        "regularizers",
        "mirrors",
        "compressors",
        "solvers",
    },
    "plotting.graphs": {"plotting.styles", "plotting.files"},
    "plotting.styles": set(),
    "plotting.files": set(),
    "gossip.topologies": {"plotting.graphs"},
    "gossip": {"algorithms.base", "problem", "regularizers", "mirrors"},
    # The engine knows algorithms by their contract only; its serialization names every class of the rooms below.
    "engine": {
        *("algorithms.base", "algorithms.probe", "gossip.topologies", "problem", "federation", "metrics"),
        *("batches", "clocks", "losses", "means", "samplers", "solvers", "statistics", "engine.serialization"),
    },
    "engine.serialization": {
        *("algorithms", "gossip", "problem", "regularizers", "mirrors", "losses", "models", "metrics", "compressors"),
        *("batches", "clocks", "means", "samplers"),
    },
    # On top of the engine, and known by nobody below.
    "solvers.pooled": {"engine", "federation", "problem"},
    "plotting": {"plotting.styles", "plotting.files", "engine"},
    "loggers": {"engine"},
    "callbacks": {"engine"},
    "report": {"plotting", "plotting.styles"},
    # Where the rows are: questions in, sums out. In memory an algorithm's rounds are the engine's.
    "sites": {
        *("algorithms.base", "engine", "engine.serialization", "federation", "losses", "models", "privacy"),
        *("problem", "solvers", "statistics"),
    },
    # Files on which sites agree before they answer.
    "studies": {"losses", "sites"},
    "table_one": {"sites", "studies"},
    "estimators": {
        *("algorithms", "algorithms.base", "engine", "engine.serialization", "losses", "models"),
        *("plotting", "plotting.styles", "privacy", "problem", "regularizers", "sites", "solvers", "statistics"),
    },
    # What comes before a fit, a fit from tables to files, and the page that follows it.
    "transformers": {"estimators", "sites"},
    "fitting": {"estimators", "losses", "plotting", "privacy", "report", "sites", "studies", "transformers"},
    "watch": {"report"},
    "flower": {
        *("algorithms.base", "algorithms.probe", "engine", "engine.serialization", "federation", "metrics"),
        *("privacy", "problem", "sites", "studies", "cofed"),
    },
    "advise": {"federation", "losses", "models", "plotting.styles", "problem", "solvers", "statistics"},
    "demo": {"engine", "federation", "plotting", "problem", "cofed"},
    "experiments": {
        *("algorithms.base", "callbacks", "compressors", "datasets", "engine", "federation", "models", "plotting"),
        *("plotting.styles", "problem", "regularizers", "solvers", "cofed"),
    },
    "race": {
        *("algorithms", "algorithms.base", "algorithms.probe", "engine", "federation", "gossip", "gossip.topologies"),
        *("plotting", "plotting.styles", "problem", "solvers", "cofed"),
    },
    "cli": {
        *("advise", "algorithms", "algorithms.base", "demo", "engine", "estimators", "experiments", "fitting"),
        *("flower", "gossip", "race", "report", "sites", "studies", "table_one", "watch", "cofed"),
    },
    "__main__": {"cli"},
    "__init__": set(),
}


def module_of(parts: list[str]) -> list[str]:
    """The parts of a dotted name that are a module of cofed; the rest is a name in it."""
    place, found = ROOT, []
    for part in parts:
        if not (place / part).is_dir() and not (place / f"{part}.py").is_file():
            break
        found.append(part)
        place = place / part
    return found


def room_of(module: list[str]) -> str:
    """The line of the table that a module belongs to: the longest that it begins with."""
    fitting = [".".join(module[:n]) for n in range(len(module), 0, -1) if ".".join(module[:n]) in ARROWS]
    return fitting[0] if fitting else ".".join(module) or "cofed"  # `import cofed`: the public names


def imports(path: Path) -> set[str]:
    """The rooms of cofed that a file imports, also inside functions and for type checkers only."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "cofed":
            found |= {room_of(module_of([*node.module.split(".")[1:], alias.name])) for alias in node.names}
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            found |= {room_of(module_of(parts[1:])) for parts in names if parts[0] == "cofed"}
    return found


def known_by_room() -> dict[str, dict[str, set[str]]]:
    """For each room, the other rooms that each of its files imports."""
    found: dict[str, dict[str, set[str]]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        own = room_of(module_of([*path.relative_to(ROOT).with_suffix("").parts]) or ["__init__"])
        found.setdefault(own, {})[str(path.relative_to(ROOT))] = imports(path) - {own, HELPERS}
    return found


KNOWN = known_by_room()


def test_every_room_is_in_the_table():
    assert set(KNOWN) == set(ARROWS)


@pytest.mark.parametrize("room", ARROWS)
def test_rooms_import_only_what_they_may(room):
    for path, known in KNOWN[room].items():
        # The file that makes a package of a room may name every part of it.
        known = {name for name in known if not (path.endswith("__init__.py") and name.startswith(f"{room}."))}
        assert known <= ARROWS[room], f"{path} imports {known - ARROWS[room]}"


def test_no_arrow_of_the_table_is_unused():
    for room, allowed in ARROWS.items():
        assert allowed <= set().union(*KNOWN[room].values()), room


def test_no_room_knows_itself_through_others():
    order = graphlib.TopologicalSorter({room: allowed - {"cofed"} for room, allowed in ARROWS.items()})
    assert list(order.static_order())  # it raises where there is a cycle
    # Rooms that use cofed as its users do are known by the command line only.
    for room, allowed in ARROWS.items():
        assert room in ("cli", "__main__") or not any("cofed" in ARROWS.get(known, ()) for known in allowed), room


def test_arrows_go_down_in_the_drawing():
    [drawing] = blocks("docs/architecture.md", "text")
    rows = [re.sub(r"\(.*?\)", "", line[17:]).split() for line in drawing.text.splitlines()]
    height = {room: -place for place, row in enumerate(rows) for room in row}
    assert set(height) == set(ARROWS) - {"__main__", "__init__"}
    for room in height:
        for known in ARROWS[room] - {"cofed"}:
            assert height[known] < height[room], f"{room} imports {known}"


def definitions() -> Iterator[tuple[str, ast.AST]]:
    """Every class and function under src/, with its file."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                yield str(path.relative_to(ROOT)), node


def test_no_two_classes_have_one_name():
    found: dict[str, list[str]] = {}
    for path, node in definitions():
        if isinstance(node, ast.ClassDef) and node.name not in STATES:
            found.setdefault(node.name, []).append(path)
    twice = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert twice == {}, f"only an algorithm's state may share its name with another's: {', '.join(sorted(STATES))}"


# What an algorithm's state is made of: every algorithm has its own.
STATES = {"Server", "Client", "Down", "Up", "Node"}
# Signatures that users see: functions, data sets and loaders, commands. Estimators' constructors are apart.
LONG_SIGNATURES = {
    *("run", "resume", "replicate", "tune", "forecast", "serve", "regularization_path", "plot_history", "from_parquet"),
    *("path", "infer", "relaxed_path", "concave_path", "survival", "survival_curves", "meta_analysis"),
    "stability_selection",
    "permutation_importance",
    *("bao_sparse", "chen_logistic", "haxby", "liang_linear", "liang_linear_stream", "liang_logistic"),
    *("liang_logistic_stream", "yuan_fmri_like", "yuan_lasso", "yuan_low_rank", "zhang_logistic"),
    *(
        "advise",
        "await_sites",
        "client_app",
        "describe",
        "federate",
        "fit",
        "race",
        "reproduce",
        "serve",
        "site",
        "sites",
        "start_sites",
    ),
}


def test_no_signature_inside_has_more_than_six_parameters():
    long = []
    for path, node in definitions():
        if isinstance(node, ast.ClassDef) or node.name in LONG_SIGNATURES:
            continue
        given = [x.arg for x in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        if len(set(given) - {"self", "cls"}) > 6 and not (path.startswith("estimators/") and node.name == "__init__"):
            long.append(f"{path}: {node.name}")
    assert long == []


def test_hardly_a_parameter_is_of_any_type():
    annotations = []
    for _, node in definitions():
        if not isinstance(node, ast.ClassDef):
            given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
            annotations += [x.annotation for x in given if x is not None and x.arg not in ("self", "cls")]
    free = [x for x in annotations if isinstance(x, ast.Name) and x.id == "Any"]
    assert len(free) <= 0.04 * len(annotations)


def test_the_engine_never_asks_which_algorithm_it_runs():
    for path in (ROOT / "engine").glob("*.py"):
        assert "isinstance(algorithm" not in path.read_text().replace("isinstance(algorithm, type)", "")


MODULES = sorted(
    name for _, name, _ in pkgutil.walk_packages(cofed.__path__, "cofed.") if name not in ("cofed.__main__",)
)


def examples(name: str) -> list[doctest.DocTest]:
    """The examples of a module's docstrings as a user has them who copies one: with no name but what they import."""
    module = importlib.import_module(name)
    # Of these no page shows the docstrings.
    at_hand = None if name.startswith("cofed.experiments") else {}
    return [one for one in doctest.DocTestFinder().find(module, globs=at_hand) if one.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert [one.name for one in examples(name) if runner.run(one).failed] == []


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


def test_an_estimator_needs_no_figures_and_no_others():
    # scikit-learn itself loads scipy.stats, pandas, pyarrow and rich.
    unused = ("matplotlib", "cofed.estimators.cox", "cofed.estimators.mixed_glm", "cofed.plotting.history")
    code = (
        "import sys; from cofed.estimators import FederatedLassoCV; "
        f"print([m for m in {unused} if m in sys.modules]); import cofed.estimators.adaptive_lasso; "
        "from cofed.estimators import adaptive; print(callable(adaptive))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "True"]


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
    *(
        "Communication",
        "DebugFailure",
        "Description",
        "ExcessRisk",
        "Heterogeneity",
        "LeftOut",
        "MetaAnalysis",
        "Outcome",
        "Replicates",
        "Result",
        "Solution",
        "SurvivalCurves",
    ),
    *("Forecast", "Tuning", "estimators.Certificate", "estimators.ConcavePath", "estimators.RegularizationPath"),
    *("estimators.HeldOutCurves", "estimators.NestedCV", "estimators.PermutationImportance"),
    "estimators.StabilitySelection",
}


def documented() -> dict[str, object]:
    """Every public function and class that takes something, by its dotted name."""
    found: dict[str, object] = {}
    for name in PUBLIC:
        value = getattr(cofed, name)
        members = getattr(value, "__all__", []) if isinstance(value, ModuleType) else []
        found |= {f"{name}.{member}": getattr(value, member) for member in members} or {name: value}
    return {name: value for name, value in found.items() if name not in WITHOUT_EXAMPLE and takes_something(value)}


def takes_something(value: object) -> bool:
    """Whether a user calls this with arguments: not an enumeration, an error or a tuple that cofed makes."""
    if not callable(value) or (isinstance(value, type) and issubclass(value, (Enum, Exception, tuple))):
        return False
    return bool(inspect.signature(value).parameters)


DOCUMENTED = documented()


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_what_takes_parameters_says_which(name):
    said = inspect.getdoc(DOCUMENTED[name]) or ""
    assert "\nParameters\n---" in said, f"the docstring of {name} has no section Parameters"


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


def test_the_page_s_variance_reduced_method_ends_at_the_optimum_on_batches():
    """One client: proximal SVRG; the optimum is that of full proximal gradient steps. Plain steps tremble around it."""
    scope: dict = {"__name__": "svrg"}
    exec(script("docs/adding-an-algorithm.md"), scope)
    problem, one = worlds.problem(cofed.L1(0.1)), worlds.linear(sizes=(20,))
    options = {"local_steps": 20, "batch_size": 2, "rounds": 300, "evaluate_every": 300}
    reduced, plain = (cofed.run(problem, one, method(0.02), **options) for method in (scope["LocalSVRG"], cofed.FedMiD))
    assert reduced.history["prox_gradient"][-1] < 1e-10
    assert plain.history["prox_gradient"][-1] > 1e-3


def test_the_page_s_model_is_fitted_as_by_least_squares_on_the_pooled_rows():
    from scipy.optimize import curve_fit

    scope: dict = {"__name__": "saturating"}
    exec(script("docs/adding-an-algorithm.md"), scope)
    rng, clients = np.random.default_rng(0), []
    for n in (20, 40, 30):
        dose = rng.uniform(0, 5, size=(n, 1))
        clients.append((dose, 0.5 + 2 * dose[:, 0] / (1.3 + dose[:, 0]) + 0.05 * rng.normal(size=n)))
    federation = cofed.Federation.from_arrays(clients)
    options = {"rounds": 6000, "local_steps": 3, "weights": "samples", "evaluate_every": 6000}
    found = cofed.run(scope["problem"], federation, cofed.FedDecouple(0.3), **options).model
    X, y = federation.pooled()
    curve = lambda x, start, rise, log_half: start + rise * x / (np.exp(log_half) + x)  # noqa: E731
    best, _ = curve_fit(curve, X[:, 0], y, p0=(0.5, 2.0, 0.3), xtol=1e-14, ftol=1e-14)
    np.testing.assert_allclose([found["start"], found["rise"], found["log_half"]], best, rtol=1e-5)


def test_the_list_of_slow_tests_names_tests_that_exist():
    listed = [line for line in (TESTS / "slow_tests.txt").read_text().splitlines() if not line.startswith("#")]
    assert listed == sorted(set(listed))
    for line in listed:
        path, *_, name = line.split("::")
        assert f"def {name.partition('[')[0]}(" in (TESTS.parent / path).read_text(), line


@pytest.mark.parametrize("room", ["cofed", "cofed.estimators", "cofed.plotting"])
def test_no_module_hides_a_name_that_is_loaded_late(room):
    """`from . import name` gives a module of that name once it is loaded, in place of the function."""
    package = importlib.import_module(room)
    inside = {one.name for one in pkgutil.iter_modules(package.__path__)}
    stub = Path(package.__file__).with_suffix(".pyi").read_text()
    taken = {name for where, name in re.findall(r"from \.(\w[\w.]*) import (\w+)", stub) if where}
    assert taken
    assert taken & inside == set()
