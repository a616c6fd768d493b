"""Which samples of each client are held out: for testing, or in the folds of a cross-validation.

Every draw depends on the seed and the client's name only, so that a client's split is the same whoever else takes part.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from cofed._util import checks, naming
from cofed._util.types import Given
from cofed.federation.arrays import labels_of
from cofed.federation.base import AbstractFederation, Samples

Own = TypeVar("Own", bound="AbstractSplittable")
Groups = Sequence[npt.ArrayLike] | Mapping[str, npt.ArrayLike]


class AbstractSplittable(AbstractFederation):
    """A federation whose samples can be taken apart: into train and test, or into folds."""

    @abc.abstractmethod
    def _clients(self) -> list[Samples]:
        """X and y of every client."""

    @abc.abstractmethod
    def _rebuild(self: Own, clients: dict[str, Samples]) -> Own:
        """A federation of these samples, with the same features."""

    def split(
        self: Own, test: Given[float] = 0.25, seed: Given[int] = 0, groups: Given[Groups | None] = None
    ) -> tuple[Own, Own]:
        """Hold out some of every client's samples.

        A client with two samples or more has at least one on each side; a client with one keeps it in train
        and is absent from test. The draw depends on the seed and the client's name only, not on the others.

        Parameters
        ----------
        test : float
            The share of a client's samples (of its groups, with `groups`) that is held out, about.
        seed : int
            The seed of the draw.
        groups : list of arrays, or mapping from names to arrays, optional
            One label per sample, for each client. The samples of one group, such as one person, stay on one side; a
            client with a single group keeps it in train. Groups of different clients are different groups, even under
            one label.

        Returns
        -------
        train, test : Federation
            The two sides.

        Raises
        ------
        ValueError
            If every client has one sample or one group, or if the federation is a stream.

        Examples
        --------
        >>> import numpy as np
        >>> import cofed
        >>> fed = cofed.Federation.from_arrays([(np.arange(8.0).reshape(8, 1), np.arange(8.0))])
        >>> train, test = fed.split(test=0.25)
        >>> train.n_samples, test.n_samples
        (6, 2)
        """
        self._refuse_stream("split")
        test, seed = checks.share("split: test", test), checks.generator_seed("split", seed)
        return self._held_out(held_out(self.names, self._numbered(groups), test, seed))

    def folds(
        self: Own, count: Given[int] = 5, seed: Given[int] = 0, groups: Given[Groups | None] = None
    ) -> list[tuple[Own, Own]]:
        """Train and test federations for each fold of a cross-validation.

        Every client's samples are dealt out to the folds, and each is held out once. A client with fewer samples (or
        groups) than folds is absent from some tests, one with a single sample from all.

        Parameters
        ----------
        count : int
            The number of folds.
        seed : int
            The seed of the draw.
        groups : list of arrays, or mapping from names to arrays, optional
            As in `split`.

        Returns
        -------
        list of (train, test)
            One pair per fold.

        Raises
        ------
        ValueError
            If every client has one sample or one group, or if the federation is a stream.

        Examples
        --------
        >>> import numpy as np
        >>> import cofed
        >>> fed = cofed.Federation.from_arrays([(np.arange(5.0).reshape(5, 1), np.arange(5.0))])
        >>> [test.n_samples for train, test in fed.folds(2)]
        [3, 2]
        """
        count = min(checks.integer("folds: count", count, least=2), max(2, self.largest))
        fold_of = self.fold_of(count, seed, groups)
        there = [k for k in range(count) if any((fold == k).any() for fold in fold_of)]
        return [self._held_out([fold == k for fold in fold_of]) for k in there]

    def fold_of(
        self, count: Given[int] = 5, seed: Given[int] = 0, groups: Given[Groups | None] = None
    ) -> list[np.ndarray]:
        """The fold in which each sample of each client is held out.

        Parameters
        ----------
        count : int
            The number of folds.
        seed : int
            The seed of the draw.
        groups : list of arrays, or mapping from names to arrays, optional
            As in `split`.

        Returns
        -------
        list of numpy.ndarray
            One array per client, with the fold of each sample; -1 for samples that are never held out.

        Raises
        ------
        ValueError
            If every client has one sample or one group, or if the federation is a stream.

        Examples
        --------
        >>> import numpy as np
        >>> import cofed
        >>> fed = cofed.Federation.from_arrays([(np.arange(4.0).reshape(4, 1), np.arange(4.0)), ([[1.0]], [1.0])])
        >>> [sorted(folds.tolist()) for folds in fed.fold_of(2)]
        [[0, 0, 1, 1], [-1]]
        """
        self._refuse_stream("split")
        count, seed = checks.integer("folds: count", count, least=2), checks.generator_seed("folds", seed)
        return dealt_out(self.names, self._numbered(groups), count, seed)

    def groups(self, groups: Given[Groups | None]) -> list[np.ndarray] | None:
        """The group labels of every client, checked.

        Parameters
        ----------
        groups : list of arrays, or mapping from names to arrays, optional
            As in `split`.

        Returns
        -------
        list of numpy.ndarray, or None
            One array per client, in the clients' order; None where no groups are given.

        Raises
        ------
        TypeError, ValueError
            If a client or a label is missing.
        """
        return groups_of(groups, self.names, np.asarray(self.sizes))

    def _numbered(self, groups: object) -> list[np.ndarray]:
        sizes = np.asarray(self.sizes)
        return numbered(groups_of(groups, self.names, sizes), sizes)

    def _held_out(self: Own, held: list[np.ndarray]) -> tuple[Own, Own]:
        """(train, test), where `held` marks each client's test samples; a client without samples is left out."""
        train, test = {}, {}
        for name, (X, y), marks in zip(self.names, self._clients(), held, strict=True):
            for side, own in ((train, ~marks), (test, marks)):
                if own.any():
                    side[name] = (X[own], y[own])
        return self._rebuild(train), self._rebuild(test)

    def _refuse_stream(self, what: str) -> None:
        if self.draw is not None:
            raise ValueError(f"a stream has no fixed samples to {what}: make another one with from_stream")


