"""FedNewton and FedFISTA: NumPy twins, what their rounds promise, what they refuse."""

import itertools

import numpy as np
import pytest
from tests import worlds

import cofed


def pooled(federation):
    X, y = federation.pooled()
    return X, y, X.T @ X / len(y), X.T @ y / len(y)


def soft(v, t):
    return np.sign(v) * np.maximum(np.abs(v) - t, 0)


def test_fista_is_its_numpy_twin():
    """Round by round, with a first guess of L that is too small and has to grow."""
    federation = worlds.linear()
    _, _, H, c = pooled(federation)
    strength, L, theta = 0.05, 0.5, 1.0
    w = v = worlds.start()["coef"]
    at, gradient, expected = None, None, []
    for _ in range(12):
        g = H @ v - c
        base, seen = v, 0.0
        if at is not None:
            apart = v - at
            seen = apart @ (g - gradient) / (apart @ apart)
        if seen > L:
            L, base, g, theta = 1.05 * seen, at, gradient, 1.0
        new = soft(base - g / L, strength / L)
        if (base - new) @ (new - w) > 0:
            theta = 1.0
        following = (1 + np.sqrt(1 + 4 * theta**2)) / 2
        v, w, theta, at, gradient = new + (theta - 1) / following * (new - w), new, following, base, g
        expected.append(w)
    result = cofed.run(
        worlds.problem(cofed.L1(strength)),
        federation,
        cofed.FedFISTA(0.5),
        rounds=12,
        local_steps=1,
        weights="samples",
        w0=worlds.start(),
        keep_models=True,
    )
    assert L > 2
    np.testing.assert_allclose(worlds.coefs(result)[1:], expected, atol=1e-11)


def test_newton_solves_a_squared_loss_in_one_round():
    federation = worlds.linear()
    _, _, H, c = pooled(federation)
    result = cofed.run(
        worlds.problem(cofed.L1(0.3)),
        federation,
        cofed.FedNewton(),
        rounds=1,
        local_steps=1,
        weights="samples",
        w0=worlds.start(),
    )
    w = result.model.coef
    g = H @ w - c
    assert 0 < np.count_nonzero(w) < len(w)
    np.testing.assert_allclose(g[w != 0], -0.3 * np.sign(w[w != 0]), atol=1e-12)
    assert (np.abs(g[w == 0]) <= 0.3).all()


def test_a_working_set_moves_its_coordinates_only_and_gets_there():
    federation = worlds.linear()
    _, _, H, c = pooled(federation)
    result = cofed.run(
        worlds.problem(cofed.L1(2.0)),
        federation,
        cofed.FedNewton(working_set=4),
        rounds=12,
        local_steps=1,
        weights="samples",
        keep_models=True,
    )
    models = worlds.coefs(result)
    assert all(np.count_nonzero(new - old) <= 4 for old, new in itertools.pairwise(models))
    w = models[-1]
    np.testing.assert_allclose(w, soft(w - (H @ w - c), 2.0), atol=1e-12)
    # Positions of 4 bytes; the loss and a triangle of 10 beside the gradient.
    assert result.communication.down_per_client == 8 * worlds.D + 4 * 4
    assert result.communication.up_per_client == 8 * (worlds.D + 1 + 10)


def test_newton_shortens_its_steps_where_they_overshoot():
    """Where a logistic loss has hardly any curvature left, a full Newton step is far too long."""
    result = cofed.run(
        worlds.problem(cofed.L1(0.01), cofed.Logistic()),
        worlds.logistic(),
        cofed.FedNewton(),
        rounds=60,
        local_steps=1,
        weights="samples",
        w0={"coef": np.full(worlds.D, 5.0)},
    )
    assert result.history["objective"].max() > 2 * result.history["objective"][0]
    assert result.history["prox_gradient"][-1] < 1e-12


def test_a_working_set_refuses_what_ties_coordinates_together():
    with pytest.raises(ValueError, match="FedNewton with a working set does not fit the regularizer GroupL1"):
        cofed.run(
            worlds.problem(cofed.GroupL1(0.1, groups=[0, 0, 1, 1, 2, 2])),
            worlds.linear(),
            cofed.FedNewton(working_set=3),
            rounds=1,
        )
