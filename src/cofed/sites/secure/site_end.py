"""A site's own end of a sum: its card, and its answers, masked."""

import fcntl
import hashlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import IO

import numpy as np

from cofed._util.files import atomically, private_file, private_folder
from cofed.sites.base import QuestionRefused
from cofed.sites.guard import SumOver
from cofed.sites.packing import Malformed
from cofed.sites.secure.cards import Card, require_roster
from cofed.sites.secure.keys import SIZE, SiteKeys, joined
from cofed.sites.secure.masks import KeyStream, mask, neighbours, pair_secret
from cofed.sites.secure.sum_request import SumRequest
from cofed.sites.secure.wide import add

LANES = 2  # numbers behind those of an answer: 1 of every site, and 1 of a site that could not answer


class StaleCard(Malformed):
    """A request holds a card of this site that is not its present one: it has to be asked for its card again."""


class PadUsed(Malformed):
    """A request has been answered with other numbers before, so that the same masks would tell of both."""


class SiteMasks:
    """A site's part in sums of which nobody sees the parts.

    Parameters
    ----------
    site : str
        Its name.
    keys : SiteKeys
        Its secrets.
    keep : Path, optional
        Its own folder, in which the keys of a fit are found again by a new process.
    """

    def __init__(self, site: str, keys: SiteKeys, keep: Path | None = None):
        self.site, self.keys, self.keep = site, keys, keep
        self.runs: dict[str, RunKeys] = {}

    def card(self, study: str, run: str, rows: int, table: bytes, constant: tuple[str, ...] = ()) -> Card:
        """The site's card in a fit.

        Parameters
        ----------
        study, run : str
            Which study and fit it is.
        rows : int
            How many rows the table has.
        table : bytes
            What the table holds, as a hash: another table has other keys, so no mask is used for the numbers of both.
        constant : tuple of str
            The columns of the table that have one value.
        """
        own = self.run_keys(study, run, table)
        card = Card(
            site=self.site,
            rows=rows,
            study=study,
            run=run,
            key=own.public,
            identity=self.keys.public,
            constant=constant,
        )
        return card.signed(self.keys)

    def run_keys(self, study: str, run: str, table: bytes) -> "RunKeys":
        """The keys of a fit, made where they are missing."""
        # Another version of cofed may compute other last digits.
        parts = (study.encode(), run.encode(), table, version("cofed").encode())
        name = self.keys.mark(b"run", *parts).hex()[:32]
        if name not in self.runs:
            self.runs[name] = RunKeys(None if self.keep is None else self.keep / "runs" / name)
        return self.runs[name]

    def over(self, request: SumRequest, own: Card, roster: Mapping[str, str] | None) -> SumOver:
        """Over whom an answer is added up, once all is checked that this site can check.

        Parameters
        ----------
        request : SumRequest
            What the request says.
        own : Card
            This site's card in the fit.
        roster : mapping of str to str, optional
            The long-term keys of the study's sites, where this site has approved it.
        """
        mine = [card for card in request.cards if card.site == self.site]
        if not mine:
            raise QuestionRefused("this site is not part of the sum")
        if mine[0].words != own.words:
            raise StaleCard("the card in the request is not this site's present one")
        if roster is not None:
            for card in request.cards:
                require_roster(card, roster)
        identities = {card.site: card.identity for card in request.cards}
        constant = Counter(name for card in request.cards for name in set(card.constant))
        return SumOver(
            study=request.study,
            is_pinned=roster is not None,
            run=request.run,
            rows={card.site: card.rows for card in request.cards},
            released=request.released(identities if roster is None else roster),
            varying={name: len(request.cards) - found for name, found in constant.items()},
            keys=identities if roster is None else {**roster, **identities},
        )

    def masked(self, request: SumRequest, mark: str, own: "RunKeys", values: np.ndarray | int) -> np.ndarray:
        """An answer that only the sum over all sites tells anything of.

        Parameters
        ----------
        request : SumRequest
            Over whom it is added up, checked.
        mark : str
            The hash of the whole request.
        own : RunKeys
            This site's keys in the fit.
        values : ndarray or int
            The numbers; or how many there would be, where the site cannot answer. Random words are sent then, and for
            each number that no integer stands for: with anything that the server knows, such as zeros, the sum would be
            one without this site, and a repeated question would tell the difference.

        Returns
        -------
        ndarray of uint64
            Rows of words, with two more numbers than the answer.
        """
        kind, failed = request.kind, isinstance(values, int)
        numbers = np.full(values, np.nan) if isinstance(values, int) else values
        known = kind.fits(numbers)
        noise = KeyStream(self.keys.mark(b"not finite", mark.encode()), mark).words(kind.limbs, len(numbers))
        words = np.where(known, kind.encode(np.where(known, numbers, 0.0)), noise)
        payload = np.concatenate([words, kind.encode(np.array([1.0, float(failed)]))], axis=1)
        own.use(mark, self.keys.mark(b"payload", mark.encode(), payload.tobytes()))
        return add(payload, mask(self.secrets(request, own), mark, kind, payload.shape[1]))

    def secrets(self, request: SumRequest, own: "RunKeys") -> dict[str, tuple[bytes, bool]]:
        """By neighbour, the secret in common with it, and whether this site is the one that adds."""
        cards = {card.site: card for card in request.cards}
        found = {}
        for other in neighbours(self.site, request.names, request.study):
            first, second = (self.site, other) if self.site < other else (other, self.site)
            about = (request.study, request.run, first, second, cards[first].key, cards[second].key)
            found[other] = own.secret_with(cards[other].key, about), self.site == first
        return found

    def end(self, study: str, run: str, table: bytes) -> None:
        """Forget the keys of a fit: what was sent in it can never be unmasked from here."""
        self.end_run(self.run_keys(study, run, table))

    def end_run(self, own: "RunKeys") -> None:
        """Forget these keys of a fit; where it is asked about again, there are new ones."""
        own.forget()
        self.runs = {name: keys for name, keys in self.runs.items() if keys is not own}


