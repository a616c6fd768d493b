"""What a site has answered so far, as far as its rules must know: which rows, which sites, how many points.

It holds no values: a row is a keyed hash of its content. One file, written whole before an answer is given, so that a
site that is killed in between has counted too much rather than too little.
"""

import contextlib
import dataclasses
import fcntl
import hmac
import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from cofed._util.files import atomically, private_append
from cofed._util.pandas_types import Frame

FOLDER, LEDGER, SECRET, LOCK = "policy", "ledger.safetensors", "ledger.key", "ledger.lock"
ROWS = "rows"  # the sets of whole rows, beside those of a column's own
MARK = 16  # bytes of a row's hash
FORMAT = "2"


class LedgerLost(RuntimeError):
    """The ledger is not there, or damaged, and so what was answered is not known."""


@dataclasses.dataclass
class TargetRecord:
    """What was told about one target.

    Attributes
    ----------
    points : int
        Models that were looked at.
    columns : frozenset of str
        Columns whose products were told.
    public : array or None
        The directions of the points on reference rows.
    own : array or None
        The directions of the points on the site's rows and on reference rows.
    own_mark : str
        Of which rows `own` is.
    """

    points: int = 0
    columns: frozenset[str] = frozenset()
    public: np.ndarray | None = None
    own: np.ndarray | None = None
    own_mark: str = ""


@dataclasses.dataclass
class Ledger:
    """The record of a site.

    Attributes
    ----------
    secret : bytes
        What rows' hashes are keyed with.
    ids : array of shape (n, 16), uint8
        The hashes of all rows that there ever were.
    labels : dict of str to array of shape (n,)
        By kind of set, the atom of each of them; 0 is in no set so far.
    rosters : list of list of str
        The sets of sites that sums were over, of all studies, by the sites' long-term keys. A set that combinations of
        the others make is not there.
    names : dict of str to str
        What these sites were called last.
    released : list of str
        Those of them that have agreed to sums with and without them.
    digests : dict of str to None
        The questions that were answered.
    days : dict of str to int
        How many on each day.
    failures : dict of str to int
        How often a question of each study was refused silently.
    analyses : dict of str to TargetRecord
        What was told about each target.
    releases : list of tuple
        The answers with noise: how far each can move, in the l2 and the l1 norm, and the noise's variance.
    path : Path or None
        The file; None keeps it in memory.
    stamp : tuple of int
        What tells this state of the file from others.
    """

    secret: bytes
    ids: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, MARK), np.uint8))
    labels: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    rosters: list[list[str]] = dataclasses.field(default_factory=list)
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    released: list[str] = dataclasses.field(default_factory=list)
    digests: dict[str, None] = dataclasses.field(default_factory=dict)
    days: dict[str, int] = dataclasses.field(default_factory=dict)
    failures: dict[str, int] = dataclasses.field(default_factory=dict)
    analyses: dict[str, TargetRecord] = dataclasses.field(default_factory=dict)
    releases: list[tuple[float, float, float]] = dataclasses.field(default_factory=list)
    path: Path | None = None
    stamp: tuple[int, ...] = ()

    @property
    def is_stale(self) -> bool:
        """Whether another process has written the file since."""
        return self.path is not None and stamp_of(self.path) != self.stamp

    @classmethod
    def open(cls, keep: Path | None) -> "Ledger":
        """The ledger in a site's folder, begun where there is none.

        Raises
        ------
        LedgerLost
            Where it was begun, but is no longer there or cannot be read.
        """
        if keep is None:
            return cls(secrets.token_bytes(32))
        path, key = keep / FOLDER / LEDGER, keep / FOLDER / SECRET
        if not key.exists():
            if path.exists():
                raise LedgerLost(lost(path, key, f"{key.name} is missing"))
            new = cls(secrets.token_bytes(32), path=path)
            new.save()  # first: where the key is there, so is the ledger
            atomically(key, lambda name: Path(name).write_bytes(new.secret))
            return new
        try:
            return read_ledger(path, key.read_bytes())
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise LedgerLost(lost(path, key, f"{type(error).__name__}: {error}")) from error

    def save(self) -> None:
        """Put it on the disk, whole or not at all."""
        if self.path is None:
            return
        arrays = {"ids": self.ids} | {f"labels {name}": array for name, array in self.labels.items()}
        for name, one in self.analyses.items():
            arrays |= {f"public {name}": one.public} if one.public is not None else {}
            arrays |= {f"own {name}": one.own} if one.own is not None else {}
        told = {name: [a.points, sorted(a.columns), a.own_mark] for name, a in self.analyses.items()}
        said = {
            "rosters": self.rosters,
            "names": self.names,
            "released": self.released,
            "days": self.days,
            "failures": self.failures,
        }
        said |= {"analyses": told, "digests": list(self.digests), "releases": self.releases}
        text = json.dumps(said, sort_keys=True)
        head = {"format": FORMAT, "said": text, "seal": seal(self.secret, text, arrays)}
        whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        atomically(self.path, lambda name: save_file(whole, name, head))
        self.stamp = stamp_of(self.path)

    def draft(self) -> "Ledger":
        """A copy to be changed while a question is judged. Arrays are replaced in it, never written to."""
        return dataclasses.replace(
            self,
            labels=dict(self.labels),
            rosters=list(self.rosters),
            names=dict(self.names),
            released=list(self.released),
            digests=dict(self.digests),
            days=dict(self.days),
            failures=dict(self.failures),
            analyses={name: dataclasses.replace(one) for name, one in self.analyses.items()},
        )

    def places(self, marks: np.ndarray) -> np.ndarray:
        """Where these rows stand in the ledger; those that are new are added, in no set so far."""
        known = {one.tobytes(): place for place, one in enumerate(self.ids)}
        new = [one for one in marks if one.tobytes() not in known]
        if new:
            known |= {one.tobytes(): len(self.ids) + i for i, one in enumerate(new)}
            self.ids = np.concatenate([self.ids, np.array(new, np.uint8)])
            self.labels = {name: np.pad(atoms, (0, len(new))) for name, atoms in self.labels.items()}
        return np.array([known[one.tobytes()] for one in marks], np.int64)

    def atoms(self, kind: str) -> np.ndarray:
        """The atoms of a kind of sets; sets of a column's own begin with those of whole rows."""
        rows = self.labels.get(ROWS, np.zeros(len(self.ids), np.int32))
        return self.labels.get(kind, rows)

    def analysis(self, target: str) -> TargetRecord:
        """What was told about a target."""
        return self.analyses.setdefault(target, TargetRecord())


