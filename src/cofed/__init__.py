"""cofed: federated composite optimization, for data that stays with its owners.

The public names are listed in `__init__.pyi`. Each is loaded when it is first used: `cofed --help` needs no JAX, and a
run no scikit-learn.
"""

import ast
import functools
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


@functools.cache
def _where() -> dict[str, str]:
    """The module of each public name."""
    listed = ast.parse(Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8")).body
    imports = [entry for entry in listed if isinstance(entry, ast.ImportFrom)]
    return {alias.name: entry.module or "" for entry in imports for alias in entry.names}


def __getattr__(name: str) -> Any:
    module = "" if name.startswith("_") else _where().get(name, __name__)
    if module and module != __name__:
        found = getattr(importlib.import_module(module), name)
    else:
        try:
            found = importlib.import_module(f"{__name__}.{name}") if module else None
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
            found = None
        if found is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_where()})
