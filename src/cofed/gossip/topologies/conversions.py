"""Topologies from a networkx graph or from a gossip matrix of one's own."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cofed._util import checks
from cofed._util.types import Given
from cofed.gossip.topologies.topology import Topology, from_edges

if TYPE_CHECKING:
    import networkx as nx

    from cofed.gossip.topologies.spectrum import SparseMatrix

TOLERANCE = 1e-8  # of sums that must be 1, and of entries that must agree


def from_graph(graph: Given["nx.Graph"], name: str = "graph") -> Topology:
    """Metropolis weights on any connected, undirected networkx graph.

    Nodes called 0, 1, 2, ... are the clients at these positions. Otherwise, nodes whose names (strings or integers) are
    those of the clients stand for them; integers that name no client, and all other nodes, are taken in the graph's
    order.

    Parameters
    ----------
    graph : networkx.Graph
        A connected, undirected graph.
    name : str, default "graph"
        What the topology is called in tables and sentences.

    Returns
    -------
    Topology
        The graph with Metropolis weights.

    Raises
    ------
    TypeError
        Where it is no undirected networkx graph.
    ValueError
        Where it is empty or not connected, or only some nodes have strings for names.

    Examples
    --------
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
    return dataclasses.replace(from_edges(first, second, weight, len(place), name), labels=labels)


def from_matrix(matrix: Given["npt.ArrayLike | SparseMatrix"], name: str = "matrix") -> Topology:
    """A topology with the given gossip matrix.

    Parameters
    ----------
    matrix : array_like or scipy sparse matrix
        U: square, finite, non-negative, symmetric, doubly stochastic and connected.
    name : str, default "matrix"
        What the topology is called in tables and sentences.

    Returns
    -------
    Topology
        The graph of the matrix's non-zero entries, with these as weights.

    Raises
    ------
    ValueError
        Where the matrix lacks one of these properties, which is named.

    Examples
    --------
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
    topology = from_edges(upper.row.astype(int), upper.col.astype(int), upper.data, U.shape[0], name)
    if topology.second_eigenvalue > 1 - 1e-12:
        raise ValueError(
            "the gossip matrix never agrees: it has the eigenvalue -1, two sides that only swap what they hold"
        )
    return topology


def dense(matrix: object) -> np.ndarray:
    """The matrix as an array."""
    try:
        found = np.asarray(matrix)
    except ValueError:
        raise ValueError(f"a gossip matrix must be square, got the ragged {checks.shown(matrix)}") from None
    if np.ma.is_masked(matrix):
        raise ValueError("a gossip matrix must not have masked entries")
    return found
