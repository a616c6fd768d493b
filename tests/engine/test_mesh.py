"""Clients spread over devices: the same trajectory as in one place."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import cofed

ROOT = Path(__file__).parents[2]


def start(*arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.engine.mesh_cases", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, text=True)


def found(process: subprocess.Popen) -> dict[str, float]:
    text, _ = process.communicate()
    assert process.returncode == 0
    return json.loads(text.splitlines()[-1])


@pytest.mark.slow  # a process that compiles every case twice; fast tests have a mesh of one device
@pytest.mark.parametrize("cases", ["few", "all"])
def test_four_devices_of_one_process(cases):
    apart = found(start(cases))
    assert len(apart) >= 4
    assert max(apart.values()) < 1e-12, apart


@pytest.mark.slow
def test_two_processes_on_loopback():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    both = [start("few", address, str(rank)) for rank in range(2)]
    try:
        for apart in [found(process) for process in both]:
            assert max(apart.values()) < 1e-12, apart
    finally:
        for process in both:
            process.kill()


def test_a_mesh_of_one_device_is_the_run_without_one():
    federation = cofed.Federation.from_arrays([(np.eye(3), np.ones(3)), (2 * np.eye(3), np.ones(3))])
    settings = {"rounds": 3, "local_steps": 2, "clients_per_round": 1}
    one, mesh = (
        cofed.run(cofed.Problem(), federation, cofed.FedAvg(0.1), **settings, mesh=m) for m in (None, cofed.mesh(1))
    )
    assert np.allclose(one.model.coef, mesh.model.coef, rtol=0, atol=1e-14)


def test_sentences():
    federation = cofed.Federation.from_arrays([(np.eye(3), np.ones(3))])
    go = lambda **more: cofed.run(cofed.Problem(), federation, cofed.FedAvg(0.1), rounds=1, **more)  # noqa: E731
    with pytest.raises(TypeError, match=r"mesh must be a mesh such as cofed\.mesh\(4\), got int"):
        go(mesh=2)
    two = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("a", "b"))
    with pytest.raises(ValueError, match=r"one axis of devices, but the mesh has the axes \('a', 'b'\)"):
        go(mesh=two)
    with pytest.raises(ValueError, match="debug=True runs client by client"):
        go(mesh=cofed.mesh(1), debug=True)
    with pytest.raises(ValueError, match=r"999 devices were asked for, but JAX has 1 .*JAX_NUM_CPU_DEVICES=999"):
        cofed.mesh(999)
    with pytest.raises(ValueError, match="the number of devices must be an integer >= 1"):
        cofed.mesh(0)
