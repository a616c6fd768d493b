"""Ways to deal pooled samples out to clients, so that each sample goes to exactly one of them."""

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from cofed._util import checks
from cofed._util.types import Given
from cofed.federation import Federation, arrays

__all__ = ["by_column", "by_label", "dirichlet", "iid"]

Data = np.ndarray | pd.DataFrame | pd.Series | Sequence


def iid(X: Given[Data], y: Given[Data], clients: Given[int], seed: Given[int] = 0) -> Federation:
    """Shuffle the samples and cut them into equal parts; sizes differ by one at most.

    Parameters
    ----------
    X : array or frame of shape (samples, features...)
        The pooled features. Columns of a frame become the names of the features.
    y : array of shape (samples,) or (samples, targets)
        The pooled targets, matched with X by position.
    clients : int
        The number of clients.
    seed : int
        The seed of the shuffle.

    Returns
    -------
    Federation
        The clients "0", "1", ...

    Raises
    ------
    TypeError, ValueError
        If the data do not fit together, or there are fewer samples than clients.

    Examples
    --------
    >>> import numpy as np
    >>> import cofed
    >>> cofed.partition.iid(np.ones((10, 2)), np.arange(10), clients=3).sizes.tolist()
    [4, 3, 3]
    """
    n = _check("iid", X, y, clients, seed)
    return _hand_out(X, y, np.array_split(np.random.default_rng(seed).permutation(n), clients))


def by_label(
    X: Given[Data], y: Given[Data], clients: Given[int], labels_per_client: Given[int] = 2, seed: Given[int] = 0
) -> Federation:
    """Give every client samples of few labels; the clients that see a label share its samples.

    Parameters
    ----------
    X : array or frame of shape (samples, features...)
        The pooled features. Columns of a frame become the names of the features.
    y : array of shape (samples,) or (samples, targets)
        The pooled targets, matched with X by position.
    clients : int
        The number of clients.
    labels_per_client : int
        How many labels a client sees. It sees fewer only where a label has fewer samples than clients that could see
        it.
    seed : int
        The seed of the draw.

    Returns
    -------
    Federation
        The clients "0", "1", ...

    Raises
    ------
    TypeError, ValueError
        If the data do not fit together, or the clients cannot hold all labels.

    Examples
    --------
    >>> import numpy as np
    >>> import cofed
    >>> fed = cofed.partition.by_label(np.ones((12, 1)), np.repeat([0, 1, 2, 3], 3), clients=4, labels_per_client=2)
    >>> [len(set(fed.client(m)[1].tolist())) for m in range(4)]
    [2, 2, 2, 2]
    """
    _check("by_label", X, y, clients, seed)
    labels, codes, counts = _labels("by_label", y)
    checks.integer("by_label: labels_per_client", labels_per_client, least=0)
    if not 1 <= labels_per_client <= len(labels):
        raise ValueError(
            f"by_label: labels_per_client must be between 1 and the number of labels ({len(labels)}), "
            f"got {labels_per_client}"
        )
    if clients * labels_per_client < len(labels):
        raise ValueError(
            f"by_label: {clients} clients with {labels_per_client} labels each cannot hold all "
            f"{len(labels)} labels; raise clients or labels_per_client"
        )
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    # First labels: each client gets one, and no label more clients than samples, so that nobody stays empty.
    holders = np.zeros(len(labels), int)
    first = [int(label) for label in order[:clients]]
    holders[first] = 1
    while len(first) < clients:
        first.append(int(np.argmax(counts / holders)))
        holders[first[-1]] += 1
    sees = [[label] for label in first]
    # Further labels: those with the fewest clients come first, so that every label is seen by somebody.
    for own in sees:
        for _ in range(labels_per_client - 1):
            free = [int(label) for label in order if label not in own]
            own.append(min(free, key=lambda label: holders[label]))
            holders[own[-1]] += 1
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in range(len(labels)):
        # Those who have it as their first label come first: array_split makes the early parts larger.
        seers = sorted((m for m in range(clients) if label in sees[m]), key=lambda m: sees[m][0] != label)
        rows = rng.permutation(np.flatnonzero(codes == label))
        for m, part in zip(seers, np.array_split(rows, len(seers)), strict=True):
            parts[m].append(part)
    return _hand_out(X, y, [np.concatenate(part) for part in parts])


