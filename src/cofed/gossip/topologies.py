"""Who talks to whom without a server: graphs, their gossip matrices, and mixing at the cost of the edges.

A gossip matrix U is symmetric and doubly stochastic, with u_ij > 0 only along edges. Metropolis weights make one from
any graph: u_ij = 1 / (1 + max(degree_i, degree_j)). On a chain that is 1/3, with 2/3 left for the ends themselves.

networkx and scipy.sparse are imported where they are used: most runs have a server, and then start without them.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from cofed._util import checks, naming

__all__ = [
    "Topology",
    "chain",
    "complete",
    "erdos_renyi",
    "from_graph",
    "from_matrix",
    "grid",
    "ring",
    "star",
    "torus",
]
TOLERANCE = 1e-8
NODES, EDGES = 10**7, 10**8  # more than these are a mistake, and no memory holds them


class Topology(eqx.Module):
    """A connected graph with a gossip matrix; make one with `chain`, `ring`, ..., `from_graph` or `from_matrix`.

    `second_eigenvalue` is sigma_2, the largest absolute eigenvalue of U but for the 1: the distance to consensus
    shrinks by it per exchange. `mixing_time` is 1 / (1 - sigma_2), the number of exchanges that matter.

    >>> import cofed
    >>> chain = cofed.topologies.chain(16)
    >>> chain
    Topology(chain, 16 nodes, 15 edges, second eigenvalue 0.9872, mixing time 78.1)
    """

    first: Int[np.ndarray, " edges"]  # i of each edge {i, j}
    second: Int[np.ndarray, " edges"]  # j
    weight: Float[np.ndarray, " edges"]  # u_ij = u_ji
    nodes: int = eqx.field(static=True)
    name: str = eqx.field(static=True)
    second_eigenvalue: float = eqx.field(static=True)
    # The nodes' names, where they are texts, or numbers other than 0, 1, 2, ...
    labels: tuple[str | int, ...] | None = eqx.field(static=True, default=None)

    def for_clients(self, names: Sequence[str]) -> "Topology":
        """The topology with its nodes in the clients' order: by name where nodes have names, else as they are."""
        if self.labels is None:
            return self
        labels = [str(label) for label in self.labels]
        if set(labels) != set(names):
            if all(isinstance(label, int) for label in self.labels) and not set(labels) & set(names):
                return self  # numbers that name no client
            strange = sorted(set(labels) ^ set(names), key=naming.natural)
            raise ValueError(
                "the topology's nodes have names, which must be those of the clients; "
                f"only one of the two has {naming.listed(strange)}"
            )
        places = {name: m for m, name in enumerate(names)}
        place = np.array([places[label] for label in labels])
        pairs = np.sort(np.stack([place[self.first], place[self.second]], axis=1), axis=1)
        return dataclasses.replace(self, first=pairs[:, 0], second=pairs[:, 1], labels=tuple(names))

    @property
    def mixing_time(self) -> float:
        """1 / (1 - sigma_2)"""
        gap = 1 - self.second_eigenvalue
        return math.inf if gap <= 0 else 1 / gap

    @property
    def degrees(self) -> Int[np.ndarray, " nodes"]:
        """How many neighbours each node has."""
        return np.bincount(np.concatenate([self.first, self.second]), minlength=self.nodes)

    def matrix(self) -> Float[np.ndarray, "nodes nodes"]:
        """U, written out."""
        return sparse_matrix(self.first, self.second, self.weight, self.nodes).toarray()

    def graph(self) -> Any:
        """The graph, for networkx."""
        import networkx as nx

        graph = nx.Graph()
        graph.add_nodes_from(range(self.nodes))
        graph.add_weighted_edges_from(zip(self.first.tolist(), self.second.tolist(), self.weight.tolist(), strict=True))
        return graph

    def draw(self, path: str | Path | None = None) -> Any:
        """A picture of the graph: a matplotlib figure, also written to `path` (PNG, SVG or PDF) where one is given.

        >>> import cofed
        >>> figure = cofed.topologies.ring(5).draw()
        """
        from cofed.plotting import draw_graph

        return draw_graph(self.graph(), f"{self!r}"[9:-1], path)

    def __repr__(self) -> str:
        return (
            f"Topology({self.name}, {self.nodes} nodes, {len(self.first)} edges, "
            f"second eigenvalue {self.second_eigenvalue:.4f}, mixing time {self.mixing_time:.1f})"
        )


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