class RunKeys:
    """A site's keys in one fit, and which requests it has answered with them.

    Parameters
    ----------
    folder : Path, optional
        Where they are kept; None is in memory only.
    """

    def __init__(self, folder: Path | None):
        self.folder = folder
        self.private = secrets.token_bytes(SIZE)
        self.used: dict[str, str] = {}  # by the request's hash, a mark of what was answered
        self.read = 0  # bytes of the record that `used` speaks of
        self.shared: dict[tuple[str, ...], bytes] = {}
        if folder is not None:
            private_folder(folder.parent)
            self.recall(private_folder(folder))

    def recall(self, folder: Path) -> None:
        """Take the keys from the folder, or put them there."""
        key, pads = folder / "key", folder / "pads.jsonl"
        if key.exists() and pads.exists():
            self.private = key.read_bytes()
        else:
            # A key without its record, or a record without its key, is of no use: begin anew.
            key.unlink(missing_ok=True)
            pads.unlink(missing_ok=True)
            private_file(pads)
            atomically(key, lambda name: Path(name).write_bytes(self.private))

    @property
    def public(self) -> str:
        """The public half of the key."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return X25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw().hex()

    def secret_with(self, public: str, about: tuple[str, ...]) -> bytes:
        """The secret in common with another site."""
        if about not in self.shared:
            self.shared[about] = pair_secret(self.private, public, about)
        return self.shared[about]

    def use(self, mark: str, payload: bytes) -> None:
        """Note what a request is answered with, before it is sent; refuse to answer it with anything else."""
        if self.folder is None:
            known = self.used.setdefault(mark, payload.hex())
        else:
            with open(self.folder / "pads.jsonl", "rb+") as file:  # it is missing where the record is lost: no answer
                fcntl.flock(file, fcntl.LOCK_EX)  # of all processes of the site, one at a time
                known = self.noted(file, mark, payload.hex())
        if known != payload.hex():
            raise PadUsed("this request has been answered with other numbers before")

    def noted(self, file: IO[bytes], mark: str, payload: str) -> str:
        """What a request is answered with by the record on disk, where it is noted now if it was not before."""
        if file.seek(0, os.SEEK_END) < self.read:
            raise RuntimeError("the record of what was answered is not the one that this process wrote to")
        file.seek(self.read)
        found = file.read()
        whole = found[: found.rfind(b"\n") + 1]
        self.used |= dict(json.loads(line) for line in whole.splitlines())
        self.read += len(whole)
        if mark not in self.used:
            line = json.dumps([mark, payload]).encode() + b"\n"
            file.seek(self.read)
            file.truncate()  # of a line that was being written when the site was killed: its answer did not leave
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            self.used[mark], self.read = payload, self.read + len(line)
        return self.used[mark]

    def stay_with(self, sites: Sequence[str]) -> None:
        """Refuse a sum over other sites than the first one of the fit was over: the two would tell the difference."""
        try:
            self.use("sites", hashlib.sha256(joined(*(site.encode() for site in sites))).digest())
        except PadUsed:
            raise QuestionRefused(
                f"the sum is over {len(sites)} sites, and this run began with others: two such sums would tell the "
                "difference"
            ) from None

    def forget(self) -> None:
        """Delete the keys."""
        self.private, self.shared = secrets.token_bytes(SIZE), {}
        self.used, self.read = {}, 0
        if self.folder is not None:
            for name in ("key", "pads.jsonl"):
                (self.folder / name).unlink(missing_ok=True)
            self.folder.rmdir()
            self.folder = None


def reply_words(mark: str, planes: np.ndarray) -> bytes:
    """What a site signs of its reply."""
    return joined(b"cofed/reply/1", mark.encode(), hashlib.sha256(np.ascontiguousarray(planes).tobytes()).digest())
