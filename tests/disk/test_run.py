"""Clients on disk: the run that they would give in memory."""

import signal

import jax
import numpy as np
import pandas as pd
import pytest

import cofed
from cofed.engine import chunk_loop, on_disk, prefetch
from cofed.engine import execution as engine
from cofed.engine.drawn_clients import DrawnClients
from cofed.engine.plan import make_plan
from tests.disk import worlds

METHODS = [
    (cofed.FedDualAvg(0.05), cofed.L1(0.02), {"local_epochs": 2, "batch_size": 2}),
    (cofed.FedAvg(0.05), cofed.L1(0.02), {"local_epochs": 1, "batch_size": 3, "weights": "samples"}),
    (cofed.FedDecouple(0.02), cofed.L1(0.02), {"local_steps": 3, "batch_size": 2}),
    (cofed.Scaffold(0.02), cofed.Zero(), {"local_epochs": 1, "batch_size": 2}),
    (cofed.FastFedDA(0.1, 20.0), cofed.L1(0.02), {"local_steps": 2, "batch_size": 4}),
    (cofed.FedDecouple(0.02), cofed.L1(0.02), {"local_steps": 2}),  # full local gradients
]


@pytest.fixture(autouse=True)
def several_windows(monkeypatch):
    """Windows of a few rounds and blocks of a few samples, as with data that do not fit."""
    monkeypatch.setattr(prefetch, "BYTES", 3000)
    monkeypatch.setattr(on_disk, "BLOCK", 1000)


def problem(regularizer, loss=None):
    return cofed.Problem(cofed.Linear(), loss or cofed.Squared(), cofed.On(regularizer, "coef"))


