"""What this machine has, and what this process takes of it."""

import contextlib
import ctypes
import os
import platform
import sys
from pathlib import Path

# Of a container: the most memory that it may take, and what it takes now.
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
QUOTA = "/sys/fs/cgroup/cpu.max"  # microseconds of all cores together in a period, and the period's
TAKEN = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")


class NotEnoughMemory(ValueError, MemoryError):
    """Something would not fit into memory; the sentence says how much it needs and how much there is."""


def require(needed: int, what: str, instead: str = "") -> None:
    """Refuse, before it is built, what needs more bytes than this process can get.

    >>> from cofed._util.machine import require
    >>> require(10**18, "a test")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    cofed._util.machine.NotEnoughMemory: a test would take 1e+06 TB of memory, and ... is available here
    """
    there = available()
    if there is not None and needed > there:
        advice = f"; {instead}" if instead else ""
        raise NotEnoughMemory(
            f"{what} would take {size(needed)} of memory, and {size(there)} is available here{advice}"
        )


def available() -> int | None:
    """Bytes that this process can still get, without swapping; None where that cannot be told.

    >>> from cofed._util.machine import available
    >>> available() is None or available() > 0
    True
    """
    found = []
    try:
        with open("/proc/meminfo") as file:
            found += [int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        if memory():
            found.append(memory())
    for limit, taken in zip(LIMITS, TAKEN, strict=True):
        with contextlib.suppress(OSError, ValueError):  # there is none, or it is "max"
            found.append(max(0, int(Path(limit).read_text()) - int(Path(taken).read_text())))
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            found.append(max(0, limit - pages * resource.getpagesize()))
    except (ImportError, OSError, ValueError):
        pass
    return min(found, default=None)


def size(count: float | int) -> str:
    """Bytes, for people.

    >>> from cofed._util.machine import size
    >>> [size(n) for n in (12, 4100, 3.3e6, 25e9)]
    ['12 B', '4.1 kB', '3.3 MB', '25 GB']
    """
    if isinstance(count, int) and count > 10**30:  # more than a float may hold
        return f"10^{len(str(count)) - 13} TB"
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def processor() -> str:
    """The model of the processor, or its architecture where that is all that can be told.

    >>> from cofed._util.machine import processor
    >>> processor() != ""
    True
    """
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "unknown"


def cores() -> int:
    """The processor's cores that this process may use: of a container, at least as many as its quota fills.

    >>> from cofed._util.machine import cores
    >>> cores() >= 1
    True
    """
    try:
        there = len(os.sched_getaffinity(0))
    except AttributeError:  # of Linux only
        there = os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # there is no quota, or it is "max"
        quota, period = Path(QUOTA).read_text().split()
        there = min(there, -(-int(quota) // int(period)))
    return max(1, there)


def memory() -> int:
    """Bytes of memory that this machine, or the container, has; 0 where that cannot be told.

    >>> from cofed._util.machine import memory
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
