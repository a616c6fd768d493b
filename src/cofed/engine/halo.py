"""Mixing along a graph whose nodes are spread over devices: a device sends another only what their links need.

Nodes are dealt out in blocks, so a ring or a grid has few links between devices. Device i sends to device i + s, for
every shift s along which the graph has links, the nodes that have a neighbour there: one message per shift.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PyTree

from cofed._util.scalars import constant
from cofed.engine.collectives import total
from cofed.gossip.topologies import Topology


class HaloLinks(eqx.Module):
    """The edges of all nodes, and for each device its own ends of them; `mix` and `mean` as `topologies.Links` has."""

    first: Int[Array, " edges"]
    second: Int[Array, " edges"]
    weight: Float[Array, " edges"]
    own: Int[Array, "devices ends"]  # the node here of each end; padding points behind the last node
    other: Int[Array, "devices ends"]  # its neighbour, among the nodes here and then those that come in
    edge: Int[Array, "devices ends"]  # the edge; padding points behind the last one
    sends: tuple[Int[Array, "devices most"], ...]  # by shift: the nodes to send, padded with the first
    shifts: tuple[int, ...] = eqx.field(static=True)
    nodes: int = eqx.field(static=True)
    here: int = eqx.field(static=True)  # nodes on each device, padding included
    mesh: Mesh = eqx.field(static=True)

    def mix(self, tree: PyTree, alive: Bool[Array, " edges"]) -> PyTree:
        """sum_j u_ij x_j for every node i that lives here; dead edges give their weight back to both ends."""
        axis, devices = self.mesh.axis_names[0], self.mesh.size
        me = jax.lax.axis_index(axis)
        own, other, edge = self.own[me], self.other[me], self.edge[me]

        def leaf(x: Array) -> Array:
            flat = x.reshape(self.here, -1)
            incoming = [
                jax.lax.ppermute(flat[sends[me]], axis, [(i, (i + by) % devices) for i in range(devices)])
                for by, sends in zip(self.shifts, self.sends, strict=True)
            ]
            known = jnp.concatenate([flat, *incoming])
            w = jnp.pad(jnp.where(alive, self.weight, 0).astype(x.dtype), (0, 1))[edge]
            flow = w[:, None] * (known[other] - flat.at[own].get(mode="clip"))
            return flat.at[own].add(flow, mode="drop").reshape(x.shape)

        return jax.tree.map(leaf, tree)

    def mean(self, x: Float[Array, "here ..."]) -> Float[Array, "..."]:
        """The mean over all nodes."""
        at = jax.lax.axis_index(self.mesh.axis_names[0]) * self.here + jnp.arange(self.here, dtype=jnp.int32)
        real = (at < self.nodes).reshape(-1, *(1,) * (x.ndim - 1))
        return total(jnp.sum(jnp.where(real, x, 0), axis=0), self.mesh) / self.nodes


def halo_links(topology: Topology, dtype: np.dtype, mesh: Mesh) -> HaloLinks:
    """The topology's edges on the devices."""
    devices, edges = mesh.size, len(topology.first)
    here = -(-topology.nodes // devices)
    ends = np.concatenate([topology.first, topology.second])
    others = np.concatenate([topology.second, topology.first])
    numbers = np.tile(np.arange(edges), 2)
    home, source = ends // here, others // here
    place = others % here  # of neighbours on the same device
    behind, sends, shifts = here, [], []
    for by in range(1, devices):
        crossing = (home - source) % devices == by
        if not crossing.any():
            continue
        wanted = [np.unique(others[crossing & (source == d)]) for d in range(devices)]
        most = max(len(nodes) for nodes in wanted)
        sends.append(np.array([np.pad(nodes % here, (0, most - len(nodes))) for nodes in wanted]))
        for d, nodes in enumerate(wanted):
            mine = crossing & (source == d)
            place[mine] = behind + np.searchsorted(nodes, others[mine])
        shifts.append(by)
        behind += most
    most = int(np.bincount(home, minlength=devices).max(initial=0))
    own, other, edge = np.full((devices, most), here), np.zeros((devices, most), int), np.full((devices, most), edges)
    for d in range(devices):
        mine = np.flatnonzero(home == d)
        own[d, : len(mine)], other[d, : len(mine)], edge[d, : len(mine)] = ends[mine] % here, place[mine], numbers[mine]
    number = lambda a: constant(a, jnp.int32)  # noqa: E731
    return HaloLinks(
        number(topology.first),
        number(topology.second),
        constant(topology.weight, dtype),
        number(own),
        number(other),
        number(edge),
        tuple(number(a) for a in sends),
        tuple(shifts),
        topology.nodes,
        here,
        mesh,
    )
