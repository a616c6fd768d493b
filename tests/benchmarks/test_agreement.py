"""Peers that are installed (`make bench-peers` does that) take the very steps of the NumPy loop."""

import subprocess

import numpy as np
import pytest
from benchmarks.peers import processes
from benchmarks.peers.contenders import CONTENDERS, with_numpy
from benchmarks.peers.environments import FOLDER, ROOT
from benchmarks.peers.jobs import JOBS

from tests.benchmarks.worlds import numbers, tiny

ROUNDS = 4
IN_ITS_PROCESS = """
import sys
from importlib import import_module
import numpy as np
from tests.benchmarks.worlds import numbers, tiny
for key in sys.argv[3:]:
    job = tiny(key, local_steps=None)
    np.savez(f"{sys.argv[2]}/{key}.npz", **import_module(sys.argv[1]).prepare(job, *numbers(job))(4).model)
"""


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["fedjax", "pfl"])
def test_a_peers_rounds_are_those_of_the_numpy_loop(peer, tmp_path):
    if not (FOLDER / peer / "installed.json").exists():
        pytest.skip(f"{peer} is not installed")
    keys = [key for key, job in JOBS.items() if not job.ring]
    command = [CONTENDERS[peer].environment.python(), "-c", IN_ITS_PROCESS, CONTENDERS[peer].module, tmp_path, *keys]
    subprocess.run(command, cwd=ROOT, env=processes.variables(CONTENDERS[peer]), check=True)
    for key in keys:
        job = tiny(key, local_steps=None)
        X, y, w0 = numbers(job)
        twin = with_numpy.prepare(job, X, y, w0)(ROUNDS).model
        with np.load(tmp_path / f"{key}.npz") as theirs:
            for name, leaf in twin.items():
                np.testing.assert_allclose(theirs[name], leaf, rtol=2e-4, atol=2e-5, err_msg=f"{key} {name}")
