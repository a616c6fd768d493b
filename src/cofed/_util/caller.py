"""Lines of the user's: where a warning comes from, and where an error was raised."""

import sys
import traceback
import warnings
from pathlib import Path

# What stands between the user's line and cofed's own: decorators of functions, and checks of types.
BETWEEN = {"cofed", "equinox", "jax", "jaxtyping", "beartype"}


def warn_caller(message: str) -> None:
    """Warn the code that has called cofed: the first one up the stack that is not cofed's own."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, RuntimeWarning, stacklevel=level)


def raised_at(error: BaseException, own: object) -> str:
    """The innermost line of the module of a user's object that an error went through, as " at file.py:66", or ""."""
    modules = {kind.__module__ for kind in type(own).__mro__} - {"builtins"}
    modules = {name for name in modules if name.partition(".")[0] not in ("cofed", "equinox", "abc")}
    lines = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") in modules
    ]
    return f" at {Path(lines[-1][0]).name}:{lines[-1][1]}" if lines else ""
