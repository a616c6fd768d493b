"""Figures of runs and of graphs.

Only matplotlib's figures are used, never pyplot: nothing global changes, and no screen is needed.

The names are loaded when they are first used, and matplotlib when there is something to draw.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
