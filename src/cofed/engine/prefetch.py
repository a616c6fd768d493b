"""The clients of the next rounds (a window), read from disk while the rounds before are computed.

Who takes part depends on the seed and the round alone, so it is known ahead. The distinct clients of several rounds
make one stack of a fixed size, on which the compiled loop runs as on any other data; only the positions of those that
take part are handed to it instead of drawn.
"""

import dataclasses
import math
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

from cofed._util import machine
from cofed.engine.data import Data
from cofed.engine.drawn_clients import DrawnClients
from cofed.engine.plan import Plan
from cofed.engine.server_rounds import KnownParticipants
from cofed.federation import DiskFederation
from cofed.federation.rows import Room, Rows, Tiers, aligned, starts_of, tiers_of

BYTES = 2**25  # of the samples in a window
ROUNDS = 512  # the most rounds of a window


@dataclasses.dataclass(frozen=True)
class Window:
    """The clients of some rounds."""

    first: int
    stop: int
    ids: np.ndarray  # in rising order; in the stack they are followed by blanks
    who: np.ndarray
    data: Data
    known: KnownParticipants

    def took_part(self, first: int, stop: int) -> np.ndarray:
        """The positions of those that took part in these rounds."""
        return np.unique(self.who[first - self.first : stop - self.first])


class Windows:
    """The windows of a run, one after another; the next is read ahead."""

    def __init__(self, federation: DiskFederation, weights: np.ndarray, plan: Plan, draws: DrawnClients, last: int):
        self.federation, self.weights, self.plan, self.last = federation, weights, plan, last
        self.draws = draws
        self.rounds = rounds_of(federation, plan)
        self.size = min(self.rounds * plan.participants, plan.clients)
        # Memory for two windows, one to work on and one to read into, and for what is read: used again and again, as
        # fresh memory costs more than reading. The window before is done with when the next but one is read.
        self.tiers = tiers_of(federation.sizes)
        shape = (self.size, federation.largest)
        if self.tiers is not None:  # room for the largest clients is room for any
            shape = (int(largest_first(federation)[self.size - 1]),)
        kinds, samples = [federation.index.record[part] for part in ("X", "y")], math.prod(shape)
        machine.require(
            3 * samples * federation.index.record.itemsize,
            f"reading the clients of {self.rounds} rounds, {plan.participants} in each,",
            "ask for fewer clients_per_round",
        )
        self.rooms = [[aligned((*shape, *kind.shape), kind.base) for kind in kinds] for _ in range(2)]
        for part in (part for room in self.rooms for part in room):
            part.fill(0)  # a window that is not full has rows of no client
        self.desk = np.empty(samples, federation.index.record)
        self.current: Window | None = None
        self.reader = ThreadPoolExecutor(1, "cofed-prefetch")  # one at a time: two would write into one another
        self.next: tuple[int, Future[Window]] | None = None

    def at(self, round: int) -> Window:
        """The window of a round."""
        first = round // self.rounds * self.rounds
        if self.current is None or self.current.first != first:
            self.current = None
            if self.next is None or self.next[0] != first:
                self.next = (first, self.reader.submit(self.read, first))
            self.current, self.next = self.next[1].result(), None
            if first + self.rounds < self.last:
                self.next = (first + self.rounds, self.reader.submit(self.read, first + self.rounds))
        assert self.current is not None
        return self.current

    def read(self, first: int) -> Window:
        """The window that begins with a round."""
        drawn = np.array(self.draws.rounds(first, self.rounds).clients)
        drawn[max(1, self.last - first) :] = drawn[0]  # rounds after the run's end need nobody
        ids, who = np.unique(drawn, return_inverse=True)
        who = who.reshape(drawn.shape).astype(np.int32)
        X, y = self.rooms[first // self.rounds % 2]
        for room, part in zip((X, y), samples_of(self.federation, ids, self.tiers, self.desk), strict=True):
            room[: len(part)] = part
        data = as_data(self.federation, Room(X, y, self.tiers).as_rows(), ids, self.weights[ids], self.size)
        known = KnownParticipants(jnp.asarray(who), jnp.asarray(first, jnp.int32))
        return Window(first, first + self.rounds, ids, who, jax.block_until_ready(data), known)


def rounds_of(federation: DiskFederation, plan: Plan) -> int:
    """How many rounds make a window: what its memory allows, whatever the length of the run."""
    record = federation.index.record.itemsize
    if tiers_of(federation.sizes) is None:
        return max(1, min(ROUNDS, BYTES // (plan.participants * federation.largest * record)))
    fit = int(np.searchsorted(largest_first(federation), BYTES // record, "right"))
    return max(1, min(ROUNDS, fit // plan.participants))


def largest_first(federation: DiskFederation) -> np.ndarray:
    """The samples of the largest client, of the two largest, and so on."""
    return np.cumsum(np.sort(federation.sizes)[::-1], dtype=np.int64)


def read_data(federation: DiskFederation, ids: np.ndarray, weights: np.ndarray) -> Data:
    """The data of these clients."""
    tiers = tiers_of(federation.sizes[ids])
    X, y = samples_of(federation, ids, tiers)
    rows = Room(np.ascontiguousarray(X), np.ascontiguousarray(y), tiers).as_rows()
    return as_data(federation, rows, ids, weights, len(ids))


def samples_of(
    federation: DiskFederation, ids: np.ndarray, tiers: Tiers | None, desk: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """X and y of these clients in the layout that the tiers tell, read onto the desk where there is one."""
    if tiers is None:
        return federation.stack(ids, desk)
    samples = federation.index.read(ids, desk)
    return samples["X"], samples["y"]


def as_data(federation: DiskFederation, rows: Rows, ids: np.ndarray, weights: np.ndarray, clients: int) -> Data:
    """The samples of these clients as the compiled program sees them, filled up to so many clients with empty ones."""
    offsets, blanks = federation.index.offsets, (0, clients - len(ids))
    sizes = (offsets[ids + 1] - offsets[ids]).astype(np.int32)
    starts = None
    if rows.tiers is not None:  # empty clients begin past the end
        starts = jnp.asarray(np.pad(starts_of(sizes), blanks, constant_values=len(rows.X)), jnp.int32)
    sizes, ids, weights = (np.pad(part, blanks) for part in (sizes, ids.astype(np.int32), weights))
    per_client = (jnp.asarray(sizes), jnp.asarray(ids), jnp.asarray(weights))
    return Data(rows.X, rows.y, *per_client, tiers=rows.tiers, starts=starts)
