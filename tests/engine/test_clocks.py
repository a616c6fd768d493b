"""Asynchronous rounds on a simulated clock, beside the synchronous run and a twin that goes from event to event."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import worlds

import cofed
from cofed.clocks import first_to_finish

FED = worlds.linear(names=["e", "b", "d", "a", "c"])
M = FED.n_clients
OPTIONS = {"rounds": 8, "local_steps": 2, "batch_size": 3, "w0": worlds.start()}
UNEVEN = cofed.Clock(seconds=[1.0, 0.4, 2.5, 0.7, 1.1], jitter=0.3)


def go(algorithm=None, regularizer=None, **options):
    problem = worlds.problem(cofed.Zero() if regularizer is None else regularizer)
    return cofed.run(problem, FED, algorithm or cofed.FedAvg(0.02), **OPTIONS | options)


def bits(*trees):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(trees)]


@pytest.mark.parametrize(
    ("algorithm", "regularizer"),
    [(cofed.FedAvg(0.02), None), (cofed.FedDecouple(0.02), cofed.L1(0.05))],
    ids=["FedAvg", "FedDecouple"],
)
def test_waiting_for_all_is_the_synchronous_run_bit_by_bit(algorithm, regularizer):
    plain = go(algorithm, regularizer)
    for clock in (cofed.Clock(1.0), UNEVEN):
        clocked = go(algorithm, regularizer, clock=clock)
        assert bits(plain.state.server, plain.state.clients) == bits(clocked.state.server, clocked.state.clients.own)
        assert plain.history["objective"].tobytes() == clocked.history["objective"].tobytes()
        assert clocked.communication == plain.communication
    assert go(clock=cofed.Clock(2.0)).history["simulated_seconds"].tolist() == [2.0 * r for r in range(9)]


def test_the_first_rounds_are_an_event_queue():
    """A twin in plain Python: full gradients, so that an update depends on the model alone that a client has."""
    seconds, buffer, a, lr, K = [1.0, 0.4, 2.5, 0.7, 1.1], 2, 0.5, 0.02, 2
    weights = np.array([0.1, 0.3, 0.2, 0.25, 0.15])
    found = cofed.run(
        worlds.problem(),
        FED,
        cofed.FedAvg(lr, 0.8),
        rounds=12,
        local_steps=K,
        w0=worlds.start(),
        weights=weights,
        clients_per_round=buffer,
        clock=cofed.Clock(seconds, staleness=a),
        keep_models=True,
    )
    w = np.asarray(worlds.start()["coef"], float)
    has, told, finish = [w] * M, [0] * M, list(seconds)
    who_came = []
    for r in range(12):
        order = sorted(range(M), key=lambda m: (finish[m], FED.names[m]))[:buffer]
        who_came += [(r, name) for name in sorted(FED.names[m] for m in order)]
        moves, counts = [], []
        for m in order:
            x = has[m]
            for _ in range(K):
                x = x - lr * worlds.gradient(FED, m, x)
            moves.append(x - has[m])
            counts.append(weights[m] * (1 + r - told[m]) ** -a)
        w = w + 0.8 * np.average(moves, axis=0, weights=counts)
        now = max(finish[m] for m in order)
        for m in order:
            has[m], told[m], finish[m] = w, r + 1, now + seconds[m]
        np.testing.assert_allclose(found.models[r + 1].coef, w, rtol=1e-10)
        assert found.history["simulated_seconds"][r + 1] == pytest.approx(now)
    who = found.history.participants()
    assert list(zip(who["round"], who["client"], strict=True)) == who_came


@settings(max_examples=30, deadline=None)
@given(times=st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0]), min_size=1, max_size=6), data=st.data())
def test_ties_go_by_the_ids(times, data):
    count = data.draw(st.integers(1, len(times)))
    ids = data.draw(st.permutations(range(len(times))))
    found = first_to_finish(jnp.asarray(times), jnp.asarray(ids, jnp.int32), count).tolist()
    assert found == sorted(sorted(range(len(times)), key=lambda m: (times[m], ids[m]))[:count])


def test_the_speeds_are_what_the_clock_says():
    """Log-normal, one draw for each client and one for each piece of work, by seed and id."""
    ids = jnp.arange(4000, dtype=jnp.int32)
    clock = cofed.Clock(seconds=2.0, spread=0.7, jitter=0.3)
    first, second = (np.log(clock.work(jax.random.key(1), jnp.full(4000, r, jnp.int32), ids) / 2.0) for r in (0, 1))
    assert first.std() == pytest.approx(np.hypot(0.7, 0.3), rel=0.05)
    assert np.cov(first, second)[0, 1] == pytest.approx(0.49, rel=0.1)
    assert abs(first.mean()) < 0.05


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    options = {"clients_per_round": 2, "clock": dataclasses.replace(UNEVEN, staleness=0.0)}
    whole = go(cofed.Scaffold(0.02), **options)
    go(cofed.Scaffold(0.02), **options, checkpoint=tmp_path, rounds=5)
    longer = cofed.resume(tmp_path, rounds=8)
    ends = [(result.state.server, result.state.clients) for result in (longer, whole)]
    assert bits(ends[0]) == bits(ends[1])
    assert longer.history.participants().equals(whole.history.participants())


def test_asynchronous_feddr_ends_at_the_optimum():
    """Its server adds up changes of what each client last said: it does not matter who comes how often or how late."""
    problem = worlds.problem(cofed.L1(0.05))
    clock = cofed.Clock(1.0, spread=1.0, jitter=0.2, staleness=0.0)
    options = {"rounds": 1500, "local_steps": 5, "batch_size": None, "clients_per_round": 2, "clock": clock}
    found = go(cofed.FedDR(0.05, 0.3), cofed.L1(0.05), **options, evaluate_every=500)
    came = found.history.participants()["client"].value_counts()
    assert came.max() > 5 * came.min(), "some clients are much faster than others"
    assert found.history["objective"][-1] - cofed.solve_pooled(problem, FED).objective < 1e-10


@pytest.mark.parametrize(
    "clock",
    [cofed.Clock(1.0), cofed.Clock(1.0, jitter=0.5), cofed.Clock([1.0, 1.0, 1.0, 1.0, 9.0])],
    ids=["alike", "jitter", "one slow"],
)
@pytest.mark.parametrize("psi", [cofed.Zero(), cofed.L1(0.2)], ids=["smooth", "lasso"])
def test_asynchronous_decoupling_ends_at_the_optimum(psi, clock):
    """Its server adds up changes of gradients, so its direction is the clients' mean whatever direction they had."""
    never_less = dataclasses.replace(clock, staleness=0.0)
    options = {"rounds": 6000, "local_steps": 3, "batch_size": None, "clients_per_round": 2, "clock": never_less}
    found = go(cofed.FedDecouple(0.02), psi, **options, evaluate_every=6000)
    best = cofed.solve_pooled(worlds.problem(psi), FED, tol=1e-13).model.coef
    np.testing.assert_allclose(found.model.coef, best, atol=1e-9)
    own, server = found.state.clients.own, found.state.server
    np.testing.assert_allclose(server.direction.coef, own.gradient.coef.mean(axis=0), atol=1e-10)


