"""Partitioners: every sample exactly once, no client empty, and they always end."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cofed import partition

LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=40)
SEEDS = st.integers(0, 10**6)


def numbered(labels):
    """X holds the sample's number, so that a lost, doubled or mismatched sample shows."""
    return np.arange(len(labels), dtype=float)[:, None], np.array(labels)


def assert_each_once(federation, labels):
    X, y = federation.pooled()
    numbers = X[:, 0].astype(int)
    assert sorted(numbers.tolist()) == list(range(len(labels)))
    np.testing.assert_array_equal(y, np.array(labels)[numbers])
    assert int(federation.sizes.min()) >= 1


@given(LABELS, st.data(), SEEDS)
def test_iid(labels, data, seed):
    clients = data.draw(st.integers(1, len(labels)))
    fed = partition.iid(*numbered(labels), clients, seed)
    assert_each_once(fed, labels)
    assert fed.n_clients == clients
    assert int(fed.sizes.max() - fed.sizes.min()) <= 1


def test_iid_shuffles():
    fed = partition.iid(*numbered(np.repeat([0, 1], 500)), 2)
    for m in range(2):
        assert 0.4 < fed.client(m)[1].mean() < 0.6


@given(LABELS, st.data(), SEEDS)
def test_by_label(labels, data, seed):
    kinds = len(set(labels))
    each = data.draw(st.integers(1, kinds))
    clients = data.draw(st.integers(-(-kinds // each), len(labels)))
    fed = partition.by_label(*numbered(labels), clients, each, seed)
    assert_each_once(fed, labels)
    assert fed.n_clients == clients
    assert max(len(set(fed.client(m)[1].tolist())) for m in range(clients)) <= each


@given(st.integers(2, 8), st.integers(1, 3), st.integers(1, 12), SEEDS)
def test_by_label_gives_just_as_many_labels_where_there_are_enough_samples(kinds, each, clients, seed):
    each = min(each, kinds)
    clients = max(clients, -(-kinds // each))
    fed = partition.by_label(*numbered(np.arange(kinds * 50) % kinds), clients, each, seed)
    assert {len(set(fed.client(m)[1].tolist())) for m in range(clients)} == {each}


def test_by_label_with_one_rare_label():
    # One sample of label 0: two clients cannot both live on it.
    labels = [0] + [1] * 30
    for seed in range(5):
        assert_each_once(partition.by_label(*numbered(labels), 10, 1, seed), labels)


@given(
    LABELS,
    st.data(),
    st.sampled_from([1e-300, 1e-3, 0.1, 1.0, 100.0, 1e300]),
    SEEDS,
)
def test_dirichlet(labels, data, alpha, seed):
    clients = data.draw(st.integers(1, len(labels)))
    min_size = data.draw(st.integers(1, len(labels) // clients))
    fed = partition.dirichlet(*numbered(labels), clients, alpha, min_size, seed)
    assert_each_once(fed, labels)
    assert fed.n_clients == clients
    assert int(fed.sizes.min()) >= min_size


def test_dirichlet_alpha_sets_the_skew():
    labels = np.arange(4000) % 10

    def largest_share(alpha):
        fed = partition.dirichlet(*numbered(labels), 10, alpha, seed=3)
        counts = np.array([np.bincount(fed.client(m)[1], minlength=10) for m in range(10)])
        return (counts.max(axis=0) / 400).mean()  # the largest client's share of a label, over labels

    assert largest_share(1e-3) > 0.95
    assert 0.3 < largest_share(0.5) < 0.8
    assert largest_share(1e4) < 0.15


def test_dirichlet_shares_have_the_right_law():
    # A share of Dirichlet(a, a, a, a) has mean 1/4 and variance (1/4)(3/4) / (4 a + 1).
    rng = np.random.default_rng(0)
    for alpha in [0.05, 1.0, 20.0]:
        shares = np.array([partition._proportions(rng, alpha, 4) for _ in range(4000)])
        assert abs(shares.mean(axis=0) - 0.25).max() < 0.03
        assert shares.var() == pytest.approx(3 / 16 / (4 * alpha + 1), rel=0.06)


def test_dirichlet_repair_takes_from_the_largest_and_changes_no_more_than_needed():
    labels = np.zeros(1000, int)  # one label, so a tiny alpha gives everything to one client
    fed = partition.dirichlet(*numbered(labels), 20, 1e-3, min_size=5, seed=0)
    sizes = sorted(fed.sizes.tolist())
    assert sizes[:19] == [5] * 19
    assert sizes[19] == 1000 - 95


@given(st.lists(st.sampled_from(["2", "10", "a"]), min_size=1, max_size=20))
def test_by_column(sites):
    fed = partition.by_column(*numbered(range(len(sites))), sites)
    assert_each_once(fed, range(len(sites)))
    assert set(fed.names) == set(sites)
    for name in fed.names:
        assert fed.client(name)[1].tolist() == [i for i, site in enumerate(sites) if site == name]


@pytest.mark.parametrize(
    "draw",
    [
        lambda X, y, seed: partition.iid(X, y, 4, seed),
        lambda X, y, seed: partition.by_label(X, y, 4, 2, seed),
        lambda X, y, seed: partition.dirichlet(X, y, 4, 0.5, seed=seed),
    ],
)
def test_the_seed_decides(draw):
    X, y = numbered(np.arange(60) % 5)
    first, again, other = draw(X, y, 1), draw(X, y, 1), draw(X, y, 2)
    np.testing.assert_array_equal(first.X, again.X)
    assert first.pooled()[0].tolist() != other.pooled()[0].tolist()


def test_column_names_of_a_frame_reach_the_federation():
    df = pd.DataFrame({"age": [1.0, 2.0, 3.0], "dose": [4.0, 5.0, 6.0]}, index=[7, 7, 7])
    fed = partition.by_column(df, pd.Series([1, 2, 3], index=[3, 1, 2]), ["x", "y", "x"])
    assert fed.feature_names == ("age", "dose")
    assert fed.client("x")[1].tolist() == [1, 3]


X, Y = numbered([0, 1, 2, 0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: partition.iid(X, Y, 0), "iid: clients must be at least 1, got 0"),
        (lambda: partition.iid(X, Y, 5), "iid: 5 clients cannot share 4 samples"),
        (lambda: partition.iid(X, Y[:3], 2), "iid: X has 4 samples, but y has 3"),
        (lambda: partition.by_label(X, Y, 2, 0), r"labels_per_client must be between 1 and .*\(3\), got 0"),
        (lambda: partition.by_label(X, Y, 2, 4), r"labels_per_client must be between 1 and .*\(3\), got 4"),
        (lambda: partition.by_label(X, Y, 2, 1), "2 clients with 1 labels each cannot hold all 3 labels"),
        (lambda: partition.by_label(X, np.ones((4, 2)), 2, 1), r"y has shape \(4, 2\), expected one label"),
        (lambda: partition.dirichlet(X, Y, 2, 0.0), "dirichlet: alpha must be a finite number > 0, got 0.0"),
        (lambda: partition.dirichlet(X, Y, 2, -1.0), "alpha must be a finite number > 0"),
        (lambda: partition.dirichlet(X, Y, 2, float("inf")), "alpha must be a finite number > 0"),
        (lambda: partition.dirichlet(X, Y, 2, 1.0, min_size=3), "the 4 samples, got min_size=3"),
        (lambda: partition.dirichlet(X, Y, 2, 1.0, min_size=0), "min_size must be at least 1"),
        (lambda: partition.dirichlet(X, Y, 9, 1.0), "9 clients cannot share 4 samples"),
        (lambda: partition.by_column(X, Y, ["a", "b"]), "column has 2 entries for 4 samples"),
        (lambda: partition.by_column(X, Y, ["a", None, "b", None]), "2 of 4 entries of column are missing"),
        (lambda: partition.by_column(X[:0], Y[:0], []), "cannot share 0 samples"),
    ],
)
def test_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
