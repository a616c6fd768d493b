"""Pictures of communication graphs."""

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from cofed._util import checks
from cofed._util.types import Given
from cofed.plotting.files import check_picture, save
from cofed.plotting.styles import COLOURS

if TYPE_CHECKING:
    import networkx as nx

FEW = 60  # nodes: up to so many are numbered and laid out evenly


def draw_graph(graph: "Given[nx.Graph]", title: Given[str], path: Given[str | Path | None] = None) -> Figure:
    """Draw a networkx graph.

    Parameters
    ----------
    graph : networkx.Graph
        The graph; a small one is drawn with its nodes' names.
    title : str
        Stands above the picture.
    path : str or Path, optional
        Write the picture there too, as PNG, SVG or PDF by the ending.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Raises
    ------
    TypeError
        Where an argument is of another kind, or the graph has no nodes.

    Examples
    --------
    >>> import networkx as nx
    >>> import cofed
    >>> figure = cofed.plotting.draw_graph(nx.path_graph(3), "a chain")
    """
    import networkx as nx

    if not isinstance(graph, nx.Graph) or graph.number_of_nodes() == 0:
        raise TypeError(f"graph must be a networkx graph with nodes, got {checks.shown(graph)}")
    if not isinstance(title, str):
        raise TypeError(f"title must be a text, got {checks.shown(title)}")
    if path is not None:
        check_picture("path", path)
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    many = graph.number_of_nodes() > FEW
    place = nx.spring_layout(graph, seed=0) if many else nx.kamada_kawai_layout(graph)
    size = 30 if many else 320
    nx.draw_networkx_edges(graph, place, ax=axes, edge_color="0.6")
    nx.draw_networkx_nodes(graph, place, ax=axes, node_size=size, node_color=COLOURS["FedDualAvg"])
    if not many:
        nx.draw_networkx_labels(graph, place, ax=axes, font_size=9, font_color="white")
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()
    if path is not None:
        save(figure, path)
    return figure
