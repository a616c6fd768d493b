"""Mixing along the edges of a topology, inside the compiled program, at the cost of the edges."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PyTree

from cofed._util.scalars import constant
from cofed.gossip.topologies.topology import Topology


class Links(eqx.Module):
    """The edges as the compiled program sees them. `kind` is how mixing is done: where all nodes have about as many
    neighbours, by rows of neighbours; where nearly all talk to all, by the matrix; else edge by edge."""

    first: Int[Array, " edges"]
    second: Int[Array, " edges"]
    weight: Float[Array, " edges"]
    neighbour: Int[Array, "nodes most"]  # of each node, padded with itself
    edge: Int[Array, "nodes most"]  # the edge to that neighbour; padding points behind the last edge
    nodes: int = eqx.field(static=True)
    kind: str = eqx.field(static=True)

    def mix(self, tree: PyTree, alive: Bool[Array, " edges"]) -> PyTree:
        """sum_j u_ij x_j for every node i, where dead edges give their weight back to both their ends: the matrix
        stays symmetric and doubly stochastic."""
        weight = jnp.where(alive, self.weight, 0)

        def leaf(x: Array) -> Array:
            flat = x.reshape(self.nodes, -1)
            w = weight.astype(x.dtype)
            # x_i + sum_j u_ij (x_j - x_i): nodes that agree keep agreeing, whatever the rounding of the weights.
            if self.kind == "rows":
                own = jnp.pad(w, (0, 1))[self.edge]
                mixed = flat
                for k in range(self.neighbour.shape[1]):
                    mixed = mixed + own[:, k, None] * (flat[self.neighbour[:, k]] - flat)
            elif self.kind == "matrix":
                U = jnp.zeros((self.nodes, self.nodes), x.dtype)
                U = U.at[self.first, self.second].set(w).at[self.second, self.first].set(w)
                mixed = flat + U @ flat - U.sum(axis=1)[:, None] * flat
            else:
                flow = w[:, None] * (flat[self.second] - flat[self.first])
                mixed = flat.at[self.first].add(flow).at[self.second].add(-flow)
            return mixed.reshape(x.shape)

        return jax.tree.map(leaf, tree)

    def mean(self, x: Float[Array, "nodes ..."]) -> Float[Array, "..."]:
        """The mean over the nodes."""
        return jnp.mean(x, axis=0)


def links(topology: Topology, dtype: DTypeLike) -> Links:
    """The topology's edges on the device."""
    nodes, edges = topology.nodes, len(topology.first)
    degrees = topology.degrees
    most = int(degrees.max(initial=0))
    ends = np.concatenate([topology.first, topology.second])
    others = np.concatenate([topology.second, topology.first])
    numbers = np.tile(np.arange(edges), 2)
    order = np.argsort(ends, kind="stable")
    column = np.arange(2 * edges) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    if most * nodes <= 3 * (2 * edges + nodes) and most <= 16:
        kind, width = "rows", most
    else:
        kind, width = ("matrix" if 2 * edges > nodes**2 / 4 else "edges"), 0
    neighbour = np.tile(np.arange(nodes)[:, None], (1, width))
    edge = np.full((nodes, width), edges)
    if kind == "rows":
        neighbour[ends[order], column] = others[order]
        edge[ends[order], column] = numbers[order]
    number = lambda a: constant(a, jnp.int32)  # noqa: E731
    return Links(
        number(topology.first),
        number(topology.second),
        constant(topology.weight, dtype),
        number(neighbour),
        number(edge),
        nodes,
        kind,
    )
