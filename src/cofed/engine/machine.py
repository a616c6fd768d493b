"""What this machine has, and what this process takes of it."""

import contextlib
import ctypes
import os
import sys
from pathlib import Path

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def memory() -> int:
    """Bytes of memory that this machine, or the container, has; 0 where that cannot be told.

    >>> memory() >= 0
    True
    """

    try:
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):
        found = []
    for path in LIMITS:
        try:
            found.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # there is none, or it is "max"
            continue
    return min((size for size in found if size > 0), default=0)


def resident() -> int:
    """Bytes that this process has in memory now; where that cannot be told, the most so far."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    except (ImportError, OSError):
        return peak()


def settled() -> int:
    """`resident`, after the memory that C's allocator holds in reserve was given back. A compiler leaves much of it."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # of GNU's C library only
        ctypes.CDLL(None).malloc_trim(0)
    return resident()


def peak() -> int:
    """The most bytes that this process has had in memory; 0 where that cannot be told."""
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