def links(topology: Topology, dtype: Any) -> Links:
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
    number = lambda a: jnp.asarray(a, jnp.int32)  # noqa: E731
    return Links(
        number(topology.first),
        number(topology.second),
        jnp.asarray(topology.weight, dtype),
        number(neighbour),
        number(edge),
        nodes,
        kind,
    )


def chain(nodes: int) -> Topology:
    """A line of nodes.

    >>> import cofed
    >>> cofed.topologies.chain(3).matrix().round(3).tolist()
    [[0.667, 0.333, 0.0], [0.333, 0.333, 0.333], [0.0, 0.333, 0.667]]
    """
    import networkx as nx

    return from_graph(nx.path_graph(count(nodes)), name="chain")


def ring(nodes: int) -> Topology:
    """A closed line of nodes.

    >>> import cofed
    >>> cofed.topologies.ring(4).degrees.tolist()
    [2, 2, 2, 2]
    """
    import networkx as nx

    return from_graph(nx.cycle_graph(count(nodes)), name="ring")


def star(nodes: int) -> Topology:
    """Node 0 in the middle, all others around it.

    >>> import cofed
    >>> cofed.topologies.star(4).degrees.tolist()
    [3, 1, 1, 1]
    """
    import networkx as nx

    return from_graph(nx.star_graph(count(nodes) - 1), name="star")


def grid(rows: int, columns: int) -> Topology:
    """A rectangle of nodes, each with up to four neighbours.

    >>> import cofed
    >>> cofed.topologies.grid(2, 3).nodes
    6
    """
    import networkx as nx

    graph = nx.grid_2d_graph(*sides(rows, columns))
    return from_graph(nx.convert_node_labels_to_integers(graph, ordering="sorted"), name=f"grid {rows} x {columns}")


def torus(rows: int, columns: int) -> Topology:
    """A grid whose opposite sides are joined.

    >>> import cofed
    >>> cofed.topologies.torus(3, 4).degrees.tolist()
    [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]
    """
    import networkx as nx

    graph = nx.grid_2d_graph(*sides(rows, columns), periodic=True)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return from_graph(nx.convert_node_labels_to_integers(graph, ordering="sorted"), name=f"torus {rows} x {columns}")


def sides(rows: int, columns: int) -> tuple[int, int]:
    """The sides of a rectangle of nodes, or a sentence."""
    found = count(rows, "rows"), count(columns, "columns")
    if found[0] * found[1] > NODES:
        raise ValueError(f"rows={rows} and columns={columns} are more than {NODES:.0e} nodes")
    return found


def complete(nodes: int) -> Topology:
    """Everybody talks to everybody: U = J/M, as with a server.

    >>> import cofed
    >>> cofed.topologies.complete(4).matrix().tolist()[0]
    [0.25, 0.25, 0.25, 0.25]
    """
    import networkx as nx

    if count(nodes) ** 2 / 2 > EDGES:
        raise ValueError(f"nodes={nodes}: a complete graph of so many has more than {EDGES:.0e} edges")
    return from_graph(nx.complete_graph(nodes), name="complete")


