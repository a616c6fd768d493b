"""Clients spread over the devices of a mesh: all communication between devices is here.

With a mesh the whole loop of rounds runs on every device, over the clients that live there: their data and their state
never move. The server's part is computed on all devices alike. Each function here is the identity where all clients
are in one place.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int, PyTree

BLOCKS = 4  # chosen participants are worked on in about so many blocks, so that the last one has few idle places


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


def block_of(expected: int, most: int | None) -> int:
    """How many to take at a time where about so many are expected, and at most `most` are wanted at once."""
    return max(1, min(-(-expected // BLOCKS), most or expected))


def only(chosen: Bool[Array, " participants"], block: int) -> Callable:
    """A `for_each` that works for the chosen participants alone, a block at a time; the results of others are those of
    `found`, or 0.

    How many are chosen is a number to the program: where they are fewer, it is done sooner.
    """
    participants = chosen.shape[0]
    order = jnp.pad(jnp.argsort(~chosen, stable=True).astype(jnp.int32), (0, block))
    count = jnp.sum(chosen.astype(jnp.int32)).astype(jnp.int32)

    def for_each(client: Callable, *stacked: PyTree, found: PyTree = None) -> PyTree:
        def some(slots: Array) -> PyTree:
            return jax.vmap(client)(*jax.tree.map(lambda leaf: leaf[slots], stacked))

        def body(carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
            done, found = carry
            slots = jax.lax.dynamic_slice_in_dim(order, done, block)
            real = done + jnp.arange(block, dtype=jnp.int32) < count
            at = jnp.where(real, slots, participants)  # what is behind the last one is dropped
            new = jax.tree.map(lambda all_, part: all_.at[at].set(part, mode="drop"), found, some(slots))
            return done + block, new

        if found is None:
            shapes = jax.eval_shape(lambda: jax.vmap(client)(*stacked))
            found = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return jax.lax.while_loop(lambda carry: carry[0] < count, body, (jnp.zeros((), jnp.int32), found))[1]

    return for_each