def row_marks(frame: Frame, secret: bytes) -> np.ndarray:
    """Keyed hashes of rows: the same for the same content, and different for rows of the same content.

    >>> import pandas as pd
    >>> from cofed.sites.policy.ledger import row_marks
    >>> marks = row_marks(pd.DataFrame({"age": [61, 52, 61]}), b"secret")
    >>> marks.shape, len({one.tobytes() for one in marks})
    ((3, 16), 3)
    """
    hashed = pd.util.hash_pandas_object(frame, index=False)  # pyright: ignore[reportAttributeAccessIssue]
    content = hashed.to_numpy(np.uint64)
    again = pd.Series(content).groupby(content).cumcount().to_numpy(np.uint64)
    parts = np.column_stack([content, again])
    names = "\0".join(frame.columns).encode()
    key = hmac.digest(secret, names, "sha256")
    found = b"".join(hmac.digest(key, one.tobytes(), "sha256")[:MARK] for one in parts)
    return np.frombuffer(found, np.uint8).reshape(-1, MARK)


def seal(secret: bytes, text: str, arrays: Mapping[str, np.ndarray]) -> str:
    """A keyed hash of all that the ledger says, by which damage shows."""
    code = hmac.new(secret, text.encode(), "sha256")
    for name in sorted(arrays):
        code.update(f"{name} {arrays[name].shape} ".encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return code.hexdigest()


def read_ledger(path: Path, secret: bytes) -> Ledger:
    """The ledger in a file; any error where it is not what was written."""
    stamp = stamp_of(path)
    with safe_open(path, "np") as file:
        head = file.metadata()
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it has no iterator
    text = head["said"]
    if head["format"] != FORMAT:
        raise ValueError(f"it has the format {head['format']} of another version of cofed, not {FORMAT}")
    if not hmac.compare_digest(head["seal"], seal(secret, text, arrays)):
        raise ValueError("its content is not what was written")
    said = json.loads(text)
    analyses = {
        name: TargetRecord(points, frozenset(columns), arrays.get(f"public {name}"), arrays.get(f"own {name}"), mark)
        for name, (points, columns, mark) in said["analyses"].items()
    }
    labels = {name.removeprefix("labels "): array for name, array in arrays.items() if name.startswith("labels ")}
    return Ledger(
        secret=secret,
        ids=arrays["ids"],
        labels=labels,
        rosters=said["rosters"],
        names=said["names"],
        released=said["released"],
        digests=dict.fromkeys(said["digests"]),
        days=said["days"],
        failures=said["failures"],
        analyses=analyses,
        releases=[(l2, l1, variance) for l2, l1, variance in said.get("releases", [])],
        path=path,
        stamp=stamp,
    )


def stamp_of(path: Path) -> tuple[int, ...]:
    """What tells one state of a file that is always replaced as a whole from others; nothing where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


@contextlib.contextmanager
def held_alone(keep: Path | None) -> Iterator[None]:
    """Keep other processes from the ledger in a site's folder within the block; the system ends it with its holder."""
    if keep is None:
        yield
        return
    with private_append(keep / FOLDER / LOCK) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def lost(path: Path, key: Path, why: str) -> str:
    """The sentence about a ledger that cannot be used."""
    return (
        f"the record of what this site has answered, {path}, cannot be used ({why}), so nothing is answered; put a "
        f"copy back, or, if what was answered so far may be forgotten, delete {path.name} and {key.name} in "
        f"{path.parent}"
    )
