from .base import AbstractFederation as AbstractFederation
from .disk import DiskFederation as DiskFederation
from .memory import Federation as Federation

__all__ = ["AbstractFederation", "DiskFederation", "Federation"]
