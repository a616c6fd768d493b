"""Sites over Flower, and the server that they come to: on this machine, a process for each, or elsewhere."""

import contextlib
import logging
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from cofed._util.files import atomically, plain_names, private_folder
from cofed.flower.certificates import make
from cofed.flower.flower_app import write_app
from cofed.flower.link import FlowerLink
from cofed.flower.lock import exclusive
from cofed.flower.processes import LocalNetwork, marked, send
from cofed.flower.progress import ProgressLog
from cofed.flower.run_folder import RunFolder
from cofed.flower.runtime import Runtime, grid_of_run
from cofed.sites.chosen_columns import ChosenColumns
from cofed.sites.network import NetworkSites
from cofed.sites.policy import TRIAL, policy_toml
from cofed.sites.secure.invitation import PLAIN, Invitation
from cofed.sites.secure.keys import SiteKeys
from cofed.studies import Study, approve, invitation_to
from cofed.studies.schema import StudySite

Listener = Callable[..., None]
SOON, LATER = 2.0, 16.0  # seconds between two starts of a site that ends by itself: at first, and at most
ABOUT = {
    "name": "cofed-sites",
    "description": "The run that a fit's messages are of. Its code is never run: server and sites have their own.",
    "module": "cofed_sites",
}


@contextlib.contextmanager
def start_sites(
    tables: Mapping[str, Path | pd.DataFrame],
    out: Path,
    columns: ChosenColumns,
    *,
    secure: bool = False,
    plain: bool = False,
    policy: Path | None = None,
    study: Study | None = None,
    patience: float = 600.0,
    drop: bool = False,
    hear: Listener | None = None,
) -> Iterator[NetworkSites]:
    """Start a SuperLink and a process for each site on this machine, and give the sites, for an estimator's `fit`.

    Everything that was started is stopped at the end of the block, however that comes.

    Parameters
    ----------
    tables : mapping of str to Path or DataFrame
        The file of each site, or its rows, which are then written into `out`.
    out : Path
        A folder for the log of exchanges (`out/log`), the processes' logs (`out/logs`) and what the sites keep. Started
        again with the same folder, the same fit goes on where it was.
    columns : ChosenColumns
        Which column is predicted from which, and what is done about missing values.
    secure : bool
        Whether over TLS, with authenticated sites.
    plain : bool
        Whether the server sees each site's answers; by default they are masked, and it learns sums only.
    policy : Path, optional
        The rules of every site, a `policy.toml`; by default everything is answered, as the rows are one's own.
    study : Study, optional
        A study that every site approves before it answers, with a key of its own that is made here, to rehearse it: by
        the strict rules sites answer for such studies alone. The design of `columns` must be of it.
    patience : float
        Seconds to wait for a site.
    drop : bool
        Whether to begin without sites that do not come in that time; they are the sites' `left_out`.
    hear : callable, optional
        Called with what happens while the sites come, and after: the kind, and details by name.

    Yields
    ------
    NetworkSites
        The sites, once all are there and have agreed on a design.

    Raises
    ------
    ValueError
        Where the tables do not fit together, or the log is of another fit.
    SitesMissing
        Where a site does not answer, also within the block.
    SiteRefused
        Where its rules forbid it to.
    RuntimeError
        Where a process of Flower does not start.

    Examples
    --------
    >>> from pathlib import Path
    >>> from cofed.estimators import FederatedLassoCV
    >>> from cofed.flower import ChosenColumns, start_sites
    >>> files = {"oslo": Path("oslo.csv"), "rome": Path("rome.csv")}
    >>> with start_sites(files, Path("out"), ChosenColumns(target="cost")) as sites:  # doctest: +SKIP
    ...     model = FederatedLassoCV().fit(sites)
    """
    out = private_folder(out.resolve())
    names = plain_names(list(tables), "a site")
    with exclusive(out), LocalSites(out, certificates_in(out, names) if secure else None) as network:
        network.begin(names)
        rules = out / "policy.toml" if policy is None else policy.resolve()
        if policy is None:
            atomically(rules, lambda name: Path(name).write_text(policy_toml(TRIAL), encoding="utf-8"))
        agreed = None if study is None else network.approved(study, names)
        for site, table in tables.items():
            network.start_site(site, table, rules)
        with network.sites(names, columns, patience, PLAIN if plain else invitation_to(agreed), drop, hear) as sites:
            yield sites


