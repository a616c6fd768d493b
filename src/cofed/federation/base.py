"""What every federation offers, wherever its samples are."""

import abc
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from jaxtyping import Array

from cofed._util import checks, naming
from cofed._util.checks import shown
from cofed._util.types import Given

if TYPE_CHECKING:
    from cofed.federation.memory import Federation

Draw = Callable[[Array, Array, int], tuple[Array, Array]]  # (key, client, size) -> (X, y)
Samples = tuple[np.ndarray, np.ndarray]  # X and y of one client, without padding


class AbstractFederation(abc.ABC):
    """The data of all clients: what a run, a problem and a check may ask of them.

    `Federation` keeps the samples in memory or draws them afresh at every step (a stream); `DiskFederation` leaves them
    on disk. Clients have a position (0, 1, ...) and a name; random draws follow the name.

    Attributes
    ----------
    names : sequence of str
        The clients' names, by position.
    sizes : array of shape (n_clients,)
        n_m, the number of samples of each client.
    feature_names : tuple of str, or None
        The names of the features, where they have some.
    draw : callable, or None
        Of a stream: `draw(key, client, size)` gives fresh samples (X, y). None where the samples are fixed.

    Examples
    --------
    >>> import cofed
    >>> fed = cofed.Federation.from_arrays([([[1.0, 2.0]], [0]), ([[3.0, 4.0]], [1])])
    >>> isinstance(fed, cofed.AbstractFederation), fed.n_clients, fed.feature_shape
    (True, 2, (2,))
    """

    if TYPE_CHECKING:  # fields of one class and properties of the other, for which Python has no abstract form

        @property
        def names(self) -> Sequence[str]: ...
        @property
        def sizes(self) -> Array | np.ndarray: ...
        @property
        def feature_names(self) -> tuple[str, ...] | None: ...
        @property
        def draw(self) -> Draw | None: ...

    @property
    @abc.abstractmethod
    def n_clients(self) -> int:
        """The number of clients."""

    @property
    @abc.abstractmethod
    def n_samples(self) -> int:
        """The number of samples of all clients together."""

    @property
    @abc.abstractmethod
    def largest(self) -> int:
        """The number of samples of the largest client."""

    @property
    @abc.abstractmethod
    def feature_shape(self) -> tuple[int, ...]:
        """The shape of one x."""

    @property
    def n_features(self) -> int:
        """The number of entries of one x."""
        return int(np.prod(self.feature_shape))

    @property
    @abc.abstractmethod
    def dtype(self) -> np.dtype:
        """The dtype of the features, and so of the model."""

    @property
    @abc.abstractmethod
    def at_hand(self) -> bool:
        """Whether the samples that the history is measured on lie in memory, so that measuring every round is cheap."""

    @abc.abstractmethod
    def labels(self) -> np.ndarray:
        """Labels that occur, for checks of the loss: all of them, or, where there are very many, a selection."""

    @abc.abstractmethod
    def example(self) -> tuple[Array | np.ndarray, Array | np.ndarray]:
        """x and y of the first client's first sample."""

    @abc.abstractmethod
    def weights(self, kind: Given[str | npt.ArrayLike] = "uniform") -> Array | np.ndarray:
        """The clients' weights pi_m, which sum to 1.

        Parameters
        ----------
        kind : {"uniform", "samples"} or array of shape (n_clients,)
            The same weight for every client, n_m / N, or one number per client, which need not sum to 1.

        Returns
        -------
        array of shape (n_clients,)
            The weights, in the dtype of the features.

        Raises
        ------
        ValueError
            If `kind` is none of these, or a weight is negative or not finite.

        Examples
        --------
        >>> import cofed
        >>> fed = cofed.Federation.from_arrays([([[1.0]], [1]), ([[2.0], [3.0], [4.0]], [1, 1, 1])])
        >>> fed.weights("samples")
        Array([0.25, 0.75], dtype=float64)
        """

    @abc.abstractmethod
    def client(self, which: Given[str | int]) -> Samples:
        """X and y of one client, without padding.

        Parameters
        ----------
        which : str or int
            The client's name or position.

        Returns
        -------
        X, y : numpy.ndarray
            Copies, which may be changed.

        Raises
        ------
        ValueError
            If there is no such client.

        Examples
        --------
        >>> import cofed
        >>> cofed.Federation.from_arrays({"A": ([[1.0]], [7]), "B": ([[2.0], [3.0]], [8, 9])}).client("B")[0]
        array([[2.],
               [3.]])
        """

    @abc.abstractmethod
    def select(self, names: Given[Iterable[str | int]]) -> "Federation":
        """The federation of these clients only, in memory.

        Parameters
        ----------
        names : iterable of str or int
            Names or positions of clients, in the order that they shall have.

        Returns
        -------
        Federation
            The chosen clients.

        Raises
        ------
        ValueError
            If a client does not exist or is named twice.

        Examples
        --------
        >>> import cofed
        >>> fed = cofed.Federation.from_arrays({"A": ([[1.0]], [7]), "B": ([[2.0], [3.0]], [8, 9])})
        >>> fed.select(["B"]).n_samples
        2
        """

    @abc.abstractmethod
    def check_labels(self, refuses: Given[Callable[[np.ndarray], str | None]]) -> None:
        """Refuse labels outside a loss's domain, naming the client.

        Parameters
        ----------
        refuses : callable
            Takes an array of labels and returns what is wrong with them as a sentence, or None.

        Raises
        ------
        ValueError
            With the first client whose labels are refused.

        Examples
        --------
        >>> import cofed
        >>> fed = cofed.Federation.from_arrays({"A": ([[1.0]], [7])})
        >>> fed.check_labels(lambda y: "too large" if y.max() > 5 else None)
        Traceback (most recent call last):
        ValueError: client 'A': too large
        """

    @abc.abstractmethod
    def _find(self, name: str, given: str) -> int:
        """The position of the client of this name, or a `ValueError` that starts with `given`."""

    def position(self, which: Given[str | int], given: str = "which") -> int:
        """The position of a client.

        Parameters
        ----------
        which : str or int
            The client's name or position; negative positions count from the end.
        given : str
            The argument that error messages name.

        Returns
        -------
        int
            The position, from 0 to n_clients - 1.

        Raises
        ------
        TypeError
            If `which` is neither a text nor an integer.
        ValueError
            If there is no such client.
        """
        if isinstance(which, str):
            return self._find(which, given)
        if not checks.is_integer(which):
            raise TypeError(f"{given}: a client is given by its name or position, got {checks.kind(which)}")
        if not -self.n_clients <= which < self.n_clients:
            raise ValueError(f"{given}: there is no client at position {which}; there are {self.n_clients} clients")
        return int(which) % self.n_clients

    def _positions(self, chosen: object) -> list[int]:
        """The positions of the clients that `select` is given, each at most once."""
        if isinstance(chosen, str):
            raise TypeError(f"names: select expects a list of client names, got the string {chosen!r}")
        positions = [self.position(name, "names") for name in checks.items("names", chosen, "client names")]
        if not positions:
            raise ValueError("names is empty: select needs at least one client")
        naming.require_different("select: names", [self.names[m] for m in positions])
        return positions

    def _samples_shown(self) -> str:
        """How many samples there are and how they are spread, for `repr`."""
        sizes = np.asarray(self.sizes)
        return f"{sizes.sum()} samples (min {sizes.min()}, median {np.median(sizes):g}, max {sizes.max()} per client)"


