"""Federations larger than memory: clients on disk, of which only those that take part are read."""

from cofed.federation.disk.federation import DiskFederation

__all__ = ["DiskFederation"]
