"""The direct solver of penalised quadratic models, by the conditions of optimality."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.estimators import exactly

from cofed.estimators.penalty import WeightedElasticNet
from cofed.estimators.polish import Pieces, minimise_by_pieces
from cofed.models import Weights
from cofed.regularizers import Box, NonNegative


def quadratic(seed, n, p):
    """The Hessian and gradient of least squares, with a column that is a copy or a sum of others, or with neither."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    if seed % 3 == 0:
        X[:, -1] = X[:, 0]
    elif seed % 3 == 1:
        X[:, -1] = X[:, 0] + X[:, 1]
    y = X[:, 0] - X[:, 1] + rng.normal(size=n)
    return X.T @ X / n, -X.T @ y / n, rng


def solved(H, g, psi, begin, noise=1e-16):
    p = len(g)
    pieces = Pieces(psi, Weights(jnp.zeros(p), None))
    return minimise_by_pieces(H, g + H @ begin, begin, pieces, np.full(p, noise))


@pytest.mark.parametrize(("n", "p"), [(40, 6), (12, 20)])
@given(st.integers(0, 2**32 - 1), st.floats(-12, 0), st.sampled_from([0.0, 1e-8, 1e-2]), st.booleans())
def test_elastic_nets_are_solved_to_rounding_however_flat(n, p, seed, size, ridge, far):
    H, g, rng = quadratic(seed, n, p)
    l1, begin = 10**size * rng.uniform(0.5, 2, size=p), rng.normal(size=p) * far
    z = solved(H, g, WeightedElasticNet(jnp.asarray(l1), jnp.full(p, ridge)), begin)
    assert exactly.violation(g + H @ z, z, l1, np.full(p, ridge)).max() <= 1e-13


@pytest.mark.parametrize(("n", "p"), [(40, 6), (12, 20)])
@given(st.integers(0, 2**32 - 1))
def test_bounds_hold_and_pull_the_right_way(n, p, seed):
    H, g, rng = quadratic(seed, n, p)
    for psi, low, high in ((NonNegative(), 0.0, np.inf), (Box(-0.1, 0.2), -0.1, 0.2)):
        z = solved(H, g, psi, np.clip(rng.normal(size=p), low, high))
        slope = g + H @ z
        assert (low <= z).all()
        assert (z <= high).all()
        assert (slope >= -1e-13)[z < high].all()
        assert (slope <= 1e-13)[z > low].all()


@pytest.mark.parametrize("noise", [1e-16, 1e-24])  # where the gradient is known exactly, the solver itself still rounds
def test_without_a_penalty_flat_directions_are_left_alone(noise):
    H, g, _ = quadratic(0, 40, 6)  # a column twice
    z = solved(H, g, WeightedElasticNet(jnp.zeros(6), jnp.zeros(6)), np.zeros(6), noise)
    np.testing.assert_allclose(z, -np.linalg.pinv(H) @ g, rtol=0, atol=1e-13)
