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
import os
from pathlib import Path

DAYS = 90


def make(folder: Path, hosts: list[str], sites: list[str]) -> None:
    """Write an authority, a server's certificate and the sites' keys into a new folder.

    >>> import tempfile
    >>> where = Path(tempfile.mkdtemp()) / "certificates"
    >>> make(where, ["localhost"], ["oslo"])
    >>> sorted(path.name for path in where.iterdir())
    ['ca.crt', 'ca.key', 'oslo.key', 'oslo.key.pub', 'server.key', 'server.pem']
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} holds files already; give the name of a new folder")
    folder.mkdir(parents=True, exist_ok=True)
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
        private(path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))

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
        certificate(hosts[0], server)
        .add_extension(x509.SubjectAlternativeName([alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority, hashes.SHA384())
    )
    (folder / "ca.crt").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    (folder / "server.pem").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    written(folder / "ca.key", authority, serialization.PrivateFormat.PKCS8)
    written(folder / "server.key", server, serialization.PrivateFormat.PKCS8)
    for site in sites:
        key = ec.generate_private_key(ec.SECP384R1())
        written(folder / f"{site}.key", key, serialization.PrivateFormat.OpenSSH)
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        (folder / f"{site}.key.pub").write_bytes(public + b"\n")


def alternative(host: str):
    """A host as a certificate names it."""
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def private(path: Path, content: bytes) -> None:
    """A file that only its owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Certificates and keys for a federation.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", action="append", default=[], help="a name or address of the server; may be repeated")
    parser.add_argument("--site", action="append", default=[], help="a site's name; may be repeated")
    given = parser.parse_args()
    try:
        make(given.folder, given.host or ["127.0.0.1", "localhost"], given.site)
    except ValueError as error:
        parser.error(str(error))
