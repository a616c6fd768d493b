"""A connected graph with its gossip matrix."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from cofed._util import naming
from cofed.gossip.topologies.spectrum import gossip_matrix, second_eigenvalue


class Topology(eqx.Module):
    """A connected graph with a gossip matrix; make one with `chain`, `ring`, ..., `from_graph` or `from_matrix`.

    Parameters
    ----------
    first, second : int array of shape (edges,)
        The two ends i < j of each edge.
    weight : float array of shape (edges,)
        u_ij = u_ji, the weight of each edge in the gossip matrix U.
    nodes : int
        M, the number of nodes.
    name : str
        What it is called in tables and sentences.
    second_eigenvalue : float
        sigma_2, the largest absolute eigenvalue of U but for the 1: each exchange brings the nodes closer to agreement
        by this factor.
    labels : tuple of str or int, optional
        The nodes' names, where they are strings, or integers other than 0, 1, 2, ...

    Examples
    --------
    >>> import cofed
    >>> chain = cofed.topologies.chain(16)
    >>> chain
    Topology(chain, 16 nodes, 15 edges, second eigenvalue 0.9872, mixing time 78.1)
    """

    first: Int[np.ndarray, " edges"]
    second: Int[np.ndarray, " edges"]
    weight: Float[np.ndarray, " edges"]
    nodes: int = eqx.field(static=True)
    name: str = eqx.field(static=True)
    second_eigenvalue: float = eqx.field(static=True)
    labels: tuple[str | int, ...] | None = eqx.field(static=True, default=None)

    def for_clients(self, names: Sequence[str]) -> "Topology":
        """The topology with its nodes in the clients' order: by name where nodes have names, else as they are.

        Parameters
        ----------
        names : sequence of str
            The clients' names.

        Returns
        -------
        Topology
            Node m is client m.

        Raises
        ------
        ValueError
            Where nodes and clients have different names.
        """
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
        """1 / (1 - sigma_2), about how many exchanges the nodes need to agree."""
        gap = 1 - self.second_eigenvalue
        return math.inf if gap <= 0 else 1 / gap

    @property
    def degrees(self) -> Int[np.ndarray, " nodes"]:
        """How many neighbours each node has."""
        return np.bincount(np.concatenate([self.first, self.second]), minlength=self.nodes)

    def matrix(self) -> Float[np.ndarray, "nodes nodes"]:
        """U as a dense array."""
        return gossip_matrix(self.first, self.second, self.weight, self.nodes).toarray()

    def graph(self) -> Any:
        """The graph as a `networkx.Graph`, whose edges carry their weights."""
        import networkx as nx

        graph = nx.Graph()
        graph.add_nodes_from(range(self.nodes))
        graph.add_weighted_edges_from(zip(self.first.tolist(), self.second.tolist(), self.weight.tolist(), strict=True))
        return graph

    def draw(self, path: str | Path | None = None) -> Any:
        """Draw the graph.

        Parameters
        ----------
        path : str or Path, optional
            A PNG, SVG or PDF file to write the picture to.

        Returns
        -------
        matplotlib.figure.Figure
            The picture.

        Examples
        --------
        >>> import cofed
        >>> figure = cofed.topologies.ring(5).draw()
        """
        from cofed.plotting.graphs import draw_graph

        return draw_graph(self.graph(), f"{self!r}"[9:-1], path)

    def __repr__(self) -> str:
        return (
            f"Topology({self.name}, {self.nodes} nodes, {len(self.first)} edges, "
            f"second eigenvalue {self.second_eigenvalue:.4f}, mixing time {self.mixing_time:.1f})"
        )


def from_edges(first: np.ndarray, second: np.ndarray, weight: np.ndarray, nodes: int, name: str) -> Topology:
    """A topology from its edges, with its second eigenvalue."""
    U = gossip_matrix(first, second, weight, nodes)
    return Topology(first, second, np.asarray(weight, float), nodes, name, second_eigenvalue(U, nodes))