def assert_same(found, wanted, tolerance=1e-12):
    a, b = found.history.to_pandas(), wanted.history.to_pandas()
    a, b = (table.drop(columns="seconds") for table in (a, b))
    pd.testing.assert_frame_equal(a, b, rtol=tolerance, atol=tolerance)
    for one, other in zip(jax.tree.leaves(found.model), jax.tree.leaves(wanted.model), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    assert found.communication == wanted.communication
    assert found.outcome is wanted.outcome


@pytest.mark.parametrize(("algorithm", "regularizer", "settings"), METHODS)
def test_a_run_on_disk_is_the_run_in_memory(algorithm, regularizer, settings, tmp_path):
    memory, disk = worlds.both(worlds.table(), tmp_path)
    assert prefetch.rounds_of(disk, make_plan(disk, 1, None, None, 5)) == 2
    run = {"rounds": 15, "clients_per_round": 5, "seed": 3, "evaluate_every": 4, **settings}
    found = cofed.run(problem(regularizer), disk, algorithm, keep_models=True, **run)
    wanted = cofed.run(problem(regularizer), memory, algorithm, keep_models=True, **run)
    assert_same(found, wanted)
    for one, other in zip(found.models, wanted.models, strict=True):
        np.testing.assert_allclose(one.coef, other.coef, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", [cofed.Softmax(), pytest.param(cofed.Logistic(), marks=pytest.mark.slow)], ids=repr)
def test_many_participants_classes_and_held_out_data(loss, tmp_path):
    memory, disk = worlds.both(worlds.table(300, labels=True), tmp_path)
    other = cofed.Federation.from_frame(worlds.table(5, seed=1, labels=True), target="y", client="site")
    run = {"rounds": 4, "clients_per_round": 70, "local_epochs": 1, "batch_size": 2, "evaluation": other}
    run |= {"metrics": {"zeros": cofed.metrics.density()}, "evaluate_every": 3}
    ask = problem(cofed.L1(0.01), loss)
    assert_same(
        cofed.run(ask, disk, cofed.FedDualAvg(0.1), **run), cofed.run(ask, memory, cofed.FedDualAvg(0.1), **run)
    )


def test_float32_data_give_the_same_model(tmp_path):
    memory, disk = worlds.both(worlds.table(), tmp_path, dtype="float32")
    run = {"rounds": 6, "clients_per_round": 5, "local_steps": 2, "batch_size": 2}
    found = cofed.run(problem(cofed.L1(0.01)), disk, cofed.FedDecouple(0.02), **run)
    wanted = cofed.run(problem(cofed.L1(0.01)), memory, cofed.FedDecouple(0.02), evaluate_every=6, **run)
    assert found.model.coef.dtype == np.float32
    assert_same(found, wanted, 1e-5)


def test_by_default_all_clients_are_measured_at_the_start_and_the_end(tmp_path):
    _, disk = worlds.both(worlds.table(), tmp_path)
    found = cofed.run(problem(cofed.L1(0.01)), disk, cofed.FedAvg(0.05), rounds=7, clients_per_round=5)
    assert found.history["round"].tolist() == [0, 7]


def test_measured_on_some_clients_the_history_is_theirs_in_every_round(tmp_path):
    memory, disk = worlds.both(worlds.table(), tmp_path)
    some = disk.measured_on(8, seed=2)
    run = {"rounds": 7, "clients_per_round": 5, "local_steps": 2, "batch_size": 2, "weights": "samples"}
    found = cofed.run(problem(cofed.L1(0.01)), some, cofed.FedAvg(0.05), **run)
    wanted = cofed.run(problem(cofed.L1(0.01)), memory, cofed.FedAvg(0.05), **run)
    np.testing.assert_allclose(found.model.coef, wanted.model.coef, rtol=1e-12)
    assert found.history["round"].tolist() == list(range(8))
    chosen = memory.select([disk.names[m] for m in some.measured])
    X, y = chosen.pooled()
    w = found.model
    np.testing.assert_allclose(found.history["loss"][-1], ((X @ w.coef + w.intercept - y) ** 2).mean() / 2, rtol=1e-12)
    assert "measured on 8" in repr(some)
    for wrong in (0, 31, True, 2.5):
        with pytest.raises(ValueError, match="measured_on takes a number of clients from 1 to 30"):
            disk.measured_on(wrong)


def test_only_clients_that_took_part_keep_state(tmp_path):
    memory, disk = worlds.both(worlds.table(), tmp_path)
    run = {"rounds": 3, "clients_per_round": 4, "local_steps": 2, "batch_size": 2, "evaluate_every": 3}
    found = cofed.run(problem(cofed.Zero()), disk, cofed.Scaffold(0.02), **run)
    wanted = cofed.run(problem(cofed.Zero()), memory, cofed.Scaffold(0.02), **run)
    everybody = np.asarray(wanted.state.clients.c.coef)
    took = np.flatnonzero(np.abs(everybody).sum(axis=1))
    kept = found.state.clients
    assert sorted(kept.ids.tolist()) == took.tolist()
    np.testing.assert_allclose(kept.rows.c.coef, everybody[kept.ids], rtol=1e-12, atol=1e-12)
    assert len(cofed.run(problem(cofed.Zero()), disk, cofed.FedAvg(0.02), **run).state.clients.ids) == 0


def test_the_clients_of_a_round_are_read_and_no_others(tmp_path, monkeypatch):
    _, disk = worlds.both(worlds.table(), tmp_path)
    read = []
    real = type(disk).stack
    monkeypatch.setattr(
        type(disk), "stack", lambda self, ids, *room: (read.append(ids.tolist()), real(self, ids, *room))[1]
    )
    found = cofed.run(problem(cofed.Zero()), disk, cofed.Scaffold(0.02), rounds=5, clients_per_round=3, local_steps=1)
    windows = read[1:]  # the first is an example, for the shapes
    assert read[0] == [0]
    assert sorted({m for ids in windows for m in ids}) == sorted(found.state.clients.ids.tolist())


@pytest.mark.parametrize("algorithm", [cofed.Scaffold(0.02), cofed.FedAvg(0.02)])
def test_a_run_resumes_with_the_same_bits(algorithm, tmp_path):
    _, disk = worlds.both(worlds.table(), tmp_path)
    run = {"rounds": 11, "clients_per_round": 4, "local_epochs": 1, "batch_size": 2, "evaluate_every": 2}

    class Stop:
        def on_row(self, row):
            return row["round"] < 6

    whole = cofed.run(problem(cofed.Zero()), disk, algorithm, **run)
    half = cofed.run(
        problem(cofed.Zero()),
        disk,
        algorithm,
        checkpoint=tmp_path / "run",
        checkpoint_every=3,
        callbacks=[Stop()],
        **run,
    )
    assert half.outcome is cofed.Outcome.INTERRUPTED
    assert not (tmp_path / "run" / "federation.safetensors").exists()
    for _ in range(2):  # the second goes on from the end
        again = cofed.resume(tmp_path / "run")
        np.testing.assert_array_equal(again.model.coef, whole.model.coef)
        assert_same(again, whole, 0)
    (tmp_path / "data.cofed").rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"data\.cofed, which is gone; pass federation= to resume"):
        cofed.resume(tmp_path / "run")
    other = cofed.Federation.from_parquet(tmp_path / "data", "y", "site", on_disk=True, index=tmp_path / "moved")
    assert_same(cofed.resume(tmp_path / "run", federation=other), whole, 0)
    with pytest.raises(ValueError, match="their data differ"):
        cofed.resume(tmp_path / "run", federation=other.measured_on(3))


def test_multi_stage_methods_begin_each_stage_with_fresh_clients(tmp_path):
    memory, disk = worlds.both(worlds.table(), tmp_path)
    method = cofed.MCFedDA(0.1, 20.0, strengths=(0.1, 0.05))
    run = {"rounds": 6, "clients_per_round": 5, "local_steps": 2, "batch_size": 2, "evaluate_every": 3}
    ask = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(0.02))
    assert_same(cofed.run(ask, disk, method, **run), cofed.run(ask, memory, method, **run))


