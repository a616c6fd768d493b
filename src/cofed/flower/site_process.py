"""`cofed site`: one process that is a site, from its table to its SuperNode."""

import dataclasses
import hashlib
import logging
import os
import secrets
import signal
import stat
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from cofed._util.files import private_file, private_folder
from cofed.flower.door import site_app
from cofed.flower.processes import ending_in_order, free_ports, toml, undisturbed
from cofed.flower.runtime import Runtime, be_supernode
from cofed.sites.audit import AUDIT_LOG, AuditBroken, AuditEvent, AuditLog, verify
from cofed.sites.policy import TRIAL, LedgerLost, Policy
from cofed.sites.policy.ledger import Ledger
from cofed.sites.reading import read_table
from cofed.sites.secure.keys import SiteKeys

log = logging.getLogger("flwr")
PARENT = "COFED_SITE_PARENT"  # the process that keeps a site running
BAD_INPUT = 2  # exit code
SOON, LATER = 1.0, 30.0  # seconds until a site that ended is started again: at first, and at most
STEADY = 60.0  # seconds after which a site has been well, and its next start comes soon again


@dataclasses.dataclass(frozen=True)
class SiteOptions:
    """What `cofed site` is told.

    Parameters
    ----------
    data : Path
        The site's table.
    server : str
        The SuperLink's host and port.
    name : str
        The site's name.
    keep : Path
        A folder of the site's own.
    policy : Policy
        Its rules.
    root_certificates : Path, optional
        The authority's certificate; None is no TLS.
    key : Path, optional
        The site's private key, where the server asks for one.
    """

    data: Path
    server: str
    name: str
    keep: Path
    policy: Policy
    root_certificates: Path | None = None
    key: Path | None = None

    def arguments(self, port: int, secret: Path) -> list[str]:
        """The arguments of `flower-supernode`."""
        security = ["--insecure"]
        if self.root_certificates is not None:
            security = ["--root-certificates", str(self.root_certificates)]
            if self.key is not None:
                security += ["--auth-supernode-private-key", str(self.key)]
        here = ["--host", "127.0.0.1", "--port", str(port), "--superexec-auth-secret-file", str(secret)]
        node = ["--superlink", self.server, "--isolation", "process", "--node-config", f"site={toml(self.name)}"]
        return [*security, *here, *node]


def keep_running(command: list[str], server: str) -> int:
    """Run a command again and again until it refuses its input, or a signal ends this process; gives the exit code.

    A SuperNode ends by itself where the server was started anew and does not know it, does not know the site's key yet,
    or has not yet missed the heartbeat of the process that was here before.
    """
    pause = SOON
    with ending_in_order():
        while True:
            began = time.monotonic()
            process = subprocess.Popen(command, env=os.environ | {PARENT: str(os.getpid())})
            try:
                code = process.wait()
                if code == BAD_INPUT:
                    return code
                pause = SOON if time.monotonic() - began > STEADY else pause
                words = "is gone, or another one by now" if code == 0 else "could not be joined"
                log.warning("cofed: the server at %s %s; looking for it again in %g s", server, words, pause)
                time.sleep(pause)
                pause = min(2 * pause, LATER)
            except KeyboardInterrupt:
                with undisturbed():
                    process.terminate()
                    process.wait()
                return 0


class OwnWords(logging.Filter):
    """Says in words of cofed's what Flower says of a server that does not answer."""

    def __init__(self, server: str):
        super().__init__()
        self.server = server

    def filter(self, record: logging.LogRecord) -> bool:
        """Change Flower's words, and let everything through."""
        words = str(record.msg)
        if words.startswith("Connection attempt failed, retrying"):
            record.msg = f"cofed: no server answers at {self.server}; trying again in %.1f s"
        elif words.startswith("Connection successful after"):
            record.msg, record.args = f"cofed: the server at {self.server} answers", ()
        return True


def server_address(text: str) -> str:
    """A host and a port, refused where they are none."""
    host, _, port = text.rpartition(":")
    is_plain = bool(host) and not set(host) & set("/@ ") and (":" not in host or host[0] + host[-1] == "[]")
    if not (is_plain and port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        raise ValueError(f"--server must be a host and a port, such as fl.example.org:9092, got {text!r}")
    return text


def end_with_parent() -> None:
    """End this process when the one that keeps it running is gone, however that ended."""
    parent = os.environ.get(PARENT)
    while parent is not None:
        if os.getppid() != int(parent):
            os.kill(os.getpid(), signal.SIGTERM)
            return
        time.sleep(1)


def check_folder(options: SiteOptions) -> None:
    """Refuse keys that others can read, and a damaged log or record; then log the start: whom for, by which rules."""
    if private_folder(options.keep).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ValueError(f"--keep: {options.keep} can be looked into by others than its owner; chmod 700 it")
    keys, path = SiteKeys.of_folder(options.keep), options.keep / AUDIT_LOG
    if path.exists():
        verdict = verify(path, keys.public)
        if not verdict.holds:
            raise ValueError(f"{path}: {verdict.problems[0]}; keep it for whoever looks into it, and begin a new one")
    try:
        if options.policy != TRIAL:
            Ledger.open(options.keep)
        rules = hashlib.sha256(options.policy.model_dump_json().encode()).hexdigest()
        note = f"the server is {options.server}, the policy's hash is {rules}"
        log_line(options, AuditEvent(event="started", note=note))
    except (LedgerLost, AuditBroken, OSError) as error:
        raise ValueError(str(error)) from None


def log_line(options: SiteOptions, event: AuditEvent) -> None:
    """Add a line to the site's log of what left."""
    AuditLog(options.keep / AUDIT_LOG, options.name, SiteKeys.of_folder(options.keep).sign).add(event)


def run_site(options: SiteOptions) -> None:
    """Be a site until a signal ends it. The table is read first: what is wrong with it is said before anything."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    log.addFilter(OwnWords(options.server))
    table = read_table(options.data)
    check_folder(options)
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory() as folder:  # which its owner alone can look into
        secret = private_file(Path(folder) / "secret")
        secret.write_bytes(secrets.token_bytes(32))
        runtime = Runtime(f"127.0.0.1:{port}", secret.read_bytes())
        app = site_app(lambda node: table, keep=lambda node: options.keep, policy=options.policy)
        try:
            be_supernode(options.arguments(port, secret), runtime, app)
        finally:
            log_line(options, AuditEvent(event="ended"))
