"""Where a run's data lie, on disk: windows of clients are read ahead, and measuring passes over the file by blocks."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from cofed._util.programs import program
from cofed.engine import evaluate
from cofed.engine.chunk_loop import ChunkRecords, ChunkSchedule, look, run_chunk
from cofed.engine.data import Data
from cofed.engine.debug import debug_advance
from cofed.engine.drawn_clients import DrawnClients
from cofed.engine.inmemory import AbstractStorage
from cofed.engine.plan import Plan
from cofed.engine.prefetch import Window, Windows, as_data, read_data
from cofed.engine.sparse_client_state import ClientStateStore, SparseClientState
from cofed.engine.spec import RunSpec
from cofed.engine.state import State
from cofed.engine.task import AbstractTask
from cofed.federation import DiskFederation
from cofed.federation.rows import Room
from cofed.problem import Problem

Block = tuple[np.ndarray, np.ndarray, np.ndarray]  # X, y and what each sample counts

BLOCK = 2**24  # bytes of samples in a block to measure on
NEVER = 2**31 - 1


class OnDisk(AbstractStorage):
    """Clients on disk.

    Rounds run on the stack of a window, with the state of its clients put in and taken out. The state of a run holds
    only what the clients that ever took part keep (`SparseClientState`).
    """

    def __init__(self, spec: RunSpec, federation: DiskFederation, plan: Plan):
        self.federation, self.weights = federation, federation.weights(spec.weights)
        self.windows = Windows(federation, self.weights, plan, DrawnClients.of(spec), spec.rounds)
        self.store: ClientStateStore | None = None
        self.given_out: SparseClientState | None = None  # what `store` has given out last
        self.measured = None
        if federation.measured is not None:
            chosen = federation.measured
            shares = self.weights[chosen] / self.weights[chosen].sum()
            self.measured = read_data(federation, chosen, shares.astype(federation.dtype))

    def enter(self, task: AbstractTask, starts: PyTree, key: PRNGKeyArray, round: Array) -> State:
        state, blank = begun(task, starts, key, round)
        return state.holding(state.server, SparseClientState.nothing(blank))

    def look(self, task: AbstractTask, state: State) -> dict[str, Array]:
        """The row of the present model, measured on the chosen clients, or on all of them block by block."""
        alone = state.holding(state.server, ())
        if self.measured is not None:
            return look(dataclasses.replace(task, measured=self.measured), alone)
        w, total = model_of(task, alone), None
        with np.errstate(all="ignore"):  # a loss that is not finite is the caller's to judge
            for block in ahead(self.blocks()):
                part = jax.tree.map(
                    lambda leaf: np.asarray(leaf, np.float64), on_block(task.problem, w, *map(jnp.asarray, block))
                )
                total = part if total is None else jax.tree.map(np.add, total, part)
            found = jax.tree.map(lambda leaf: jnp.asarray(leaf.astype(self.federation.dtype)), total)
        return row_of(task, found, w)

    def advance(self, task: AbstractTask, state: State, schedule: ChunkSchedule) -> tuple[State, ChunkRecords]:
        """Rounds up to schedule.stop, or to the end of the window, or to where something is measured."""
        return self.through_window(task, state, schedule, run_chunk)

    def steady(self, state: State) -> State:
        """With a copy of what clients keep, which the state only looks at."""
        if state.clients is self.given_out:
            return state.holding(state.server, jax.tree.map(np.array, state.clients))
        return state

    def debug(
        self, task: AbstractTask, state: State, schedule: ChunkSchedule, names: Sequence[str]
    ) -> tuple[State, ChunkRecords]:
        window = self.windows.at(int(state.round))
        own = tuple(names[int(m)] for m in window.ids)
        return self.through_window(task, state, schedule, functools.partial(debug_advance, names=own))

    def template(self, state: State, shapes: dict[str, list[int]]) -> State:
        """A state with as many clients' rows as a checkpoint has."""
        count = shapes.get("clients.ids", [0])[0]
        return state.holding(state.server, SparseClientState.of_size(count, state.clients.blank))

    def through_window(
        self, task: AbstractTask, state: State, schedule: ChunkSchedule, run: Callable
    ) -> tuple[State, ChunkRecords]:
        """Rounds on one window, done by `run`."""
        first = int(state.round)
        window = self.windows.at(first)
        stop = min(int(schedule.stop), window.stop)
        when, measure = dataclasses.replace(schedule, stop=jnp.asarray(stop, jnp.int32)), False
        if self.measured is None:
            stop, measure = quiet_until(first, stop, schedule)
            now, never = jnp.asarray(stop, jnp.int32), jnp.asarray(NEVER, jnp.int32)
            when = dataclasses.replace(when, stop=now, last=-never, every=never, finite=jnp.asarray(False))
        store = self.store_of(state)
        inside = state.holding(state.server, jax.tree.map(jnp.asarray, store.get(window.ids, self.windows.size)))
        here = dataclasses.replace(task, data=window.data, known=window.known, measured=self.measured)
        new, records = jax.block_until_ready(run(here, inside, when))
        records = outside(window, jax.device_get(records))
        if measure and int(new.failed_at) < 0:
            row = self.look(task, new)
            for name, values in records.rows.items():
                values[stop - first - 1] = row[name]
            new = here.undo(schedule.finite & ~jnp.isfinite(row["loss"]), new, inside)
        took = window.took_part(first, stop)
        store.put(window.ids[took], jax.tree.map(lambda leaf: np.asarray(leaf)[took], new.clients))
        self.given_out = store.snapshot()
        return new.holding(new.server, self.given_out), records

    def store_of(self, state: State) -> ClientStateStore:
        """What finds the clients' rows in a state; made anew for a state that is not the last one given out."""
        if self.store is None or state.clients is not self.given_out:
            self.store, self.given_out = ClientStateStore(state.clients, self.federation.n_clients), state.clients
        return self.store

    def blocks(self) -> Iterator[Block]:
        """X, y and share of all samples, so many at a time; the last block is filled up with samples that count 0."""
        offsets, sizes, index = self.federation.index.offsets, self.federation.sizes, self.federation.index
        total = int(offsets[-1])
        rows = min(total, max(1, BLOCK // index.record.itemsize))
        for first in range(0, total, rows):
            stop = min(first + rows, total)
            begin, end = np.searchsorted(offsets, first, "right") - 1, np.searchsorted(offsets, stop, "left")
            count = np.clip(offsets[begin + 1 : end + 1], first, stop) - np.clip(offsets[begin:end], first, stop)
            share = np.repeat(self.weights[begin:end] / sizes[begin:end], count).astype(self.federation.dtype)
            share = np.concatenate([np.zeros(rows - len(share), share.dtype), share])
            samples = index.rows(stop - rows, stop)  # full: it begins with samples that were counted before
            yield np.ascontiguousarray(samples["X"]), np.ascontiguousarray(samples["y"]), share


def quiet_until(first: int, stop: int, schedule: ChunkSchedule) -> tuple[int, bool]:
    """Where to stop so that a round after which something is measured is alone, and whether it is this one."""
    every, last = int(schedule.every), int(schedule.last)
    due = (first // every + 1) * every
    due = min(due, last) if last > first else due
    if due > stop:
        return stop, False
    return (due, True) if due == first + 1 and stop > first else (min(stop, due - 1), False)


def outside(window: Window, records: ChunkRecords) -> ChunkRecords:
    """A window's records with clients by their ids, as arrays that may be written."""
    clients = window.ids[records.participation.clients]
    rows = {name: np.array(values) for name, values in records.rows.items()}
    return eqx.tree_at(lambda r: (r.rows, r.participation.clients), records, (rows, clients))


def ahead(blocks: Iterator[Block]) -> Iterator[Block]:
    """The same blocks, each read while the one before is worked on."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = reader.submit(next, blocks, None)
            yield block


@program
def begun(task: AbstractTask, w0: PyTree, key: PRNGKeyArray, round: Array) -> tuple[State, PyTree]:
    """The state without clients, and what a client has before its first round."""
    one = task.client_state(w0)
    return State.before_stage(task.algorithm.init(task.problem, w0), (), key, round), one


@program
def on_block(problem: Problem, w: PyTree, X: Array, y: Array, share: Array) -> PyTree:
    """What a block adds to the loss, its gradient and the accuracy."""
    rows = evaluate.rows_at_once(problem, w, X[0])
    return evaluate.over(lambda X, y, s: evaluate.measures(problem, w, X, y, s), X, y, share, rows)


model_of = program(lambda task, state: task.model(state))


@program
def row_of(task: AbstractTask, found: evaluate.Measures, w: PyTree) -> dict[str, Array]:
    """The row, of what was measured on the data."""
    return evaluate.shown(task.problem, found, task.held_out, task.metrics, w)


def example(federation: DiskFederation) -> Data:
    """The first client, in the shape of any stack of clients."""
    first, one = np.zeros(1, np.int64), np.ones(1, federation.dtype)
    X, y = (np.ascontiguousarray(part) for part in federation.stack(first))
    return as_data(federation, Room(X, y, None).as_rows(), first, one, 1)