def test_clients_whose_update_is_not_finite_are_left_out_and_named(tmp_path):
    df = worlds.table()
    df.loc[df["site"] == "site 7", "x0"] = 1e150
    memory, disk = worlds.both(df, tmp_path)
    run = {"rounds": 8, "clients_per_round": 12, "local_steps": 2, "evaluate_every": 8}
    found = cofed.run(problem(cofed.Zero()), disk, cofed.FedAvg(0.02), **run)
    wanted = cofed.run(problem(cofed.Zero()), memory, cofed.FedAvg(0.02), **run)
    assert found.history.left_out == wanted.history.left_out
    assert {event.client for event in found.history.left_out} == {"site 7"}


def test_a_run_that_diverges_ends_as_in_memory(tmp_path):
    memory, disk = worlds.both(worlds.table(), tmp_path)
    run = {"rounds": 400, "clients_per_round": 5, "local_steps": 5, "evaluate_every": 7}
    ends = []
    for federation in (disk, memory):
        with pytest.warns(RuntimeWarning, match="diverged in round"):
            ends.append(cofed.run(problem(cofed.Zero()), federation, cofed.FedAvg(5.0), **run))
    assert ends[0].outcome is cofed.Outcome.DIVERGED
    assert ends[0].history["round"].tolist() == ends[1].history["round"].tolist()
    np.testing.assert_allclose(ends[0].model.coef, ends[1].model.coef, rtol=1e-9)


def test_ctrl_c_returns_what_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "next_pace", lambda *_: 50)  # however fast the machine is
    _, disk = worlds.both(worlds.table(), tmp_path)
    disk = disk.measured_on(3)

    class Stop:
        def on_row(self, row):
            if row["round"] == 100:
                signal.raise_signal(signal.SIGINT)

    run = {"rounds": 400, "clients_per_round": 3, "local_steps": 1, "evaluate_every": 50}
    found = cofed.run(problem(cofed.Zero()), disk, cofed.FedAvg(0.001), callbacks=[Stop()], **run)
    assert found.outcome is cofed.Outcome.INTERRUPTED
    assert 100 <= found.history["round"][-1] < 200


