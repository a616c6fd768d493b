"""The folder of a Flower app, as `flwr run` takes it."""

from collections.abc import Mapping
from pathlib import Path
from string import Template

from cofed._util.files import atomically

PROJECT = Template("""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "1.0.0"
description = "$description"
license = "Apache-2.0"
dependencies = ["flwr>=1.40"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "cofed"

[tool.flwr.app.components]
serverapp = "$module:server"
clientapp = "$module:client"
""")


def write_app(folder: Path, about: Mapping[str, str], files: Mapping[str, str], config: str = "") -> None:
    """Write an app. `about` has its name, its description and the module of both ends; `files` has its code."""
    project = PROJECT.substitute(about) + (f"\n[tool.flwr.app.config]\n{config}\n" if config else "")
    for name, text in {"pyproject.toml": project, **files}.items():
        atomically(folder / name, lambda file, text=text: Path(file).write_text(text))
