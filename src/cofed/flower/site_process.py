"""`cofed site`: one process that is a site, from its table to its SuperNode."""

import dataclasses
import secrets
import tempfile
from pathlib import Path

from cofed._util.files import private_file, private_folder
from cofed.flower.door import site_app
from cofed.flower.processes import free_ports, toml
from cofed.flower.runtime import Runtime, be_supernode
from cofed.sites.reading import read_table


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


def run_site(options: SiteOptions) -> None:
    """Be a site until a signal ends it. The table is read first: what is wrong with it is said before anything."""
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