def test_a_grid_runs_on_the_clock_too():
    options = {"clients_per_round": 2, "clock": UNEVEN}
    tuning = cofed.tune(worlds.problem(), FED, [cofed.FedAvg(0.02)], evaluate_every=1, **OPTIONS | options)
    alone = go(**options)
    np.testing.assert_allclose(tuning.curves["objective"][0], alone.history["objective"][1:], rtol=1e-10)
    np.testing.assert_allclose(
        tuning.curves["simulated_seconds"][0], alone.history["simulated_seconds"][1:], rtol=1e-12
    )


def test_another_number_of_the_clock_compiles_nothing(monkeypatch):
    traces = []
    old = cofed.FedAvg.local
    monkeypatch.setattr(cofed.FedAvg, "local", lambda *given: (traces.append(0), old(*given))[1])
    counts = []
    for staleness in (0.5, 0.6, 0.7):
        traces.clear()
        go(clients_per_round=2, clock=cofed.Clock(1.0, spread=1 + staleness, staleness=staleness), rounds=3)
        counts.append(len(traces))
    assert counts[1] == counts[2] < counts[0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"clock": 3.0}, "clock must be a cofed.Clock"),
        ({"clock": cofed.Clock([1.0, 2.0])}, "2 seconds, but 5 clients"),
        ({"clock": UNEVEN, "clients_per_round": cofed.samplers.Cyclic(2)}, "as a number"),
        ({"clock": UNEVEN, "topology": cofed.topologies.ring(5)}, "through a server"),
        ({"clock": UNEVEN, "algorithm": cofed.MCFedDA(0.1, 20.0, strengths=(0.1, 0.05))}, "works in stages"),
        (
            {"clock": UNEVEN, "algorithm": cofed.ProxSkip(0.02, 0.4), "clients_per_round": 2},
            "ProxSkip needs every client",
        ),
        (
            {"clock": UNEVEN, "algorithm": cofed.FastFedDA(0.1, 20.0), "clients_per_round": 2},
            "FastFedDA numbers its steps over all rounds, and a late update",
        ),
        (
            {"clock": UNEVEN, "algorithm": cofed.FedDR(0.02, 0.3), "clients_per_round": 2},
            "staleness=0.5 counts late updates less, .*; what clients of FedDR keep .* give the clock staleness=0",
        ),
    ],
)
def test_what_does_not_go_with_a_clock_is_refused(given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        go(**given, regularizer=cofed.L1(0.1))
