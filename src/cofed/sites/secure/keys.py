"""What a site keeps secret: the key that it signs with, and a secret that never leaves it.

The primitives are those of the package `cryptography`.
"""

import hashlib
import hmac
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from cofed._util.files import atomically, private_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNING, SECRET = "signing.key", "secret.key"
SIZE = 32  # bytes of either


class SiteKeys:
    """A site's own secrets.

    Parameters
    ----------
    signing : bytes
        The private half of its long-term key (Ed25519).
    secret : bytes
        A secret for what only this site has to know again: that it has answered a question, and with what.

    Examples
    --------
    >>> from cofed.sites.secure.keys import SiteKeys, is_signed
    >>> keys = SiteKeys.new()
    >>> is_signed(keys.public, b"words", keys.sign(b"words")), is_signed(keys.public, b"other", keys.sign(b"words"))
    (True, False)
    """

    def __init__(self, signing: bytes, secret: bytes):
        self.signing, self.secret = signing, secret

    @classmethod
    def new(cls) -> "SiteKeys":
        """Secrets that nobody has had before."""
        return cls(secrets.token_bytes(SIZE), secrets.token_bytes(SIZE))

    @classmethod
    def of_folder(cls, keep: Path) -> "SiteKeys":
        """The secrets in a site's folder, made where they are missing.

        Parameters
        ----------
        keep : Path
            The folder in which the site keeps what it must not forget.

        Raises
        ------
        ValueError
            Where others can read them, or they are damaged.
        """
        private_folder(keep)
        return cls(secret_in(keep / SIGNING), secret_in(keep / SECRET))

    @classmethod
    def found_in(cls, keep: Path) -> "SiteKeys":
        """The secrets in a site's folder, which must have some: nothing is made where a path is misspelt."""
        if not (keep / SIGNING).exists():
            raise ValueError(
                f"there is no site's key in {keep}; cofed study key makes one, and --keep says where it is"
            )
        return cls.of_folder(keep)

    @property
    def private(self) -> "Ed25519PrivateKey":
        """The long-term key."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.signing)

    @property
    def public(self) -> str:
        """The public half of the long-term key, which stands in the study file."""
        return self.private.public_key().public_bytes_raw().hex()

    def sign(self, words: bytes) -> str:
        """A signature by the long-term key."""
        return self.private.sign(words).hex()

    def mark(self, *parts: bytes) -> bytes:
        """What only this site can make of these parts."""
        return hmac.digest(self.secret, joined(*parts), "sha256")


def secret_in(path: Path) -> bytes:
    """The secret in a file, made where it is missing; refused where others can read it."""
    if not path.exists():
        atomically(path, lambda name: Path(name).write_bytes(secrets.token_bytes(SIZE)))
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ValueError(f"{path} can be read or changed by others than its owner; make a new one, or chmod 600 it")
    found = path.read_bytes()
    if len(found) != SIZE:
        raise ValueError(f"{path} is damaged: it has {len(found)} bytes, expected {SIZE}")
    return found


def is_signed(public: str, words: bytes, signature: object) -> bool:
    """Whether a signature of these words is by the key with this public half.

    Parameters
    ----------
    public : str
        The public half, in hexadecimal digits.
    words : bytes
        What was signed.
    signature : object
        The signature, in hexadecimal digits; anything else is none.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(str(signature)), words)
    except (InvalidSignature, ValueError):
        return False
    return True


def joined(*parts: bytes) -> bytes:
    """Parts one after another, each behind its length, so that no other parts give the same bytes.

    >>> from cofed.sites.secure.keys import joined
    >>> joined(b"ab", b"c") == joined(b"a", b"bc")
    False
    """
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def fingerprint(public: str) -> str:
    """A key in a form that people can read to each other.

    >>> from cofed.sites.secure.keys import fingerprint
    >>> fingerprint("00" * 32)
    '6668 7aad f862 bd77 6c8f c18b 8e9f 8e20'
    """
    digits = hashlib.sha256(bytes.fromhex(public)).hexdigest()[:32]
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))
