"""The state of clients that are too many to keep one for each: only those that ever took part have a row."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree


class SparseClientState(eqx.Module):
    """The state of the clients that ever took part, and the one that all others have. A checkpoint holds this."""

    ids: np.ndarray  # whose the rows are, in the order of their first rounds
    rows: PyTree  # stacked
    blank: PyTree  # what a client has before its first round

    @classmethod
    def nothing(cls, blank: PyTree) -> "SparseClientState":
        """Before anybody took part."""
        blank = jax.tree.map(np.asarray, blank)
        return cls.of_size(0, blank)

    @classmethod
    def of_size(cls, count: int, blank: PyTree) -> "SparseClientState":
        """Room for so many clients."""
        return cls(
            np.zeros(count, np.int32), jax.tree.map(lambda b: np.empty((count, *b.shape), b.dtype), blank), blank
        )


class ClientStateStore:
    """A `SparseClientState` that can be read and written client by client; it grows when it is full."""

    def __init__(self, saved: SparseClientState, clients: int):
        self.blank, self.count = saved.blank, len(saved.ids)
        self.ids, self.rows = np.array(saved.ids), jax.tree.map(np.array, saved.rows)
        # One more than a client's row; 0 for those that never took part. Pages that were never written take no memory.
        self.places = np.zeros(clients, np.int32)
        self.places[self.ids] = np.arange(1, self.count + 1)

    def get(self, ids: np.ndarray, size: int) -> PyTree:
        """What these clients keep, stacked, followed by blanks up to so many."""
        row = self.places[ids] - 1
        known = np.flatnonzero(row >= 0)

        def leaf(blank, rows):
            found = np.empty((size, *blank.shape), blank.dtype)
            found[:] = blank
            found[known] = rows[row[known]]
            return found

        return jax.tree.map(leaf, self.blank, self.rows)

    def put(self, ids: np.ndarray, rows: PyTree) -> None:
        """What these clients keep now."""
        if not jax.tree.leaves(self.blank):
            return
        new = ids[self.places[ids] == 0]
        stop = self.count + len(new)
        if stop > len(self.ids):
            room = max(stop, 2 * len(self.ids))
            self.ids, self.rows = jax.tree.map(lambda a: grown(a, room), (self.ids, self.rows))
        self.ids[self.count : stop] = new
        self.places[new] = np.arange(self.count + 1, stop + 1)
        self.count = stop
        at = self.places[ids] - 1

        def leaf(all_rows, some):
            all_rows[at] = some

        jax.tree.map(leaf, self.rows, rows)

    def snapshot(self) -> SparseClientState:
        """What is kept now: a view, which the next `put` may change."""
        rows = jax.tree.map(lambda a: a[: self.count], self.rows)
        return SparseClientState(self.ids[: self.count], rows, self.blank)


def grown(array: np.ndarray, room: int) -> np.ndarray:
    """The array with room for more."""
    larger = np.empty((room, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
