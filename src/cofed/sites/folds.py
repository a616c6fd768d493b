"""Which row is in which fold: decided by each site for its own rows, by a rule that all sites have in common."""

import hashlib
from typing import ClassVar

import equinox as eqx
import numpy as np


class Folds(eqx.Module):
    """Every site deals its own rows to folds: shuffled, in turn from a random fold on, class by class.

    The draw depends on the seed and the site's name alone, so it is the same wherever the site is.

    Attributes
    ----------
    count : int
        How many folds are dealt.
    seed : int
        Of the shuffling.
    by_class : bool
        Whether the labels are classes, each of which is dealt evenly.
    left_out : int
        A fold whose rows are in no sum at all, and which does not count; -1 is none.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.sites import Folds
    >>> Folds(3).of_rows("Oslo", np.zeros(7), None).tolist()
    [1, 0, 2, 1, 2, 1, 0]
    >>> Folds(3, left_out=1).of_rows("Oslo", np.zeros(7), None).tolist(), Folds(3, left_out=1).n
    ([-1, 0, 1, -1, 1, -1, 0], 2)
    """

    count: int = eqx.field(static=True)
    seed: int = eqx.field(static=True, default=0)
    by_class: bool = eqx.field(static=True, default=False)
    left_out: int = eqx.field(static=True, default=-1, kw_only=True)
    kind: ClassVar[str] = "rows"

    @property
    def n(self) -> int:
        """How many folds there are."""
        return self.count - (self.left_out >= 0)

    def of_rows(self, site: str, y: np.ndarray, group: np.ndarray | None) -> np.ndarray:
        """The fold of each row of a site, given its labels and groups; -1 for rows that are left out."""
        dealt = self.deal(site, y, group).astype(np.int32)
        if self.left_out < 0:
            return dealt
        return np.where(dealt == self.left_out, -1, dealt - (dealt > self.left_out)).astype(np.int32)

    def deal(self, site: str, y: np.ndarray, group: np.ndarray | None) -> np.ndarray:
        """The fold of each row, from 0 to `count` - 1."""
        rng = self.generator(site)
        dealt = np.empty(len(y), np.int32)
        y = y if y.ndim == 1 else y[:, -1]  # of the time to an event, whether there was one
        for label in np.unique(y) if self.by_class else [None]:
            rows = np.arange(len(y)) if label is None else np.flatnonzero(y == label)
            first = int(rng.integers(self.count))  # else every site's leftovers would fall to the first folds
            dealt[rng.permutation(rows)] = (first + np.arange(len(rows))) % self.count
        return dealt

    def generator(self, site: str) -> np.random.Generator:
        """The random numbers of a site."""
        words = hashlib.sha256(f"cofed folds {self.seed} {site}".encode()).digest()
        return np.random.default_rng(np.frombuffer(words, np.uint32))

    def wrong(self, site: str, has_groups: bool) -> str | None:
        """Why a site cannot deal its rows so; None where it can."""
        if self.n < 1 or self.left_out >= self.count:
            return f"the question speaks of {self.count} folds, and leaves out the one at {self.left_out}"
        return None


class GroupFolds(Folds):
    """Whole groups of rows, such as the visits of a person, are in one fold; each site deals its own groups.

    Groups are dealt in a random order, the largest first, each to the fold that has the fewest rows so far.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.sites import GroupFolds
    >>> GroupFolds(2).of_rows("Oslo", np.zeros(6), np.array([0, 0, 0, 1, 2, 2])).tolist()
    [0, 0, 0, 1, 1, 1]
    """

    kind: ClassVar[str] = "groups"

    def deal(self, site: str, y: np.ndarray, group: np.ndarray | None) -> np.ndarray:
        assert group is not None
        rng = self.generator(site)
        _, code, sizes = np.unique(group, return_inverse=True, return_counts=True)
        order = rng.permutation(len(sizes))
        order = order[np.argsort(-sizes[order], kind="stable")]
        fold, rows = np.empty(len(sizes), np.int32), np.zeros(self.count)
        places = rng.permutation(self.count)  # of equal folds, every site begins with another one
        for one in order.tolist():
            fold[one] = places[int(np.argmin(rows[places]))]
            rows[fold[one]] += sizes[one]
        return fold[np.ravel(code)]

    def wrong(self, site: str, has_groups: bool) -> str | None:
        if not has_groups:
            return "folds of whole groups are asked for, but no column of groups is named"
        return super().wrong(site, has_groups)


class SiteFolds(Folds):
    """A fold for each site, with all of its rows: models are tried at sites that they have not learnt from.

    Attributes
    ----------
    names : tuple of str
        The sites, in the order of their folds.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.sites import SiteFolds
    >>> SiteFolds.of(("Oslo", "Rome")).of_rows("Rome", np.zeros(2), None).tolist()
    [1, 1]
    """

    names: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)
    kind: ClassVar[str] = "sites"

    @classmethod
    def of(cls, names: tuple[str, ...]) -> "SiteFolds":
        """A fold for each of these sites."""
        return cls(len(names), names=names)

    @property
    def left(self) -> tuple[str, ...]:
        """The sites of the folds that count, in their order."""
        return tuple(name for place, name in enumerate(self.names) if place != self.left_out)

    def deal(self, site: str, y: np.ndarray, group: np.ndarray | None) -> np.ndarray:
        return np.full(len(y), self.names.index(site), np.int32)

    def wrong(self, site: str, has_groups: bool) -> str | None:
        if len(set(self.names)) != self.count or site not in self.names:
            return f"a fold for each of {self.count} sites is asked for, and this one is not among them, once"
        return super().wrong(site, has_groups)


class GivenFolds(Folds):
    """The rows' own labels are their folds: those of a splitter of scikit-learn, say, of rows in this process.

    >>> import numpy as np
    >>> from cofed.sites import GivenFolds
    >>> GivenFolds(2).of_rows("Oslo", np.zeros(3), np.array([1, 0, 1])).tolist()
    [1, 0, 1]
    """

    kind: ClassVar[str] = "given"

    def deal(self, site: str, y: np.ndarray, group: np.ndarray | None) -> np.ndarray:
        assert group is not None
        return group


# What can be asked of a site elsewhere; folds of its rows that somebody else has chosen cannot.
KINDS: dict[str, type[Folds]] = {one.kind: one for one in (Folds, GroupFolds, SiteFolds)}


def written(folds: Folds) -> tuple[int | str | bool, ...]:
    """Folds as numbers and texts: three of plain ones, as ever."""
    plain = (int(folds.count), int(folds.seed), bool(folds.by_class))
    if KINDS.get(folds.kind) is not type(folds):
        raise ValueError("folds that were given row by row are of rows in this process, and cannot be asked for")
    if type(folds) is Folds and folds.left_out < 0:
        return plain
    names = folds.names if isinstance(folds, SiteFolds) else ()
    return (*plain, folds.kind, int(folds.left_out), *names)


def read(value: object) -> Folds | None:
    """The folds that `written` made something of; None where it made something else."""
    if not isinstance(value, tuple) or tuple(map(type, value[:3])) != (int, int, bool):
        return None
    count, seed, by_class, *rest = value
    if not rest:
        return Folds(count, seed, by_class)
    if tuple(map(type, rest[:2])) != (str, int) or rest[0] not in KINDS or not -1 <= rest[1] < count:
        return None
    kind, names = KINDS[rest[0]], tuple(rest[2:])
    if not all(isinstance(name, str) for name in names) or bool(names) != (kind is SiteFolds):
        return None
    more = {"names": names} if kind is SiteFolds else {}
    return kind(count, seed, by_class, left_out=rest[1], **more)