def erdos_renyi(nodes: int, probability: float, seed: int = 0, tries: int = 100) -> Topology:
    """Each edge with the given probability, independently; drawn again (up to `tries` times) until connected.

    >>> import cofed
    >>> cofed.topologies.erdos_renyi(10, 0.4, seed=1).nodes
    10
    """
    import networkx as nx

    inside = checks.is_real(probability) and 0 < checks.as_float(probability) <= 1
    probability = checks.real("the probability of an edge", probability, "in (0, 1]", inside)
    checks.generator_seed("erdos_renyi", seed)
    tries = checks.integer("tries", tries)
    if count(nodes) ** 2 * probability / 2 > EDGES:
        raise ValueError(f"nodes={nodes} with probability {probability:g} are more than {EDGES:.0e} edges")
    for attempt in range(tries):
        graph = nx.gnp_random_graph(nodes, probability, seed=int(seed) + 1_000_003 * attempt)
        if nx.is_connected(graph):
            return from_graph(graph, name=f"Erdos-Renyi p={probability:g}")
    raise ValueError(
        f"no connected graph of {nodes} nodes in {tries} draws with probability {probability}; "
        f"above ln(n)/n = {math.log(nodes) / nodes:.3f} they are likely connected"
    )


def from_graph(graph: Any, name: str = "graph") -> Topology:
    """Metropolis weights on any connected, undirected networkx graph.

    Nodes that are called 0, 1, 2, ... are the clients at these positions. Other nodes whose names (texts or whole
    numbers) are those of the clients are these clients. Numbers that name no client, and nodes that are neither, are
    taken in the graph's order.

    >>> import cofed, networkx as nx
    >>> cofed.topologies.from_graph(nx.petersen_graph()).nodes
    10
    """
    import networkx as nx

    if not isinstance(graph, nx.Graph) or graph.is_directed() or graph.is_multigraph():
        raise TypeError(f"graph: expected an undirected networkx graph, got {type(graph).__name__}")
    name = checks.text("name", name)
    if graph.number_of_nodes() == 0:
        raise ValueError("a topology needs at least one node, the graph has none")
    if not nx.is_connected(graph):
        parts = nx.number_connected_components(graph)
        raise ValueError(f"the graph is not connected: it has {parts} parts, which would never agree")
    nodes = list(graph.nodes)
    positions = set(nodes) == set(range(len(nodes)))
    if positions:
        nodes = list(range(len(nodes)))
    labels = None
    if all(isinstance(node, str) for node in nodes):
        labels = tuple(nodes)
    elif not positions and all(isinstance(node, (int, np.integer)) for node in nodes):
        labels = tuple(int(node) for node in nodes)
    if labels is None and any(isinstance(node, str) for node in nodes):
        raise ValueError("graph: some nodes have texts for names and some not; name all after clients, or none")
    place = {node: i for i, node in enumerate(nodes)}
    pairs = np.array([(place[a], place[b]) for a, b in graph.edges if a != b], int).reshape(-1, 2)
    first, second = np.sort(pairs, axis=1).T
    degrees = np.bincount(pairs.ravel(), minlength=len(place))
    weight = 1 / (1 + np.maximum(degrees[first], degrees[second]))
    return dataclasses.replace(make(first, second, weight, len(place), name), labels=labels)


