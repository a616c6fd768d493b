"""A page on this machine that follows a fit while it runs; the extra cofed[watch]."""

from cofed.watch.server import WatchPage

__all__ = ["WatchPage"]
