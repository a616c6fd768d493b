"""A sparse matrix multiplies as the dense one does, in whatever units."""

import hypothesis
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from cofed.sites import Scaling
from cofed.sites.host_rows import SparseRows, columns_of, joined, stored
from cofed.sites.matrix import CROWDED, DenseMatrix, SparseMatrix, matrix_of
from cofed.sites.matrix import products as weighed_products

N, P, SIZE = 20, 5, 32  # one shape, so that programs are shared
WHERE = np.array([3, P, 0, 3, 1, 1], np.int32)  # with the intercept, and a feature twice


@jax.jit
def products(X, V, weights, centre):
    """All that a matrix is asked for, of itself, less a centre, and of a block of its rows."""
    found = []
    where, half, first = jnp.asarray(WHERE), SIZE // 2, jnp.asarray(SIZE // 4, jnp.int32)
    own = jax.lax.dynamic_slice_in_dim(weights, first, half)
    for matrix, weight in ((X, weights), (X.less(centre), weights), (X.block(first, half), own)):
        rows = weight[:, :1] > 0  # padding is another row in each
        found += [
            jnp.where(rows, matrix @ V, 0),
            matrix.transposed_times(weight),
            matrix.squares(weight),
            jnp.where(rows, matrix.columns(jnp.minimum(where, P - 1)), 0),
            jnp.where(rows, matrix.dense(), 0),
            matrix.gram(weight[:, 1], where),
        ]
    return found


def assert_same_products(rows, scaling, seed=0):
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(seed)
    weights = np.zeros((SIZE, 2))
    weights[:N] = rng.uniform(0.5, 2, size=(N, 2))
    V, centre = rng.normal(size=(P, 3)), rng.normal(size=P)
    held, _ = matrix_of(rows, scaling, SIZE)
    sparse, _ = matrix_of(SparseRows(scipy.sparse.csr_array(rows)), scaling, SIZE)
    assert isinstance(held, DenseMatrix)
    assert isinstance(sparse, SparseMatrix)
    assert sparse.shape == held.shape == (SIZE, P)
    for one, other in zip(products(sparse, V, weights, centre), products(held, V, weights, centre), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12 * (1 + np.abs(other).max(initial=0)))


VALUES = st.sampled_from([0.0, 0.0, 0.0, 1.0, -2.5, 1e3, 1e-3])


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(arrays.arrays(float, (N, P), elements=VALUES), st.booleans())
def test_sparse_products_are_dense_ones(rows, scaled):
    width = rows.std(axis=0)
    assert_same_products(rows, Scaling(rows.mean(axis=0), np.where(width > 0, width, np.inf)) if scaled else None)


def few(share):
    """Rows with so many numbers beside 0, an empty row, an empty column, and a column of years."""
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((N, P)) < share, rng.normal(size=(N, P)), 0)
    rows[3], rows[:, 1] = 0, 0
    rows[:, 4] = 2000 + rng.random(N)
    return rows


@pytest.mark.parametrize("share", [0.0, 0.05, 0.4])
def test_centres_cost_no_precision_and_crowded_rows_are_multiplied_as_arrays(share):
    rows = few(share)
    scaling = Scaling(rows.mean(axis=0), np.where(rows.std(axis=0) > 0, rows.std(axis=0), np.inf))
    assert_same_products(rows, scaling)
    sparse, _ = matrix_of(SparseRows(scipy.sparse.csr_array(rows)), scaling, SIZE)
    assert sparse.full.shape == (SIZE, 1)  # the years
    ones = np.zeros((SIZE, 1))
    ones[:N] = 1
    np.testing.assert_allclose(
        sparse.squares(jnp.asarray(ones))[4], N, rtol=1e-9
    )  # x'x - n mean^2 would be off by 1e-8


def test_padding_repeats_the_shortest_row():
    rows = few(0.4)
    _, spare = matrix_of(SparseRows(scipy.sparse.csr_array(rows)), None, SIZE)
    assert np.count_nonzero(rows[spare]) == 1  # the year
    assert matrix_of(rows, None, SIZE)[1] == 0


def test_host_rows_are_joined_as_what_they_are():
    rows = few(0.4)
    held = SparseRows(scipy.sparse.csr_array(rows))
    np.testing.assert_array_equal(columns_of(joined([held[:5], held[5:]]), np.arange(P)), rows)
    np.testing.assert_array_equal(joined([rows[:5], rows[5:]]), rows)
    assert len(stored(held)) == np.count_nonzero(rows)
    assert 0 < CROWDED < 1


@hypothesis.settings(max_examples=15, deadline=None)
@hypothesis.given(st.integers(0, 2**16), st.sampled_from([0.0, 0.01, 0.05]))
def test_products_by_pairs_of_values_are_dense_ones(seed, share):
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(seed)
    n, p, size = 90, 40, 96
    rows = np.where(rng.random((n, p)) < share, rng.normal(size=(n, p)), 0)
    rows[:, 7], rows[5, ::2] = 2000 + rng.random(n), 1.0  # a column of years, and a row that is longer than others
    where = np.append(rng.permutation(p + 1)[:30], [3, p, 7, 7]).astype(np.int32)
    scaling = Scaling(rng.normal(size=p), rng.uniform(0.5, 2, size=p))
    weight = np.append(rng.uniform(0, 2, size=n), np.zeros(size - n))
    sparse, _ = matrix_of(SparseRows(scipy.sparse.csr_array(rows)), scaling, size)
    held, _ = matrix_of(rows, scaling, size)
    assert isinstance(sparse, SparseMatrix)
    assert sparse.has_short_rows(len(where))
    for one, other, own in (
        (sparse, held, weight),
        (sparse.block(jnp.asarray(32, jnp.int32), 32), held.block(jnp.asarray(32, jnp.int32), 32), weight[32:64]),
    ):
        expected = np.asarray(other.gram(jnp.asarray(own), jnp.asarray(where)))
        found = gram_of(one, jnp.asarray(own), jnp.asarray(where))
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11 * (1 + np.abs(expected).max()))


@jax.jit
def gram_of(X, weight, where):
    return X.gram(weight, where)


def test_a_large_matrix_of_products_is_made_above_its_diagonal_alone():
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    A, weight = rng.normal(size=(20, 261)), rng.uniform(size=20)
    found = np.asarray(weighed_products(jnp.asarray(A), jnp.asarray(weight)))
    np.testing.assert_allclose(found, A.T @ (A * weight[:, None]), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found, found.T)
