"""Where a run's data lie, on disk: windows of clients are read ahead, and measuring passes over the file by blocks."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from cofed.algorithms.base import AbstractAlgorithm
from cofed.disk import DiskFederation
from cofed.engine import evaluate
from cofed.engine.chunk_loop import Clock, Records, Task, look, run_chunk
from cofed.engine.data import Data
from cofed.engine.debug import debug_advance
from cofed.engine.plan import Plan
from cofed.engine.prefetch import Ahead, Window, Windows, as_data, read_data
from cofed.engine.server_rounds import Centre, State, at, started
from cofed.engine.sparse_client_state import Keeper, Kept
from cofed.problem import Problem

BLOCK = 2**24  # bytes of samples in a block to measure on
NEVER = 2**31 - 1


class OnDisk:
    """All that a run does with data, as `inmemory.InMemory`, for clients on disk.

    Rounds run on a window's stack, with the state of its clients put in and taken out. The state of a run holds what
    the clients that took part keep (`Kept`).
    """

    def __init__(self, federation: DiskFederation, weights: Any, plan: Plan, seed: int, rounds: int):
        self.federation, self.weights = federation, federation.weights(weights)
        self.windows = Windows(federation, self.weights, plan, seed, rounds)
        self.keeper, self.kept = None, None
        self.measured = None
        if federation.measured is not None:
            chosen = federation.measured
            shares = self.weights[chosen] / self.weights[chosen].sum()
            self.measured = read_data(federation, chosen, shares.astype(federation.dtype))

    def enter(self, task: Task, starts: PyTree, key: Array, round: Array) -> State:
        """The state before a stage's first round: nobody has taken part."""
        state, blank = begun(task, starts, key, round)
        return at(state, state.server, Kept.nothing(blank))

    def look(self, task: Task, state: State) -> dict[str, Any]:
        """The row of the present model, measured on the chosen clients, or on all of them block by block."""
        alone = at(state, state.server, ())
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

    def advance(self, task: Task, state: State, clock: Clock) -> tuple[State, Records]:
        """Rounds up to clock.stop, or to the end of the window, or to where something is measured."""
        return self.through_window(task, state, clock, run_chunk)

    def debug(self, task: Task, state: State, clock: Clock, names: Sequence[str]) -> tuple[State, Records]:
        """The same eagerly, with failures named."""
        window = self.windows.at(int(state.round))
        own = tuple(names[int(m)] for m in window.ids)
        return self.through_window(
            task, state, clock, lambda task, state, clock: debug_advance(task, state, clock, own)
        )

    def template(self, state: State, shapes: dict[str, list[int]]) -> State:
        """A state with as many clients' rows as a checkpoint has."""
        return at(state, state.server, Kept.of_size(shapes.get("clients.ids", [0])[0], state.clients.blank))

    def through_window(self, task: Task, state: State, clock: Clock, run: Callable) -> tuple[State, Records]:
        """Rounds on one window."""
        first = int(state.round)
        window = self.windows.at(first)
        stop = min(int(clock.stop), window.stop)
        when, measure = dataclasses.replace(clock, stop=jnp.asarray(stop, jnp.int32)), False
        if self.measured is None:
            stop, measure = quiet_until(first, stop, clock)
            never = jnp.asarray(NEVER, jnp.int32)
            when = Clock(jnp.asarray(stop, jnp.int32), -never, never, jnp.asarray(False))
        keeper = self.keeper_of(state)
        inside = at(state, state.server, jax.tree.map(jnp.asarray, keeper.get(window.ids, self.windows.size)))
        here = dataclasses.replace(task, data=window.data, exchange=window.exchange, measured=self.measured)
        new, records = jax.block_until_ready(run(here, inside, when))
        records = outside(window, jax.device_get(records))
        if measure and int(new.failed_at) < 0:
            row = self.look(task, new)
            for name, values in records.rows.items():
                values[stop - first - 1] = row[name]
            bad = clock.finite & ~jnp.isfinite(row["loss"])
            new = here.exchange.undo(bad, new, inside)
        took = window.took_part(first, stop)
        keeper.put(window.ids[took], jax.tree.map(lambda leaf: np.asarray(leaf)[took], new.clients))
        self.kept = keeper.kept()
        return at(new, new.server, self.kept), records

    def keeper_of(self, state: State) -> Keeper:
        """What finds the clients' rows in a state; made anew for a state that is not the last one given out."""
        if self.keeper is None or state.clients is not self.kept:
            self.keeper, self.kept = Keeper(state.clients, self.federation.n_clients), state.clients
        return self.keeper

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
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


