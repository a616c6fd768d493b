"""Each contender's own virtual environment, made by the benchmark and reused while its requirements stay the same."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-peers"


class CannotInstall(Exception):
    """An environment that could not be made; its text is a sentence."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """Packages to install, in steps: what a later step would pull in too large is pinned by an earlier one."""

    name: str
    steps: tuple[tuple[str, ...], ...]

    def python(self) -> Path:
        """The environment's interpreter, after making the environment where it is missing or out of date."""
        home = FOLDER / self.name
        python, stamp = home / "bin" / "python", home / "installed.json"
        wanted = json.dumps(self.steps)
        if stamp.exists() and stamp.read_text() == wanted:
            return python
        print(f"making the environment of {self.name} in {home.relative_to(ROOT)} ...", flush=True)
        if not python.exists():
            checked(self.name, [sys.executable, "-m", "venv", str(home)])
        for requirements in self.steps:
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            checked(self.name, [*pip, *requirements])
        stamp.write_text(wanted)
        return python


def checked(name: str, command: list[str]) -> None:
    """Run a command, or say in a sentence why that went wrong."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise CannotInstall(f"its environment could not be made: {lines[-1].strip() if lines else command[-1]}")
