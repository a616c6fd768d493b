"""Putting a run on the devices of a mesh, and taking its results from there.

Clients are dealt out in blocks, the last one padded with clients that count nothing. All else is on every device.
"""

import contextlib
import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, PyTree

from cofed._util import machine
from cofed._util.types import Given
from cofed.engine.data import Data
from cofed.engine.state import State
from cofed.engine.task import AbstractTask

STACKS = ("X", "y", "sizes", "ids", "weights", "starts", "steps")  # the parts of the data that have an entry per client


def mesh(devices: Given[int | None] = None) -> Mesh:
    """Make a mesh of devices, for `cofed.run(..., mesh=...)`.

    Clients are spread over the devices; the trajectory is the same, to round-off. With `jax.distributed.initialize`
    called first in every process, `mesh()` spans the devices of all processes.

    A CPU has one device for each core where cofed is used before anything else uses JAX, and only one otherwise, unless
    JAX_NUM_CPU_DEVICES is set. A run without a mesh takes as many as pay by itself.

    Parameters
    ----------
    devices : int, optional
        How many devices; None is all that JAX has.

    Returns
    -------
    jax.sharding.Mesh
        The devices along one axis, named "clients".

    Raises
    ------
    ValueError
        Where JAX has fewer devices.

    Examples
    --------
    >>> import cofed
    >>> cofed.mesh(1).size
    1
    """
    if devices is not None and (isinstance(devices, bool) or not isinstance(devices, int) or devices < 1):
        raise ValueError(f"the number of devices must be an integer >= 1, or None for all of them, got {devices!r}")
    if devices is not None and devices > 1 and not jax.distributed.is_initialized():
        with contextlib.suppress(RuntimeError):  # JAX has started: what it has then is what there is
            jax.config.update("jax_num_cpu_devices", devices)
    found = jax.devices()
    if devices is not None and devices > len(found):
        raise ValueError(
            f"{devices} devices were asked for, but JAX has {len(found)} ({found[0].platform}); to split a CPU call "
            f"cofed.mesh({devices}) before anything else uses JAX, or set JAX_NUM_CPU_DEVICES={devices}"
        )
    return Mesh(np.array(found[: devices or len(found)]), ("clients",))


def put(tree: PyTree, mesh: Mesh, spec: P) -> PyTree:
    """The tree's arrays on the devices. Every process gives the same arrays, and keeps what its devices hold."""
    sharding = NamedSharding(mesh, spec)

    def leaf(x: PyTree) -> PyTree:
        if not eqx.is_array(x):
            return x
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(leaf(jax.random.key_data(x)), impl=jax.random.key_impl(x))
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(leaf, tree)


def padded(tree: PyTree, mesh: Mesh) -> PyTree:
    """Stacks of clients with as many as fill all devices: the first one again, at the end."""

    def leaf(x: Array) -> np.ndarray:
        host = np.asarray(x)
        more = -len(host) % mesh.size
        return np.concatenate([host, np.repeat(host[:1], more, axis=0)]) if more else host

    return jax.tree.map(leaf, tree)


def spread_data(data: Data, mesh: Mesh) -> Data:
    """The clients' data, dealt out."""
    assert data.places is not None
    axis = P(mesh.axis_names[0])
    names = STACKS if data.tiers is None else [name for name in STACKS if name not in ("X", "y")]
    stacks = padded({name: getattr(data, name) for name in names if getattr(data, name) is not None}, mesh)
    real = np.arange(len(stacks["weights"])) < data.places.shape[0]
    stacks["weights"] = np.where(real, stacks["weights"], 0).astype(data.weights.dtype)
    if data.tiers is not None:
        stacks |= spread_rows(data, stacks["sizes"], real, mesh.size)
    return dataclasses.replace(data, **put(stacks, mesh, axis), places=put(data.places, mesh, P()), mesh=mesh)


def spread_rows(data: Data, sizes: np.ndarray, real: np.ndarray, devices: int) -> dict[str, np.ndarray]:
    """Rows, dealt out with their clients: every device has room for the most rows that one has. A client that fills up
    the last device has one sample, which lies past the end and counts nothing."""
    each = np.where(real, sizes, 0).reshape(devices, -1)
    room = int(each.sum(axis=1).max())
    starts = np.where(real, (np.cumsum(each, axis=1) - each).reshape(-1), room).astype(np.int32)
    found = {"starts": starts, "sizes": np.where(real, sizes, 1).astype(np.int32)}
    ends = np.cumsum(each.sum(axis=1))
    for name in ("X", "y"):
        rows = np.asarray(getattr(data, name))
        machine.require(devices * room * rows[:1].nbytes, f"the clients' {name}, spread over {devices} devices,")
        dealt_out = np.repeat(rows[:1], devices * room, axis=0).reshape(devices, room, *rows.shape[1:])
        for part, first, end in zip(dealt_out, [0, *ends], ends, strict=False):
            part[: end - first] = rows[first:end]
        found[name] = dealt_out.reshape(devices * room, *rows.shape[1:])
    return found


