"""Compiled programs are kept on disk, so that only the first start of a job compiles.

JAX's own persistent compilation cache does the work; here it is turned on, where the user has not set one up, when
something is first compiled (importing cofed changes nothing). The folder is the user's cache folder, or COFED_CACHE;
COFED_CACHE=off turns it off. A folder that cannot be used is not used: no run depends on it.
"""

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, cast

import equinox as eqx
import jax

from cofed._util.files import private_folder

F = TypeVar("F", bound=Callable)

OFF = ("off", "0", "no", "none", "false", "")
MOST = 2**28  # bytes of programs that are kept (one takes up to about 250 kB); the least recently used go first
SPARE = 2**27  # bytes that the disk must have left, so that a program is written whole


@functools.cache
def keep_programs(folder: str | Path | None = None) -> Path | None:
    """Turn the cache on, once in a process, and say where it is; None where it is off or not cofed's.

    folder: where programs are kept if COFED_CACHE does not say otherwise; None is the user's cache folder.
    """
    asked = os.environ.get("COFED_CACHE")
    if asked is not None and asked.strip().lower() in OFF:
        return None
    now: Any = jax.config
    if now.jax_compilation_cache_dir is not None or not now.jax_enable_compilation_cache:
        return None  # the user's own settings (also JAX_COMPILATION_CACHE_DIR) stand
    try:
        root = Path(asked).expanduser() if asked else Path(folder) if folder else user_folder()
        place = usable(root / mark())
        trim(root)
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return None
    if place is None:
        return None
    # Two processes may write the same program at once, a disk may fill up: JAX then compiles, and warns. That is no
    # news for a user, and must not end a run where warnings are errors.
    troubles = "Error (reading|writing) persistent compilation cache entry"
    warnings.filterwarnings("ignore", message=troubles, category=UserWarning)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_compilation_cache_dir", str(place))
    return place


def program(f: F) -> F:
    """`equinox.filter_jit`, by the compiler's older way to write loops: programs are compiled in about two thirds of
    the time, and run as fast.

    Only where the compiler is known to have the choice, as others refuse an unknown option.
    """
    known = version("jaxlib").startswith("0.10.")
    options: dict[str, Any] = {"compiler_options": {"xla_cpu_use_fusion_emitters": False}} if known else {}
    return cast(F, eqx.filter_jit(f, **options))


def compile_sooner() -> None:
    """Let XLA take less care, for work that compiles more than it runs: its older, quicker way to write loops, and a
    lower level of optimisation. Programs run slower then. Call it before anything is compiled.

    Only where the compiler is known to have the choice, as an unknown flag would end the process, and where the user
    has set no flags.
    """
    if version("jaxlib").startswith("0.10.") and "XLA_FLAGS" not in os.environ:
        os.environ["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1"


def user_folder() -> Path:
    """Where programs keep what they can make again, on this system.

    >>> from cofed._util.programs import user_folder
    >>> user_folder().name
    'cofed'
    """
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        given = os.environ.get("XDG_CACHE_HOME", "")
        base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"  # a relative one is to be ignored
    return base / "cofed"


def mark() -> str:
    """The compiler's version and the kind of processor: a home may be shared by machines that differ in theirs."""
    processor = platform.machine() + platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor += "".join(next((line for line in lines if line.lower().startswith(("flags", "features"))), ""))
    return f"jaxlib-{version('jaxlib')}-{hashlib.sha256(processor.encode()).hexdigest()[:8]}"


def usable(folder: Path) -> Path | None:
    """The folder, made where it is missing; None where another user could have put programs there, where nothing can
    be written, or where the disk is almost full."""
    private_folder(folder)
    about = folder.stat()
    if hasattr(os, "geteuid") and (about.st_uid != os.geteuid() or about.st_mode & 0o022):
        return None
    if shutil.disk_usage(folder).free < SPARE:
        return None
    with tempfile.TemporaryFile(dir=folder):
        return folder


def trim(root: Path, most: int = MOST) -> None:
    """Drop the programs that were not used for longest, where all together take too much.

    JAX can bound a cache itself, but takes a lock and reads all entries at every program, and a process that is killed
    while it writes leaves a cache that takes no more. Here it is done once in a process.
    """
    found = []
    for path in root.glob("jaxlib-*/*"):
        with contextlib.suppress(OSError):  # another process drops programs too
            about = path.stat()
            found.append((max(about.st_atime, about.st_mtime), about.st_size, path))
    total = sum(size for _, size, _ in found)
    if total <= most:
        return
    for _, size, path in sorted(found):
        if total <= most * 3 / 4:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size
