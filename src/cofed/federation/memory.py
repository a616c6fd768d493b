"""The federation whose samples are in memory."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Num

from cofed._util import cores, machine, naming
from cofed._util.checks import shown
from cofed._util.scalars import as_array
from cofed._util.types import Given
from cofed.federation import arrays, rows
from cofed.federation.arrays import Pair
from cofed.federation.base import Draw, Samples, normalized_weights, require_refusal
from cofed.federation.loaders import Loaders
from cofed.federation.rows import Rows
from cofed.federation.splitting import AbstractSplittable

cores.split_processor()  # JAX starts with the first array, most often a federation's, and then its devices are fixed


class Federation(eqx.Module, Loaders, AbstractSplittable):
    """The data of all clients as one pytree of arrays.

    Build one with `from_arrays`, `from_frame`, `from_parquet`, `from_csv` or `from_stream`, which check everything
    first; the constructor takes what they made.

    `X` and `y` show the data as a stack: a client is a slice of the first axis, padded (with its first sample) to the
    largest; `sizes` says where a client's data ends and `mask()` which entries are real. In memory, in `rows`, the data
    take at most twice their own size, however different the clients are: where padding would take more, there is none.

    Parameters
    ----------
    rows
        The samples, in one of two layouts.
    sizes
        n_m, the number of samples of client m.
    ids
        The rank of each client's name in the natural order. Random draws are keyed by it, so they follow the client
        when the order of the clients changes.
    names
        The clients' names.
    feature_names
        The names of the features, or None.
    draw
        Of a stream: `(key, client, size) -> (X, y)`. None where the samples are fixed.

    Notes
    -----
    float32 features stay float32. float64 features stay float64, which turns on JAX's 64-bit mode. Features that are
    integers for every client become float64 (exact up to 2**53). Clients that disagree are refused, unless `dtype=`
    says what is meant. Float targets take the dtype of the features; integer and boolean targets (labels, counts)
    are int32.

    Examples
    --------
    >>> import cofed
    >>> fed = cofed.Federation.from_arrays({"A": ([[1.0, 2.0], [3.0, 4.0]], [0, 1]), "B": ([[5.0, 6.0]], [1])})
    >>> fed
    Federation(2 clients, 3 samples (min 1, median 1.5, max 2 per client), 2 features, float64)
    >>> fed.X.shape, fed.sizes.tolist(), fed.names
    ((2, 2, 2), [2, 1], ('A', 'B'))
    """

    rows: Rows
    sizes: Int[Array, " clients"] = eqx.field(converter=as_array)  # type: ignore[override]
    ids: Int[Array, " clients"] = eqx.field(converter=as_array)
    names: tuple[str, ...] = eqx.field(static=True)  # type: ignore[override]
    feature_names: tuple[str, ...] | None = eqx.field(static=True, default=None)  # type: ignore[override]
    draw: Draw | None = eqx.field(static=True, default=None)  # type: ignore[override]

    @classmethod
    def from_arrays(
        cls,
        clients: Given[Sequence[Pair] | Mapping[Any, Pair]],
        names: Given[Iterable[Hashable] | None] = None,
        feature_names: Given[Iterable[Hashable] | None] = None,
        dtype: Given[npt.DTypeLike | None] = None,
    ) -> "Federation":
        """A federation from the arrays of each client.

        Parameters
        ----------
        clients : list of (X, y), or mapping from names to (X, y)
            X has shape (samples, features...), y (samples,) or (samples, targets); lists, NumPy, JAX or pandas data.
            Samples are matched by position: the index of a pandas object is not looked at (where X and y have the same
            index in another order, there is a warning).
        names : iterable, optional
            One name per client of a list; "0", "1", ... without.
        feature_names : iterable, optional
            The names of the features. Pandas columns are used without, and are brought into the same order.
        dtype : {"float32", "float64"}, optional
            The dtype of the features, where it shall not follow the data.

        Returns
        -------
        Federation
            The clients, in the given order.

        Raises
        ------
        TypeError, ValueError
            If the data are not numbers, not finite, or do not fit together; the sentence names the client.

        Examples
        --------
        >>> import cofed
        >>> pairs = [([[1.0], [2.0]], [0.5, 1.5]), ([[3.0]], [2.5])]
        >>> fed = cofed.Federation.from_arrays(pairs, names=["Rome", "Oslo"])
        >>> fed.names, fed.ids.tolist()
        (('Rome', 'Oslo'), [1, 0])
        """
        found = arrays.layout(clients, names, feature_names, dtype)
        return cls(found.rows, found.sizes, naming.ranks(found.names), found.names, found.columns)

    @property
    def X(self) -> Float[Array, "clients n_max *features"]:
        """The features as a stack; refused where clients are so unequal that padding does not fit into memory.

        >>> import cofed
        >>> cofed.Federation.from_arrays([([[1.0]], [1.0]), ([[2.0], [3.0]], [1.0, 1.0])]).X.tolist()
        [[[1.0], [1.0]], [[2.0], [3.0]]]
        """
        return self._stack(self.rows.X)

    @property
    def y(self) -> Num[Array, "clients n_max *targets"]:
        """The targets as a stack, like `X`."""
        return self._stack(self.rows.y)

    def _stack(self, array: Array) -> Array:
        """All clients padded to the largest."""
        if self.rows.tiers is None:
            return array
        width = self.largest
        shape = (self.n_clients, width, *array.shape[1:])
        machine.require(
            rows.nbytes(shape, np.dtype(array.dtype)),
            f"a stack of {self.n_clients:,} clients, each padded to the {width:,} samples of the largest,",
            "client(name) gives one client and pooled() all samples without padding",
        )
        place = jnp.arange(width, dtype=jnp.int32)[None, :]
        starts = jnp.asarray(rows.starts_of(np.asarray(self.sizes)), jnp.int32)
        return array[starts[:, None] + jnp.where(place < self.sizes[:, None], place, 0)]

    @property
    def largest(self) -> int:
        """The number of samples that the largest client has room for."""
        return self.rows.X.shape[1] if self.rows.tiers is None else self.rows.tiers[-1][0]

    @property
    def n_clients(self) -> int:
        """The number of clients."""
        return len(self.names)

    @property
    def n_samples(self) -> int:
        """The number of samples of all clients together."""
        return int(np.asarray(self.sizes).sum())

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """The shape of one x."""
        return self.rows.shapes[0]

    @property
    def target_shape(self) -> tuple[int, ...]:
        """The shape of one y."""
        return self.rows.shapes[1]

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the features, and so of the model."""
        return self.rows.X.dtype

    @property
    def at_hand(self) -> bool:
        """True: the samples lie in memory, so that measuring a model on them is cheap."""
        return True

    def labels(self) -> np.ndarray:
        """All labels, padding included."""
        return np.asarray(self.rows.y)

    def example(self) -> tuple[Array | np.ndarray, Array | np.ndarray]:
        """x and y of the first client's first sample."""
        first = (0, 0) if self.rows.tiers is None else 0
        return part_of(self.rows.X, first), part_of(self.rows.y, first)

    def check_labels(self, refuses: Given[Callable[[np.ndarray], str | None]]) -> None:
        require_refusal(refuses)
        y = [labels for _, labels in self._clients()]
        for name, labels in zip(self.names, y, strict=True):
            reason = refuses(labels)
            if not isinstance(reason, str | None):
                raise TypeError(f"refuses must give a sentence or None, got {shown(reason)}")
            if reason:
                raise ValueError(f"client {name!r}: {reason}")
        # Each client may be fine alone and still disagree: 0/1 at one, -1/+1 at another.
        reason = refuses(np.concatenate(y))
        if reason:
            raise ValueError(f"the clients' labels together: {reason}")

    def weights(self, kind: Given[str | npt.ArrayLike] = "uniform") -> Float[Array, " clients"]:
        return as_array(normalized_weights(kind, np.asarray(self.sizes), self.dtype))

    def mask(self) -> Bool[Array, "clients n_max"]:
        """True where a sample of the stacks `X` and `y` is real, False where it is padding.

        Returns
        -------
        jax.Array of shape (n_clients, largest)
            The mask.

        Examples
        --------
        >>> import cofed
        >>> cofed.Federation.from_arrays([([[1.0]], [1.0]), ([[2.0], [3.0]], [1.0, 1.0])]).mask().tolist()
        [[True, False], [True, True]]
        """
        return jnp.arange(self.largest, dtype=self.sizes.dtype)[None, :] < self.sizes[:, None]

    def pooled(self) -> Samples:
        """All samples in one place, client after client, without padding: for baselines and tests.

        Returns
        -------
        X, y : numpy.ndarray
            The samples.

        Examples
        --------
        >>> import cofed
        >>> cofed.Federation.from_arrays([([[1.0]], [7]), ([[2.0], [3.0]], [8, 9])]).pooled()[1]
        array([7, 8, 9], dtype=int32)
        """
        if self.rows.tiers is not None:
            return np.array(self.rows.X), np.array(self.rows.y)
        mask = np.asarray(self.mask())
        return np.asarray(self.rows.X)[mask], np.asarray(self.rows.y)[mask]

    def client(self, which: Given[str | int]) -> Samples:
        X, y = self._clients()[self.position(which)]
        return X.copy(), y.copy()

    def select(self, names: Given[Iterable[str | int]]) -> "Federation":
        self._refuse_stream("select")
        chosen, own = self._positions(names), self._clients()
        return self._rebuild({self.names[m]: own[m] for m in chosen})

    def by_size(self) -> Iterator[tuple[np.ndarray, "Federation"]]:
        """The clients in groups of similar size, for work on whole clients whose cost shall follow their sizes.

        Yields
        ------
        positions : numpy.ndarray
            Where the group's clients are in this federation.
        part : Federation
            The group, as a stack. A federation that is a stack already is the only group.

        Examples
        --------
        >>> import numpy as np
        >>> import cofed
        >>> pairs = [(np.ones((n, 1)), np.ones(n)) for n in (2, 50, 1, 1, 2)]
        >>> [(places.tolist(), part.X.shape) for places, part in cofed.Federation.from_arrays(pairs).by_size()]
        [([0, 2, 3, 4], (4, 2, 1)), ([1], (1, 50, 1))]
        """
        if self.rows.tiers is None:
            yield np.arange(self.n_clients), self
            return
        sizes, own, narrower = np.asarray(self.sizes), self._clients(), 0
        for width, _ in self.rows.tiers:
            places = np.flatnonzero((sizes > narrower) & (sizes <= width))
            narrower = width
            X, y = (rows.aligned((len(places), width, *part.shape[1:]), part.dtype) for part in own[0])
            for place, X_part, y_part in zip(places, X, y, strict=True):
                rows.fill(X_part, own[place][0])
                rows.fill(y_part, own[place][1])
            names = tuple(self.names[m] for m in places)
            ids = np.asarray(self.ids)[places]
            stack = rows.Room(X, y, None).as_rows()
            yield places, Federation(stack, sizes[places], ids, names, self.feature_names)

    def stored(self) -> dict[str, Array]:
        """The arrays that a federation is made of, as they lie in memory: what `restored` takes."""
        return {"X": self.rows.X, "y": self.rows.y, "sizes": self.sizes, "ids": self.ids}

    @classmethod
    def restored(
        cls, arrays: Mapping[str, npt.ArrayLike], names: tuple[str, ...], feature_names: tuple[str, ...] | None
    ) -> "Federation":
        """The federation of arrays that `stored` gave, by this version or by one that knew padded stacks only."""
        X, y, sizes = (np.asarray(arrays[name]) for name in ("X", "y", "sizes"))
        found = rows.Rows(X, y, tiers := rows.tiers_of(sizes))
        if tiers is not None and len(X) != sizes.sum(dtype=np.int64):
            own = [(X[m, :n], y[m, :n]) for m, n in enumerate(sizes)]
            found = rows.of_clients([X for X, _ in own], [y for _, y in own], X.dtype, y.dtype)
        return cls(found, sizes, arrays["ids"], names, feature_names)

    def _clients(self) -> list[Samples]:
        """Views of X and y of every client: NumPy looks at JAX's memory, which compiles no slices."""
        sizes = np.asarray(self.sizes)
        room = rows.Room(np.asarray(self.rows.X), np.asarray(self.rows.y), self.rows.tiers)
        return [(X[:n], y[:n]) for (X, y), n in zip(room.parts(sizes), sizes, strict=True)]

    def _rebuild(self, clients: dict[str, Samples]) -> "Federation":
        return Federation.from_arrays(clients, feature_names=self.feature_names)

    def _find(self, name: str, given: str) -> int:
        if name not in self.names:
            raise ValueError(f"{given}: there is no client {name!r}; there are {naming.listed(self.names)}")
        return self.names.index(name)

    def __repr__(self) -> str:
        features = f"{self.n_features} features" if len(self.feature_shape) == 1 else f"features {self.feature_shape}"
        if isinstance(self.sizes, Tracer):  # inside jit the sizes are not known
            samples = ""
        else:
            samples = "a stream, " if self.draw is not None else f"{self._samples_shown()}, "
        return f"Federation({self.n_clients} clients, {samples}{features}, {self.dtype})"


def part_of(array: Array, place: int | tuple[int, ...]) -> Array | np.ndarray:
    """array[place]: where the array lies in the processor's memory by NumPy, which copies and compiles nothing."""
    if isinstance(array, Tracer) or not array.is_fully_addressable:
        return array[place]
    return np.asarray(np.asarray(array)[place]) if all(d.platform == "cpu" for d in array.devices()) else array[place]
