"""Who talks to whom without a server: graphs with gossip matrices.

A gossip matrix U is symmetric and doubly stochastic, with u_ij > 0 only along edges. Metropolis weights make one from
any graph: u_ij = 1 / (1 + max(degree_i, degree_j)). On a chain that is 1/3, with 2/3 left for the ends themselves.

networkx and scipy.sparse are imported where they are used: most runs have a server, and then start without them.
"""

from cofed.gossip.topologies.conversions import from_graph, from_matrix
from cofed.gossip.topologies.makers import chain, complete, erdos_renyi, grid, ring, star, torus
from cofed.gossip.topologies.mixing import Links, links
from cofed.gossip.topologies.topology import Topology

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
