"""How many cores runs may use, and the processor as so many devices of JAX.

To JAX a processor is one device, unless it is told otherwise before it starts. So this is done where cofed first makes
arrays; a process in which JAX has started before keeps what it has.
"""

import contextlib
import functools
import multiprocessing
import os
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import jax

from cofed._util import machine

VARIABLE = "COFED_CORES"
OFF = ("off", "no", "none", "false", "0")
# Threads that others have granted to this process: pools of processes set these, so that all together fit the machine.
GRANTED = ("OMP_NUM_THREADS", "NPROC")
# Devices wait for each other in every round, and XLA ends a process in which one waits for 40 seconds. A round may well
# take longer, and a device without participants has nothing to do but wait.
PATIENCE = (
    "--xla_cpu_collective_call_terminate_timeout_seconds=2000000000",
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=2000000000",
)


def allowed() -> int:
    """The cores that runs of this process may use: COFED_CORES, or those of the machine that are granted to it.

    In a process of a pool it is one, unless COFED_CORES says otherwise: the others have the rest.

    >>> from cofed._util.cores import allowed
    >>> allowed() >= 1
    True
    """
    asked = os.environ.get(VARIABLE, "").strip().lower()
    if asked in OFF:
        return 1
    if asked:
        if not asked.isdecimal():
            raise ValueError(f"the environment's {VARIABLE} must be a number of cores, or off, got {asked!r}")
        return int(asked)
    if multiprocessing.parent_process() is not None:
        return 1
    granted = [int(os.environ[name]) for name in GRANTED if os.environ.get(name, "").isdecimal()]
    return max(1, min([machine.cores(), *granted]))


@functools.cache
def split_processor() -> bool:
    """Have JAX see one device for each core that is allowed, unless it has started or was told how many to see.

    Whether devices may now be told to wait for each other: JAX has yet to start, and the compiler knows how.
    """
    now: Any = jax.config
    before, count = now.jax_num_cpu_devices, 1
    with contextlib.suppress(ValueError):  # of a COFED_CORES that is no number: a run says it
        count = allowed()
    told = before >= 0 or "device_count" in os.environ.get("XLA_FLAGS", "") or jax.distributed.is_initialized()
    try:
        jax.config.update("jax_num_cpu_devices", before + 2)  # a change is refused once JAX has started
    except RuntimeError:
        return False
    jax.config.update("jax_num_cpu_devices", before if told or count == 1 else count)
    return be_patient()


def be_patient() -> bool:
    """Let devices wait for each other as long as it takes; whether that can be had of this compiler.

    Only where the compiler is known to have the choice, as an unknown flag would end the process. The flags are read
    once, here, and do not stay in the environment: another compiler in a process that is started may not know them.
    """
    if not version("jaxlib").startswith("0.10."):
        return False
    from jaxlib import xla_client

    with flags(*PATIENCE):
        return xla_client.CompileOptions().executable_build_options.debug_options is not None


@contextlib.contextmanager
def flags(*more: str) -> Iterator[None]:
    """Within it the environment has more flags for XLA."""
    before = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = " ".join([before or "", *more])
    try:
        yield
    finally:
        if before is None:
            del os.environ["XLA_FLAGS"]
        else:
            os.environ["XLA_FLAGS"] = before
