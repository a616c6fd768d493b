"""cofed with the clients sharded over as many CPU devices as there are cores: `cofed.run(..., mesh=...)`."""

import inspect
import os
import sys

import jax

jax.config.update("jax_num_cpu_devices", os.cpu_count())  # before anything else of JAX

import cofed  # noqa: E402
from benchmarks.peers.contenders import with_cofed  # noqa: E402
from benchmarks.peers.measure import main  # noqa: E402


def prepare(job, X, y, w0):
    """As with_cofed's, on a mesh of all devices."""
    return with_cofed.prepare(job, X, y, w0, mesh=cofed.mesh(jax.device_count()))


if __name__ == "__main__":
    if "mesh" not in inspect.signature(cofed.run).parameters:
        sys.exit("this version of cofed.run has no mesh=")
    main(prepare, packages=with_cofed.PACKAGES)
