"""`cofed federate`: a folder of per-site files as a federation of real processes on this machine."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import cofed
from cofed._util.files import atomically, plain_names, read_json, write_json
from cofed.engine.serialization import decode, encode
from cofed.federation import arrays
from cofed.flower.agreement import agreement
from cofed.flower.messages import Card
from cofed.flower.processes import Federation, Processes
from cofed.flower.run_folder import Folder, Saved, read_saved
from cofed.flower.settings import check_same, check_settings, description

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
    try:
        table = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    except (ValueError, OSError) as error:  # an empty file, bytes that are no text, no Parquet
        raise ValueError(f"{path} cannot be read as a table: {error}") from None
    if target not in table.columns:
        raise ValueError(f"{path} has no column {target!r}; it has {list(table.columns)[:10]}")
    if table.shape[1] < 2:
        raise ValueError(f"{path} has no column beside {target!r}, and so no features")
    missing = int(table.isna().to_numpy().sum())
    if missing:
        raise ValueError(f"{path} has {missing} missing values; drop these rows or fill them in")
    return table.drop(columns=[target]), table[target]


def pooled(files: dict[str, Path], target: str) -> cofed.Federation:
    """All sites' data in one place, as `cofed.run` would have them: whatever does not fit together is refused here.

    Files are alike in kind only: whole numbers at one site may be floats at another, and columns stand in any order.
    """
    tables = {site: read_site(path, target) for site, path in files.items()}
    columns, ordered = arrays.align([X for X, _ in tables.values()], list(tables), None)
    Xs = [arrays.features(X, site) for site, X in zip(tables, ordered, strict=True)]
    ys = [arrays.targets(y, site) for site, (_, y) in tables.items()]
    if any(y.dtype.kind == "f" for y in ys):
        ys = [y.astype(np.float64) for y in ys]
    dtype = "float32" if all(X.dtype == np.float32 for X in Xs) else "float64"
    clients = dict(zip(tables, zip(Xs, ys, strict=True), strict=True))
    return cofed.Federation.from_arrays(clients, feature_names=columns, dtype=dtype)


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
        table = definition(node)["table"]
        X, y = read_site(Path(node["data"]), table["target"])
        return X[table["columns"]].astype(table["dtype"]), y.astype(table["label_dtype"])

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


def check(the_problem: Any, the_algorithm: Any, everything: cofed.Federation, settings: dict[str, Any]) -> None:
    """Refuse what would fail later, in a sentence and before anything is started: what server and sites would."""
    numbers = {name: value for name, value in settings.items() if name != "checkpoint"}
    checked = check_settings(the_problem, the_algorithm, **numbers)
    weights = settings.get("weights", "uniform")
    told = {name: Card.of(name, the_problem, everything.select([name])) for name in everything.names}
    agreement(the_problem, the_algorithm, checked.settled(checked.clients), weights, None, told)
    where = Folder(settings["checkpoint"])
    check_same(where.definition(), description(the_problem, the_algorithm, checked, weights, None), where.path)


def prepared(
    folder: Path, target: str, the_problem: Any, the_algorithm: Any, out: Path, settings: dict[str, Any]
) -> dict[str, Path]:
    """Everything checked, and written for the processes to read; the file of each site."""
    files = site_files(folder)
    for site in plain_names(list(files), "a site"):
        if not site.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"a site's name is made of letters, digits, - and _, got {site!r}")
    out = out.resolve()
    settings = {"clients": list(files), "checkpoint": str(out / "run")} | settings
    try:
        everything = pooled(files, target)
    except TypeError as error:  # text where numbers are needed
        raise ValueError(f"{error}") from None
    check(the_problem, the_algorithm, everything, settings)
    content = {
        "problem": encode(the_problem),
        "algorithm": encode(the_algorithm),
        "settings": settings,
        "table": {
            "target": target,
            "columns": list(everything.feature_names or ()),
            "dtype": str(everything.dtype),
            "label_dtype": str(everything.labels().dtype),
        },
    }
    write_json(out / "definition.json", content)
    app = {"pyproject.toml": PROJECT, "federate/__init__.py": "", "federate/apps.py": APPS}
    for name, text in app.items():
        atomically(out / "app" / name, lambda file, text=text: Path(file).write_text(text))
    return files


@contextlib.contextmanager
def federated(files: dict[str, Path], out: Path, secure: bool) -> Iterator[Federation]:
    """What is prepared in a folder started, and stopped at the end, however it comes."""
    out = out.resolve()
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
            where = {"data": path.resolve(), "definition": out / "definition.json", "keep": out / "sites" / site}
            federation.supernode(site, **where)
        federation.run(out / "app", definition=str(out / "definition.json"))
        yield federation


def follow(federation: Processes, out: Path, needed: int) -> Iterator[dict[str, Any]]:
    """What happens, line by line, until the run ends; an error where it ends badly, or cannot end well since
    fewer sites are alive than a round needs."""
    path, seen = out / "run" / "progress.jsonl", 0
    while True:
        dead = [name for name, process in federation.started.items() if process.poll() is not None]
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        for line in whole[seen:].splitlines():
            event = json.loads(line)
            yield event
            if event["kind"] == "end":
                return
        seen = len(whole)
        sites = [name for name in federation.started if name not in ("superlink", "run")]
        lost = [name for name in dead if name in sites]
        if "superlink" in dead or "run" in dead or len(sites) - len(lost) < needed:
            raise RuntimeError(
                f"the {dead[0]} ended before the run did; the end of its log, {federation.log(dead[0])}:\n"
                f"{federation.tail(dead[0])}"
            )
        time.sleep(0.2)


def finished(out: Path) -> Saved:
    """What the run ended with."""
    return read_saved(out / "run")