def normalized_weights(kind: object, sizes: np.ndarray, dtype: npt.DTypeLike) -> np.ndarray:
    """What `AbstractFederation.weights` returns, from the clients' sizes."""
    if isinstance(kind, str) and kind == "uniform":
        raw = np.ones(len(sizes))
    elif isinstance(kind, str) and kind == "samples":
        raw = np.asarray(sizes, float)
    else:
        raw = given_weights(kind, len(sizes))
    return (raw / raw.sum()).astype(dtype)


def given_weights(kind: object, clients: int) -> np.ndarray:
    """One number per client, finite and nonnegative; anything else is refused."""
    try:
        given = np.asarray(kind)
    except (TypeError, ValueError):  # a ragged list
        given = np.empty(0, object)
    if given.dtype.kind not in "fiu" or given.shape != (clients,) or np.ma.is_masked(kind):
        raise ValueError(
            "weights must be 'uniform', 'samples' or one number per client"
            + ("" if isinstance(kind, str) else f" ({clients} clients)")
            + f", got {shown(kind)}"
        )
    raw = given.astype(float)
    if not (np.isfinite(raw).all() and (raw >= 0).all() and 0 < raw.sum() < np.inf):
        raise ValueError(f"weights must be finite and nonnegative with a positive sum, got {shown(raw.tolist())}")
    return raw


def require_refusal(refuses: object) -> None:
    """Refuse what is no function of labels."""
    if not callable(refuses) or isinstance(refuses, type):
        raise TypeError(f"refuses must be a function of labels, got {shown(refuses)}")
