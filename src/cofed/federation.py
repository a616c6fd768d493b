"""Clients' data in; arrays, weights and splits out."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Num

from cofed import rows
from cofed._util import checks, intake, machine
from cofed._util.checks import shown
from cofed._util.tables import read_csv
from cofed.rows import Rows

if TYPE_CHECKING:
    from cofed.disk import DiskFederation


KEY = 64  # bytes of a client's random key and of what it goes through


class Federation(eqx.Module):
    """The data of all clients as one pytree of arrays.

    `X` and `y` show it as a stack: a client is a slice of the first axis, padded (with its first sample) to the
    largest; `sizes` says where a client's data ends and `mask()` which entries are real. In memory, in `rows`, the data
    take at most twice their own size, however different the clients are: where padding would take more, there is none.
    Build one with `from_arrays`, `from_frame`, `from_parquet` or `from_csv`, which check everything first.

    dtype: float32 features stay float32. float64 features stay float64, which turns on JAX's 64-bit mode.
    Features that are integers for every client become float64 (exact up to 2**53). Clients that disagree are
    refused, unless `dtype=` says what is meant. Float targets take the dtype of the features; integer and
    boolean targets (labels, counts) are int32.

    >>> fed = Federation.from_arrays({"A": ([[1.0, 2.0], [3.0, 4.0]], [0, 1]), "B": ([[5.0, 6.0]], [1])})
    >>> fed
    Federation(2 clients, 3 samples (min 1, median 1.5, max 2 per client), 2 features, float64)
    >>> fed.X.shape, fed.sizes.tolist(), fed.names
    ((2, 2, 2), [2, 1], ('A', 'B'))
    """

    rows: Rows
    sizes: Int[Array, " clients"] = eqx.field(converter=jnp.asarray)  # n_m, the samples of client m
    # The rank of a client's name, not its position: random draws follow the client when the order changes.
    ids: Int[Array, " clients"] = eqx.field(converter=jnp.asarray)
    names: tuple[str, ...] = eqx.field(static=True)
    feature_names: tuple[str, ...] | None = eqx.field(static=True, default=None)
    draw: Callable | None = eqx.field(static=True, default=None)  # of a stream: (key, client, size) -> (X, y)

    @classmethod
    def from_arrays(
        cls,
        clients: Any,
        names: Iterable[Any] | None = None,
        feature_names: Iterable[Any] | None = None,
        dtype: Any = None,
    ) -> "Federation":
        """A federation from `[(X_1, y_1), ...]` or `{name: (X, y), ...}` of lists, NumPy, JAX or pandas data.

        The first axis of X and y counts the samples, and they are matched by position (a pandas index is not
        looked at). Columns of pandas frames become `feature_names` and are brought into the same order.
        Without names, clients are called "0", "1", ...

        >>> pairs = [([[1.0], [2.0]], [0.5, 1.5]), ([[3.0]], [2.5])]
        >>> fed = Federation.from_arrays(pairs, names=["Rome", "Oslo"])
        >>> fed.names, fed.ids.tolist()
        (('Rome', 'Oslo'), [1, 0])
        """
        if isinstance(clients, Mapping):
            if names is not None:
                raise ValueError("a mapping of clients carries their names already; leave names= out")
            names, clients = list(clients), list(clients.values())
        elif isinstance(clients, (str, bytes)) or not isinstance(clients, Iterable):
            raise TypeError(
                f"clients must be a list of (X, y) pairs or a mapping name -> (X, y), got {intake.kind(clients)}"
            )
        if isinstance(clients, (set, frozenset)):
            raise TypeError("clients is a set, which has no order; give a list of (X, y) pairs")
        clients = checks.items("clients", clients, "pairs (X, y)")
        if not clients:
            raise ValueError("clients is empty: a federation needs at least one client, got none")
        labels = intake.client_names(names, len(clients))
        for name, pair in zip(labels, clients, strict=True):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(
                    f"client {name!r}: expected a pair (X, y), got {intake.kind(pair)}; clients must be a list of pairs"
                )

        columns = intake.feature_labels(feature_names)
        columns, Xs = intake.align([X for X, _ in clients], labels, columns)
        Xs = [intake.features(X, name) for X, name in zip(Xs, labels, strict=True)]
        ys = [intake.targets(y, name) for (_, y), name in zip(clients, labels, strict=True)]
        intake.check_shapes(Xs, ys, labels, columns)
        x_dtype = intake.common_dtype([X.dtype for X in Xs], labels, dtype)
        y_dtype = intake.common_target_dtype([y.dtype for y in ys], labels, x_dtype)

        sizes = np.array([len(X) for X in Xs], np.int32)
        X_all, y_all, tiers = rows.empty_rows(sizes, Xs[0].shape[1:], x_dtype, ys[0].shape[1:], y_dtype)
        places = rows.parts(X_all, y_all, sizes, tiers)
        for (X_own, y_own), X, y, name in zip(places, Xs, ys, labels, strict=True):
            intake.check_finite(X, y, name, columns)
            with np.errstate(over="ignore"):
                rows.fill(X_own, X)
                rows.fill(y_own, y)
            if X.dtype != x_dtype and not np.isfinite(X_own).all():
                raise ValueError(f"client {name!r}: X holds numbers too large for {x_dtype}; pass dtype='float64'")
            if y.dtype.kind == "f" and y.dtype != y_dtype and not np.isfinite(y_own).all():
                raise ValueError(f"client {name!r}: y holds numbers too large for {x_dtype}; pass dtype='float64'")
        if x_dtype == np.float64:
            jax.config.update("jax_enable_x64", True)
        return cls(rows.as_rows(X_all, y_all, tiers), sizes, intake.ranks(labels), labels, columns)

    @classmethod
    def from_stream(
        cls, draw: Callable, clients: int, *, samples: int = 256, names: Iterable[Any] | None = None, seed: int = 0
    ) -> "Federation":
        """A federation whose clients draw fresh samples at every local step.

        `draw(key, client, size)` is a pure JAX function that gives (X, y) of so many samples of client 0, 1, ...; the
        same key gives the same samples. Runs need local_steps and batch_size. What the history shows is measured on
        `samples` samples of each client, drawn once here.

        >>> import jax, jax.numpy as jnp
        >>> def draw(key, client, size):
        ...     X = jax.random.normal(key, (size, 3), jnp.float32)
        ...     return X, X.sum(axis=1) + client
        >>> Federation.from_stream(draw, clients=4, samples=10)
        Federation(4 clients, a stream, 3 features, float32)
        """
        clients, samples, seed = (
            checks.integer("clients", clients),
            checks.integer("samples", samples),
            checks.seed("seed", seed),
        )
        if not callable(draw):
            raise TypeError(f"draw must be a function (key, client, size) -> (X, y), got {shown(draw)}")
        machine.require(clients * KEY, f"the random keys of {clients:,} clients")
        labels = intake.client_names(names, clients)
        check_draw(draw, min(samples, 8))
        keys, pairs = jax.random.split(jax.random.key(seed), clients), []
        for m, key in enumerate(keys):
            try:
                X, y = draw(key, jnp.asarray(m, jnp.int32), samples)
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                raise ValueError(f"draw(key, {m}, {samples}) must give a pair (X, y) of arrays, but {what}") from error
            pairs.append((np.asarray(X), np.asarray(y)))
            if m == 0:  # the others are like the first
                needed = 2 * clients * (pairs[0][0].nbytes + pairs[0][1].nbytes)
                machine.require(needed, f"{samples:,} samples of each of {clients:,} clients", "ask for fewer")
        fixed = cls.from_arrays(pairs, labels)
        return dataclasses.replace(fixed, draw=draw)

    @classmethod
    def from_frame(
        cls,
        df: Any,
        target: Any,
        client: Any,
        features: Sequence[Any] | None = None,
        clients: Iterable[Any] | None = None,
        dtype: Any = None,
    ) -> "Federation":
        """A federation from one pandas frame: a row is a sample, the column `client` says whose it is.

        `target` is a column, or a list of columns for several targets. `features` are all other columns
        unless given. `clients` names the clients to take, in this order, and refuses a frame that lacks one;
        without it, clients are in the natural order of their names ("2" before "10").

        >>> df = pd.DataFrame({"site": ["b", "a", "b"], "age": [50.0, 40.0, 60.0], "ill": [1, 0, 1]})
        >>> fed = Federation.from_frame(df, target="ill", client="site")
        >>> fed.names, fed.sizes.tolist(), fed.feature_names
        (('a', 'b'), [1, 2], ('age',))
        """
        if not isinstance(df, pd.DataFrame):
            raise TypeError(
                f"df: from_frame expects a pandas DataFrame, got {intake.kind(df)}; see from_arrays for arrays"
            )
        if not len(df.columns):
            raise ValueError("df has no columns")
        targets, columns = intake.columns(list(df.columns), target, client, features)
        if len(df) == 0:
            raise ValueError("the frame has no rows; a federation needs at least one sample")
        missing = int(np.sum(df[client].isna().to_numpy()))
        if missing:
            raise ValueError(f"column {client!r} names the client, but {missing} of {len(df)} rows have no value there")

        codes, values = pd.factorize(df[client])
        found = [str(value) for value in values]
        order = sorted(range(len(found)), key=lambda code: intake.natural(found[code]))
        if clients is not None:
            wanted = [str(name) for name in checks.items("clients", clients, "client names")]
            absent = [name for name in wanted if name not in set(found)]
            if absent:
                raise ValueError(
                    f"clients: client {intake.listed(absent)} not found in column {client!r}; there are "
                    f"{intake.listed(found)}"
                )
            order = [found.index(name) for name in wanted]
        for column in [*columns, *targets]:
            gaps = np.bincount(codes, weights=df[column].isna(), minlength=len(found)).astype(int)[order]
            if gaps.any():
                worst = int(gaps.argmax())
                raise ValueError(
                    f"client {found[order[worst]]!r} has {gaps[worst]} missing values in column {column!r} "
                    f"({gaps.sum()} over all clients); drop these rows or fill them in"
                )
        # One stable sort brings every client's rows together, in their order in the frame.
        rows = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(found)))
        X, y = intake.table(df[columns])[rows], intake.table(df[targets])[rows]
        if len(targets) == 1 and targets[0] == target:
            y = y[:, 0]
        starts = np.concatenate([[0], ends[:-1]])
        pairs = [(X[starts[c] : ends[c]], y[starts[c] : ends[c]]) for c in order]
        return cls.from_arrays(pairs, [found[c] for c in order], columns, dtype)

    @overload
    @classmethod
    def from_parquet(
        cls,
        path: Any,
        target: Any,
        client: Any,
        features: Sequence[Any] | None = None,
        clients: Iterable[Any] | None = None,
        dtype: Any = None,
        on_disk: Literal[False] = False,
        index: None = None,
    ) -> "Federation": ...
    @overload
    @classmethod
    def from_parquet(
        cls,
        path: Any,
        target: Any,
        client: Any,
        features: Sequence[Any] | None = None,
        clients: None = None,
        dtype: Any = None,
        *,
        on_disk: Literal[True],
        index: Any = None,
    ) -> "DiskFederation": ...
    @classmethod
    def from_parquet(
        cls,
        path: Any,
        target: Any,
        client: Any,
        features: Sequence[Any] | None = None,
        clients: Iterable[Any] | None = None,
        dtype: Any = None,
        on_disk: bool = False,
        index: Any = None,
    ) -> Any:
        """A federation from a parquet file or a folder of them (`*.parquet`, also `client=.../` folders).

        Only the columns that are used are read. The arguments are those of `from_frame`.

        With `on_disk=True` the samples stay on disk, and a run reads only the clients that take part: see
        docs/disk.md. An index is built once, in the folder `index` (default: beside the data, its name with `.cofed`
        added), and used again while the files are the same.

        >>> import tempfile
        >>> df = pd.DataFrame({"site": [1, 1, 2], "age": [50.0, 40.0, 60.0], "cost": [9.0, 8.0, 7.0]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     df.to_parquet(f"{folder}/all.parquet")
        ...     Federation.from_parquet(folder, target="cost", client="site").names
        ('1', '2')
        """
        if checks.flag("on_disk", on_disk):
            from cofed.disk import DiskFederation

            if clients is not None:
                raise ValueError("clients= is for federations in memory: all clients of a file are indexed on disk")
            return DiskFederation.open(path, target, client, features, dtype, index)
        if index is not None:
            raise ValueError("index= is for on_disk=True")
        try:
            data = intake.parquet(path)[1]
            targets, columns = intake.columns(intake.parquet_columns(data), target, client, features)
            df = data.to_table(columns=[*columns, *targets, client]).to_pandas(ignore_metadata=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise ValueError(f"path: {path} could not be read as parquet: {error}") from error
        return cls.from_frame(df, target, client, columns, clients, dtype)

    @classmethod
    def from_csv(
        cls,
        path: Any,
        target: Any,
        client: Any,
        features: Sequence[Any] | None = None,
        clients: Iterable[Any] | None = None,
        dtype: Any = None,
    ) -> "Federation":
        """A federation from a CSV file with a header; the arguments are those of `from_frame`.

        Client names are read as text: "007" stays "007".

        >>> import io
        >>> text = io.StringIO("site,age,ill\\n007,50.5,1\\n008,40.5,0\\n")
        >>> Federation.from_csv(text, target="ill", client="site").names
        ('007', '008')
        """
        df = read_csv(path, client)
        nameless = [place for place, name in enumerate(df.columns, 1) if str(name).startswith("Unnamed: ")]
        if features is None and nameless:
            raise ValueError(
                f"path: column {nameless[0]} of the file has no name, like the row labels that pandas writes; write "
                "the file without them (index=False), or name the features"
            )
        return cls.from_frame(df, target, client, features, clients, dtype)

    @property
    def X(self) -> Float[Array, "clients n_max *features"]:
        """The features as a stack; refused where clients are so unequal that padding does not fit into memory.

        >>> Federation.from_arrays([([[1.0]], [1.0]), ([[2.0], [3.0]], [1.0, 1.0])]).X.tolist()
        [[[1.0], [1.0]], [[2.0], [3.0]]]
        """
        return self._stack(self.rows.X)

    @property
    def y(self) -> Num[Array, "clients n_max *targets"]:
        """The targets as a stack, like `X`."""
        return self._stack(self.rows.y)

    def _stack(self, array: Array) -> Array:
        if self.rows.tiers is None:
            return array
        width = self.largest
        shape = (self.n_clients, width, *array.shape[1:])
        needed = rows.nbytes(shape, np.dtype(array.dtype))
        machine.require(
            needed,
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
    def n_features(self) -> int:
        """The number of entries of one x."""
        return int(np.prod(self.feature_shape))

    @property
    def dtype(self) -> Any:
        """The dtype of the features, and so of the model."""
        return self.rows.X.dtype

    @property
    def at_hand(self) -> bool:
        """Whether the samples lie in memory, so that measuring a model on them is cheap."""
        return True

    def labels(self) -> np.ndarray:
        """The labels that there are, padding included."""
        return np.asarray(self.rows.y)

    def example(self) -> tuple[Array, Array]:
        """x and y of the first client's first sample."""
        first = (0, 0) if self.rows.tiers is None else 0
        return self.rows.X[first], self.rows.y[first]

    def check_labels(self, refuses: Callable[[np.ndarray], str | None]) -> None:
        """Refuse labels outside a loss's domain, naming the client. `refuses` gives a sentence, or None.

        >>> fed = Federation.from_arrays({"A": ([[1.0]], [7])})
        >>> fed.check_labels(lambda y: "too large" if y.max() > 5 else None)
        Traceback (most recent call last):
        ValueError: client 'A': too large
        """
        if not callable(refuses) or isinstance(refuses, type):
            raise TypeError(f"refuses must be a function of labels, got {shown(refuses)}")
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

    def weights(self, kind: Any = "uniform") -> Float[Array, " clients"]:
        """The clients' weights pi_m, which sum to 1: "uniform", "samples" (n_m / N) or one number per client.

        >>> fed = Federation.from_arrays([([[1.0]], [1]), ([[2.0], [3.0], [4.0]], [1, 1, 1])])
        >>> fed.weights("samples")
        Array([0.25, 0.75], dtype=float64)
        """
        return jnp.asarray(intake.weights(kind, np.asarray(self.sizes), self.dtype))

    def mask(self) -> Bool[Array, "clients n_max"]:
        """True where a sample is real, False where it is padding.

        >>> Federation.from_arrays([([[1.0]], [1.0]), ([[2.0], [3.0]], [1.0, 1.0])]).mask().tolist()
        [[True, False], [True, True]]
        """
        return jnp.arange(self.largest, dtype=self.sizes.dtype)[None, :] < self.sizes[:, None]

    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """All samples in one place, client after client, without padding: for baselines and tests.

        >>> Federation.from_arrays([([[1.0]], [7]), ([[2.0], [3.0]], [8, 9])]).pooled()[1]
        array([7, 8, 9], dtype=int32)
        """
        if self.rows.tiers is not None:
            return np.array(self.rows.X), np.array(self.rows.y)
        mask = np.asarray(self.mask())
        return np.asarray(self.rows.X)[mask], np.asarray(self.rows.y)[mask]

    def client(self, which: Any) -> tuple[np.ndarray, np.ndarray]:
        """X and y of one client, by its name or its position, without padding.

        >>> Federation.from_arrays({"A": ([[1.0]], [7]), "B": ([[2.0], [3.0]], [8, 9])}).client("B")[0]
        array([[2.],
               [3.]])
        """
        X, y = self._clients()[self._position(which)]
        return X.copy(), y.copy()  # so that they may be changed

    def select(self, names: Iterable[Any]) -> "Federation":
        """The federation of these clients only, in this order.

        >>> fed = Federation.from_arrays({"A": ([[1.0]], [7]), "B": ([[2.0], [3.0]], [8, 9])})
        >>> fed.select(["B"]).n_samples
        2
        """
        self._refuse_stream("select")
        if isinstance(names, str):
            raise TypeError(f"names: select expects a list of client names, got the string {names!r}")
        chosen = [self._position(name, "names") for name in checks.items("names", names, "client names")]
        if not chosen:
            raise ValueError("names is empty: select needs at least one client")
        intake.require_different("select: names", [self.names[m] for m in chosen])
        own = self._clients()
        return self._rebuild({self.names[m]: own[m] for m in chosen})

    def by_size(self) -> Iterator[tuple[np.ndarray, "Federation"]]:
        """The clients in groups of similar size, each a stack of its own, with their positions here; one group where
        the federation is a stack. For work on whole clients that shall follow their sizes.

        >>> pairs = [(np.ones((n, 1)), np.ones(n)) for n in (2, 50, 1, 1, 2)]
        >>> [(places.tolist(), part.X.shape) for places, part in Federation.from_arrays(pairs).by_size()]
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
            yield places, Federation(rows.as_rows(X, y, None), sizes[places], ids, names, self.feature_names)

    def stored(self) -> dict[str, Array]:
        """The arrays that a federation is made of, as they lie in memory: what `restored` takes."""
        return {"X": self.rows.X, "y": self.rows.y, "sizes": self.sizes, "ids": self.ids}

    @classmethod
    def restored(
        cls, arrays: Mapping[str, Any], names: tuple[str, ...], feature_names: tuple[str, ...] | None
    ) -> "Federation":
        """The federation of such arrays; also of a padded stack where the clients would be rows now."""
        X, y, sizes = (np.asarray(arrays[name]) for name in ("X", "y", "sizes"))
        found = rows.Rows(X, y, tiers := rows.tiers_of(sizes))
        if tiers is not None and len(X) != sizes.sum(dtype=np.int64):
            own = [(X[m, :n], y[m, :n]) for m, n in enumerate(sizes)]
            found = rows.of_clients([X for X, _ in own], [y for _, y in own], X.dtype, y.dtype)
        return cls(found, sizes, arrays["ids"], names, feature_names)

    def _clients(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Views of X and y of every client: NumPy looks at JAX's memory without a compiled slice."""
        sizes = np.asarray(self.sizes)
        places = rows.parts(np.asarray(self.rows.X), np.asarray(self.rows.y), sizes, self.rows.tiers)
        return [(X[:n], y[:n]) for (X, y), n in zip(places, sizes, strict=True)]

    def split(self, test: float = 0.25, seed: int = 0, groups: Any = None) -> tuple["Federation", "Federation"]:
        """(train, test): about the share `test` of every client's samples is held out.

        A client with two samples or more has at least one on each side; a client with one keeps it in train
        and is absent from test. The draw depends on the seed and the client's name only, not on the others.

        `groups` (an array per client in the clients' order, or a mapping from names to arrays; one entry per
        sample) keeps the samples of one group, such as one person, on one side; then the share is of a
        client's groups, and a client with a single group keeps it in train. Groups of different clients are
        different groups, even under one label.

        >>> fed = Federation.from_arrays([(np.arange(8.0).reshape(8, 1), np.arange(8.0))])
        >>> train, test = fed.split(test=0.25)
        >>> train.n_samples, test.n_samples
        (6, 2)
        """
        self._refuse_stream("split")
        test = checks.share("split: test", test)
        intake.require_seed("split", seed)
        by_client = self.groups(groups)
        sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        for m, (name, (X, y)) in enumerate(zip(self.names, self._clients(), strict=True)):
            labels, order = self._shuffled(m, by_client, seed)
            count = len(order)
            held = np.zeros(count, bool)
            if count > 1:
                held[order[: min(max(round(test * count), 1), count - 1)]] = True
            out = held[labels]
            for side, marked in zip(sides, (~out, out), strict=True):
                if marked.any():
                    side[name] = (X[marked], y[marked])
        if not sides[1]:
            raise ValueError("split: every client has one sample (or one group), so nothing is left to test on")
        return self._rebuild(sides[0]), self._rebuild(sides[1])

    def folds(self, count: int = 5, seed: int = 0, groups: Any = None) -> list[tuple["Federation", "Federation"]]:
        """(train, test) for each of `count` folds: every client's samples are dealt out, each held out once.

        A client with fewer samples (or groups) than folds is absent from some tests, one with a single sample from
        all. `groups` is as in `split`.

        >>> fed = Federation.from_arrays([(np.arange(5.0).reshape(5, 1), np.arange(5.0))])
        >>> [test.n_samples for train, test in fed.folds(2)]
        [3, 2]
        """
        count = min(checks.integer("folds: count", count, least=2), max(2, self.largest))
        fold_of, clients = self.fold_of(count, seed, groups), self._clients()

        def part(held: list[np.ndarray]) -> dict[str, Any]:
            """The clients' samples that are marked, of clients that have some."""
            own = zip(self.names, clients, held, strict=True)
            return {name: (X[marked], y[marked]) for name, (X, y), marked in own if marked.any()}

        found = []
        for k in range(count):  # one after another, so that no more than one is there twice
            if any((fold == k).any() for fold in fold_of):
                sides = ([fold != k for fold in fold_of], [fold == k for fold in fold_of])
                found.append(tuple(self._rebuild(part(held)) for held in sides))
        return found

    def fold_of(self, count: int = 5, seed: int = 0, groups: Any = None) -> list[np.ndarray]:
        """The fold in which each sample of each client is held out; -1 for samples that never are.

        >>> fed = Federation.from_arrays([(np.arange(4.0).reshape(4, 1), np.arange(4.0)), ([[1.0]], [1.0])])
        >>> [sorted(folds.tolist()) for folds in fed.fold_of(2)]
        [[0, 0, 1, 1], [-1]]
        """
        self._refuse_stream("split")
        count = checks.integer("folds: count", count, least=2)
        intake.require_seed("folds", seed)
        by_client, found = self.groups(groups), []
        for m in range(self.n_clients):
            labels, order = self._shuffled(m, by_client, seed)
            fold = np.full(len(order), -1)
            if len(order) > 1:
                fold[order] = np.arange(len(order)) % count
            found.append(fold[labels])
        if all((folds < 0).all() for folds in found):
            raise ValueError("folds: every client has one sample (or one group), so nothing is left to test on")
        return found

    def groups(self, groups: Any) -> list[np.ndarray] | None:
        """An array of group labels per client, in the clients' order and checked, from what `split` takes."""
        if groups is None:
            return None
        if isinstance(groups, Mapping):
            absent = [name for name in self.names if name not in groups]
            if absent:
                raise ValueError(f"groups lacks client {intake.listed(absent)}")
            groups = [groups[name] for name in self.names]
        arrays = [intake.labels_of("groups", group) for group in checks.items("groups", groups, "arrays")]
        if len(arrays) != self.n_clients:
            raise ValueError(f"groups must be one array per client ({self.n_clients}), got {len(arrays)}")
        for name, group, size in zip(self.names, arrays, np.asarray(self.sizes), strict=True):
            if pd.isna(group).any():
                raise ValueError(f"client {name!r}: {int(pd.isna(group).sum())} samples have no group")
            if group.shape != (size,):
                raise ValueError(f"client {name!r} has {size} samples, but its groups have shape {group.shape}")
        return arrays

    def _shuffled(self, m: int, by_client: list[np.ndarray] | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The group of each sample of a client (itself without groups), and the groups in a random order."""
        n = int(np.asarray(self.sizes)[m])
        labels = np.arange(n) if by_client is None else np.unique(by_client[m], return_inverse=True)[1]
        rng = np.random.default_rng([int(seed), int.from_bytes(self.names[m].encode(), "big")])
        return labels, rng.permutation(int(labels.max()) + 1)

    def _refuse_stream(self, what: str) -> None:
        if self.draw is not None:
            raise ValueError(f"a stream has no fixed samples to {what}: make another one with from_stream")

    def _rebuild(self, clients: dict[str, Any]) -> "Federation":
        return Federation.from_arrays(clients, feature_names=self.feature_names)

    def _position(self, which: Any, given: str = "which") -> int:
        if isinstance(which, str):
            if which not in self.names:
                raise ValueError(f"{given}: there is no client {which!r}; there are {intake.listed(self.names)}")
            return self.names.index(which)
        if isinstance(which, bool) or not isinstance(which, (int, np.integer)):
            raise TypeError(f"{given}: a client is given by its name or position, got {intake.kind(which)}")
        if not -self.n_clients <= which < self.n_clients:
            raise ValueError(f"{given}: there is no client at position {which}; there are {self.n_clients} clients")
        return int(which) % self.n_clients

    def __repr__(self) -> str:
        features = f"{self.n_features} features" if len(self.feature_shape) == 1 else f"features {self.feature_shape}"
        if isinstance(self.sizes, Tracer):  # inside jit the sizes are not known
            return f"Federation({self.n_clients} clients, {features}, {self.dtype})"
        if self.draw is not None:
            return f"Federation({self.n_clients} clients, a stream, {features}, {self.dtype})"
        sizes = np.asarray(self.sizes)
        return (
            f"Federation({self.n_clients} clients, {sizes.sum()} samples (min {sizes.min()}, "
            f"median {np.median(sizes):g}, max {sizes.max()} per client), {features}, {self.dtype})"
        )


def check_draw(draw: Callable, size: int) -> None:
    """Refuse a stream that does not follow its key: NumPy's random numbers would be drawn once, when JAX compiles."""
    try:
        first, again, other = (sample(draw, seed, size) for seed in (0, 0, 1))
    except Exception:  # what is wrong with it is told where the federation's own samples are drawn
        return
    if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(first, again, strict=True)):
        raise ValueError(
            "draw gave other samples for the same key: it must take its random numbers from the key, with jax.random"
        )
    if all(np.array_equal(a, b, equal_nan=True) for a, b in zip(first, other, strict=True)):
        raise ValueError(
            "draw gave the same samples for two different keys: it must take its random numbers from the key, with "
            "jax.random"
        )


def sample(draw: Callable, seed: int, size: int) -> list[np.ndarray]:
    """A few samples of the first client, as arrays."""
    X, y = draw(jax.random.key(seed), jnp.zeros((), jnp.int32), size)
    return [np.asarray(X), np.asarray(y)]