def quiet_until(first: int, stop: int, clock: Clock) -> tuple[int, bool]:
    """Where to stop so that a round after which something is measured is alone, and whether it is this one."""
    every, last = int(clock.every), int(clock.last)
    due = (first // every + 1) * every
    due = min(due, last) if last > first else due
    if due > stop:
        return stop, False
    return (due, True) if due == first + 1 and stop > first else (min(stop, due - 1), False)


def outside(window: Window, records: Records) -> Records:
    """A window's records with clients by their ids, as arrays that may be written."""
    clients = window.ids[records.roll.clients]
    rows = {name: np.array(values) for name, values in records.rows.items()}
    return eqx.tree_at(lambda r: (r.rows, r.roll.clients), records, (rows, clients))


def ahead(blocks: Iterator) -> Iterator:
    """The same blocks, each read while the one before is worked on."""
    end = object()
    coming = Ahead(next, blocks, end)
    while (block := coming.result()) is not end:
        coming = Ahead(next, blocks, end)
        yield block


@eqx.filter_jit
def begun(task: Task, w0: PyTree, key: Array, round: Array) -> tuple[State, PyTree]:
    """The state without clients, and what a client has before its first round."""
    one = task.algorithm.init_client(task.problem, w0)
    return started(task.algorithm.init(task.problem, w0), (), key, round), one


@eqx.filter_jit
def on_block(problem: Problem, w: PyTree, X: Array, y: Array, share: Array) -> PyTree:
    """What a block adds to the loss, its gradient and the accuracy."""
    rows = evaluate.rows_at_once(problem, w, X[0])
    return evaluate.over(lambda X, y, s: evaluate.measures(problem, w, X, y, s), X, y, share, rows)


model_of = eqx.filter_jit(Task.model)


@eqx.filter_jit
def row_of(task: Task, found: PyTree, w: PyTree) -> dict[str, Array]:
    """The row, of what was measured on the data."""
    loss, gradient, accuracy = found
    return evaluate.shown(task.problem, loss, gradient, accuracy, task.held_out, task.metrics, w)


def check_on_disk(algorithm: AbstractAlgorithm, exchange: Any, plan: Plan, per_client: bool) -> None:
    """What needs everybody's data at once is refused, with what to do instead."""
    memory = "read the clients into memory (Federation.from_parquet without on_disk, or federation.select) for that"
    if not isinstance(exchange, Centre):
        raise ValueError(f"by gossip every node works in every round, which clients on disk cannot: {memory}")
    if plan.everyone:
        raise ValueError(
            f"clients on disk take part by turns: give clients_per_round, fewer than the {plan.clients} clients; for "
            f"everybody in every round, {memory}"
        )
    if algorithm.is_personal:
        raise ValueError(
            f"{type(algorithm).__name__} keeps a model for each client and measures each on its own data: {memory}"
        )
    if per_client:
        raise ValueError(f"per_client=True records a number per client in every row: {memory}")


def example(federation: DiskFederation) -> Data:
    """The first client, in the shape of any stack of clients."""
    first, one = np.zeros(1, np.int64), np.ones(1, federation.dtype)
    X, y = (np.ascontiguousarray(part) for part in federation.stack(first))
    return as_data(federation, X, y, first, one, None, 1)
