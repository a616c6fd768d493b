"""`cofed federate`: a folder of per-site files as a federation of real processes on this machine."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from cofed.engine.checkpoint import read_json, write_json
from cofed.engine.encode import decode, encode
from cofed.flower.processes import Federation
from cofed.flower.saved import Saved, read_saved

KINDS = (".csv", ".parquet")
PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "federate"
version = "1.0.0"
description = "cofed federate"
license = "Apache-2.0"
dependencies = ["flwr>=1.40"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "cofed"

[tool.flwr.app.components]
serverapp = "federate.apps:server"
clientapp = "federate.apps:client"

[tool.flwr.app.config]
definition = ""
"""
APPS = '''"""Both ends of `cofed federate`, defined by a file."""

from cofed.flower import federate

server = federate.server()
client = federate.client()
'''


def site_files(folder: Path) -> dict[str, Path]:
    """The file of each site: `SITE.csv` or `SITE.parquet`, or the only such file in a folder `SITE`.

    >>> import tempfile
    >>> where = Path(tempfile.mkdtemp())
    >>> _ = (where / "oslo.csv").write_text("age,ill"), (where / "rome").mkdir()
    >>> _ = (where / "rome" / "2024.csv").write_text("age,ill")
    >>> sorted(site_files(where))
    ['oslo', 'rome']
    """
    found: dict[str, Path] = {}
    for entry in sorted(folder.iterdir()):
        inside = sorted(f for f in entry.iterdir() if f.suffix in KINDS) if entry.is_dir() else []
        if entry.is_dir() and len(inside) > 1:
            raise ValueError(f"the folder {entry} holds {len(inside)} tables; a site has one")
        file = inside[0] if inside else entry
        if file.is_file() and file.suffix in KINDS:
            name = entry.name if entry.is_dir() else entry.stem
            if name in found:
                raise ValueError(f"the site {name!r} has two files: {found[name].name} and {file.name}")
            found[name] = file
    if not found:
        raise ValueError(f"{folder} holds no site: put SITE.csv or SITE.parquet into it, or folders with one each")
    return found


def read_site(path: Path, target: str) -> tuple[Any, Any]:
    """A site's table as (X, y): the target column is y, all others are features."""
    table = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    if target not in table.columns:
        raise ValueError(f"{path} has no column {target!r}; it has {list(table.columns)[:10]}")
    missing = int(table.isna().to_numpy().sum())
    if missing:
        raise ValueError(f"{path} has {missing} missing values; drop these rows or fill them in")
    return table.drop(columns=[target]), table[target]


def definition(config: dict[str, Any]) -> dict[str, Any]:
    """The definition that a run's configuration points to."""
    path = str(config["definition"])
    return read_json(Path(path), f"{path} is not a definition that cofed federate has written")


def problem(config: dict[str, Any]) -> Any:
    """The problem of a run."""
    return decode(definition(config)["problem"])


def algorithm(config: dict[str, Any]) -> Any:
    """The algorithm of a run."""
    return decode(definition(config)["algorithm"])


def client() -> Any:
    """The sites' end."""
    from cofed.flower.client import client_app

    def load(node: dict[str, Any]) -> Any:
        return read_site(Path(node["data"]), node["target"])

    return client_app(problem, algorithm, load, keep=lambda node: node["keep"])


def server() -> Any:
    """The server's end."""
    from flwr.serverapp import ServerApp

    from cofed.flower.server import serve

    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        config = dict(context.run_config)
        serve(grid, problem(config), algorithm(config), **definition(config)["settings"])

    return app


@contextlib.contextmanager
def federated(
    folder: Path, target: str, the_problem: Any, the_algorithm: Any, out: Path, settings: dict[str, Any], secure: bool
) -> Iterator[Federation]:
    """Everything started, and stopped at the end, however it comes."""
    files = site_files(folder)
    for site, path in files.items():
        read_site(path, target)
        if not site.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"a site's name is made of letters, digits, - and _, got {site!r}")
    out.mkdir(parents=True, exist_ok=True)
    out = out.resolve()
    settings = {"clients": len(files), "checkpoint": str(out / "run")} | settings
    content = {"problem": encode(the_problem), "algorithm": encode(the_algorithm), "settings": settings}
    write_json(out / "definition.json", content)
    app = out / "app"
    (app / "federate").mkdir(parents=True, exist_ok=True)
    (app / "pyproject.toml").write_text(PROJECT)
    (app / "federate" / "__init__.py").write_text("")
    (app / "federate" / "apps.py").write_text(APPS)
    certificates = None
    if secure:
        from cofed.flower.certificates import make

        certificates = out / "certificates"
        if not certificates.exists():
            make(certificates, ["127.0.0.1", "localhost"], list(files))
    progress = out / "run" / "progress.jsonl"
    if progress.exists():  # of an earlier start, which this one goes on with
        progress.rename(progress.with_name(f"progress-{int(time.time())}.jsonl"))
    with Federation(out, certificates) as federation:
        federation.superlink()
        for site, path in files.items():
            if certificates is not None:
                federation.register(site, certificates / f"{site}.key.pub")
            keep = out / "sites" / site
            federation.supernode(site, data=str(path.resolve()), target=target, keep=str(keep))
        federation.run(app, definition=str(out / "definition.json"))
        yield federation


def follow(federation: Federation, out: Path) -> Iterator[dict[str, Any]]:
    """What happens, line by line, until the run ends; an error where it ends badly."""
    path, seen = out / "run" / "progress.jsonl", 0
    run = federation.started["run"]
    while True:
        ended = run.poll()
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        for line in whole[seen:].splitlines():
            event = json.loads(line)
            yield event
            if event["kind"] == "end":
                return
        seen = len(whole)
        for name, process in federation.started.items():
            if process.poll() not in (None, 0) or (name == "run" and ended is not None):
                raise RuntimeError(
                    f"the {name} ended before the run did; the end of its log, {federation.log(name)}:\n"
                    f"{federation.tail(name)}"
                )
        time.sleep(0.2)


def finished(out: Path) -> Saved:
    """What the run ended with."""
    return read_saved(out / "run")
