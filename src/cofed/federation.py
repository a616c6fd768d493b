"""Clients' data in; padded stacks, weights and splits out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Num

from cofed import checks, intake
from cofed.checks import shown
from cofed.tables import read_csv

if TYPE_CHECKING:
    from cofed.disk import DiskFederation


class Federation(eqx.Module):
    """The data of all clients as one pytree of arrays: a client is a slice of the first axis.

    Clients have different numbers of samples, so each is padded (with its first sample) to the largest; `sizes`
    says where a client's data ends and `mask()` which entries are real. Build one with `from_arrays`, `from_frame`,
    `from_parquet` or `from_csv`, which check everything first.

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

    X: Float[Array, "clients n_max *features"] = eqx.field(converter=jnp.asarray)
    y: Num[Array, "clients n_max *targets"] = eqx.field(converter=jnp.asarray)
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

        n_max = max(len(X) for X in Xs)
        X_all = np.empty((len(Xs), n_max, *Xs[0].shape[1:]), x_dtype)
        y_all = np.empty((len(ys), n_max, *ys[0].shape[1:]), y_dtype)
        for m, (X, y, name) in enumerate(zip(Xs, ys, labels, strict=True)):
            intake.check_finite(X, y, name, columns)
            with np.errstate(over="ignore"):
                X_all[m, : len(X)], y_all[m, : len(y)] = X, y
            # Padding counts nothing, but its loss is computed, and a real sample's is one that the loss accepts.
            X_all[m, len(X) :], y_all[m, len(y) :] = X_all[m, 0], y_all[m, 0]
            if X.dtype != x_dtype and not np.isfinite(X_all[m]).all():
                raise ValueError(f"client {name!r}: X holds numbers too large for {x_dtype}; pass dtype='float64'")
            if y.dtype.kind == "f" and y.dtype != y_dtype and not np.isfinite(y_all[m]).all():
                raise ValueError(f"client {name!r}: y holds numbers too large for {x_dtype}; pass dtype='float64'")
        if x_dtype == np.float64:
            jax.config.update("jax_enable_x64", True)
        sizes = np.array([len(X) for X in Xs], np.int32)
        return cls(X_all, y_all, sizes, intake.ranks(labels), labels, columns)

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
        labels = intake.client_names(names, clients)
        check_draw(draw, min(samples, 8))
        keys = jax.random.split(jax.random.key(seed), clients)
        pairs = []
        for m, key in enumerate(keys):
            try:
                X, y = draw(key, jnp.asarray(m, jnp.int32), samples)
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                raise ValueError(f"draw(key, {m}, {samples}) must give a pair (X, y) of arrays, but {what}") from error
            pairs.append((np.asarray(X), np.asarray(y)))
        fixed = cls.from_arrays(pairs, labels)
        return cls(fixed.X, fixed.y, fixed.sizes, fixed.ids, fixed.names, None, draw)

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
        return cls.from_frame(df, target, client, features, clients, dtype)

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
        return tuple(self.X.shape[2:])

    @property
    def n_features(self) -> int:
        """The number of entries of one x."""
        return int(np.prod(self.feature_shape))

    @property
    def dtype(self) -> Any:
        """The dtype of the features, and so of the model."""
        return self.X.dtype

    @property
    def at_hand(self) -> bool:
        """Whether the samples lie in memory, so that measuring a model on them is cheap."""
        return True

    def labels(self) -> np.ndarray:
        """The labels that there are, padding included."""
        return np.asarray(self.y)

    def example(self) -> tuple[Array, Array]:
        """x and y of the first client's first sample."""
        return self.X[0, 0], self.y[0, 0]

    def check_labels(self, refuses: Callable[[np.ndarray], str | None]) -> None:
        """Refuse labels outside a loss's domain, naming the client. `refuses` gives a sentence, or None.

        >>> fed = Federation.from_arrays({"A": ([[1.0]], [7])})
        >>> fed.check_labels(lambda y: "too large" if y.max() > 5 else None)
        Traceback (most recent call last):
        ValueError: client 'A': too large
        """
        if not callable(refuses) or isinstance(refuses, type):
            raise TypeError(f"refuses must be a function of labels, got {shown(refuses)}")
        y, sizes = np.asarray(self.y), np.asarray(self.sizes)
        for name, labels, size in zip(self.names, y, sizes, strict=True):
            reason = refuses(labels[:size])
            if not isinstance(reason, str | None):
                raise TypeError(f"refuses must give a sentence or None, got {shown(reason)}")
            if reason:
                raise ValueError(f"client {name!r}: {reason}")
        # Each client may be fine alone and still disagree: 0/1 at one, -1/+1 at another.
        reason = refuses(np.concatenate([labels[:size] for labels, size in zip(y, sizes, strict=True)]))
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
        return jnp.arange(self.X.shape[1], dtype=self.sizes.dtype)[None, :] < self.sizes[:, None]

    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """All samples in one place, client after client, without padding: for baselines and tests.

        >>> Federation.from_arrays([([[1.0]], [7]), ([[2.0], [3.0]], [8, 9])]).pooled()[1]
        array([7, 8, 9], dtype=int32)
        """
        mask = np.asarray(self.mask())
        return np.asarray(self.X)[mask], np.asarray(self.y)[mask]

    def client(self, which: Any) -> tuple[np.ndarray, np.ndarray]:
        """X and y of one client, by its name or its position, without padding.

        >>> Federation.from_arrays({"A": ([[1.0]], [7]), "B": ([[2.0], [3.0]], [8, 9])}).client("B")[0]
        array([[2.],
               [3.]])
        """
        m = self._position(which)
        n = int(np.asarray(self.sizes)[m])
        # NumPy looks at JAX's memory without a compiled slice; a copy, so that it may be changed.
        return np.asarray(self.X)[m, :n].copy(), np.asarray(self.y)[m, :n].copy()

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
        return self._rebuild({self.names[m]: self.client(m) for m in chosen})

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
        for m, name in enumerate(self.names):
            X, y = self.client(m)
            labels, order = self._shuffled(m, by_client, seed)
            count = len(order)
            held = np.zeros(count, bool)
            if count > 1:
                held[order[: min(max(round(test * count), 1), count - 1)]] = True
            out = held[labels]
            for side, rows in zip(sides, (~out, out), strict=True):
                if rows.any():
                    side[name] = (X[rows], y[rows])
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
        largest = int(np.asarray(self.sizes).max())
        sides: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({}, {}) for _ in range(min(checks.integer("folds: count", count, least=2), largest))
        ]
        for m, (name, fold) in enumerate(zip(self.names, self.fold_of(count, seed, groups), strict=True)):
            X, y = self.client(m)
            for k, both in enumerate(sides):
                out = fold == k
                for side, rows in zip(both, (~out, out), strict=True):
                    if rows.any():
                        side[name] = (X[rows], y[rows])
        return [(self._rebuild(train), self._rebuild(test)) for train, test in sides if test]

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
    first, again, other = (sample(draw, seed, size) for seed in (0, 0, 1))
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
    try:
        X, y = draw(jax.random.key(seed), jnp.zeros((), jnp.int32), size)
        return [np.asarray(X), np.asarray(y)]
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"draw(key, 0, {size}) must give a pair (X, y) of arrays, but {what}") from error