def test_a_callback_ends_a_run_after_the_very_round(tmp_path, monkeypatch):
    monkeypatch.setattr(prefetch, "BYTES", 10**6)  # one window, which the run goes back in
    _, disk = worlds.both(worlds.table(), tmp_path)
    disk = disk.measured_on(3)

    class Stop:
        def on_row(self, row):
            return row["round"] < 6

    run = {"clients_per_round": 5, "local_steps": 2}
    method = cofed.FedDecouple(0.02)  # its clients keep something
    found = cofed.run(problem(cofed.L1(0.02)), disk, method, rounds=300, callbacks=[Stop()], **run)
    wanted = cofed.run(problem(cofed.L1(0.02)), disk, method, rounds=6, **run)
    np.testing.assert_array_equal(found.model.coef, wanted.model.coef)
    for one, other in zip(jax.tree.leaves(found.state.clients), jax.tree.leaves(wanted.state.clients), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow  # the debug engine is one for both storages
def test_debug_names_the_client(tmp_path):
    df = worlds.table()
    df.loc[df["site"] == "site 7", "x0"] = 1e150
    _, disk = worlds.both(df, tmp_path)
    with pytest.raises(cofed.DebugFailure, match="client 'site 7'"):
        cofed.run(
            problem(cofed.Zero()), disk, cofed.FedAvg(0.02), rounds=9, clients_per_round=12, local_steps=2, debug=True
        )


def test_what_needs_everybody_is_refused_with_what_to_do(tmp_path):
    memory, disk = worlds.both(worlds.table(5), tmp_path)
    ask, method = problem(cofed.Zero()), cofed.FedAvg(0.1)
    refused = [
        ("give clients_per_round, fewer than the 5 clients", {}),
        ("give clients_per_round, fewer than the 5 clients", {"clients_per_round": 5}),
        ("per_client=True records a number per client", {"clients_per_round": 2, "per_client": True}),
    ]
    for words, settings in refused:
        with pytest.raises(ValueError, match=words):
            cofed.run(ask, disk, method, rounds=1, **settings)
    with pytest.raises(ValueError, match="FedProx keeps a model for each client"):
        cofed.run(ask, disk, cofed.FedProx(0.1, 0.1), rounds=1, clients_per_round=2)
    with pytest.raises(ValueError, match="by gossip every node works in every round"):
        cofed.run(ask, disk, cofed.DFedMiD(0.1), rounds=1, topology=cofed.topologies.ring(5))
    with pytest.raises(TypeError, match="the evaluation federation is on disk"):
        cofed.run(ask, disk, method, rounds=1, clients_per_round=2, evaluation=disk)
    for needs_all in (
        lambda: cofed.run(ask, disk, cofed.Alternative(client_lr=0.1), rounds=1),
        lambda: cofed.tune(ask, disk, [method], rounds=1),
        lambda: cofed.solve_pooled(ask, disk),
    ):
        with pytest.raises(TypeError, match="this needs all clients in memory"):
            needs_all()
    with pytest.raises(ValueError, match="client 'site 0': Logistic expects labels 0/1"):
        cofed.run(problem(cofed.Zero(), cofed.Logistic()), disk, method, rounds=1, clients_per_round=2)
    assert memory.at_hand


def test_another_number_of_rounds_or_another_rate_compiles_nothing(tmp_path):
    _, disk = worlds.both(worlds.table(), tmp_path)
    run = {"clients_per_round": 3, "local_steps": 1, "batch_size": 2}
    cofed.run(problem(cofed.L1(0.1)), disk, cofed.FedDualAvg(0.01), rounds=3, **run)
    programs = chunk_loop.run_chunk._cached._cache_size()
    cofed.run(problem(cofed.L1(0.2)), disk, cofed.FedDualAvg(0.02), rounds=7, seed=1, **run)
    assert chunk_loop.run_chunk._cached._cache_size() == programs


@pytest.mark.parametrize("settings", [{"local_steps": 2}, {"local_epochs": 1, "batch_size": 3}])
def test_one_large_client_among_small_ones_pads_nothing(settings, tmp_path):
    small, large = worlds.table(), worlds.table(clients=1, most=300, seed=4)
    df = pd.concat([small, large.assign(site="site 3")])
    memory, disk = worlds.both(df, tmp_path)
    assert memory.rows.tiers is not None
    given = {"rounds": 4, "clients_per_round": 6, "evaluate_every": 2, **settings}
    problem = cofed.Problem(cofed.Linear(), cofed.Squared(), cofed.L1(0.05))
    here, there = (cofed.run(problem, f, cofed.FedDualAvg(0.01), **given) for f in (memory, disk.measured_on(30)))
    np.testing.assert_allclose(there.model.coef, here.model.coef, rtol=1e-12)
    np.testing.assert_allclose(there.history["objective"], here.history["objective"], rtol=1e-12)
    draws = DrawnClients(cofed.samplers.Uniform(6), 0, disk.names)
    windows = prefetch.Windows(disk, disk.weights(), make_plan(disk, 1, None, None, 6), draws, last=4)
    assert len(windows.desk) <= disk.n_samples
