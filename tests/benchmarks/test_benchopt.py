"""The benchopt benchmark, without benchopt: its parts fit each other, and name what cofed has."""

import ast
from pathlib import Path

import pytest

import cofed

PLACE = Path(__file__).parents[2] / "benchmarks" / "benchopt"
SOLVERS = sorted((PLACE / "solvers").glob("*.py"))


def methods_of(path: Path, kind: str) -> dict[str, ast.FunctionDef]:
    """The methods of a file's class of this name."""
    [found] = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef) and n.name == kind]
    return {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}


def arguments(function: ast.FunctionDef) -> list[str]:
    """What a method takes."""
    return [x.arg for x in function.args.args if x.arg != "self"]


def returned(function: ast.FunctionDef) -> list[str]:
    """The keys of the dictionary that a method returns."""
    [given] = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    assert isinstance(given, ast.Dict)
    return [key.value for key in given.keys if isinstance(key, ast.Constant)]


def test_there_are_the_solvers_that_the_page_names():
    assert [path.stem for path in SOLVERS] == ["cofed_methods", "numpy_fedavg", "pooled_skglm"]


@pytest.mark.parametrize("path", SOLVERS, ids=lambda path: path.stem)
def test_a_solver_takes_and_gives_what_the_objective_gives_and_takes(path):
    objective, solver = methods_of(PLACE / "objective.py", "Objective"), methods_of(path, "Solver")
    assert arguments(solver["set_objective"]) == returned(objective["get_objective"])
    assert returned(solver["get_result"]) == arguments(objective["evaluate_result"])
    assert returned(objective["get_one_result"]) == arguments(objective["evaluate_result"])


def test_the_data_are_what_the_objective_takes():
    data = methods_of(PLACE / "datasets" / "simulated.py", "Dataset")
    assert returned(data["get_data"]) == arguments(methods_of(PLACE / "objective.py", "Objective")["set_data"])


def test_every_method_is_cofeds():
    [table] = [
        node.value
        for node in ast.parse((PLACE / "solvers" / "cofed_methods.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "METHODS"
    ]
    scope = {"cofed": cofed}
    methods = eval(compile(ast.Expression(table), "METHODS", "eval"), scope)
    for name, make in methods.items():
        assert make(4.0, 10).name == name
