from .files import save as save
from .graphs import draw_graph as draw_graph
from .history import plot_history as plot_history
from .styles import colour as colour
from .styles import style as style

__all__ = ["colour", "draw_graph", "plot_history", "save", "style"]
