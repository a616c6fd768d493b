"""Singular-value thresholding by the Gram matrix against the SVD: exact to round-off, or not taken."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofed.regularizers.singular import by_gram, by_svd, threshold_singular_values

gram, svd, hybrid = (jax.jit(jax.vmap(f)) for f in (by_gram, by_svd, threshold_singular_values))
COUNT, SIZE = 4, 12


def matrices(values: np.ndarray, seed: int, dtype: type) -> np.ndarray:
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(COUNT, SIZE, SIZE)))[0] for _ in range(2))
    return ((left * values) @ right).astype(dtype)


@settings(max_examples=60, deadline=None)
@given(
    logs=st.lists(st.floats(-9, 2), min_size=SIZE, max_size=SIZE),
    repeated=st.booleans(),
    threshold=st.floats(-9, 3),
    seed=st.integers(0, 999),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_what_is_called_exact_is(logs, repeated, threshold, seed, dtype):
    values = 10.0 ** np.array(logs)
    if repeated:
        values[1::2] = values[::2]
    a, t = matrices(values, seed, dtype), np.full(COUNT, 10.0**threshold, dtype)
    scale = a.max()
    found, exact = gram(a / scale, t / scale)
    close = 40 * np.finfo(dtype).eps * np.linalg.norm(a, 2, axis=(1, 2)).max()
    # The reference is of twice the precision where there is one.
    u, s, vt = np.linalg.svd(a.astype(np.float64))
    truth = (u * np.maximum(s - t[:, None].astype(np.float64), 0)[:, None, :]) @ vt
    errors = np.abs(np.asarray(found, np.float64) * scale - truth).max(axis=(1, 2))
    assert (errors[np.asarray(exact)] <= close).all()
    assert np.abs(np.asarray(hybrid(a, t), np.float64) - truth).max() <= close


def test_the_gram_matrix_is_taken_where_it_can_be_and_only_there():
    easy = np.r_[np.linspace(5, 30, SIZE // 2), np.linspace(0, 0.4, SIZE // 2)]
    assert gram(matrices(easy, 0, np.float32), np.ones(COUNT, np.float32))[1].all()
    hard = np.geomspace(30, 1e-6, SIZE)  # singular values of all sizes, and a threshold far down
    a, t = matrices(hard, 0, np.float32), np.full(COUNT, 1e-3, np.float32)
    found, exact = gram(a, t)
    assert not exact.any()
    assert np.abs(found - svd(a, t)).max() > 1e-4  # it would have been wrong
    assert np.abs(hybrid(a, t) - svd(a, t)).max() < 1e-5


def test_small_thresholds_are_more_exact_than_the_svd_where_jax_is_in_32_bits():
    a, t = matrices(np.geomspace(30, 1e-3, SIZE), 3, np.float32), np.full(COUNT, 0.01, np.float32)
    u, s, vt = np.linalg.svd(a.astype(np.float64))
    truth = (u * np.maximum(s - t[:, None].astype(np.float64), 0)[:, None, :]) @ vt
    with jax.enable_x64(False):
        fine, usual = (np.asarray(jax.jit(jax.vmap(f))(a, t)) for f in (threshold_singular_values, by_svd))
    assert fine.dtype == np.float32
    rounding = np.finfo(np.float32).eps * np.abs(a).max()
    assert np.abs(fine - truth).max() <= rounding < np.abs(usual - truth).max()


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_any_scale(scale):
    a, t = matrices(np.linspace(0, 2, SIZE), 1, np.float64), np.full(COUNT, 0.7)
    assert np.allclose(hybrid(scale * a, scale * t) / scale, svd(a, t), rtol=0, atol=1e-14)


def test_a_batch_within_a_batch_and_a_shared_threshold():
    a = matrices(np.linspace(0, 2, SIZE), 2, np.float64)
    stacked = jnp.stack([a, 2 * a])
    nested = jax.vmap(jax.vmap(threshold_singular_values, in_axes=(0, None)), in_axes=(0, None))
    expected = jax.vmap(jax.vmap(lambda m: by_svd(m, jnp.asarray(0.5))))(stacked)
    assert np.allclose(nested(stacked, jnp.asarray(0.5)), expected, rtol=0, atol=1e-13)
