"""Clipped and noised means: beside NumPy, the noise by its moments, the same numbers however a run is carried out."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests import worlds

import cofed
from cofed.means import Clipped

FED = worlds.linear()
OPTIONS = {"rounds": 6, "local_steps": 2, "w0": worlds.start()}
entries = st.floats(-100, 100)


def go(algorithm=None, **options):
    return cofed.run(worlds.problem(), FED, algorithm or cofed.FedAvg(0.02), **OPTIONS | options)


def bits(result):
    return np.asarray(result.model.coef).tobytes()


def cut(update, norm):
    """An update, as one vector, cut by NumPy."""
    length = np.linalg.norm(update)
    return update if length <= norm else norm / length * update


@settings(max_examples=60, deadline=None)
@given(
    x=arrays(float, (4, 3), elements=entries),
    b=arrays(float, (4,), elements=entries),
    copies=st.permutations(range(4)),
    norm=st.floats(0.01, 300),
)
def test_updates_are_cut_as_by_numpy(x, b, copies, norm):
    weights = np.array(copies) / sum(copies)
    found = Clipped(norm).of({"x": jnp.asarray(x), "b": jnp.asarray(b)}, jnp.asarray(weights))
    expected = weights @ np.array([cut(row, norm) for row in np.column_stack([x, b])])
    np.testing.assert_allclose(np.append(found["x"], found["b"]), expected, rtol=1e-12, atol=1e-12)


def test_an_update_whose_square_overflows_is_cut_and_one_of_zeros_stays():
    found = Clipped(5.0).of(jnp.array([[3e200, 4e200], [0.0, 0.0]]), jnp.full(2, 0.5))
    np.testing.assert_allclose(found, [1.5, 2.0], rtol=1e-12)


@pytest.mark.parametrize(
    "algorithm",
    [cofed.FedAvg(0.02), cofed.FedMiD(0.02), cofed.FedDualAvg(0.02)],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_without_a_bound_and_noise_it_is_the_plain_mean(algorithm):
    problem = worlds.problem(cofed.L1(0.05))
    options = {**OPTIONS, "weights": "samples"}
    found = [cofed.run(problem, FED, algorithm, **options, **mean) for mean in ({}, {"mean": Clipped(np.inf)})]
    np.testing.assert_allclose(found[1].model.coef, found[0].model.coef, rtol=1e-12)


def test_a_run_is_the_same_as_in_numpy():
    w = worlds.start()["coef"].copy()
    clients = [tuple(np.asarray(part) for part in FED.client(m)) for m in range(FED.n_clients)]
    lengths = []
    for _ in range(OPTIONS["rounds"]):
        updates = []
        for X, y in clients:
            v = w.copy()
            for _ in range(OPTIONS["local_steps"]):
                v -= 0.02 * X.T @ (X @ v - y) / len(y)
            lengths.append(np.linalg.norm(v - w))
            updates.append(cut(v - w, 0.3))
        w = w + np.mean(updates, axis=0)
    assert min(lengths) < 0.3 < max(lengths)  # some are cut, and some are not
    np.testing.assert_allclose(go(mean=Clipped(0.3)).model.coef, w, rtol=1e-10)


@pytest.mark.parametrize("clients_per_round", [None, 3])
def test_the_noise_has_the_moments_that_are_promised(clients_per_round):
    rounds, features, norm, noise = 500, 8, 0.7, 2.0
    silent = cofed.Federation.from_arrays([(np.zeros((2, features)), np.ones(2)) for _ in range(5)])
    problem, mean = cofed.Problem(cofed.Linear(intercept=False)), Clipped(norm, noise)
    options = {"rounds": rounds, "clients_per_round": clients_per_round, "keep_models": True, "seed": 3}
    models = cofed.run(problem, silent, cofed.FedAvg(0.1), mean=mean, **options).models
    drawn = np.diff([np.asarray(model.coef) for model in models], axis=0)
    spread, count = noise * norm / (clients_per_round or 5), rounds * features
    assert drawn.shape == (rounds, features)
    assert abs(drawn.mean()) < 4 * spread / np.sqrt(count)
    assert abs(drawn.var() / spread**2 - 1) < 4 * np.sqrt(2 / count)
    assert abs(np.mean(drawn[1:] * drawn[:-1]) / spread**2) < 4 / np.sqrt(count)  # rounds have noise of their own


def test_where_clients_count_differently_the_noise_hides_the_one_that_counts_most():
    weights, updates = np.array([0.7, 0.2, 0.1]), jnp.zeros((3, 4000))
    drawn = np.asarray(Clipped(2.0, 3.0).drawn(updates, jnp.asarray(weights), jax.random.key(5)))
    assert abs(drawn.std() / (3.0 * 2.0 * 0.7) - 1) < 4 / np.sqrt(2 * 4000)


def test_a_seed_is_a_run_however_it_is_carried_out(tmp_path):
    mean = Clipped(0.05, 0.5)
    whole = bits(go(mean=mean))
    assert whole == bits(go(mean=mean)) == bits(go(mean=mean, evaluate_every=6))
    assert whole != bits(go(mean=mean, seed=1)) != bits(go(mean=Clipped(0.05)))
    go(mean=mean, rounds=4, checkpoint=tmp_path)
    assert bits(cofed.resume(tmp_path, rounds=6)) == whole
    debugged = go(mean=mean, debug=True).model.coef
    np.testing.assert_allclose(debugged, np.frombuffer(whole), rtol=1e-10)
    several = cofed.replicate(worlds.problem(), FED, cofed.FedAvg(0.02), seeds=[0, 1], mean=mean, **OPTIONS)
    assert bits(several.results[0]) == whole
    assert bits(several.results[1]) == bits(go(mean=mean, seed=1))


def test_a_clock_that_waits_for_everybody_changes_nothing():
    mean = Clipped(0.05, 0.5)
    assert bits(go(mean=mean, clock=cofed.Clock(1.0, spread=1.0))) == bits(go(mean=mean))


def test_what_no_gradient_moves_is_neither_cut_nor_noised():
    # Without a penalty dual averaging is gradient descent, and its message has the elapsed time beside.
    mean = Clipped(0.05, 0.5)
    found = [go(method(0.02), mean=mean, w0=None).model.coef for method in (cofed.FedAvg, cofed.FedDualAvg)]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-10)


def test_it_goes_with_methods_around_others():
    adam = cofed.ServerOptimizer(cofed.FedAvg(0.02), optax.adam, {"learning_rate": 0.1})
    scheduled = cofed.Scheduled(cofed.FedAvg(0.02), {"client_lr": lambda r: 1 / (1 + r)})
    for method in (adam, scheduled):
        plain, same = go(method), go(method, mean=Clipped(np.inf))
        np.testing.assert_allclose(same.model.coef, plain.model.coef, rtol=1e-10)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (cofed.FedFISTA(L=3.0), "what clients of FedFISTA send is no such change"),
        (cofed.FedNewton(), "what clients of FedNewton send is no such change"),
        (cofed.Scaffold(0.02), "whose clients keep nothing"),
        (cofed.Compressed(cofed.FedAvg(0.02), cofed.TopK(0.5)), "whose clients keep nothing"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_methods_whose_updates_must_not_be_cut_are_refused(method, words):
    with pytest.raises(ValueError, match=words):
        go(method, mean=Clipped(1.0))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((0.0,), "norm must be > 0, got 0.0"),
        ((float("nan"),), "norm must be > 0, got nan"),
        (("1",), "Clipped: norm must be a number"),
        ((1.0, -1.0), "noise must be a finite number >= 0"),
        ((np.inf, 1.0), "norm must be finite where there is any"),
        (([1.0, 2.0],), "norm must be"),
    ],
)
def test_what_is_no_bound_or_noise_is_refused(given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        Clipped(*given)
