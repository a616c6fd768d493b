"""The words of public values, such as `cofed.sites.policy.TRIAL`: the text below the line that makes them.

Autodoc looks for it in the module that a name is imported from, which is not the one that makes it, and shows what the
value's class says instead.
"""

import ast
import inspect
import itertools
import sys


def own_words(name: str, thing: object) -> list[str]:
    """The lines below the assignment that makes a value, in whichever module of ours that is; empty where none are."""
    last = name.rpartition(".")[2]
    room = name.partition(".")[0]
    for module in [one for key, one in sorted(sys.modules.items()) if key.partition(".")[0] == room]:
        if vars(module).get(last) is not thing:
            continue
        body = ast.parse(inspect.getsource(module)).body
        for line, after in itertools.pairwise(body):
            targets = line.targets if isinstance(line, ast.Assign) else []
            if any(isinstance(one, ast.Name) and one.id == last for one in targets) and isinstance(after, ast.Expr):
                found = ast.literal_eval(after.value) if isinstance(after.value, ast.Constant) else ""
                return inspect.cleandoc(found).split("\n") if isinstance(found, str) else []
    return []


def say_own_words(app, what, name, thing, options, lines) -> None:
    """Let a value's own words stand in place of its class's."""
    if what != "data":
        return
    words = own_words(name, thing)
    if not words:
        raise ValueError(f"{name} is public and has no text below the line that makes it")
    lines[:] = [*words, ""]


def setup(app):
    app.connect("autodoc-process-docstring", say_own_words, priority=50)  # before the words are escaped
    return {"parallel_read_safe": True, "parallel_write_safe": True}
