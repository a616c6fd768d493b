"""Warnings that point at the user's line, however deep inside cofed they arise."""

import sys
import warnings


def warn_caller(message: str) -> None:
    """Warn the code that has called cofed: the first one up the stack that is not cofed's own."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "cofed":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, RuntimeWarning, stacklevel=level)
