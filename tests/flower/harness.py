"""Real processes on loopback: a SuperLink, three SuperNodes, a run; everything is stopped in every outcome."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import cofed
from cofed.flower import SavedRun, read_saved
from cofed.flower.processes import LocalNetwork
from tests.flower.app.netapp import apps

APP = Path(__file__).parent / "app"
# Limits are for hangs only: an idle machine needs a twentieth of them, one under heavy load a half.
SITES = ("aachen", "basel", "cork")
D = 20


def data(dtype: Any = np.float64) -> cofed.Federation:
    """Three sites of unequal sizes."""
    rng = np.random.default_rng(0)
    clients = {}
    for site, n in zip(SITES, (17, 40, 29), strict=True):
        X = rng.normal(size=(n, D)) + 0.3 * rng.normal(size=D)
        clients[site] = (X.astype(dtype), (X @ rng.normal(size=D) + rng.normal(size=n)).astype(dtype))
    return cofed.Federation.from_arrays(clients)


class Network(LocalNetwork):
    """The tests' federation."""

    def write(self, federation: cofed.Federation) -> None:
        """A file per site."""
        for site in SITES:
            X, y = federation.client(site)
            np.savez(self.folder / f"{site}.npz", X=X, y=y)

    def site(self, site: str, **config: Any) -> None:
        """Start a site."""
        self.supernode(site, data=str(self.folder), **config)

    def run_app(self, name: str, **config: Any) -> Any:
        """Start the tests' app, with its results in a folder of that name."""
        return self.run(APP, name, checkpoint=str(self.result(name)), **config)

    def result(self, name: str) -> Path:
        """Where a run writes."""
        return self.folder / "results" / name

    def lines(self, name: str) -> str:
        """The progress so far."""
        path = self.result(name) / "progress.jsonl"
        return path.read_text() if path.exists() else ""

    def until(self, text: str, name: str, limit: float = 900.0) -> None:
        """Wait until the progress of a run has this text."""
        began = time.monotonic()
        while text not in self.lines(name):
            gone = time.monotonic() - began > limit
            assert not gone, f"no {text!r} in {limit} s\n{self.lines(name)}\n{self.report()}"
            time.sleep(0.2)

    def end(self, name: str, limit: float = 1500.0) -> SavedRun:
        """Wait for the end of the run, and read what it has written."""
        self.until('"kind": "end"', name, limit)
        return read_saved(self.result(name))

    def named(self, program: str) -> list[Any]:
        """Our processes of this program."""
        return [process for process in self.ours() if any(program in part for part in process.cmdline())]

    def report(self) -> str:
        """What to read where a test fails."""
        return "\n".join(f"--- {name}\n{self.tail(name, 30)}" for name in self.started)


@contextlib.contextmanager
def network(folder: Path, dtype: Any = np.float64, certificates: Path | None = None) -> Iterator[Network]:
    """A SuperLink, with the sites' data in place."""
    with Network(folder, certificates) as net:
        net.write(data(dtype))
        net.superlink()
        yield net


def in_process(method: str, dtype: Any = np.float64, rounds: int = 5) -> cofed.Result:
    """The same run in this process."""
    config = {"method": method}
    return cofed.run(apps.problem(config), data(dtype), apps.algorithm(config), rounds=rounds, **apps.SETTINGS)
