"""Write figures to files."""

from pathlib import Path

from cofed._util import checks
from cofed._util.figure_types import Figure
from cofed._util.files import atomically
from cofed._util.types import Given


def save(figure: Given[Figure], path: Given[str | Path]) -> Path:
    """Write a figure to a file; the same figure gives the same bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    path : str or Path
        Where to write it, as PNG, SVG or PDF by the ending.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    TypeError
        Where `figure` is not a figure or `path` is not the name of a file.
    ValueError
        Where the ending is another one.

    Examples
    --------
    >>> import tempfile
    >>> from matplotlib.figure import Figure
    >>> import cofed
    >>> figure = Figure()
    >>> cofed.plotting.save(figure, tempfile.mkdtemp() + "/empty.png").read_bytes()[1:4]
    b'PNG'
    """
    import matplotlib.figure

    if not isinstance(figure, matplotlib.figure.Figure):
        raise TypeError(f"figure must be a matplotlib Figure, got {checks.shown(figure)}")
    file = check_picture("path", path)
    kind = file.suffix.lower().removeprefix(".")
    undated = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else {}
    with matplotlib.rc_context({"svg.hashsalt": "cofed"}):
        atomically(file, lambda name: figure.savefig(name, format=kind, metadata=undated), shown=True)
    return file


def check_picture(name: str, path: object) -> Path:
    """The name of a file that ends as a figure can be written; `name` is that of the parameter."""
    file = checks.path(name, path)
    if file.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"{name}: a figure is written as .png, .svg or .pdf, got {file.name!r}")
    return file