@contextlib.contextmanager
def await_sites(
    names: Sequence[str],
    out: Path,
    columns: ChosenColumns,
    *,
    at: tuple[str, int],
    certificates: Path | None = None,
    patience: float = 600.0,
    invitation: Invitation | None = None,
    drop: bool = False,
    hear: Listener | None = None,
) -> Iterator[NetworkSites]:
    """Start a SuperLink that sites elsewhere come to (`cofed site`), and give them, for an estimator's `fit`.

    Parameters
    ----------
    names : sequence of str
        The sites that are awaited.
    out : Path
        A folder for the log of exchanges (`out/log`) and the processes' logs (`out/logs`). Started again with the same
        folder, the same fit goes on where it was.
    columns : ChosenColumns
        Which column is predicted from which, and what is done about missing values.
    at : tuple of str and int
        The address and the port to listen at.
    certificates : Path, optional
        A folder as `cofed.flower.certificates` makes it, with the sites' public keys; None is no TLS.
    patience : float
        Seconds to wait for a site.
    invitation : Invitation, optional
        What the sites are told at the beginning, such as `invitation_to(study)`; by default, that their answers are
        masked, and that there is no study.
    drop : bool
        Whether to begin without sites that do not come in that time; they are the sites' `left_out`. Those of a study
        that names keys must have agreed to it.
    hear : callable, optional
        Called with what happens while the sites come, and after: the kind, and details by name.

    Yields
    ------
    NetworkSites
        The sites, once all are there and have agreed on a design.

    Raises
    ------
    ValueError, SitesMissing, RuntimeError
        As for `start_sites`.
    """
    out = private_folder(out.resolve())
    names = plain_names(list(names), "a site")
    certificates = None if certificates is None else certificates.resolve()  # Flower takes absolute paths only
    absent = [] if certificates is None else [site for site in names if not public_key(certificates, site).exists()]
    if absent:
        raise ValueError(f"{certificates} has no public key of {absent[0]}: {absent[0]}.key.pub")
    with exclusive(out), LocalSites(out, certificates, *at) as network:
        network.begin(names)
        with network.sites(names, columns, patience, invitation or Invitation.masked(), drop, hear) as sites:
            yield sites


def public_key(certificates: Path, site: str) -> Path:
    """The file of a site's public key."""
    return certificates / f"{site}.key.pub"


