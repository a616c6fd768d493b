"""Helpers of pages that are made from code: reStructuredText, and files that change only where their text does."""

import hashlib
from collections.abc import Callable
from pathlib import Path


def title(text: str, mark: str = "=") -> list[str]:
    """A heading."""
    return [text, mark * len(text), ""]


def literal(text: str, language: str = "text") -> list[str]:
    """A block that is shown as it is."""
    return [f".. code-block:: {language}", "", *("   " + line if line else "" for line in text.split("\n")), ""]


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table whose cells are reStructuredText of one line."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [head, *rows]:
        lines += [("   * - " if place == 0 else "     - ") + cell for place, cell in enumerate(row)]
    return [*lines, ""]


def contents(pages: list[str], caption: str = "") -> list[str]:
    """The pages below this one, for the navigation; the sidebar shows a caption above them."""
    options = ["   :maxdepth: 1", "   :hidden:", *([f"   :caption: {caption}"] if caption else [])]
    return [".. toctree::", *options, "", *(f"   {page}" for page in pages), ""]


def write(path: Path, lines: list[str]) -> None:
    """Write a page where it differs, so that what did not change is not built again."""
    text = "\n".join(lines) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def figure(folder: Path, name: str, sources: list[Path], draw: Callable[[str, Path], None]) -> Path:
    """A figure of what files say, drawn where they have changed since; its name has a hash of them."""
    mark = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    drawn = folder / "figures" / f"{name}-{mark}.png"
    if not drawn.exists():
        for old in drawn.parent.glob(f"{name}-*.png"):
            old.unlink()
        drawn.parent.mkdir(parents=True, exist_ok=True)
        draw(name, drawn)
    return drawn
