"""Masks that cancel in the sum over all sites, made from keys that each two sites have in common.

Sites i and j, i before j, agree on a secret (X25519, HKDF). For the request with the hash c they derive from it a key
for this request alone, and its key stream (AES-256 in counter mode) is a list of wide integers: i adds it and j
subtracts it. Answers to requests with different hashes share no mask. So the masked answers of some of the sites look
random, whatever they were asked, unless the server has the keys of all the others; of all sites, only the sum is known.

Low-overhead masking: Kursawe, Danezis, Kohlweiss 2011. Bound to the question, so that sites which were told different
things give noise: cf. Pasquini, Francati, Ateniese 2022.
"""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from cofed.sites.secure.keys import joined
from cofed.sites.secure.wide import WideFormat

COMPLETE = 33  # up to so many sites, each masks with all the others
REACH = 16  # beyond, with so many before and after it in an order that nobody chooses
BLOCK = 1 << 14  # numbers whose masks are made at a time
HALF, LOW = 32, (1 << 32) - 1  # bits of half a word, and all of them


def neighbours(site: str, sites: Sequence[str], study: str) -> list[str]:
    """The sites that a site masks with.

    Beyond 33 sites these are the 16 before it and the 16 after it on a circle. So whoever knows the masks of up to 31
    sites still finds all the others connected, and learns their sum only.

    Parameters
    ----------
    site : str
        The site.
    sites : sequence of str
        All sites of the sum.
    study : str
        The hash of the study, or whatever else the sites have in common, for their order on the circle.

    Examples
    --------
    >>> from cofed.sites.secure.masks import neighbours
    >>> neighbours("b", ["a", "b", "c"], "")
    ['a', 'c']
    >>> many = [f"site {i}" for i in range(100)]
    >>> around = neighbours("site 5", many, "")
    >>> len(around), all("site 5" in neighbours(other, many, "") for other in around)
    (32, True)
    """
    if len(sites) <= COMPLETE:
        return [other for other in sites if other != site]
    circle = sorted(sites, key=lambda name: hashlib.sha256(joined(study.encode(), name.encode())).digest())
    place = circle.index(site)
    steps = [*range(-REACH, 0), *range(1, REACH + 1)]
    return [circle[(place + step) % len(circle)] for step in steps]


def pair_secret(private: bytes, public: str, about: Sequence[str]) -> bytes:
    """The secret that two sites have in common in one fit.

    Parameters
    ----------
    private : bytes
        The private half of this site's key (X25519).
    public : str
        The public half of the other's.
    about : sequence of str
        Study, run, the two names and the two public keys, in an order that both know.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    other = X25519PublicKey.from_public_bytes(bytes.fromhex(public))
    shared = X25519PrivateKey.from_private_bytes(private).exchange(other)  # refuses a key that gives nothing secret
    info = joined(b"cofed/pair/1", *(text.encode() for text in about))
    return HKDF(SHA256(), 32, salt=None, info=info).derive(shared)


def mask(secrets: Mapping[str, tuple[bytes, bool]], request: str, kind: WideFormat, count: int) -> np.ndarray:
    """What a site adds to its answer.

    Parameters
    ----------
    secrets : mapping of str to tuple of bytes and bool
        By neighbour, the secret in common with it, and whether this site adds (it is the first of the two).
    request : str
        The hash of the whole request.
    kind : WideFormat
        The kind of integers.
    count : int
        How many there are.

    Returns
    -------
    ndarray of uint64
        `kind.limbs` rows of `count` words.
    """
    streams = [(KeyStream(secret, request), adds) for secret, adds in secrets.values()]
    total = np.empty((kind.limbs, count), np.uint64)
    for start in range(0, count, BLOCK):
        part = slice(start, min(start + BLOCK, count))
        # Halves of words, which int64 adds up without carries, as there are fewer than 2^31 of them.
        halves = np.zeros((kind.limbs, part.stop - part.start, 2), np.int64)
        for stream, adds in streams:
            combine = np.add if adds else np.subtract
            combine(halves, stream.halves(kind.limbs, part.stop - part.start), out=halves)
        total[:, part] = carried(halves)
    return total


def carried(halves: np.ndarray) -> np.ndarray:
    """Wide integers from sums of the low and high halves of their words.

    Parameters
    ----------
    halves : ndarray of int64
        A row for each word, of pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.sites.secure.masks import carried
    >>> carried(np.array([[[-1, 0]], [[1, 0]]])).T.tolist() == [[2**64 - 1, 0]]
    True
    """
    words, carry = np.empty(halves.shape[:2], np.uint64), np.zeros(halves.shape[1], np.int64)
    for limb, pairs in enumerate(halves):
        low = pairs[:, 0] + carry
        high = pairs[:, 1] + (low >> HALF)  # which rounds down, also below zero
        carry = high >> HALF
        words[limb] = (low & LOW).astype(np.uint64) | (high & LOW).astype(np.uint64) << np.uint64(HALF)
    return words


class KeyStream:
    """Random words that two sites can make, and nobody else: AES-256 in counter mode with a key for one request."""

    def __init__(self, secret: bytes, request: str):
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import AES256
        from cryptography.hazmat.primitives.ciphers.modes import CTR
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

        key = HKDFExpand(SHA256(), 32, info=joined(b"cofed/mask/1", request.encode())).derive(secret)
        # The key is for this stream alone, so the counter may begin at zero.
        self.encryptor = Cipher(AES256(key), CTR(bytes(16))).encryptor()

    def halves(self, limbs: int, count: int) -> np.ndarray:
        """The next words, as rows for wide integers: the low and the high half of each."""
        data = self.encryptor.update(bytes(8 * limbs * count))
        return np.frombuffer(data, "<u4").reshape(limbs, count, 2)

    def words(self, limbs: int, count: int) -> np.ndarray:
        """The next words, as rows for wide integers."""
        return carried(self.halves(limbs, count).astype(np.int64))
