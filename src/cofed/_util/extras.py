"""Packages that only some parts of cofed need: imported where they are used, asked for in a sentence."""

import importlib
from typing import Any


def imported(module: str, what: str, package: str, extra: str) -> Any:
    """A module of an optional package, or an ImportError that says how to get it.

    >>> from cofed._util.extras import imported
    >>> imported("no_such_module", "Reading scans", "no-such-package", "data")
    Traceback (most recent call last):
        ...
    ImportError: Reading scans needs the package no-such-package; install it with: pip install 'cofed[data]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A package that is there but lacks one of its own is broken, and its own message says more.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ImportError(
            f"{what} needs the package {package}; install it with: pip install 'cofed[{extra}]'"
        ) from None
