"""A study with keys, its sites as processes of their own, and servers that they come to."""

import contextlib
import dataclasses
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pandas as pd
import psutil

from cofed.flower.processes import free_ports
from cofed.sites import SiteTable
from cofed.sites.secure.keys import SiteKeys
from cofed.studies import Study, approve, draft, write
from cofed.studies.schema import StudySite

ROOT = Path(__file__).parents[2]
COFED = (sys.executable, "-m", "cofed")


@dataclasses.dataclass(frozen=True)
class ServedSites:
    """Sites on this machine, each with a table, a folder that it keeps, maybe a policy of its own, and its words.

    Attributes
    ----------
    folder : Path
        Where all their files are.
    port : int
        Where they look for a server.
    running : dict of str to Popen
        Their processes.
    """

    folder: Path
    port: int
    running: dict[str, subprocess.Popen[str]] = dataclasses.field(default_factory=dict)

    def kept(self, site: str) -> Path:
        return self.folder / "kept" / site

    def said(self, site: str) -> str:
        return (self.folder / f"{site}.log").read_text()

    def agreed(self, name: str, study: Study, releasable: Collection[str] = ()) -> Path:
        """The file of a study that all its sites have approved, with their keys."""
        named = tuple(
            StudySite(
                name=one.name, key=SiteKeys.of_folder(self.kept(one.name)).public, releasable=one.name in releasable
            )
            for one in study.sites
        )
        study, path = study.model_copy(update={"sites": named}), self.folder / name
        write(path, study)
        for one in named:
            approve(self.kept(one.name), study)
        return path

    def start(self, site: str) -> None:
        """Start a site."""
        own = ["--data", self.folder / f"{site}.csv", "--keep", self.kept(site), "--server", f"127.0.0.1:{self.port}"]
        policy = self.folder / f"{site}.toml"
        words = [*COFED, "site", *map(str, own), "--insecure", *(["--policy", str(policy)] if policy.exists() else [])]
        with open(self.folder / f"{site}.log", "a") as log:
            self.running[site] = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log, text=True)

    def kill(self, site: str) -> None:
        """Kill a site, with the process that would start it again."""
        gone = self.running.pop(site)
        children = psutil.Process(gone.pid).children(recursive=True)
        gone.kill()
        for process in children:
            process.kill()
        gone.wait()

    def command(self, study: Path, out: str, *options: object) -> list[str]:
        """The words of a server."""
        own = ["--host", "127.0.0.1", "--port", self.port, "--insecure", "--out", self.folder / out]
        return [*COFED, "serve", *map(str, [study, *own, *options])]

    def serve(self, study: Path, out: str, *options: object) -> subprocess.CompletedProcess[str]:
        """A server, to its end."""
        command = self.command(study, out, *options)
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


@contextlib.contextmanager
def served_sites(
    folder: Path, frames: Mapping[str, pd.DataFrame], policies: Mapping[str, str] = MappingProxyType({})
) -> Iterator[ServedSites]:
    """Start these sites, which wait for a server; at the end they are ended, and must end well."""
    [port] = free_ports(1)
    world = ServedSites(folder, port)
    for site, frame in frames.items():
        frame.to_csv(folder / f"{site}.csv", index=False)
        if site in policies:
            (folder / f"{site}.toml").write_text(policies[site])
    try:
        for site in frames:
            world.start(site)
        yield world
    finally:
        for process in world.running.values():
            process.terminate()
        codes = {site: process.wait(120) for site, process in world.running.items()}
    assert codes == dict.fromkeys(world.running, 0)


def drafted(frames: Mapping[str, pd.DataFrame], target: str) -> Study:
    """A study of these tables."""
    return draft({site: SiteTable(frame, site).info() for site, frame in frames.items()}, target=target).study