def put_task(task: AbstractTask, mesh: Mesh, data: Data) -> AbstractTask:
    """A task on the devices, where its data is already."""
    fields = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    parts = {name: put(part, mesh, P()) for name, part in fields.items() if name != "data"}
    return dataclasses.replace(task, **parts, data=data)


def spread_state(state: State, mesh: Mesh) -> State:
    """A state that is whole, dealt out."""
    clients = put(padded(state.clients, mesh), mesh, P(mesh.axis_names[0]))
    rest = put(state.holding(state.server, ()), mesh, P())
    return rest.holding(rest.server, clients)


def whole(state: State, clients: int) -> State:
    """A state with all clients in one place, without padding."""

    def leaf(x: Array) -> Array:
        host = x if x.is_fully_addressable else multihost_utils.process_allgather(x, tiled=True)
        return jnp.asarray(np.asarray(host)[:clients])

    rest = in_one_place(state.holding(state.server, ()))
    return rest.holding(rest.server, jax.tree.map(leaf, state.clients))


def everywhere(task: AbstractTask, tree: PyTree) -> PyTree:
    """The tree's arrays on all devices of the task."""
    return tree if task.data.mesh is None else put(tree, task.data.mesh, P())


def in_one_place(tree: PyTree) -> PyTree:
    """What is alike on all devices, on the first."""
    local = lambda x: x.addressable_data(0) if isinstance(x, jax.Array) and x.is_fully_replicated else x  # noqa: E731
    return jax.tree.map(local, tree)


def alike(_: State | None = None) -> P:
    """The placing of what is the same on all devices."""
    return P()


def on_devices(f: Callable, gives: Callable = alike) -> Callable:
    """f(task, ...) on every device of the task's mesh at once; f itself where there is none.

    `gives` says where a state stands in what f gives: from the placing of a state to that of the result. All else that
    f gives is the same on all devices.
    """

    def run(task: AbstractTask, *rest: PyTree) -> PyTree:
        mesh = task.data.mesh
        if mesh is None:
            return f(task, *rest)
        axis = P(mesh.axis_names[0])
        arrays, static = eqx.partition((task, *rest), eqx.is_array)
        specs = [jax.tree.map(lambda _: P(), part) for part in arrays]
        specs[0] = eqx.tree_at(dealt, specs[0], [axis] * len(dealt(specs[0])))
        for i, part in enumerate(arrays):
            if isinstance(part, State):
                specs[i] = eqx.tree_at(kept, specs[i], jax.tree.map(lambda _: axis, part.clients))
        # The shape of any state, with one leaf for all that the server has and one for the clients' part.
        shape = State.before_stage(jnp.zeros(()), jnp.zeros(()), jax.random.key(0), 0)
        placing = eqx.tree_at(kept, jax.tree.map(lambda _: P(), shape), axis)
        work = lambda *arrays: f(*eqx.combine(arrays, static))  # noqa: E731
        return jax.shard_map(work, mesh=mesh, in_specs=tuple(specs), out_specs=gives(placing), check_vma=False)(*arrays)

    return run


def in_parts(f: Callable, mesh: Mesh | None) -> Callable:
    """f(shared, stacked), whose two results are stacked as well and a third is not, with a part of the stack on each
    device; f itself where there is no mesh. The arguments, and the results again, are on all devices alike."""
    if mesh is None:
        return f
    axis, everywhere = P(mesh.axis_names[0]), NamedSharding(mesh, P())
    parts = jax.shard_map(f, mesh=mesh, in_specs=(P(), axis), out_specs=(axis, axis, P()), check_vma=False)
    return lambda *given: jax.lax.with_sharding_constraint(parts(*given), everywhere)


def dealt(task: AbstractTask) -> list[PyTree]:
    """What of a task is dealt out."""
    return [part for name in STACKS if (part := getattr(task.data, name)) is not None]


def kept(state: State) -> PyTree:
    """What of a state is dealt out."""
    return state.clients
