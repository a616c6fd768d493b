"""cofed's own objects from short texts such as "L1(0.01)": only cofed's classes can be called, no other code runs."""

import ast
from collections.abc import Callable
from typing import Any

import cofed
from cofed._util.toml_mistakes import did_you_mean
from cofed.engine.serialization import classes


def parse(text: str, kind: str) -> Any:
    """Make the object that a text such as "FedDualAvg(client_lr=0.1)" describes; `kind` says what is expected.

    >>> from cofed.flower.parsing import parse
    >>> parse("L1(0.01)", "a regularizer")
    L1(strength=0.01)
    >>> parse("Compressed(FedAvg(0.1), TopK(share=0.05))", "an algorithm").compressor
    TopK(share=0.05)
    >>> parse("__import__('os')", "a regularizer")
    Traceback (most recent call last):
    ValueError: "__import__('os')" is not a regularizer of cofed, such as L1(0.01)
    """
    examples = {"a regularizer": "L1(0.01)", "a loss": "Logistic()", "an algorithm": "FedDualAvg(client_lr=0.1)"}
    near, own = hints(text)
    refusal = f"{text!r} is not {kind} of cofed{near}, such as {examples[kind]}{own}"
    try:
        node = ast.parse(text.strip(), mode="eval").body
        make = maker(ast.Call(node, [], []) if isinstance(node, ast.Name) else node)
        if not isinstance(node, ast.Call | ast.Name):
            raise ValueError(refusal)
    except (SyntaxError, ValueError):
        raise ValueError(refusal) from None
    try:
        return make()
    except TypeError as error:
        raise ValueError(f"{text!r}: {error}") from None


def hints(text: str) -> tuple[str, str]:
    """What somebody may have meant who has misspelt a name, and what one can do with code of one's own."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return "", ""
    called = node.func if isinstance(node, ast.Call) else node
    near = did_you_mean(called.id, list(classes())) if isinstance(called, ast.Name) else ""
    own = "; code of your own takes an app of your own (cofed.flower.server_app and client_app)"
    return near, own if isinstance(called, ast.Attribute) else ""


def maker(node: ast.expr) -> Callable[[], Any]:
    """A function that makes the described object: a literal, or a call of one of cofed's classes on such arguments."""
    if not isinstance(node, ast.Call):
        value = ast.literal_eval(node)
        return lambda: value
    if not isinstance(node.func, ast.Name) or node.func.id not in classes():
        raise ValueError("not a class of cofed")
    kind = classes()[node.func.id]
    arguments = [maker(part) for part in node.args]
    named = {str(part.arg): maker(part.value) for part in node.keywords if part.arg}
    return lambda: kind(*(make() for make in arguments), **{name: make() for name, make in named.items()})


def parse_problem(loss: str, regularizer: str, intercept: bool) -> cofed.Problem:
    """The problem of a linear model with this loss and regularizer; an intercept is not penalised."""
    psi = parse(regularizer, "a regularizer")
    penalty = cofed.On(psi, "coef") if intercept else psi
    return cofed.Problem(cofed.Linear(intercept=intercept), parse(loss, "a loss"), penalty)