def held_out(client_names: Sequence[str], groups: list[np.ndarray], test: float, seed: int) -> list[np.ndarray]:
    """Per client, whether each sample is held out: about the share `test` of its groups, at least one of two."""
    held = []
    for name, labels in zip(client_names, groups, strict=True):
        order = shuffled(name, labels, seed)
        count = len(order)
        chosen = np.zeros(count, bool)
        if count > 1:
            chosen[order[: min(max(round(test * count), 1), count - 1)]] = True
        held.append(chosen[labels])
    if not any(marks.any() for marks in held):
        raise ValueError("split: every client has one sample (or one group), so nothing is left to test on")
    return held


def dealt_out(client_names: Sequence[str], groups: list[np.ndarray], count: int, seed: int) -> list[np.ndarray]:
    """Per client, the fold in which each sample is held out; -1 for a client with a single group."""
    found = []
    for name, labels in zip(client_names, groups, strict=True):
        order = shuffled(name, labels, seed)
        fold = np.full(len(order), -1)
        if len(order) > 1:
            fold[order] = np.arange(len(order)) % count
        found.append(fold[labels])
    if all((folds < 0).all() for folds in found):
        raise ValueError("folds: every client has one sample (or one group), so nothing is left to test on")
    return found


def shuffled(name: str, labels: np.ndarray, seed: int) -> np.ndarray:
    """A client's groups 0, 1, ... in a random order."""
    rng = np.random.default_rng([int(seed), int.from_bytes(name.encode(), "big")])
    return rng.permutation(int(labels.max()) + 1)


def numbered(groups: list[np.ndarray] | None, sizes: np.ndarray) -> list[np.ndarray]:
    """Per client, the number of each sample's group; without groups, each sample is a group of its own."""
    if groups is None:
        return [np.arange(int(size)) for size in sizes]
    return [np.unique(labels, return_inverse=True)[1] for labels in groups]


def groups_of(groups: object, client_names: Sequence[str], sizes: np.ndarray) -> list[np.ndarray] | None:
    """One array of group labels per client, from what users give as `groups`."""
    if groups is None:
        return None
    if isinstance(groups, Mapping):
        absent = [name for name in client_names if name not in groups]
        if absent:
            raise ValueError(f"groups lacks client {naming.listed(absent)}")
        groups = [groups[name] for name in client_names]
    arrays = [labels_of("groups", group) for group in checks.items("groups", groups, "arrays")]
    if len(arrays) != len(client_names):
        raise ValueError(f"groups must be one array per client ({len(client_names)}), got {len(arrays)}")
    for name, group, size in zip(client_names, arrays, sizes, strict=True):
        if pd.isna(group).any():
            raise ValueError(f"client {name!r}: {int(pd.isna(group).sum())} samples have no group")
        if group.shape != (size,):
            raise ValueError(f"client {name!r} has {size} samples, but its groups have shape {group.shape}")
    return arrays
