"""What compressors send, and what the other end reads: best, smaller, deterministic, and a contraction."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import cofed
from cofed import compressors
from cofed._util import trees

KEY = jax.random.key(3)
D = 40
vectors = hnp.arrays(np.float64, D, elements=st.floats(-1e3, 1e3, width=32))
shares = st.sampled_from([0.03, 0.2, 0.5, 1.0])
bits = st.sampled_from([1, 2, 3, 5, 8])


def back(compressor, v, key=KEY):
    return np.asarray(compressor.compress(jnp.asarray(v), key).expand())


def error(compressor, v):
    return float(np.sum((v - back(compressor, v)) ** 2))


@given(vectors, shares)
def test_top_k_is_the_best_sparse_approximation(v, share):
    found, k = back(cofed.TopK(share), v), int(np.ceil(share * D))
    kept = np.argsort(-np.abs(v), kind="stable")[:k]
    best = np.zeros(D)
    best[kept] = v[kept]
    assert np.sum(found != 0) <= k
    assert set(found[found != 0]) <= set(v)
    np.testing.assert_allclose(np.sum((v - found) ** 2), np.sum((v - best) ** 2), rtol=1e-12)
    assert error(cofed.TopK(share), v) <= (1 - k / D) * np.sum(v**2) * (1 + 1e-12)


@given(vectors, shares, st.integers(0, 2**31))
def test_random_k_keeps_k_entries_as_they_are(v, share, seed):
    v = np.where(v == 0, 1.0, v)
    found = back(cofed.RandomK(share), v, jax.random.key(seed))
    assert np.sum(found != 0) == int(np.ceil(share * D))
    np.testing.assert_array_equal(found[found != 0], v[found != 0])


def test_random_k_draws_every_place_equally_often():
    ones = jnp.ones(D)
    keys = jax.random.split(KEY, 4000)
    often = jax.vmap(lambda key: cofed.RandomK(0.25).compress(ones, key).expand())(keys).mean(axis=0)
    # The standard error of a place is sqrt(1/4 * 3/4 / 4000) < 0.007.
    np.testing.assert_allclose(often, 0.25, atol=0.035)


@given(vectors, bits)
def test_quantised_errors_are_bounded_and_never_above_the_vector(v, bits):
    square, levels = float(np.sum(v**2)), 2**bits - 1
    found = error(cofed.Quantised(bits), v)
    assert found <= (1 - 1 / (D * levels**2)) * square + 1e-9 * square
    assert found <= D * (np.abs(v).max() / levels) ** 2 * (1 + 1e-9)


@given(vectors)
def test_one_bit_is_the_sign_times_the_mean_size(v):
    np.testing.assert_allclose(
        back(cofed.Quantised(1), v), np.where(v >= 0, 1.0, -1.0) * np.abs(v).mean(), rtol=1e-9, atol=1e-300
    )


def test_more_bits_are_better_on_normal_entries():
    v = np.random.default_rng(0).normal(size=4000)
    found = [error(cofed.Quantised(b), v) / np.sum(v**2) for b in (1, 2, 3, 4, 8)]
    # The best evenly spaced levels for a normal entry lose 0.3634, 0.1188, 0.03744, 0.01154 (Max 1960, table II).
    np.testing.assert_allclose(found[:3], [0.3634, 0.1188, 0.03744], rtol=0.35)
    assert all(a > 2 * b for a, b in itertools.pairwise(found))


@pytest.mark.parametrize("compressor", [cofed.TopK(0.3), cofed.RandomK(0.3), cofed.Quantised(1), cofed.Quantised(3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_trees_keep_shapes_and_dtypes_and_get_smaller(compressor, dtype):
    rng = np.random.default_rng(0)
    tree = {
        "matrix": jnp.asarray(rng.normal(size=(7, 300)).astype(dtype)),
        "vector": jnp.asarray(rng.normal(size=70).astype(dtype)),
        "number": jnp.asarray(2.5, dtype),
        "one": jnp.asarray([2.5], dtype),
        "none": None,
    }
    message = jax.jit(lambda tree: compressors.compress(compressor, tree, KEY))(tree)
    found = compressors.expand(message)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
    assert float(found["number"]) == float(found["one"][0]) == 2.5
    assert trees.nbytes(message) < 0.5 * trees.nbytes(tree)
    assert all(0 < np.sum((found[n] - tree[n]) ** 2) < np.sum(tree[n] ** 2) for n in ("matrix", "vector"))


@pytest.mark.parametrize(
    ("compressor", "d", "bytes_"),
    [
        (cofed.TopK(0.05), 200, 10 * (4 + 1)),
        (cofed.TopK(0.05), 1000, 50 * (4 + 2)),
        (cofed.TopK(0.05), 100_000, 5000 * (4 + 4)),
        (cofed.TopK(0.9), 1000, 4000),  # as it is: indices would make it larger
        (cofed.TopK(1.0), 1000, 4000),
        (cofed.RandomK(0.05), 1000, 50 * 4 + 4),
        (cofed.Quantised(1), 1000, 125 + 4),
        (cofed.Quantised(3), 1000, 375 + 4),
        (cofed.Quantised(16), 1000, 2000 + 4),
    ],
)
def test_bytes_are_those_of_the_arrays(compressor, d, bytes_):
    v = jax.ShapeDtypeStruct((d,), jnp.float32)
    message = jax.eval_shape(lambda v: compressors.compress(compressor, {"coef": v}, KEY), v)
    assert trees.nbytes(message) == bytes_


@pytest.mark.parametrize("compressor", [cofed.TopK(1.0), cofed.RandomK(1.0)])
def test_all_entries_are_the_vector(compressor):
    v = np.random.default_rng(1).normal(size=D)
    np.testing.assert_array_equal(back(compressor, v), v)


@pytest.mark.parametrize("compressor", [cofed.TopK(0.2), cofed.RandomK(0.2), cofed.Quantised(1), cofed.Quantised(4)])
def test_nothing_comes_back_as_nothing(compressor):
    np.testing.assert_array_equal(back(compressor, np.zeros(D)), np.zeros(D))


def test_a_place_that_is_not_there_is_left_out():
    foreign = compressors.Sparse(jnp.array([1.0, 2.0]), jnp.array([250, 1], jnp.uint8), (4,))
    np.testing.assert_array_equal(foreign.expand(), [0, 2, 0, 0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cofed.TopK(0), r"TopK: share must be a number in \(0, 1\]"),
        (lambda: cofed.TopK(2.0), "got 2.0"),
        (lambda: cofed.TopK("half"), "got 'half'"),
        (lambda: cofed.RandomK(share=-0.1), "RandomK: share must be"),
        (lambda: cofed.RandomK(float("nan")), "got nan"),
        (lambda: cofed.Quantised(40), "Quantised: bits must be an integer from 1 to 16, got 40"),
        (lambda: cofed.Quantised(0), "got 0"),
        (lambda: cofed.Quantised(1.5), "got 1.5"),
    ],
)
def test_bad_numbers_get_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()
