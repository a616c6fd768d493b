"""Minimisers of penalised quadratics satisfy the conditions of optimality, from any guess."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cofed.solvers.active_set import ElasticQuadratic, by_coordinates, minimise


def violation(q, z):
    """How far z is from the conditions of optimality, beside the largest slope at 0."""
    slope = q.slope(z)
    off = np.where(z != 0, np.abs(slope + q.l1 * np.sign(z)), np.maximum(np.abs(slope) - q.l1, 0))
    return off.max() / np.abs(q.slope(0 * z)).max()


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(3, 40),
    size=st.integers(1, 25),
    weak=st.floats(0, 3),
    alike=st.booleans(),
    net=st.booleans(),
    free=st.booleans(),
)
def test_the_conditions_of_optimality_hold(seed, rows, size, weak, alike, net, free):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, size)) + 3 * alike * rng.normal(size=(rows, 1))
    y = X[:, 0] + rng.normal(size=rows)
    x = rng.normal(size=size) * (rng.random(size) < 0.5)
    strength = np.abs(X.T @ y).max() / rows * 10**-weak
    l1 = strength * rng.uniform(0.5, 2, size)
    if free:
        l1[0] = 0.0
    H = X.T @ X / rows
    q = ElasticQuadratic(H, X.T @ (X @ x - y) / rows, x, l1, strength * net * rng.random(size))
    for guess in (np.zeros(size), x, 10 * rng.normal(size=size)):
        assert violation(q, minimise(q, guess)) < 1e-10


def test_a_far_guess_costs_no_more_than_time():
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.normal(size=(300, 80)), axis=1)  # neighbours are nearly alike
    y = X @ (rng.random(80) < 0.1) + rng.normal(size=300)
    H, g = X.T @ X / 300, -X.T @ y / 300
    q = ElasticQuadratic(H, g, np.zeros(80), np.full(80, 1e-3 * np.abs(g).max()), np.zeros(80))
    near, far = minimise(q, np.zeros(80)), minimise(q, 100 * rng.normal(size=80))
    np.testing.assert_allclose(near, far, atol=1e-8)
    assert violation(q, far) < 1e-10


def test_directions_without_curvature_are_followed_to_a_kink():
    H = np.ones((2, 2))
    q = ElasticQuadratic(H, np.array([-3.0, -3.0]), np.zeros(2), np.array([1.0, 2.0]), np.zeros(2))
    np.testing.assert_allclose(minimise(q, np.array([0.0, 1.5])), [2.0, 0.0], atol=1e-9)


def test_what_bends_nowhere_is_no_endless_search():
    """As where all residuals are on the straight parts of Huber's loss."""
    for g in (np.array([-3.0, 0.5]), np.array([0.5, -0.2])):
        q = ElasticQuadratic(np.zeros((2, 2)), g, np.zeros(2), np.array([0.0, 1.0]), np.zeros(2))
        assert np.isfinite(minimise(q, np.zeros(2))).all()


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), ridge=st.sampled_from([0.0, 0.3]), free=st.booleans(), many=st.booleans())
def test_coordinate_descent_gives_a_good_guess_from_any(seed, ridge, free, many):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 40 if many else 8))
    y = X[:, 0] + rng.normal(size=20)
    l1 = np.full(X.shape[1], 0.1 * np.abs(X.T @ y).max() / 20)
    l1[0] *= not free
    x = rng.normal(size=len(l1))
    q = ElasticQuadratic(X.T @ X / 20, X.T @ (X @ x - y) / 20, x, l1, ridge * l1)
    best, far = q.value(minimise(q, np.zeros(len(l1)))), 10 * rng.normal(size=len(l1))
    assert q.value(by_coordinates(q, far)) - best <= 1e-6 * (q.value(far) - best)


def test_a_penalty_that_is_no_elastic_net_keeps_its_guess():
    q = ElasticQuadratic(np.eye(2), -np.ones(2), np.zeros(2), np.ones(2), np.array([0.0, 1.0]))
    guess = np.array([3.0, -1.0])
    assert by_coordinates(q, guess) is guess
