"""Every test runs in 64 bits, with strict promotion of dtypes and ranks: a silent cast would hide an error."""

import gc
import itertools
import os
import signal
from importlib.metadata import version
from pathlib import Path

# Tests compile much and run little, so the compiler may take less care, and its older, quicker way to write loops (half
# of the time; an unknown flag would end the process); set before JAX is loaded.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_backend_optimization_level=0"
    + (" --xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.10.") else "")
)
os.environ["COFED_CORES"] = "1"  # one device, and the same bits on every machine; tests of several ask for them
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # tests talk to nobody

import jax
import pytest
from hypothesis import settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Most of the time goes into compiling: what one worker or an earlier run has compiled, the others take from disk.
COMPILED = str(Path(__file__).parent.parent / ".jax-cache")
jax.config.update("jax_compilation_cache_dir", COMPILED)
os.environ["COFED_CACHE"] = COMPILED  # of the processes that tests start: nothing is written into a home folder
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

# Compilation makes the first example slow and the rest fast, so a deadline per example says nothing.
settings.register_profile("cofed", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("cofed")


SLOW = tuple(
    line for line in (Path(__file__).parent / "slow_tests.txt").read_text().splitlines() if not line.startswith("#")
)


def pytest_collection_modifyitems(items):
    """The limit in pyproject.toml is for tests that are quick on a quiet machine."""
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard():
    """A process that is started in the background without a terminal ignores SIGINT, and so does all that it starts:
    tests of Ctrl-C would then go on to the last round. With this handler in place, tests and their children hear it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


TESTS_DONE = itertools.count()
MAPS, BYTES = 20_000, 3 * 2**29  # of a worker's programs, with its data: two workers then fit into 4 GB


@pytest.fixture(autouse=True)
def room_for_programs():
    """Every compiled program takes memory and maps it, and a process may have only so many maps (65,530 on Linux): past
    that the compiler crashes. So programs are dropped long before; counting takes a while, and one test makes few."""
    from cofed._util import machine  # not above: early versions of jaxtyping must see cofed come after this file

    yield
    maps, done = Path("/proc/self/maps"), next(TESTS_DONE)
    if done % 10 or not maps.exists():
        return
    if machine.resident() > BYTES or (done % 30 == 0 and maps.read_bytes().count(b"\n") > MAPS):
        jax.clear_caches()
        gc.collect()
        machine.settled()
