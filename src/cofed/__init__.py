"""cofed: federated composite optimization, for data that stays with its owners.

The public names are listed in `__init__.pyi`. Each is loaded when it is first used: `cofed --help` needs no JAX, and a
run no scikit-learn.
"""

import importlib.util
import sys
from typing import Any

import lazy_loader

__version__ = "0.1.0"

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
# Flower is an extra, and a star import must work without it.
__all__ = [name for name in __all__ if name != "flower"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in __dir__():
        return _load(name)
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")  # a room that holds no names of its own here
    # In the words of Python, which also suggests a name that is nearly the same.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
