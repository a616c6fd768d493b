"""Randomness: distinct, uniform, tied to the client and not to its place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cofed._util import draws
from cofed.engine import sampling


def int32(value):
    return jnp.asarray(value, jnp.int32)


@given(st.integers(0, 2**31 - 1), st.integers(1, 40), st.sampled_from([1, 3, 10, 70]))
def test_batches_are_distinct_samples_of_the_client(seed, n, batch):
    chosen, real = sampling.random_batches(jax.random.key(seed), int32(n), 40, batch, 4)
    for rows, flags in zip(np.asarray(chosen), np.asarray(real), strict=True):
        taken = rows[flags]
        assert len(taken) == min(n, batch)
        assert len(set(taken.tolist())) == len(taken)
        assert set(taken.tolist()) <= set(range(n))


@given(st.integers(0, 2**31 - 1), st.integers(1, 40), st.sampled_from([1, 4, 12]), st.sampled_from([1, 3]))
def test_an_epoch_takes_every_sample_once(seed, n, batch, epochs):
    chosen, real = (np.asarray(a) for a in sampling.epoch_batches(jax.random.key(seed), int32(n), 40, batch, epochs))
    steps = -(-n // batch)
    for e in range(epochs):
        rows, flags = chosen[e * steps : (e + 1) * steps], real[e * steps : (e + 1) * steps]
        assert sorted(rows[flags].tolist()) == list(range(n))
        assert flags.sum(axis=1).tolist() == [batch] * (n // batch) + ([n % batch] if n % batch else [])


@pytest.mark.parametrize("most", [6, 5000])
def test_a_shuffle_keeps_what_is_beyond_the_client_last(most):
    order = np.asarray(draws.shuffled(jax.random.key(1), int32(5), most))
    assert sorted(order[:5].tolist()) == [0, 1, 2, 3, 4]
    assert sorted(order.tolist()) == list(range(most))


def test_floyd_and_shuffles_are_uniform():
    """Every pair out of five, and every order of four, is equally likely: chi-squared at the 1e-4 level."""
    keys = jax.random.split(jax.random.key(0), 20000)
    pairs = np.sort(np.asarray(jax.vmap(lambda k: draws.distinct(k, int32(5), 5, 1, 2)[0])(keys)), axis=1)
    counts = np.unique(pairs @ [5, 1], return_counts=True)[1]
    assert len(counts) == 10
    assert stats.chisquare(counts).pvalue > 1e-4
    orders = np.asarray(jax.vmap(lambda k: draws.shuffled(k, int32(4), 4))(keys))
    counts = np.unique(orders @ [64, 16, 4, 1], return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize(("clients", "count"), [(260, 65), (1_000_000, 100), (70, 70), (100, 64)])
def test_few_of_many_clients_are_distinct_and_in_order(clients, count):
    keys = jax.random.split(jax.random.key(2), 200)
    who = np.asarray(jax.vmap(lambda k: sampling.participants(k, clients, count))(keys))
    assert who.shape == (200, count)
    assert who.min() >= 0
    assert who.max() < clients
    assert (np.diff(who, axis=1) > 0).all()


def test_the_first_distinct_draws_are_a_uniform_set():
    """Every triple out of twelve is equally likely, also with the few attempts that failed: chi-squared at 1e-4."""
    keys = jax.random.split(jax.random.key(0), 40000)
    triples = np.asarray(jax.vmap(lambda k: draws.first_distinct(k, 12, 3))(keys))
    assert (np.diff(triples, axis=1) > 0).all()
    counts = np.unique(triples @ [144, 12, 1], return_counts=True)[1]
    assert len(counts) == 220
    assert stats.chisquare(counts).pvalue > 1e-4


def test_many_participants_out_of_more_clients_are_uniform():
    keys = jax.random.split(jax.random.key(1), 2000)
    who = np.asarray(jax.vmap(lambda k: sampling.participants(k, 300, 70))(keys))
    # Draws without replacement vary less than independent ones: the statistic is scaled by (n - 1) / (n - count).
    counts = np.bincount(who.ravel(), minlength=300)
    statistic = ((counts - 2000 * 70 / 300) ** 2).sum() / (2000 * 70 / 300) * 299 / 230
    assert stats.chi2.sf(statistic, 299) > 1e-4
    assert stats.chi2.cdf(statistic, 299) > 1e-4


@given(st.integers(0, 2**31 - 1), st.integers(1, 20))
def test_few_batches_do_not_depend_on_the_padding(seed, n):
    key = jax.random.key(seed)
    small, _ = sampling.random_batches(key, int32(n), 20, 3, 5)
    large, _ = sampling.random_batches(key, int32(n), 500, 3, 5)
    np.testing.assert_array_equal(small, large)


@given(st.integers(0, 2**31 - 1), st.sampled_from([1, 7, 64, 65, 90]))
def test_participants_are_distinct_and_in_order(seed, count):
    ids = np.asarray(sampling.participants(jax.random.key(seed), 90, count))
    assert np.all(np.diff(ids) > 0)
    assert len(ids) == count
    assert set(ids.tolist()) <= set(range(90))


def test_rounds_clients_and_steps_draw_differently():
    key = jax.random.key(0)
    batches = lambda r, m: np.asarray(  # noqa: E731
        sampling.random_batches(
            sampling.client_key(sampling.round_key(key, int32(r)), int32(m)), int32(1000), 1000, 8, 3
        )[0]
    )
    assert not np.array_equal(batches(0, 0), batches(1, 0))
    assert not np.array_equal(batches(0, 0), batches(0, 1))
    assert not np.array_equal(batches(0, 0)[0], batches(0, 0)[1])