def dirichlet(
    X: Given[Data],
    y: Given[Data],
    clients: Given[int],
    alpha: Given[float],
    min_size: Given[int] = 1,
    seed: Given[int] = 0,
) -> Federation:
    """Skew the labels: the shares of a label that go to the clients are Dirichlet(alpha), drawn per label.

    Parameters
    ----------
    X : array or frame of shape (samples, features...)
        The pooled features. Columns of a frame become the names of the features.
    y : array of shape (samples,) or (samples, targets)
        The pooled targets, matched with X by position.
    clients : int
        The number of clients.
    alpha : float
        The concentration: a small one gives a label to few clients, a large one to all alike.
    min_size : int
        A client with fewer samples than this takes random ones from the largest clients, so that no draw is repeated.
    seed : int
        The seed of the draw.

    Returns
    -------
    Federation
        The clients "0", "1", ...

    Raises
    ------
    TypeError, ValueError
        If the data do not fit together, or there are not enough samples.

    Examples
    --------
    >>> import numpy as np
    >>> import cofed
    >>> fed = cofed.partition.dirichlet(np.ones((100, 1)), np.arange(100) % 5, clients=10, alpha=0.1, min_size=3)
    >>> fed.n_samples, int(fed.sizes.min()) >= 3
    (100, True)
    """
    n = _check("dirichlet", X, y, clients, seed)
    checks.positive("dirichlet: alpha", alpha)
    if checks.integer("dirichlet: min_size", min_size, least=0, most=None) < 1 or min_size * clients > n:
        raise ValueError(
            f"dirichlet: min_size must be at least 1, and {clients} clients times min_size at most "
            f"the {n} samples, got min_size={min_size}"
        )
    labels, codes, _ = _labels("dirichlet", y)
    rng = np.random.default_rng(seed)
    parts: list[list[int]] = [[] for _ in range(clients)]
    for label in range(len(labels)):
        rows = rng.permutation(np.flatnonzero(codes == label))
        cuts = np.rint(np.cumsum(_proportions(rng, alpha, clients))[:-1] * len(rows)).astype(int)
        for part, share in zip(parts, np.split(rows, cuts), strict=True):
            part.extend(share.tolist())
    # While a client has less than min_size the largest has more: there are enough samples for all.
    largest = [(-len(part), m) for m, part in enumerate(parts)]
    heapq.heapify(largest)
    for part in sorted(parts, key=len):
        while len(part) < min_size:
            size, donor = heapq.heappop(largest)
            given = parts[donor]
            pick = int(rng.integers(len(given)))
            given[pick], given[-1] = given[-1], given[pick]
            part.append(given.pop())
            heapq.heappush(largest, (size + 1, donor))
    return _hand_out(X, y, [np.array(part) for part in parts])


def by_column(X: Given[Data], y: Given[Data], column: Given[npt.ArrayLike]) -> Federation:
    """Make one client per value of a column, such as a writer or a hospital.

    Parameters
    ----------
    X : array or frame of shape (samples, features...)
        The pooled features. Columns of a frame become the names of the features.
    y : array of shape (samples,) or (samples, targets)
        The pooled targets, matched with X by position.
    column : array of shape (samples,)
        Whose each sample is, matched by position: the index of a pandas object is not looked at.

    Returns
    -------
    Federation
        The clients, named by the values in sorted order.

    Raises
    ------
    TypeError, ValueError
        If the data do not fit together, or a value is missing.

    Examples
    --------
    >>> import numpy as np
    >>> import cofed
    >>> fed = cofed.partition.by_column(np.ones((3, 1)), [1.0, 2.0, 3.0], column=["Oslo", "Rome", "Oslo"])
    >>> fed.names, fed.client("Oslo")[1]
    (('Oslo', 'Rome'), array([1., 3.]))
    """
    n = _check("by_column", X, y, 1)
    given = arrays.labels_of("by_column: column", column)
    if given.ndim != 1:
        raise ValueError(f"by_column: column must have one entry per sample, got {checks.shown(column)}")
    column = pd.Series(given)
    if len(column) != n:
        raise ValueError(f"by_column: column has {len(column)} entries for {n} samples")
    missing = int(np.sum(column.isna().to_numpy()))
    if missing:
        raise ValueError(f"by_column: {missing} of {n} entries of column are missing, so their client is not known")
    codes, values = pd.factorize(column, sort=True)
    ends = np.cumsum(np.bincount(codes))
    parts = np.split(np.argsort(codes, kind="stable"), ends[:-1])
    return _hand_out(X, y, parts, [str(value) for value in values])


def _proportions(rng: np.random.Generator, alpha: float, clients: int) -> np.ndarray:
    """A draw of Dirichlet(alpha, ..., alpha), by logarithms: gamma variables of a tiny alpha underflow."""
    log_gamma = np.log(rng.gamma(alpha + 1, size=clients)) + np.log1p(-rng.random(clients)) / alpha
    shares = np.exp(log_gamma - log_gamma.max())
    return shares / shares.sum()


def _labels(owner: str, y: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The labels, which of them each sample has, and how many samples each has."""
    given = arrays.labels_of(f"{owner}: y", y)
    if given.ndim != 1:
        raise ValueError(f"{owner}: y has shape {given.shape}, expected one label per sample")
    return np.unique(given, return_inverse=True, return_counts=True)


def _check(owner: str, X: Data, y: Data, clients: object, seed: object = 0) -> int:
    """The number of samples, once the data and the numbers fit together."""
    if not checks.is_integer(clients):
        raise TypeError(f"{owner}: clients must be a whole number, got {checks.shown(clients)}")
    checks.generator_seed(owner, seed)
    for name, value in (("X", X), ("y", y)):
        if not isinstance(value, (pd.DataFrame, pd.Series)) and np.ndim(arrays.numbers(owner, name, value)) == 0:
            raise TypeError(f"{owner}: {name} must have one entry per sample, got {checks.shown(value)}")
    samples = len(X)
    if samples != len(y):
        raise ValueError(f"{owner}: X has {samples} samples, but y has {len(y)}")
    arrays.warn_of_reordered_index(owner, X, y)
    if clients < 1:
        raise ValueError(f"{owner}: clients must be at least 1, got {clients}")
    if clients > samples:
        raise ValueError(f"{owner}: {clients} clients cannot share {samples} samples; every client needs one")
    return samples


def _hand_out(X: Data, y: Data, parts: Sequence[np.ndarray], names: list[str] | None = None) -> Federation:
    """The federation of clients that get these rows."""
    return Federation.from_arrays([(_rows(X, part), _rows(y, part)) for part in parts], names)


def _rows(values: Data, rows: np.ndarray) -> npt.ArrayLike:
    """Some of the rows; frames stay frames, so that their column names reach the federation."""
    if isinstance(values, (pd.DataFrame, pd.Series)):
        return values.iloc[rows].reset_index(drop=True)
    return np.asarray(values)[rows]
