"""Cores that are used without asking: only where they pay, with the same results, and never behind a user's back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cofed
from cofed._util import cores, machine
from cofed.engine import spreading
from cofed.engine.spec import RunSpec

ROOT = Path(__file__).parents[2]


def answer(first: str, *arguments: str):
    """What a process with two cores says that first runs a line of its own."""
    code = f"{first}\nimport runpy, sys; sys.argv = ['', *{arguments!r}]\n"
    code += "runpy.run_module('tests.engine.cores_cases', run_name='__main__')"
    environment = os.environ | {"COFED_CORES": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_two_cores_give_the_results_of_one():
    apart = answer("")
    assert len(apart) >= 4
    assert max(apart.values()) < 1e-12, apart


def test_where_jax_has_started_before_it_is_said():
    (said,) = answer("import jax; jax.devices()", "late")
    assert "of its time on 2 cores, but JAX had started before cofed" in said
    assert "COFED_CORES=1" in said


def spec(samples=400, features=512, clients=32, **more):
    arrays = np.zeros((clients, samples, features), np.float32)
    federation = cofed.Federation.from_arrays([(X, X[:, 0]) for X in arrays])
    problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(0.1))
    return RunSpec(problem, federation, cofed.FedAvg(0.1), **{"rounds": 2000, "evaluate_every": 2000} | more)


def test_cores_are_taken_where_clients_have_work_and_only_there(monkeypatch):
    monkeypatch.setenv("COFED_CORES", "4")
    taken = []
    monkeypatch.setattr(spreading, "devices_for", lambda count, waits=False: taken.append(count) or [None])
    monkeypatch.setattr(spreading, "say", lambda gain: None)

    def count(given, most=None):
        taken.clear()
        spreading.spread(given, most)
        return max(taken, default=1)

    large = spec(local_steps=5)
    assert count(large) == 4
    assert count(large, 2) == 2
    assert count(large, 1) == 1
    assert count(spec(local_steps=5, rounds=20)) == 1, "it would be over before a second program is compiled"
    assert count(spec(local_steps=5, clients_per_round=1)) == 1, "there is nobody to share the work with"
    assert count(spec(samples=16, features=16, local_steps=5)) == 1, "a message takes longer than the work"
    assert count(spec(local_steps=5, topology=cofed.topologies.ring(32))) == 1
    assert count(spec(local_steps=5, mean=cofed.means.Median())) == 1
    monkeypatch.setattr(machine, "available", lambda: 2 * large.federation.X.nbytes)
    assert count(large) == 1, "copies of the data would fill the memory"


def test_a_grid_takes_the_cores_that_are_asked_for(monkeypatch):
    monkeypatch.setenv("COFED_CORES", "4")
    taken = []
    monkeypatch.setattr(spreading, "devices_for", lambda count, waits=False: taken.append(count) or [None])
    said = []
    monkeypatch.setattr(spreading, "say", said.append)
    small = spec(samples=4, features=2, clients=2)
    for most in (None, 1, 2, 3):
        assert spreading.for_grid(small, 49, most) is None
    spreading.for_grid(small, 2, 3)
    assert taken == [2, 3, 2]
    assert said[0] == "the grid was to be spread over 2 cores"
    monkeypatch.setattr(machine, "available", lambda: 10)
    with pytest.raises(ValueError, match=r"data on each of 2 devices would take .* give fewer cores"):
        spreading.for_grid(small, 49, 2)


def test_the_busiest_device():
    work = spreading.Work(1.0, 0.0, np.array([4, 1, 1, 1, 1]) / 8, 5, 0, 0, 1)
    assert work.busiest(1) == 1
    assert work.busiest(2) == 6 / 8
    assert work.busiest(5) == 4 / 8
    drawn = spreading.Work(1.0, 0.0, np.full(100, 0.01), 10, 0, 0, 1)
    assert 0.6 < drawn.busiest(2) < 0.7


def test_how_many_cores_are_allowed(monkeypatch):
    for name in ("COFED_CORES", "OMP_NUM_THREADS", "NPROC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine, "cores", lambda: 16)
    assert cores.allowed() == 16
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert cores.allowed() == 3
    monkeypatch.setenv("COFED_CORES", "5")
    assert cores.allowed() == 5
    for word in ("off", "1", "0", "No"):
        monkeypatch.setenv("COFED_CORES", word)
        assert cores.allowed() == 1
    monkeypatch.setenv("COFED_CORES", "many")
    with pytest.raises(ValueError, match=r"COFED_CORES must be a number of cores, or off, got 'many'"):
        cores.allowed()
    with pytest.raises(ValueError, match="COFED_CORES must be a number"):
        cofed.run(cofed.Problem(), spec(4, 2, 2).federation, cofed.FedAvg(0.1), rounds=1)


def test_a_container_s_quota_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "QUOTA", tmp_path / "cpu.max")
    there = machine.cores()
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert machine.cores() == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.cores() == there


def test_a_mesh_and_cores_are_not_given_both():
    with pytest.raises(ValueError, match="give mesh= or cores=, not both"):
        cofed.run(cofed.Problem(), spec(4, 2, 2).federation, cofed.FedAvg(0.1), rounds=1, mesh=cofed.mesh(1), cores=2)
