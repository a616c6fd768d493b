"""cofed's own objects from short texts such as "L1(0.01)": no code is run, only cofed's classes are made."""

import ast
from typing import Any

from cofed.engine.encode import classes


def parse(text: str, kind: str) -> Any:
    """The object that a text such as "FedDualAvg(client_lr=0.1)" stands for; `kind` says what is expected.

    >>> parse("L1(0.01)", "a regularizer")
    L1(strength=0.01)
    >>> parse("__import__('os')", "a regularizer")
    Traceback (most recent call last):
    ValueError: "__import__('os')" is not a regularizer of cofed, such as L1(0.01)
    """
    examples = {"a regularizer": "L1(0.01)", "a loss": "Logistic()", "an algorithm": "FedDualAvg(client_lr=0.1)"}
    refusal = f"{text!r} is not {kind} of cofed, such as {examples[kind]}"
    known = classes()
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Name):
            node = ast.Call(node, [], [])
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in known:
            raise ValueError(refusal)
        arguments = [ast.literal_eval(part) for part in node.args]
        named = {str(part.arg): ast.literal_eval(part.value) for part in node.keywords if part.arg}
    except (SyntaxError, ValueError):
        raise ValueError(refusal) from None
    try:
        return known[node.func.id](*arguments, **named)
    except TypeError as error:
        raise ValueError(f"{text!r}: {error}") from None