def from_matrix(matrix: Any, name: str = "matrix") -> Topology:
    """A given gossip matrix (dense or scipy.sparse), refused with the property that fails: square, finite,
    non-negative, symmetric, doubly stochastic, connected.

    >>> import cofed
    >>> cofed.topologies.from_matrix([[0.5, 0.5], [0.5, 0.5]]).second_eigenvalue
    0.0
    """
    import scipy.sparse.csgraph

    name = checks.text("name", name)
    given: Any = matrix if scipy.sparse.issparse(matrix) else dense(matrix)
    if len(given.shape) != 2 or given.shape[0] != given.shape[1] or given.shape[0] == 0:
        raise ValueError(f"a gossip matrix must be square, got shape {given.shape}")
    if given.dtype.kind not in "fiub":
        raise ValueError(f"a gossip matrix must be of real numbers, got {given.dtype}")
    U: Any = scipy.sparse.csr_array(given, dtype=float, copy=True)
    U.sum_duplicates()
    U.eliminate_zeros()
    if not np.all(np.isfinite(U.data)):
        raise ValueError("the gossip matrix is not finite: it has NaN or infinite entries")
    if U.data.size and U.data.min() < 0:
        raise ValueError(f"the gossip matrix is not non-negative: its least entry is {U.data.min():g}")
    skew = abs(U - U.T)
    if skew.nnz and skew.max() > TOLERANCE:
        i, j = np.unravel_index(int(skew.toarray().argmax()), U.shape)
        raise ValueError(f"the gossip matrix is not symmetric: u[{i},{j}] = {U[i, j]:g}, u[{j},{i}] = {U[j, i]:g}")
    sums = np.asarray(U.sum(axis=1)).ravel()
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > TOLERANCE:
        raise ValueError(f"the gossip matrix is not doubly stochastic: row {worst} sums to {sums[worst]:.10g}, not 1")
    parts = scipy.sparse.csgraph.connected_components(U, directed=False)[0]
    if parts > 1:
        raise ValueError(f"the gossip matrix is not connected: it has {parts} parts, which would never agree")
    upper = scipy.sparse.triu(U, k=1).tocoo()
    topology = make(upper.row.astype(int), upper.col.astype(int), upper.data, U.shape[0], name)
    if topology.second_eigenvalue > 1 - 1e-12:
        raise ValueError(
            "the gossip matrix never agrees: it has the eigenvalue -1, two sides that only swap what they hold"
        )
    return topology


def dense(matrix: Any) -> np.ndarray:
    """The matrix as an array, or a sentence."""
    try:
        found = np.asarray(matrix)
    except ValueError:
        raise ValueError(f"a gossip matrix must be square, got the ragged {checks.shown(matrix)}") from None
    if np.ma.is_masked(matrix):
        raise ValueError("a gossip matrix must not have masked entries")
    return found


def make(first: np.ndarray, second: np.ndarray, weight: np.ndarray, nodes: int, name: str) -> Topology:
    """A topology from its edges, with its second eigenvalue."""
    U = sparse_matrix(first, second, weight, nodes)
    return Topology(first, second, np.asarray(weight, float), nodes, name, second_eigenvalue(U))


def sparse_matrix(first: np.ndarray, second: np.ndarray, weight: np.ndarray, nodes: int) -> Any:
    """U, sparse; the diagonal is what the edges leave."""
    import scipy.sparse

    rows, columns = np.concatenate([first, second]), np.concatenate([second, first])
    off = scipy.sparse.coo_array((np.tile(weight, 2).astype(float), (rows, columns)), shape=(nodes, nodes)).tocsr()
    own = 1.0 - np.bincount(rows, np.tile(weight, 2), minlength=nodes)
    return (off + scipy.sparse.diags_array(own)).tocsr()


def second_eigenvalue(U: Any) -> float:
    """sigma_2: the spectral norm of U - J/M."""
    import scipy.sparse.linalg

    nodes = U.shape[0]
    if nodes == 1:
        return 0.0
    if nodes <= 500:
        return float(np.abs(np.linalg.eigvalsh(U.toarray() - 1 / nodes)).max().round(12))
    # Both ends of the spectrum; the upper one, crowded below 1, by inverting U - (1 + 1e-6) I, which is sparse.
    start = np.random.default_rng(0).normal(size=nodes)
    eigenvalues: Any = scipy.sparse.linalg.eigsh
    options = {"v0": start, "return_eigenvectors": False}
    top = eigenvalues(U.tocsc(), k=2, sigma=1 + 1e-6, **options).min()
    least = eigenvalues(U, k=1, which="SA", **options).min()
    return float(max(top, -least))


def count(nodes: int, what: str = "nodes") -> int:
    """A number of nodes, or a sentence."""
    return checks.integer(f"the number of {what}", nodes, most=NODES)
