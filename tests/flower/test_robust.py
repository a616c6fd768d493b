"""A poisoned update moves the mean as far as it likes, and a robust mean hardly; masked updates have no robust mean."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cofed
from cofed.flower import serve
from cofed.flower.robust import robust_mean
from tests import worlds
from tests.flower.loopback import network

SITES, TRUTH = ("a", "b", "c", "d", "e"), np.array([1.0, -2.0, 0.5])


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=11, max_size=11), chosen=st.integers(0, 2**11 - 1))
def test_the_middle_is_that_of_the_updates_that_were_heard(values, chosen):
    heard = np.array([bool(chosen >> i & 1) for i in range(len(values))])
    heard[0] = True
    updates = {"coef": jnp.asarray(np.array(values)[:, None] * [1.0, -2.0])}
    weights = np.full(len(values), 1 / len(values))
    known = np.sort(np.array(values)[heard])
    cut = max(1, len(known) // 5) if len(known) > 2 else 0
    for kind, middle in (("median", np.median(known)), ("trimmed", known[cut : len(known) - cut].mean())):
        found, share = robust_mean(kind, updates, jnp.asarray(weights), jnp.asarray(heard))
        np.testing.assert_allclose(found["coef"], middle * np.array([1.0, -2.0]), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(share, heard.mean(), rtol=1e-12)


def federation(poison):
    """Five sites of one linear model, of which the last has labels that are multiplied with a number."""
    rng, clients = np.random.default_rng(0), {}
    for site in SITES:
        X = rng.normal(size=(30, 3))
        y = X @ TRUTH + 0.1 * rng.normal(size=30)
        clients[site] = (X, y * poison if site == SITES[-1] else y)
    return cofed.Federation.from_arrays(clients)


def error(poison, **options):
    """How far a model is from the truth."""
    problem, algorithm = worlds.problem(), cofed.FedAvg(0.05)
    grid, _ = network(problem, algorithm, federation(poison))
    settings = {"rounds": 15, "local_steps": 5, "clients": 5, "deadline": 30.0, "evaluate_every": None}
    found = serve(grid, problem, algorithm, **settings, **options)
    return float(np.abs(np.ravel(found.model.coef) - TRUTH).max())


@pytest.mark.parametrize("robust", ["median", "trimmed"])
def test_a_poisoned_site_moves_the_mean_and_not_the_middle(robust):
    assert error(1.0, plain=True) < 0.1
    assert error(-1e4, plain=True) > 100
    assert error(-1e4, plain=True, robust=robust) < 0.1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"robust": "median"}, "masks hide it: the two exclude each other"),
        ({"robust": "mode", "plain": True}, "robust must be one of median, trimmed, or None, got 'mode'"),
        ({"robust": 3, "plain": True}, "robust must be one of median, trimmed, or None, got 3"),
        ({"robust": "median", "plain": True, "weights": "samples"}, "weights must be 'uniform', got 'samples'"),
    ],
)
def test_what_cannot_be_had_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        error(1.0, **options)


def test_a_run_does_not_go_on_with_another_mean(tmp_path):
    error(1.0, plain=True, robust="median", checkpoint=tmp_path)
    with pytest.raises(ValueError, match="has another robust mean than this one"):
        error(1.0, plain=True, checkpoint=tmp_path)
