"""Sites as processes on this machine, over Flower on loopback."""

import contextlib
import secrets
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from cofed._util.files import atomically, private_folder
from cofed.flower.grid_sites import sites
from cofed.flower.processes import LocalNetwork
from cofed.flower.runtime import Runtime, grid_of_run
from cofed.sites.network import NetworkSites

PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "cofed-sites"
version = "1.0.0"
description = "The run that a fit's messages are of. Nobody runs its code: the server and the sites have their own."
license = "Apache-2.0"
dependencies = ["flwr>=1.40"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "cofed"

[tool.flwr.app.components]
serverapp = "cofed_sites:server"
clientapp = "cofed_sites:client"
"""


@contextlib.contextmanager
def start_sites(
    tables: Mapping[str, Path],
    out: Path,
    *,
    secure: bool = False,
    patience: float = 600.0,
) -> Iterator[NetworkSites]:
    out = out.resolve()
    certificates = None
    if secure:
        from cofed.flower.certificates import make

        certificates = out / "certificates"
        if not certificates.exists():
            make(certificates, ["127.0.0.1", "localhost"], list(tables))
    with LocalNetwork(out, certificates) as network:
        secret = out / "secret"
        atomically(secret, lambda name: Path(name).write_bytes(secrets.token_bytes(32)))
        network.superlink(secret=secret)
        for site, path in tables.items():
            security = []
            if certificates is not None:
                network.register(site, certificates / f"{site}.key.pub")
                security = ["--root-certificates", str(certificates / "ca.crt"), "--key", str(certificates / f"{site}.key")]
            keep = private_folder(out / "sites" / site)
            own = ["--data", str(path.resolve()), "--name", site, "--keep", str(keep)]
            network.start(site, sys.executable, "-m", "cofed", "site", "--server", network.address, *own, *security)
        app = out / "app"
        for name, text in {"pyproject.toml": PROJECT, "cofed_sites/__init__.py": "server = client = None\n"}.items():
            atomically(app / name, lambda file, text=text: Path(file).write_text(text))
        network.run(app)
        root = None if certificates is None else certificates / "ca.crt"
        with grid_of_run(Runtime(network.address, secret.read_bytes(), root), patience) as grid:
            yield sites(grid, clients=list(tables), patience=patience, log=out / "log")
