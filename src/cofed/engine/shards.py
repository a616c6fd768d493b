"""Clients spread over the devices of a mesh: what crosses from one device to the others, and nothing else does.

With a mesh the whole loop of rounds runs on every device, over the clients that live there: their data and their state
never move. The server's part is computed on all devices alike. Each function here is the identity where all clients
are in one place.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int, PyTree

BLOCKS = 4  # a device takes its participants in so many blocks if it has its fair share: few idle places in the last


def total(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """The sum over all devices: one message, whatever the tree."""
    if mesh is None:
        return tree
    flat, back = ravel_pytree(tree)
    return back(jax.lax.psum(flat, mesh.axis_names[0]))


def everybody(tree: PyTree, mesh: Mesh | None, clients: int) -> PyTree:
    """What all clients have, stacked, from the stacks on each device, which may be padded at the end."""
    if mesh is None:
        return tree
    return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, mesh.axis_names[0], tiled=True)[:clients], tree)


def first_here(mesh: Mesh | None, here: int) -> Int[Array, ""] | int:
    """The position, among all clients, of the first that lives on this device, where each has `here`."""
    return 0 if mesh is None else jax.lax.axis_index(mesh.axis_names[0]).astype(jnp.int32) * here


def own_only(mine: Bool[Array, " participants"], devices: int, most: int | None) -> Callable:
    """A `for_each` that works for the participants of this device alone, a block (of at most `most`) at a time; the
    results of others are 0.

    How many live here is a number to the program: a device with fewer is done sooner.
    """
    participants = mine.shape[0]
    block = max(1, min(-(-participants // (devices * BLOCKS)), most or participants))
    order = jnp.pad(jnp.argsort(~mine, stable=True).astype(jnp.int32), (0, block))
    count = jnp.sum(mine.astype(jnp.int32)).astype(jnp.int32)

    def for_each(client: Callable, *stacked: PyTree) -> PyTree:
        def some(slots: Array) -> PyTree:
            return jax.vmap(client)(*jax.tree.map(lambda leaf: leaf[slots], stacked))

        def body(carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
            done, found = carry
            slots = jax.lax.dynamic_slice_in_dim(order, done, block)
            real = done + jnp.arange(block, dtype=jnp.int32) < count
            at = jnp.where(real, slots, participants)  # what is behind the last one is dropped
            new = jax.tree.map(lambda all_, part: all_.at[at].set(part, mode="drop"), found, some(slots))
            return done + block, new

        shapes = jax.eval_shape(lambda: jax.vmap(client)(*stacked))
        empty: Any = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return jax.lax.while_loop(lambda carry: carry[0] < count, body, (jnp.zeros((), jnp.int32), empty))[1]

    return for_each
