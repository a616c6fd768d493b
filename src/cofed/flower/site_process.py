"""`cofed site`: one process that is a site, from its table to its SuperNode."""

import dataclasses
import logging
import os
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from cofed._util.files import private_file, private_folder
from cofed.flower.door import site_app
from cofed.flower.processes import ending_in_order, free_ports, toml, undisturbed
from cofed.flower.runtime import Runtime, be_supernode
from cofed.sites.reading import read_table

log = logging.getLogger("flwr")
PARENT = "COFED_SITE_PARENT"  # the process that keeps a site running
BAD_INPUT = 2  # exit code
AGAIN = 5.0  # seconds until a site that ended is started again


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
    root_certificates : Path, optional
        The authority's certificate; None is no TLS.
    key : Path, optional
        The site's private key, where the server asks for one.
    """

    data: Path
    server: str
    name: str
    keep: Path
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


def keep_running(command: list[str]) -> int:
    """Run a command again and again until it refuses its input, or a signal ends this process; gives the exit code.

    A SuperNode ends by itself where the server is not there yet, does not know the site's key yet, or has not yet
    missed the heartbeat of the process that was here before.
    """
    with ending_in_order():
        while True:
            process = subprocess.Popen(command, env=os.environ | {PARENT: str(os.getpid())})
            try:
                code = process.wait()
                if code in (0, BAD_INPUT):
                    return code
                log.warning("cofed: the site ended; it starts again in %g s", AGAIN)
                time.sleep(AGAIN)
            except KeyboardInterrupt:
                with undisturbed():
                    process.terminate()
                    process.wait()
                return 0


def end_with_parent() -> None:
    """End this process when the one that keeps it running is gone, however that ended."""
    parent = os.environ.get(PARENT)
    while parent is not None:
        if os.getppid() != int(parent):
            os.kill(os.getpid(), signal.SIGTERM)
            return
        time.sleep(1)


def run_site(options: SiteOptions) -> None:
    """Be a site until a signal ends it. The table is read first: what is wrong with it is said before anything."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    table = read_table(options.data)
    private_folder(options.keep)
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory() as folder:  # which its owner alone can look into
        secret = private_file(Path(folder) / "secret")
        secret.write_bytes(secrets.token_bytes(32))
        runtime = Runtime(f"127.0.0.1:{port}", secret.read_bytes())
        be_supernode(
            options.arguments(port, secret), runtime, site_app(lambda node: table, keep=lambda node: options.keep)
        )
