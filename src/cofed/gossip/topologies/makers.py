"""The usual graphs, with Metropolis weights."""

import math

from cofed._util import checks
from cofed.gossip.topologies.conversions import from_graph
from cofed.gossip.topologies.topology import Topology

NODES, EDGES = 10**7, 10**8  # more than these are a mistake, and no memory holds them


def chain(nodes: int) -> Topology:
    """A line of nodes.

    Parameters
    ----------
    nodes : int
        The number of nodes.

    Returns
    -------
    Topology
        The graph with Metropolis weights.

    Examples
    --------
    >>> import cofed
    >>> cofed.topologies.chain(3).matrix().round(3).tolist()
    [[0.667, 0.333, 0.0], [0.333, 0.333, 0.333], [0.0, 0.333, 0.667]]
    """
    import networkx as nx

    return from_graph(nx.path_graph(count(nodes)), name="chain")


def ring(nodes: int) -> Topology:
    """A closed line of nodes.

    Parameters
    ----------
    nodes : int
        The number of nodes.

    Returns
    -------
    Topology
        The graph with Metropolis weights.

    Examples
    --------
    >>> import cofed
    >>> cofed.topologies.ring(4).degrees.tolist()
    [2, 2, 2, 2]
    """
    import networkx as nx

    return from_graph(nx.cycle_graph(count(nodes)), name="ring")


def star(nodes: int) -> Topology:
    """Node 0 in the middle, all others around it.

    Parameters
    ----------
    nodes : int
        The number of nodes.

    Returns
    -------
    Topology
        The graph with Metropolis weights.

    Examples
    --------
    >>> import cofed
    >>> cofed.topologies.star(4).degrees.tolist()
    [3, 1, 1, 1]
    """
    import networkx as nx

    return from_graph(nx.star_graph(count(nodes) - 1), name="star")


def grid(rows: int, columns: int) -> Topology:
    """A rectangle of nodes, each with up to four neighbours.

    Parameters
    ----------
    rows, columns : int
        The sides of the rectangle.

    Returns
    -------
    Topology
        The graph with Metropolis weights.

    Examples
    --------
    >>> import cofed
    >>> cofed.topologies.grid(2, 3).nodes
    6
    """
    import networkx as nx

    graph = nx.grid_2d_graph(*sides(rows, columns))
    return from_graph(nx.convert_node_labels_to_integers(graph, ordering="sorted"), name=f"grid {rows} x {columns}")


def torus(rows: int, columns: int) -> Topology:
    """A grid whose opposite sides are joined.

    Parameters
    ----------
    rows, columns : int
        The sides of the rectangle.

    Returns
    -------
    Topology
        The graph with Metropolis weights.

    Examples
    --------
    >>> import cofed
    >>> cofed.topologies.torus(3, 4).degrees.tolist()
    [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]
    """
    import networkx as nx

    graph = nx.grid_2d_graph(*sides(rows, columns), periodic=True)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return from_graph(nx.convert_node_labels_to_integers(graph, ordering="sorted"), name=f"torus {rows} x {columns}")


def sides(rows: int, columns: int) -> tuple[int, int]:
    """The sides of a rectangle of nodes, checked."""
    found = count(rows, "rows"), count(columns, "columns")
    if found[0] * found[1] > NODES:
        raise ValueError(f"rows={rows} and columns={columns} are more than {NODES:.0e} nodes")
    return found


def complete(nodes: int) -> Topology:
    """Everybody talks to everybody: U = J/M, as with a server.

    Parameters
    ----------
    nodes : int
        The number of nodes.

    Returns
    -------
    Topology
        The graph with Metropolis weights.

    Examples
    --------
    >>> import cofed
    >>> cofed.topologies.complete(4).matrix().tolist()[0]
    [0.25, 0.25, 0.25, 0.25]
    """
    import networkx as nx

    if count(nodes) ** 2 / 2 > EDGES:
        raise ValueError(f"nodes={nodes}: a complete graph of so many has more than {EDGES:.0e} edges")
    return from_graph(nx.complete_graph(nodes), name="complete")


def erdos_renyi(nodes: int, probability: float, seed: int = 0, tries: int = 100) -> Topology:
    """A random graph: each edge is there with the given probability, independently of the others.

    Parameters
    ----------
    nodes : int
        The number of nodes.
    probability : float
        The probability of each edge, in (0, 1].
    seed : int, default 0
        The seed of the draws.
    tries : int, default 100
        How many graphs are drawn at most until one is connected.

    Returns
    -------
    Topology
        The graph with Metropolis weights.

    Raises
    ------
    ValueError
        Where no drawn graph is connected.

    Examples
    --------
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


def count(nodes: int, what: str = "nodes") -> int:
    """A number of nodes, checked."""
    return checks.integer(f"the number of {what}", nodes, most=NODES)
