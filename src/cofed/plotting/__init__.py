"""Figures of runs and of graphs.

Only matplotlib's figures are used, never pyplot: nothing global changes, and no screen is needed.
"""

from cofed.plotting.files import save
from cofed.plotting.graphs import draw_graph
from cofed.plotting.history import plot_history
from cofed.plotting.styles import colour, style

__all__ = ["colour", "draw_graph", "plot_history", "save", "style"]
