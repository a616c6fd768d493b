"""Robust means: beside NumPy, SciPy and brute force, and what they do in a run."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from tests import worlds

import cofed
from cofed.means import Geometric, Median, Trimmed

FED = worlds.linear()
OPTIONS = {"rounds": 5, "local_steps": 2, "w0": worlds.start()}
updates = arrays(float, st.tuples(st.sampled_from([3, 4, 7]), st.just(3)), elements=st.floats(-100, 100))


def found(mean, x, weights):
    return np.asarray(mean.of(jnp.asarray(x), jnp.asarray(weights)))


def go(**options):
    return cofed.run(worlds.problem(), FED, cofed.FedAvg(0.02), **OPTIONS | options)


@settings(max_examples=40, deadline=None)
@given(x=updates)
def test_with_equal_weights_they_are_numpys_and_scipys(x):
    m = len(x)
    equal = np.full(m, 1 / m)
    np.testing.assert_allclose(found(Median(), x, equal), np.median(x, axis=0), rtol=1e-12, atol=1e-12)
    cut = (m - 1) // 3
    np.testing.assert_allclose(
        found(Trimmed(cut / m), x, equal), stats.trim_mean(x, (cut + 0.1) / m, axis=0), rtol=1e-8, atol=1e-8
    )


@settings(max_examples=40, deadline=None)
@given(x=arrays(float, (5, 3), elements=st.floats(-100, 100)), copies=st.permutations(range(5)))
def test_a_weight_is_a_number_of_copies(x, copies):
    weights, many = np.array(copies) / sum(copies), np.repeat(x, copies, axis=0)
    equal = np.full(len(many), 1 / len(many))
    for mean in (Median(), Trimmed(0.2), Geometric()):
        np.testing.assert_allclose(found(mean, x, weights), found(mean, many, equal), rtol=1e-6, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(x=arrays(float, (6, 2), elements=st.floats(-10, 10), unique=True), direction=st.floats(0, 2 * np.pi))
def test_the_geometric_median_has_the_least_sum_of_distances(x, direction):
    equal = np.full(6, 1 / 6)
    best = found(Geometric(iterations=300), x, equal)
    cost = lambda z: np.linalg.norm(x - z, axis=1).sum()  # noqa: E731
    for step in (0.01, 0.3):
        assert cost(best) <= cost(best + step * np.array([np.cos(direction), np.sin(direction)])) + 1e-3


def test_nothing_trimmed_is_the_plain_mean():
    plain, same = go(weights="samples"), go(weights="samples", mean=Trimmed(0.0))
    np.testing.assert_allclose(same.model.coef, plain.model.coef, rtol=1e-12)


@pytest.mark.parametrize("mean", [Median(), Trimmed(0.25), Geometric()], ids=lambda mean: type(mean).__name__)
def test_a_client_that_lies_is_not_followed(mean):
    rng = np.random.default_rng(0)
    truth = rng.normal(size=worlds.D)
    honest = [(X := rng.normal(size=(30, worlds.D)), X @ truth) for _ in range(4)]
    X, y = honest[0]
    liar = cofed.Federation.from_arrays([*honest, (X, y + 1e6)])
    run = lambda **options: cofed.run(  # noqa: E731
        worlds.problem(), liar, cofed.FedAvg(0.1), rounds=200, local_steps=2, **options
    )
    assert np.abs(run(mean=mean).model.coef - truth).max() < 0.05
    assert np.abs(run().model.coef - truth).max() > 100


def test_it_goes_on_from_a_checkpoint_and_with_a_clock(tmp_path):
    options = {"mean": Trimmed(0.2), "clients_per_round": 3, "clock": cofed.Clock(1.0, spread=1.0)}
    go(**options, checkpoint=tmp_path)
    longer = cofed.resume(tmp_path, rounds=8)
    assert longer.model.coef.tobytes() == go(**options | {"rounds": 8}).model.coef.tobytes()


class Wrong(cofed.means.AbstractMean):
    def of(self, updates, weights):
        return jnp.zeros(2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mean": "median"}, "must be one of cofed.means"),
        ({"mean": Median(), "topology": cofed.topologies.ring(5)}, "through a server in one place"),
        ({"mean": Median(), "algorithm": cofed.Scaffold(0.1)}, "whose clients keep nothing"),
        ({"mean": Median(), "clients_per_round": cofed.samplers.Importance(2, [1, 1, 1, 1, 1])}, "as a number"),
        ({"mean": Wrong()}, "must give one update"),
    ],
)
def test_what_cannot_be_is_refused(given, words):
    options = {"algorithm": cofed.FedAvg(0.1), "rounds": 1} | given
    with pytest.raises((TypeError, ValueError), match=words):
        cofed.run(worlds.problem(), FED, **options)
