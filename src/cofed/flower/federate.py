"""`cofed federate`: a folder of per-site files as a federation of real processes on this machine."""

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import cofed
from cofed._util.files import plain_names, read_json, write_json
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.serialization import decode, encode
from cofed.federation import arrays
from cofed.flower.agreement import agreement
from cofed.flower.flower_app import write_app
from cofed.flower.flwr_types import ClientApp, Context, Grid, ServerApp
from cofed.flower.messages import SiteInfo
from cofed.flower.processes import LocalNetwork, Processes
from cofed.flower.run_folder import RunFolder
from cofed.flower.settings import NetworkSpec, ServeOptions
from cofed.flower.site import Config

KINDS = (".csv", ".parquet")
ABOUT = {"name": "federate", "description": "cofed federate", "module": "federate.apps"}
APPS = '''"""Both ends of `cofed federate`, defined by a file."""

from cofed.flower import federate

server = federate.server()
client = federate.client()
'''


def site_files(folder: Path) -> dict[str, Path]:
    """The file of each site: `SITE.csv` or `SITE.parquet`, or the only such file in a folder `SITE`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed.flower.federate import site_files
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


def read_site(path: Path, target: str) -> tuple[pd.DataFrame, pd.Series]:
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
    return table.drop(columns=[target]), pd.Series(table[target])


def pooled(files: dict[str, Path], target: str) -> cofed.Federation:
    """All sites' data in one federation, as `cofed.run` takes it; what does not fit together is refused.

    Columns may stand in any order, and integers at one site may be floats at another.
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


@dataclasses.dataclass(frozen=True)
class LocalFederation:
    """A federation of processes on this machine, as `cofed federate` is told of it."""

    folder: Path  # with a table per site
    target: str  # the column to predict
    problem: cofed.Problem
    algorithm: AbstractAlgorithm
    settings: dict[str, object]  # options of `serve`
    out: Path
    secure: bool = False  # whether over TLS, with authenticated nodes

    @property
    def run_folder(self) -> Path:
        """Where the server keeps the run."""
        return self.out.resolve() / "run"

    @property
    def definition(self) -> Path:
        """The file that both ends' apps read."""
        return self.out.resolve() / "definition.json"


def definition(config: Config) -> dict[str, Any]:
    """The definition that a configuration points to."""
    path = str(config["definition"])
    return read_json(Path(path), f"{path} is not a definition that cofed federate has written")


def problem(config: Config) -> cofed.Problem:
    """The problem of a run."""
    return decode(definition(config)["problem"])


def algorithm(config: Config) -> AbstractAlgorithm:
    """The algorithm of a run."""
    return decode(definition(config)["algorithm"])


def client() -> ClientApp:
    """The app of the sites."""
    from cofed.flower.client import client_app
    from cofed.sites.policy import TRIAL

    def load(node: Config) -> tuple[pd.DataFrame, pd.Series]:
        table = definition(node)["table"]
        X, y = read_site(Path(str(node["data"])), table["target"])
        return X.loc[:, table["columns"]].astype(table["dtype"]), y.astype(table["label_dtype"])

    def keep(node: Config) -> str:
        return str(node["keep"])

    # All sites are the user's own, on one machine.
    return client_app(problem, algorithm, load, keep=keep, plain=True, policy=TRIAL)


def server() -> ServerApp:
    """The app of the server."""
    from flwr.serverapp import ServerApp

    from cofed.flower.server import serve

    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = dict(context.run_config)
        serve(grid, problem(config), algorithm(config), **definition(config)["settings"])

    return app


def prepare(federation: LocalFederation) -> dict[str, Path]:
    """Check everything, and write what the processes read; gives the file of each site."""
    files = site_files(federation.folder)
    for site in plain_names(list(files), "a site"):
        if not site.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"a site's name is made of letters, digits, - and _, got {site!r}")
    settings = {"clients": list(files), "checkpoint": str(federation.run_folder)} | federation.settings
    try:
        everything = pooled(files, federation.target)
    except TypeError as error:  # text where numbers are needed
        raise ValueError(f"{error}") from None
    check(federation, settings, everything)
    content = {
        "problem": encode(federation.problem),
        "algorithm": encode(federation.algorithm),
        "settings": settings,
        "table": {
            "target": federation.target,
            "columns": list(everything.feature_names or ()),
            "dtype": str(everything.dtype),
            "label_dtype": str(everything.labels().dtype),
        },
    }
    write_json(federation.definition, content)
    code = {"federate/__init__.py": "", "federate/apps.py": APPS}
    write_app(federation.out.resolve() / "app", ABOUT, code, config='definition = ""')
    return files


def check(federation: LocalFederation, settings: dict[str, Any], everything: cofed.Federation) -> None:
    """Refuse, before anything is started, what the server or the sites would refuse."""
    spec = NetworkSpec.checked(federation.problem, federation.algorithm, ServeOptions(**settings))
    infos = {name: SiteInfo.of(name, spec.problem, everything.select([name])) for name in everything.names}
    agreement(spec, infos)
    folder = RunFolder(federation.run_folder)
    spec.check_same(folder.definition(), folder.path)


@contextlib.contextmanager
def started(federation: LocalFederation, files: dict[str, Path]) -> Iterator[LocalNetwork]:
    """Start what was prepared, and stop it at the end, however that comes."""
    out = federation.out.resolve()
    certificates = None
    if federation.secure:
        from cofed.flower.certificates import make

        certificates = out / "certificates"
        if not certificates.exists():
            make(certificates, ["127.0.0.1", "localhost"], list(files))
    progress = federation.run_folder / "progress.jsonl"
    if progress.exists():  # of an earlier start, which this one goes on with
        progress.rename(progress.with_name(f"progress-{int(time.time())}.jsonl"))
    with LocalNetwork(out, certificates) as network:
        network.superlink()
        for site, path in files.items():
            if certificates is not None:
                network.register(site, certificates / f"{site}.key.pub")
            where = {"data": path.resolve(), "definition": federation.definition, "keep": out / "sites" / site}
            network.supernode(site, **where)
        network.run(out / "app", definition=str(federation.definition))
        yield network


def follow(processes: Processes, out: Path, needed: int) -> Iterator[dict[str, Any]]:
    """Yield what happens, line by line, until the run ends.

    It is an error where the run ends badly, or cannot end well since fewer sites are alive than a round needs.
    """
    path, seen = out / "run" / "progress.jsonl", 0
    while True:
        dead = [name for name, process in processes.started.items() if process.poll() is not None]
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        for line in whole[seen:].splitlines():
            event = json.loads(line)
            yield event
            if event["kind"] == "end":
                return
        seen = len(whole)
        sites = [name for name in processes.started if name not in ("superlink", "run")]
        lost = [name for name in dead if name in sites]
        if "superlink" in dead or "run" in dead or len(sites) - len(lost) < needed:
            raise RuntimeError(
                f"the {dead[0]} ended before the run did; the end of its log, {processes.log(dead[0])}:\n"
                f"{processes.tail(dead[0])}"
            )
        time.sleep(0.2)
