"""matplotlib's classes for annotations: themselves to a type checker, and anything at run time.

So what gives a figure is imported without matplotlib, which takes a third of a second to load.
"""

from typing import TYPE_CHECKING, Any

from cofed._util.types import Noted

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:
    Axes, Figure = Noted(Any, "Axes"), Noted(Any, "Figure")


def blank(width: float, height: float) -> Figure:
    """An empty figure of so many inches.

    >>> from cofed._util.figure_types import blank
    >>> blank(7.2, 4.6).get_size_inches().tolist()
    [7.2, 4.6]
    """
    import matplotlib.figure

    return matplotlib.figure.Figure(figsize=(width, height), dpi=110, layout="constrained")
