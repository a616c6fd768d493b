"""Federations in memory from tables, files and streams."""

import abc
import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypeVar, overload

import numpy.typing as npt
import pandas as pd

from cofed._util import checks
from cofed._util.checks import shown
from cofed._util.types import Given
from cofed.federation import files, frames, stream
from cofed.federation.arrays import Pair
from cofed.federation.base import Draw
from cofed.federation.disk import DiskFederation
from cofed.federation.files import Readable
from cofed.federation.frames import ColumnChoice

Column = Hashable
Own = TypeVar("Own", bound="Loaders")


class Loaders(abc.ABC):
    """The ways to a federation that lead through `from_arrays`."""

    @classmethod
    @abc.abstractmethod
    def from_arrays(
        cls: type[Own],
        clients: Given[Sequence[Pair] | Mapping[Any, Pair]],
        names: Given[Iterable[Hashable] | None] = None,
        feature_names: Given[Iterable[Hashable] | None] = None,
        dtype: Given[npt.DTypeLike | None] = None,
    ) -> Own:
        """A federation from the arrays of each client."""

    @classmethod
    def from_stream(
        cls: type[Own],
        draw: Given[Draw],
        clients: Given[int],
        *,
        samples: Given[int] = 256,
        names: Given[Iterable[Hashable] | None] = None,
        seed: Given[int] = 0,
    ) -> Own:
        """A federation whose clients draw fresh samples at every local step. Runs need local_steps and batch_size.

        Parameters
        ----------
        draw : callable
            `draw(key, client, size)` is a pure JAX function that gives (X, y) of `size` samples of client 0, 1, ...;
            the same key gives the same samples.
        clients : int
            The number of clients.
        samples : int
            How many samples of each client the history is measured on. They are drawn once, here.
        names : iterable, optional
            One name per client.
        seed : int
            The seed of these samples.

        Returns
        -------
        Federation
            The stream.

        Raises
        ------
        ValueError
            If `draw` fails or does not follow its key.

        Examples
        --------
        >>> import cofed
        >>> import jax, jax.numpy as jnp
        >>> def draw(key, client, size):
        ...     X = jax.random.normal(key, (size, 3), jnp.float32)
        ...     return X, X.sum(axis=1) + client
        >>> cofed.Federation.from_stream(draw, clients=4, samples=10)
        Federation(4 clients, a stream, 3 features, float32)
        """
        clients, samples = checks.integer("clients", clients), checks.integer("samples", samples)
        seed = checks.seed("seed", seed)
        if not callable(draw):
            raise TypeError(f"draw must be a function (key, client, size) -> (X, y), got {shown(draw)}")
        fixed = cls.from_arrays(stream.drawn(draw, clients, samples, seed), names)
        return dataclasses.replace(fixed, draw=draw)  # type: ignore[type-var]

    @classmethod
    def from_frame(
        cls: type[Own],
        df: Given[pd.DataFrame],
        target: Given[Column | Sequence[Column]],
        client: Given[Column],
        features: Given[Sequence[Column] | None] = None,
        clients: Given[Iterable[Hashable] | None] = None,
        dtype: Given[npt.DTypeLike | None] = None,
    ) -> Own:
        """A federation from one pandas frame of all clients.

        Parameters
        ----------
        df : pandas.DataFrame
            A row is a sample. The index is not used.
        target : column, or list of columns
            What is predicted; a list gives y the shape (samples, targets).
        client : column
            Says whose sample a row is.
        features : list of columns, optional
            All other columns without.
        clients : iterable, optional
            Names of the clients to take, in this order. All without, in the natural order of their names ("2" before
            "10").
        dtype : {"float32", "float64"}, optional
            The dtype of the features, where it shall not follow the data.

        Returns
        -------
        Federation
            The clients.

        Raises
        ------
        TypeError, ValueError
            If a column or a client is not there, or values are missing or no numbers.

        Examples
        --------
        >>> import pandas as pd
        >>> import cofed
        >>> df = pd.DataFrame({"site": ["b", "a", "b"], "age": [50.0, 40.0, 60.0], "ill": [1, 0, 1]})
        >>> fed = cofed.Federation.from_frame(df, target="ill", client="site")
        >>> fed.names, fed.sizes.tolist(), fed.feature_names
        (('a', 'b'), [1, 2], ('age',))
        """
        return cls.from_arrays(*frames.clients_of(df, ColumnChoice(target, client, features), clients), dtype)

    @overload
    @classmethod
    def from_parquet(
        cls: type[Own],
        path: Given[str | PathLike[str]],
        target: Given[Column | Sequence[Column]],
        client: Given[Column],
        features: Given[Sequence[Column] | None] = None,
        clients: Given[Iterable[Hashable] | None] = None,
        dtype: Given[npt.DTypeLike | None] = None,
        on_disk: Literal[False] = False,
        index: None = None,
    ) -> Own: ...
    @overload
    @classmethod
    def from_parquet(
        cls: type[Own],
        path: Given[str | PathLike[str]],
        target: Given[Column | Sequence[Column]],
        client: Given[Column],
        features: Given[Sequence[Column] | None] = None,
        clients: None = None,
        dtype: Given[npt.DTypeLike | None] = None,
        *,
        on_disk: Literal[True],
        index: Given[str | PathLike[str] | None] = None,
    ) -> DiskFederation: ...
    @classmethod
    def from_parquet(
        cls: type[Own],
        path: Given[str | PathLike[str]],
        target: Given[Column | Sequence[Column]],
        client: Given[Column],
        features: Given[Sequence[Column] | None] = None,
        clients: Given[Iterable[Hashable] | None] = None,
        dtype: Given[npt.DTypeLike | None] = None,
        on_disk: Given[bool] = False,
        index: Given[str | PathLike[str] | None] = None,
    ) -> Own | DiskFederation:
        """A federation from Parquet files. Only the columns that are used are read.

        Parameters
        ----------
        path : path
            A file, or a folder of `*.parquet` files, also in `client=.../` folders. A column may be whole numbers in
            one file and floats in another.
        target, client, features, clients, dtype
            As in `from_frame`. `clients` is for federations in memory.
        on_disk : bool
            Leave the samples on disk: a run then reads only the clients that take part (see the page "disk").
        index : path, optional
            With `on_disk`, the folder of the index, which is built once and used again while the files are the same.
            Without, it is beside the data, under their name with `.cofed` added.

        Returns
        -------
        Federation or DiskFederation
            The clients, in memory or on disk.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        TypeError, ValueError
            If the files cannot be read, and as `from_frame`.

        Examples
        --------
        >>> import tempfile
        >>> import pandas as pd
        >>> import cofed
        >>> df = pd.DataFrame({"site": [1, 1, 2], "age": [50.0, 40.0, 60.0], "cost": [9.0, 8.0, 7.0]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     df.to_parquet(f"{folder}/all.parquet")
        ...     cofed.Federation.from_parquet(folder, target="cost", client="site").names
        ('1', '2')
        """
        choice = ColumnChoice(target, client, features)
        if checks.flag("on_disk", on_disk):
            if clients is not None:
                raise ValueError("clients= is for federations in memory: all clients of a file are indexed on disk")
            return DiskFederation.open(path, choice, dtype, index)
        if index is not None:
            raise ValueError("index= is for on_disk=True")
        df, features = files.read_parquet(path, choice)
        return cls.from_frame(df, target, client, features, clients, dtype)

    @classmethod
    def from_csv(
        cls: type[Own],
        path: Given[str | PathLike[str] | Readable],
        target: Given[Column | Sequence[Column]],
        client: Given[Column],
        features: Given[Sequence[Column] | None] = None,
        clients: Given[Iterable[Hashable] | None] = None,
        dtype: Given[npt.DTypeLike | None] = None,
    ) -> Own:
        """A federation from a CSV file with a header.

        Parameters
        ----------
        path : path or file
            The file, or an object with `read`. Client names are read as text: "007" stays "007".
        target, client, features, clients, dtype
            As in `from_frame`.

        Returns
        -------
        Federation
            The clients.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        TypeError, ValueError
            If the file is not a table, and as `from_frame`.

        Examples
        --------
        >>> import cofed
        >>> import io
        >>> text = io.StringIO("site,age,ill\\n007,50.5,1\\n008,40.5,0\\n")
        >>> cofed.Federation.from_csv(text, target="ill", client="site").names
        ('007', '008')
        """
        df = files.read_csv(path, client)
        nameless = [place for place, name in enumerate(df.columns, 1) if str(name).startswith("Unnamed: ")]
        if features is None and nameless:
            raise ValueError(
                f"path: column {nameless[0]} of the file has no name, like the row labels that pandas writes; write "
                "the file without them (index=False), or name the features"
            )
        return cls.from_frame(df, target, client, features, clients, dtype)
