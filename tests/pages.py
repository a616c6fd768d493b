"""The pages of the documentation, and the code that is on them."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
    if not {part for part in path.relative_to(ROOT).parts if part.startswith(".")}
)


@dataclasses.dataclass(frozen=True)
class Block:
    """Code between fences."""

    language: str
    text: str
    line: int  # of its first line on the page


def blocks(page: str, language: str | None = None) -> list[Block]:
    """The code on a page, in a language or in all."""
    found, lines = [], (ROOT / page).read_text().split("\n")
    fences = [number for number, line in enumerate(lines) if line.startswith("```")]
    for start, end in zip(fences[::2], fences[1::2], strict=True):
        found.append(Block(lines[start][3:], "\n".join(lines[start + 1 : end]) + "\n", start + 2))
    return [block for block in found if language in (None, block.language)]


def script(page: str) -> str:
    """The Python on a page, one block after another, each at its own line: errors name the page's lines."""
    text = ""
    for block in blocks(page, "python"):
        text += "\n" * (block.line - 1 - text.count("\n")) + block.text
    return text


def run(page: str, folder: Path, check: str = "", **environment: str) -> str:
    """What a page's Python prints in a new process, as a user would run it in a folder; `check` runs after it."""
    (folder / "page.py").write_text(script(page) + check)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")} | environment
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "page.py"]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, f"{page}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    (folder / "page.py").unlink()
    return done.stdout


def commands(page: str) -> list[str]:
    """The commands in a page's shell code, without comments, each as one line."""
    text = "\n".join(block.text for block in blocks(page, "sh")).replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.split("\n"))
    return [line for line in lines if line]
