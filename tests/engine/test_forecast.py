"""Forecasts: what must be exact is, the rest is of the right size, and bad input gets a sentence."""

import dataclasses

import jax
import numpy as np
import pytest
from tests import worlds

import cofed
from cofed._util import machine
from cofed.engine.calibration import time_in_turns
from cofed.engine.forecast_tuning import forecast_tuning
from cofed.engine.spec import RunSpec

JOBS = {
    "sampled": (cofed.FedDualAvg(0.01), {"local_steps": 3, "batch_size": 4, "clients_per_round": 2}),
    "stages": (cofed.MCFedDA(0.1, 20.0, strengths=(0.1, 0.05)), {"local_steps": 2}),
    "personal": (cofed.FedProx(strength=0.1, client_lr=0.02), {"local_steps": 2}),
}


@pytest.mark.parametrize("kind", JOBS)
def test_bytes_and_counts_are_those_of_the_run(kind):
    algorithm, schedule = JOBS[kind]
    job = (worlds.problem(cofed.L1(0.1)), worlds.linear(), algorithm)
    given = schedule | {"rounds": 7, "evaluate_every": 3}
    ahead, result = cofed.forecast(*job, **given, seconds=0.01), cofed.run(*job, **given)
    assert ahead.bytes_on_wire == result.communication.total
    assert ahead.down_per_client == result.communication.down_per_client
    assert ahead.up_per_client == result.communication.up_per_client
    assert ahead.evaluations == len(result.history) - 1
    assert ahead.seconds > ahead.running_seconds > 0
    assert "7 rounds take about" in str(ahead)


def test_gossip_counts_every_link():
    federation = worlds.linear()
    job = (worlds.problem(cofed.L1(0.1)), federation, cofed.DFedDA(0.01, gradient_tracking=True))
    given = {"rounds": 5, "local_steps": 2, "topology": cofed.topologies.ring(federation.n_clients)}
    assert cofed.forecast(*job, **given, seconds=0.01).bytes_on_wire == cofed.run(*job, **given).communication.total


def test_memory_is_that_of_the_arrays_and_the_program():
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(100, 200)).astype(np.float32), np.ones(100, np.float32)) for _ in range(10)]
    federation = cofed.Federation.from_arrays(clients)
    problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(0.1))
    given = {"rounds": 50, "local_steps": 2, "seconds": 0.01}
    ahead = cofed.forecast(problem, federation, cofed.FedDecouple(0.01), **given)
    data = sum(leaf.nbytes for leaf in jax.tree.leaves(federation)) + 2 * 10 * 4  # and the clients' weights and places
    assert ahead.data_bytes == data
    state = cofed.run(problem, federation, cofed.FedDecouple(0.01), rounds=1, local_steps=2).state
    assert ahead.clients_bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(state.clients)) > 0
    assert ahead.working_bytes >= 2 * ahead.clients_bytes
    assert ahead.before_bytes <= ahead.peak_bytes <= 1.2 * machine.peak()
    kept = cofed.forecast(problem, federation, cofed.FedDecouple(0.01), keep_models=True, **given)
    assert kept.kept_bytes - ahead.kept_bytes == 50 * 200 * 4


def test_where_a_machine_ends_follows_straight_lines():
    ahead = cofed.Forecast(
        *("FedAvg", 10, 2, 100, 50, 10, 1.0, 0.1, 0.5),
        data_bytes=1000,
        clients_bytes=100,
        working_bytes=500,
        kept_bytes=0,
        process_bytes=10_000,
        memory_bytes=32_500,
        down_per_client=4,
        up_per_client=4,
        bytes_per_round=80.0,
        bytes_on_wire=800,
    )
    assert ahead.running_seconds == 2.0
    assert ahead.peak_bytes == 11_500
    assert dataclasses.replace(ahead, before_bytes=20_000).peak_bytes == 20_000
    # A client more: twice its 10 bytes of data, and what it keeps, before and after a chunk; the rest is fixed.
    assert ahead.per_client_bytes == 22
    assert ahead.clients_that_fit == (32_500 - 10_000 - 300) // 22
    assert ahead.seconds_with(1000) == pytest.approx(10 * 0.1 + 2 * 0.5 * 10)
    everyone = dataclasses.replace(ahead, participants=100)
    assert everyone.per_client_bytes == 25
    assert everyone.clients_that_fit == 22_500 // 25
    assert everyone.seconds_with(1000) == pytest.approx(10 * (10 * 0.1 + 2 * 0.5))
    assert ahead.features_that_fit == 22_500 // (2500 / 50)
    assert dataclasses.replace(ahead, memory_bytes=0).clients_that_fit is None
    assert "ends at" not in str(dataclasses.replace(ahead, memory_bytes=0))


def test_a_grid_is_timed_as_the_one_program_that_it_is():
    grid = [cofed.FedDualAvg(rate) for rate in (0.001, 0.01, 0.1)]
    problem, federation = worlds.problem(cofed.L1(0.1)), worlds.linear()
    given = {"rounds": 6, "evaluate_every": 2, "local_steps": 2}
    spec = RunSpec(problem, federation, grid[0], **given)
    ahead = forecast_tuning(spec, grid, seconds=0.01)
    alone = cofed.forecast(problem, federation, grid[0], seconds=0.01, **given)
    assert ahead.bytes_on_wire == 3 * alone.bytes_on_wire
    assert ahead.evaluations == 3
    assert ahead.seconds > 0
    with pytest.raises(TypeError, match=r"does not know \['keep_models'\]"):
        forecast_tuning(dataclasses.replace(spec, keep_models=True), grid, seconds=0.01)


def test_chunks_grow_and_ways_take_turns():
    asked = []

    def way(name, each):
        def go(count):
            asked.append((name, count))
            return each * count

        return go

    assert time_in_turns([way("a", 0.001), way("b", 0.003)], 0.5, 64) == pytest.approx([0.001, 0.003])
    assert [name for name, _ in asked[:6]] == ["a", "b"] * 3
    assert [count for name, count in asked if name == "a"][:5] == [1, 4, 16, 64, 64]
    assert time_in_turns([way("slow", 9.0)], 0.5, 64) == [9.0], (
        "a round that takes longer than there is time for is enough"
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seconds": 0}, "seconds must be a number > 0, got 0"),
        ({"rounds": 0}, "rounds must be an integer >= 1, got 0"),
        ({"algorithm": cofed.Alternative(0.1)}, "Alternative trains several methods: forecast its candidates"),
        ({"algorithm": cofed.Scaffold(0.1)}, "Scaffold does not fit the regularizer L1"),
    ],
)
def test_bad_input_gets_a_sentence(change, sentence):
    given = {"algorithm": cofed.FedAvg(0.1), "rounds": 2} | change
    with pytest.raises(ValueError, match=sentence):
        cofed.forecast(worlds.problem(cofed.L1(0.1)), worlds.linear(), given.pop("algorithm"), **given)
