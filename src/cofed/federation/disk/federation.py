"""A federation whose clients stay on disk."""

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import jax
import numpy as np
import numpy.typing as npt

from cofed._util import checks
from cofed._util.types import Given
from cofed.federation.base import AbstractFederation, Samples, normalized_weights, require_refusal
from cofed.federation.disk.build import build
from cofed.federation.disk.index import Index, Names
from cofed.federation.disk.source import Source
from cofed.federation.frames import ColumnChoice

if TYPE_CHECKING:
    import cofed.federation.memory


@dataclasses.dataclass(frozen=True)
class DiskFederation(AbstractFederation):
    """The clients of an index on disk. Made by `Federation.from_parquet(..., on_disk=True)`.

    `cofed.run` reads the clients of a round while earlier rounds are computed, and keeps state only for clients that
    have taken part. The history is measured on all clients, a block of samples at a time, and by default only at the
    start and the end; `measured_on` chooses some clients that stay in memory to measure on instead.

    Parameters
    ----------
    index
        The opened index.
    measured
        The positions of the clients that the history is measured on; None for all.

    Examples
    --------
    >>> import tempfile, pandas as pd, cofed
    >>> df = pd.DataFrame({"site": ["a", "b", "a"], "age": [50.0, 40.0, 60.0], "cost": [9.0, 8.0, 7.0]})
    >>> folder = tempfile.TemporaryDirectory()
    >>> df.to_parquet(f"{folder.name}/all.parquet")
    >>> fed = cofed.Federation.from_parquet(f"{folder.name}/all.parquet", target="cost", client="site", on_disk=True)
    >>> fed
    DiskFederation(2 clients, 3 samples (min 1, median 1.5, max 2 per client), 1 features, float64)
    >>> fed.client("a")[1]
    array([9., 7.])
    >>> folder.cleanup()
    """

    index: Index
    measured: np.ndarray | None = None  # the clients that the history is measured on; None: all

    draw: ClassVar[None] = None  # type: ignore[override]

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        choice: ColumnChoice,
        dtype: object = None,
        index: object = None,
        progress: bool | None = None,
    ) -> "DiskFederation":
        """The federation of parquet files, with the index that is there or, where there is none, one that is built."""
        source = Source.open(Path(path), choice, dtype)
        beside = source.path.resolve()
        folder = beside.with_name(f"{beside.name}.cofed") if index is None else checks.path("index", index)
        found = matching(source, folder)
        if found is None:
            try:
                build(source, folder, progress)
            except PermissionError as error:
                raise PermissionError(
                    f"the index {folder} cannot be written ({error}); give a folder as index="
                ) from error
            found = Index.open(folder)
        return cls.of(found)

    @classmethod
    def of(cls, index: Index) -> "DiskFederation":
        """The federation of an index."""
        if index.record["X"].base == np.float64:
            jax.config.update("jax_enable_x64", True)
        return cls(index)

    @property
    def n_clients(self) -> int:
        """The number of clients."""
        return len(self.index.offsets) - 1

    @property
    def n_samples(self) -> int:
        """The number of samples of all clients together."""
        return int(self.index.offsets[-1])

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """The shape of one x."""
        return tuple(self.index.record["X"].shape)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The columns that x is made of."""
        return tuple(self.index.meta["source"]["features"])

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the features, and so of the model."""
        return self.index.record["X"].base

    @property
    def names(self) -> Names:
        """The clients' names, in their natural order: a client's position is its id."""
        return self.index.names

    @property
    def sizes(self) -> np.ndarray:
        """How many samples each client has."""
        return np.diff(self.index.offsets).astype(np.int32)

    @property
    def largest(self) -> int:
        """How many samples the largest client has."""
        return self.index.meta["largest"]

    @property
    def at_hand(self) -> bool:
        """Whether what the history is measured on lies in memory."""
        return self.measured is not None

    def weights(self, kind: Given[str | npt.ArrayLike] = "uniform") -> np.ndarray:
        return normalized_weights(kind, self.sizes, self.dtype)

    def labels(self) -> np.ndarray:
        """The different labels; of more than a thousand, the extremes and a few others."""
        return np.asarray(self.index.meta["labels"], self.index.record["y"].base)

    def example(self) -> tuple[np.ndarray, np.ndarray]:
        """x and y of the first client's first sample."""
        first = self.index.rows(0, 1)
        return first["X"][0], np.asarray(first["y"][0])

    def check_labels(self, refuses: Given[Callable[[np.ndarray], str | None]]) -> None:
        require_refusal(refuses)
        together = refuses(self.labels())
        if not together:
            return
        for first in range(0, self.n_clients, 1000):
            stop = min(first + 1000, self.n_clients)
            y = self.index.read(np.arange(first, stop))["y"]
            parts = np.split(y, self.index.offsets[first + 1 : stop] - self.index.offsets[first])
            for m, part in enumerate(parts, first):
                reason = refuses(part)
                if reason:
                    raise ValueError(f"client {self.names[m]!r}: {reason}")
        raise ValueError(f"the clients' labels together: {together}")

    def measured_on(self, clients: Given[int], seed: Given[int] = 0) -> "DiskFederation":
        """The same federation, with the history measured on a few clients that are kept in memory.

        Training is the same. Objective, loss and the like of the history are then those of these clients, not of all.

        Parameters
        ----------
        clients : int
            How many clients to draw at random.
        seed : int
            The seed of the draw.

        Returns
        -------
        DiskFederation
            The same clients.

        Raises
        ------
        ValueError
            If there are not that many clients.

        Examples
        --------
        >>> import tempfile, pandas as pd, cofed
        >>> df = pd.DataFrame({"site": range(9), "age": 50.0, "cost": 7.0})
        >>> folder = tempfile.TemporaryDirectory()
        >>> df.to_parquet(f"{folder.name}/all.parquet")
        >>> fed = cofed.Federation.from_parquet(folder.name, target="cost", client="site", on_disk=True,
        ...                                     index=f"{folder.name}/index")
        >>> fed.measured_on(4)
        DiskFederation(9 clients, 9 samples (min 1, median 1, max 1 per client), 1 features, float64, measured on 4)
        >>> folder.cleanup()
        """
        if not checks.is_integer(clients) or not 1 <= clients <= self.n_clients:
            raise ValueError(
                f"measured_on takes a number of clients from 1 to {self.n_clients}, got clients={checks.shown(clients)}"
            )
        seed = checks.generator_seed("measured_on", seed)
        chosen = np.random.default_rng(seed).choice(self.n_clients, int(clients), replace=False)
        return dataclasses.replace(self, measured=np.sort(chosen))

    def client(self, which: Given[str | int]) -> Samples:
        samples = self.index.read(np.array([self.position(which)]))
        return samples["X"].copy(), samples["y"].copy()

    def _find(self, name: str, given: str) -> int:
        found = self.names.find(name)
        if found < 0:
            raise ValueError(f"{given}: there is no client {name!r} among the {self.n_clients} on disk")
        return found

    def select(self, names: Given[Iterable[str | int]]) -> "cofed.federation.memory.Federation":
        from cofed.federation.memory import Federation

        chosen = self._positions(names)
        return Federation.from_arrays({self.names[m]: self.client(m) for m in chosen}, feature_names=self.feature_names)

    def stack(self, ids: np.ndarray, room: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """X and y of these clients (distinct, in rising order), each padded with its first sample to the largest.

        With `room`, they are read into it and may be views of it.
        """
        samples = self.index.read(ids, room)
        counts = self.index.offsets[ids + 1] - self.index.offsets[ids]
        if not (counts == self.largest).all():
            first = np.cumsum(counts) - counts
            place = np.arange(self.largest)
            samples = samples[first[:, None] + np.where(place < counts[:, None], place, 0)]
        shaped = samples.reshape(len(ids), self.largest)
        return shaped["X"], shaped["y"]

    def __repr__(self) -> str:
        measured = "" if self.measured is None else f", measured on {len(self.measured)}"
        return (
            f"DiskFederation({self.n_clients} clients, {self._samples_shown()}, {self.n_features} features, "
            f"{self.dtype}{measured})"
        )


def matching(source: Source, folder: Path) -> Index | None:
    """The index in a folder where it is one of this source; a folder that is something else is refused."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    if not (folder / "index.json").is_file():
        raise ValueError(f"{folder} is not an index of cofed, and is left as it is; give another folder as index=")
    found = Index.open(folder)
    if found.is_of(source):
        return found
    warnings.warn(
        f"the index {folder} was made of other files or columns than those asked for now: it is built again",
        stacklevel=5,
    )
    return None
