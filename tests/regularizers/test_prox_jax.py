"""What JAX may do to a regularizer: jit, vmap, differentiate, in either precision, without a surprise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from regularizer_table import FINITE, MAIN, array, close, names

import cofed.regularizers as R

THROUGH = jax.jit(lambda regularizer, v, step: regularizer.prox(v, step))
rows = pytest.mark.parametrize("row", MAIN, ids=names(MAIN))


def moved(regularizer, factor):
    """The same regularizer with every hyperparameter multiplied."""
    return jax.tree.map(lambda leaf: leaf * factor, regularizer)


def special_points(row):
    """Where naive derivatives are NaN: zeros, ties, repeated singular values, points on a threshold."""
    shape = row.shape
    ones = np.ones(shape)
    yield "zero", np.zeros(shape)
    yield "ties", ones
    yield "signed ties", np.where(np.arange(ones.size).reshape(shape) % 2, 1.0, -1.0)
    yield "repeated", np.eye(*shape) if len(shape) == 2 else np.arange(ones.size) // 2.0
    yield "one entry", np.eye(1, ones.size).reshape(shape)
    for size in (0.35, 0.7, 0.8, 0.9, 1.8):
        yield f"threshold {size}", size * np.sign(np.arange(ones.size) - 2.0).reshape(shape)


@rows
def test_jit_is_eager(row):
    v = array(row.draw(0))
    close(row.prox(v, 0.8), row.regularizer.prox(v, 0.8), 1e-14)
    w = row.prox(v, 0.8)
    assert float(row.psi(w)) == pytest.approx(float(row.regularizer.value(w)), rel=1e-14)


@rows
def test_vmap_over_points_and_steps_is_a_loop(row):
    v = jnp.stack([array(row.draw(seed)) for seed in range(4)])
    steps = jnp.array([0.0, 0.3, 1.0, 4.0])
    loop = jnp.stack([row.prox(x, step) for x, step in zip(v, steps, strict=True)])
    close(jax.vmap(row.prox)(v, steps), loop, 1e-13)


@pytest.mark.parametrize("row", [row for row in MAIN if jax.tree.leaves(row.make())], ids=lambda row: row.name)
def test_vmap_over_hyperparameters_is_a_loop(row):
    v, factors = array(row.draw(0)), [0.25, 0.5, 1.0]
    grid = jax.jit(jax.vmap(lambda factor: moved(row.regularizer, factor).prox(v, 0.7)))(jnp.array(factors))
    one = jax.jit(lambda factor: moved(row.regularizer, factor).prox(v, 0.7))
    close(grid, jnp.stack([one(factor) for factor in factors]), 1e-13)
    assert float(jnp.abs(grid[0] - grid[2]).max()) > 1e-3


@rows
def test_float32_stays_float32(row):
    v = array(row.draw(0, np.float32))
    exact = row.prox(v.astype(jnp.float64), 0.8)
    w = row.prox(v, 0.8)
    assert w.dtype == jnp.float32
    assert row.psi(w).dtype == jnp.float32
    close(w, exact, 1e-5)
    # A grid or a tracer of another precision must not change the model's.
    regularizer = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), row.regularizer)
    w = THROUGH(regularizer, v, jnp.asarray(0.8, jnp.float64))
    assert w.dtype == jnp.float32
    close(w, exact, 1e-5)


@pytest.mark.parametrize("row", FINITE, ids=names(FINITE))
def test_float32_subgradient_stays_float32(row):
    assert row.subgradient(array(row.draw(0, np.float32))).dtype == jnp.float32


@rows
def test_numpy_goes_in_and_stays_as_it_was(row):
    v = row.draw(0)
    before = v.copy()
    w = row.regularizer.prox({"coef": v}, 0.8)["coef"]
    row.regularizer.value(v)
    assert isinstance(w, jax.Array)
    assert np.array_equal(v, before)
    close(w, row.prox(array(v), 0.8), 1e-14)


@rows
def test_derivatives_are_finite_everywhere(row):
    weights = array(row.draw(5))

    def score(v, step, regularizer):
        return jnp.vdot(weights, regularizer.prox(v, step))

    gradient = jax.jit(jax.grad(score, argnums=(0, 1, 2)))
    slope = jax.jit(jax.grad(lambda w, regularizer: regularizer.value(w), argnums=(0, 1)))
    for name, v in special_points(row):
        for step in (0.0, 0.5, 1.0, 2.0):
            for part in jax.tree.leaves(gradient(array(v), step, row.regularizer)):
                assert np.isfinite(part).all(), (name, step)
        for part in jax.tree.leaves(slope(array(v), row.regularizer)):
            assert np.isfinite(part).all(), name


@rows
def test_derivatives_are_finite_differences(row):
    """Forward and reverse, in the point, the step and the hyperparameters together."""
    seed = 11
    rng = np.random.default_rng(seed)
    v, step, direction, covector = array(row.draw(seed)), 0.6, array(row.draw(seed + 50)), array(row.draw(seed + 90))
    leaves, treedef = jax.tree.flatten(row.regularizer)
    leaves = [jnp.asarray(leaf, float) for leaf in leaves]
    # Infinite bounds have no neighbourhood; a weight of 0 has none below it.
    tangents = [jnp.where(jnp.isfinite(leaf) & (leaf != 0), 1.0, 0.0) * float(rng.uniform(0.2, 0.6)) for leaf in leaves]

    def along(h):
        shifted = [leaf + h * tangent for leaf, tangent in zip(leaves, tangents, strict=True)]
        return jax.tree.unflatten(treedef, shifted).prox(v + h * direction, step + 0.5 * h)

    @jax.jit
    def everything(h):
        reverse = jax.grad(lambda h: jnp.vdot(covector, along(h)))(h)
        return *jax.jvp(along, (h,), (1.0,)), reverse

    h = 1e-6
    _, forward, reverse = everything(0.0)
    difference = (everything(h)[0] - everything(-h)[0]) / (2 * h)
    assert float(jnp.abs(difference).max()) > 1e-3
    close(forward, difference, 1e-6)
    close(reverse, jnp.vdot(covector, difference), 1e-5)


def test_the_derivative_of_thresholding_at_repeated_singular_values():
    """At 2 I and 3x2 the derivative exists; naive rules divide by 0 there."""
    a = jnp.array([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    rng = np.random.default_rng(0)
    for matrix in (a, a.T):
        direction = jnp.asarray(rng.normal(size=matrix.shape))
        prox = jax.jit(lambda h, m=matrix, d=direction: R.Nuclear(1.0).prox(m + h * d, 0.5))
        difference = (prox(1e-5) - prox(-1e-5)) / 2e-5
        close(jax.jvp(prox, (0.0,), (1.0,))[1], difference, 1e-8)


def test_at_step_zero_the_derivative_is_the_identity():
    for v in (jnp.zeros((3, 2)), jnp.eye(3, 2)):
        close(jax.jit(jax.jacfwd(lambda v: R.Nuclear(1.0).prox(v, 0.0)))(v).reshape(6, 6), np.eye(6), 1e-12)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_norms_neither_overflow_nor_vanish(size):
    v = jnp.array([[3.0, 4.0], [0.3, 0.4]])
    close(R.GroupL1(size, weights=[1.0, 1.0]).prox(v * size, 1.0) / size, [[2.4, 3.2], [0.0, 0.0]], 1e-14)
    close(R.L2Ball(size).prox(v[0] * size, 1.0) / size, [0.6, 0.8], 1e-14)
    close(R.SparseGroupL1(1.0, 0.5, weights=[1.0, 1.0]).dual_norm(v * size) / size, 14 - 2 * np.sqrt(24), 1e-14)


def test_one_program_for_a_grid_of_strengths():
    prox = jax.jit(lambda regularizer, v: regularizer.prox(v, 1.0))
    for strength in (0.1, 0.2, 1):
        prox(R.L1(strength), jnp.ones(3))
    assert prox._cache_size() == 1
