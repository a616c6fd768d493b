"""What the engine writes with; the whole of it is in `cofed.files`, which every room may use."""

from cofed.files import NotWritten, atomically

__all__ = ["NotWritten", "atomically"]
