"""Certificates and keys for a federation: `python -m cofed.flower.certificates FOLDER --host NAME --site NAME ...`

    ca.crt, ca.key          the authority; ca.crt goes to every site and user, ca.key stays with whoever runs this
    server.pem, server.key  the SuperLink's certificate, for the given host names and addresses
    SITE.key, SITE.key.pub  a site's key pair for node authentication; the private one goes to that site only

For one machine and for trials. A consortium with an authority of its own uses that one's certificates, and every site
makes its own key pair (`ssh-keygen -t ecdsa -b 384`) and hands over the public half only.
"""

import argparse
import datetime
import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path

from cofed._util import checks
from cofed._util.files import plain_names, private_file, private_folder
from cofed._util.types import Given
from cofed.flower.flwr_types import GeneralName

DAYS = 90
MOST = 64  # characters of the name that a certificate is made out to; its other names may be longer
HOST = re.compile(r"(\*\.)?(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")
OURS = ("ca", "server")  # whose keys are in the same folder


def make(folder: Given[str | Path], hosts: Given[Sequence[str]], sites: Given[Sequence[str]]) -> None:
    """Write an authority, a server's certificate and the sites' keys into a new folder.

    Parameters
    ----------
    folder : str or Path
        A folder that is not there yet, or is empty; only its owner will be able to look into it.
    hosts : sequence of str
        The names or addresses under which the sites reach the server, at least one.
    sites : sequence of str
        The sites' names, which become names of files.

    Raises
    ------
    TypeError, ValueError
        Where one of these cannot be used. Nothing is written then.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed.flower.certificates import make
    >>> where = Path(tempfile.mkdtemp()) / "certificates"
    >>> make(where, ["localhost"], ["oslo"])
    >>> sorted(path.name for path in where.iterdir())
    ['ca.crt', 'ca.key', 'oslo.key', 'oslo.key.pub', 'server.key', 'server.pem']
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    folder, hosts, sites = checked(folder, hosts, sites)
    private_folder(folder)
    now = datetime.datetime.now(datetime.UTC)

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def certificate(subject: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("cofed authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=DAYS))
        )

    def written(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
        text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        private_file(path).write_bytes(text)

    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    root = (
        certificate("cofed authority", authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(False, False, False, False, False, True, True, False, False),
            critical=True,
        )
        .add_extension(identifier, critical=False)
        .sign(authority, hashes.SHA384())
    )
    leaf = (
        certificate(hosts[0] if len(hosts[0]) <= MOST else "cofed server", server)
        .add_extension(x509.SubjectAlternativeName([alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority, hashes.SHA384())
    )
    private_file(folder / "ca.crt").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    private_file(folder / "server.pem").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    written(folder / "ca.key", authority, serialization.PrivateFormat.PKCS8)
    written(folder / "server.key", server, serialization.PrivateFormat.PKCS8)
    for site in sites:
        key = ec.generate_private_key(ec.SECP384R1())
        written(folder / f"{site}.key", key, serialization.PrivateFormat.OpenSSH)
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        private_file(folder / f"{site}.key.pub").write_bytes(public + b"\n")


def alternative(host: object) -> GeneralName:
    """A host as a certificate names it."""
    from cryptography import x509

    if not isinstance(host, str):
        raise TypeError(f"hosts must be names or addresses, got {host!r}")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if len(host) > 253 or not HOST.fullmatch(host):
            raise ValueError(f"hosts: {host!r} is neither an address nor a name such as fl.example.org") from None
        return x509.DNSName(host)


def checked(folder: object, hosts: object, sites: object) -> tuple[Path, list[str], list[str]]:
    """What `make` was given, or an error that says what is wrong with it."""
    path = checks.folder("folder", folder)
    if path.is_dir() and any(path.iterdir()):
        raise ValueError(f"folder: {path} holds files already; give the name of a new folder")
    hosts, sites = names("hosts", hosts), names("sites", sites)
    if not hosts:
        raise ValueError("hosts is empty; give a name or an address under which the sites reach the server")
    for host in hosts:
        alternative(host)
    taken = [site for site in sites if isinstance(site, str) and site.casefold() in OURS]
    if taken:
        raise ValueError(f"sites: {taken[0]!r} is the name of a file of the server's; call the site otherwise")
    return path, hosts, plain_names(sites, "one of the sites")


def names(parameter: str, values: object) -> list[str]:
    """A list of names, each of which is checked where it is used."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{parameter} must be a list of names, got {values!r}")
    return list(values)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Certificates and keys for a federation.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", action="append", default=[], help="a name or address of the server; may be repeated")
    parser.add_argument("--site", action="append", default=[], help="a site's name; may be repeated")
    given = parser.parse_args()
    try:
        make(given.folder, given.host or ["127.0.0.1", "localhost"], given.site)
    except (ValueError, OSError) as error:
        parser.error(str(error))