class LocalSites(LocalNetwork):
    """A SuperLink on loopback, and the processes of sites."""

    def __init__(self, folder: Path, certificates: Path | None, host: str = "127.0.0.1", port: int = 0):
        super().__init__(folder, certificates, host, port)
        self.end_leftovers()
        self.commands: dict[str, list[str]] = {}
        self.restarts: dict[str, tuple[float, float]] = {}  # when a site may be started again, and how long after that

    @property
    def secret(self) -> Path:
        """What lets this process, and no other, take the run that the fit's messages are of."""
        return self.folder / "secret"

    def begin(self, names: Sequence[str]) -> None:
        """Start the SuperLink, and let it know the sites' keys."""
        atomically(self.secret, lambda name: Path(name).write_bytes(secrets.token_bytes(32)))
        self.superlink(secret=self.secret)
        if self.certificates is not None:
            for site in names:
                self.register(site, public_key(self.certificates, site))

    @contextlib.contextmanager
    def sites(
        self,
        names: Sequence[str],
        columns: ChosenColumns,
        patience: float,
        invitation: Invitation,
        drop: bool,
        hear: Listener | None,
    ) -> Iterator[NetworkSites]:
        """Start a run, take its Grid, and give the sites once they are there."""
        write_app(self.folder / "app", ABOUT, {"cofed_sites/__init__.py": "server = client = None\n"})
        self.run(self.folder / "app")
        runtime, log = Runtime(self.address, self.secret.read_bytes(), self.root), self.folder / "log"
        with quiet(), grid_of_run(runtime, patience, self.check_run) as grid:
            told, is_final = ProgressLog(RunFolder(log)), bool(self.commands)
            link = FlowerLink(grid, patience, told, invitation, self.check_sites, is_final)
            if hear is not None:
                link.exchanges.listeners.append(hear)
            yield NetworkSites.open(link, names, columns, log, drop)
            link.end(names)

    @property
    def root(self) -> Path | None:
        """The authority's certificate."""
        return None if self.certificates is None else self.certificates / "ca.crt"

    def end_leftovers(self) -> None:
        """End what a start in the same folder has left that was killed itself; the lock says that it is not alive."""
        file = self.folder / "mark"
        if file.exists():
            for process in marked(file.read_text()):
                send(process, signal.SIGKILL)
        atomically(file, lambda name: Path(name).write_text(self.mark))

    def kept(self, site: str) -> Path:
        """The folder of a site's own."""
        return self.folder / "sites" / site

    def approved(self, study: Study, names: Sequence[str]) -> Study:
        """The study of these sites with a key for each, once all of them have approved it."""
        keys = {name: SiteKeys.of_folder(self.kept(name)).public for name in names}
        sites = (StudySite(name=name, key=key, releasable=name in study.releasable) for name, key in keys.items())
        agreed = study.model_copy(update={"sites": tuple(sites)})
        for name in names:
            approve(self.kept(name), agreed)
        return agreed

    def start_site(self, site: str, table: Path | pd.DataFrame, policy: Path) -> None:
        """Start a site's process."""
        if isinstance(table, pd.DataFrame):
            path = self.folder / "tables" / f"{site}.parquet"
            atomically(path, lambda name: table.to_parquet(name))
        else:
            path = table.resolve()
        own = ["--data", str(path), "--name", site, "--keep", str(self.kept(site))]
        own += ["--policy", str(policy)]
        security = ["--insecure"]
        if self.certificates is not None:
            security = ["--ca", str(self.root), "--key", str(self.certificates / f"{site}.key")]
        command = [sys.executable, "-m", "cofed", "site", "--once", "--server", self.address, *own, *security]
        self.commands[site] = command
        self.start(site, *command)

    def check_run(self) -> None:
        """Refuse to wait for a run that could not be started."""
        if self.started["superlink"].poll() is not None or self.started["run"].poll():
            name = "superlink" if self.started["superlink"].poll() is not None else "run"
            raise RuntimeError(f"the {name} of Flower ended; the end of its log, {self.log(name)}:\n{self.tail(name)}")

    def check_sites(self, joined: Mapping[str, int]) -> list[str]:
        """Start sites again that have ended; one that ends before it has joined has a reason, which is said.

        The SuperLink lets an authenticated node in again only when it has missed the old one's heartbeat, so it takes
        several starts.
        """
        self.check_run()
        renewed, clock = [], time.monotonic()
        for site, command in self.commands.items():
            if self.started[site].poll() is None:
                continue
            if site not in joined:
                raise RuntimeError(f"the site {site} ended; the end of its log, {self.log(site)}:\n{self.tail(site)}")
            due, pause = self.restarts.get(site, (clock, SOON))
            if clock >= due:
                self.restarts[site] = clock + pause, min(2 * pause, LATER)
                self.start(site, *command)
                renewed.append(site)
        return renewed


def certificates_in(out: Path, names: list[str]) -> Path:
    """The folder of certificates and keys, made where it is missing."""
    folder = out / "certificates"
    if not folder.exists():
        make(folder, ["127.0.0.1", "localhost"], names)
    return folder


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep Flower's own lines off the screen; they are in the logs, and progress is told otherwise."""
    from flwr.supercore import logger as _  # noqa: F401  # which sets the level when it is first imported

    log = logging.getLogger("flwr")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
