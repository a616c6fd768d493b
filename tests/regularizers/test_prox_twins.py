"""Every value and prox against a slow twin, in both precisions, on arrays and on trees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from regularizer_table import FINITE, MAIN, ROWS, SETS, STEPS, array, close, names, tv_twin

import cofed.regularizers as R

rows = pytest.mark.parametrize("row", ROWS, ids=names(ROWS))


def test_the_table_has_every_regularizer():
    combinators, contracts = {"On", "Scaled", "Translated", "Sum"}, {"AbstractRegularizer", "AbstractNorm"}
    found = {type(row.regularizer).__name__ for row in ROWS}
    assert found == set(R.__all__) - combinators - contracts, "every regularizer needs a row in regularizer_table.py"


@rows
@given(st.data())
def test_prox_is_the_twins(row, data):
    v, step = data.draw(row.arrays()), data.draw(STEPS)
    w = np.asarray(row.prox(array(v), step))
    twin = row.twin(v, step)
    # Two global minimisers can tie; then only the cost is determined.
    if "convex" in row.traits:
        close(w, twin, 1e-7)
    assert row.cost(w, v, step) <= row.cost(twin, v, step) + 1e-9


@rows
@given(st.data())
def test_float32_prox_is_the_twins(row, data):
    v, step = data.draw(row.arrays(np.float32)), data.draw(STEPS)
    w = row.prox(array(v), step)
    assert w.dtype == jnp.float32
    twin = row.twin(v.astype(float), step)
    if "convex" in row.traits:
        close(w, twin, 3e-5)
    assert row.cost(np.asarray(w, float), v, step) <= row.cost(twin, v, step) + 1e-3


@rows
@given(st.data())
def test_no_random_point_is_better(row, data):
    v, step, seed = data.draw(row.arrays()), data.draw(STEPS), data.draw(st.integers(0, 9999))
    w = np.asarray(row.prox(array(v), step))
    best = row.cost(w, v, step)
    assert np.isfinite(best)
    rng = np.random.default_rng(seed)
    for size in (1e-3, 1e-1, 1.0, 10.0):
        for start in (w, v):
            # A far prox step is a point of the set, so that indicators are tried on points with a finite
            # value.
            other = np.asarray(row.prox(array(start + size * rng.normal(size=v.shape)), 1.0))
            assert row.cost(other, v, step) >= best - 1e-9


@pytest.mark.parametrize("row", FINITE, ids=names(FINITE))
@given(st.data())
def test_value_of_a_function(row, data):
    w = data.draw(row.arrays())
    value = row.psi(array(w))
    assert value.shape == ()
    assert value.dtype == jnp.float64
    close(value, row.value(w), 1e-12)


@pytest.mark.parametrize("row", SETS, ids=names(SETS))
@given(st.data())
def test_value_of_a_set(row, data):
    v = array(data.draw(row.arrays()))
    inside = row.prox(v, 1.0)
    assert float(row.psi(inside)) == 0.0
    assert float(row.psi(inside - 100.0)) == np.inf
    assert float(row.psi(inside.astype(jnp.float32))) == 0.0
    # Just outside, far beyond round-off, is outside. L0Ball(3) needs a point with more entries.
    moved = v if isinstance(row.regularizer, R.L0Ball) else inside + (v - inside) * 1e-6
    if float(jnp.abs(v - inside).max()) > 1e-3:
        assert float(row.psi(moved)) == np.inf


@pytest.mark.parametrize("row", MAIN, ids=names(MAIN))
def test_trees(row):
    leaf, other = row.draw(1), row.draw(2)
    tree = {"b": array(leaf), "a": [array(other)]}
    w = row.prox(tree, 0.7)
    assert jax.tree.structure(w) == jax.tree.structure(tree)
    if row.joint:
        both = np.concatenate([other.ravel(), leaf.ravel()])
        expected = row.twin(both, 0.7)
        close(jnp.concatenate([w["a"][0].ravel(), w["b"].ravel()]), expected, 1e-7)
        close(row.psi(w), row.value(expected), 1e-7)  # of a set: 0 and 0
    else:
        for part, source in ((w["b"], leaf), (w["a"][0], other)):
            assert row.cost(np.asarray(part), source, 0.7) <= row.cost(row.twin(source, 0.7), source, 0.7) + 1e-9
        total = row.value(leaf) + row.value(other)
        close(min(float(row.psi(tree)), 1e9), min(total, 1e9), 1e-12)


@pytest.mark.parametrize("radius", [0.0, 1e-8, 1.0])
def test_projections_far_away_land_in_the_set(radius):
    v = jnp.array([1e9, -1e9, 1e9 - 1, 3.0])
    for ball in (R.L1Ball(radius), R.L2Ball(radius), R.Simplex(radius or 1.0)):
        assert float(ball.value(ball.prox(v, 1.0))) == 0.0
    close(R.Simplex(1.0).prox(v, 1.0), [1.0, 0.0, 0.0, 0.0], 1e-12)
    close(R.Simplex(3.0).prox(v, 1.0), [2.0, 0.0, 1.0, 0.0], 1e-12)


def test_one_entry_and_one_column():
    one = jnp.array([3.0])
    assert R.TotalVariation(1.0).prox(one, 5.0).tolist() == [3.0]
    assert float(R.TotalVariation(1.0).value(one)) == 0.0
    assert R.Simplex(2.0).prox(one, 1.0).tolist() == [2.0]
    assert R.L0Ball(5).prox(one, 1.0).tolist() == [3.0]
    assert R.L0Ball(0).prox(one, 1.0).tolist() == [0.0]
    close(R.Nuclear(1.0).prox(jnp.array([[3.0], [4.0]]), 2.5), [[1.5], [2.0]], 1e-12)


def test_ties_keep_the_lowest_index():
    v = jnp.array([2.0, -3.0, 3.0, -2.0, 2.0])
    assert R.L0Ball(3).prox(v, 1.0).tolist() == [2.0, -3.0, 3.0, 0.0, 0.0]


@pytest.mark.parametrize("strength", [0.05, 1.0, 20.0])
def test_long_total_variation(strength):
    v = np.cumsum(np.random.default_rng(0).normal(size=120))
    close(R.TotalVariation(strength).prox(array(v), 1.0), tv_twin(v, strength), 1e-10)


def test_total_variation_stays_exact_over_a_long_signal():
    """Optimality at 20 000 points: the dual variable stays in its bounds and is at them where w jumps."""
    v = 1e3 + np.cumsum(np.random.default_rng(1).normal(size=20_000))
    w = np.asarray(R.TotalVariation(3.0).prox(array(v), 1.0))
    dual = np.cumsum(w - v)
    close(dual[-1], 0.0, 1e-7)
    assert np.abs(dual).max() <= 3 + 1e-7
    jumps = np.diff(w)
    assert 100 < np.count_nonzero(jumps) < 19_000
    close(dual[:-1][jumps != 0], 3 * np.sign(jumps[jumps != 0]), 1e-7)


@pytest.mark.parametrize(("step", "kept"), [(1.9, False), (2.1, True), (8.0, True)])
def test_beyond_gamma_mcp_is_a_hard_threshold(step, kept):
    """From 0 to |v| in one jump if step >= gamma, and continuously before."""
    v = jnp.linspace(0.0, 8.0, 4001)
    w = np.asarray(R.MCP(1.0, 2.0).prox(v, step))
    assert bool(np.all((w == 0) | (w == v))) is kept
    assert bool(np.diff(w).max() > 1.9) is kept


def test_scad_jumps_where_two_minimisers_tie():
    for step, jump in ((1.5, None), (3.0, (3.0 + 1 + 3.0) / 2), (6.0, np.sqrt(6.0 * 4.0))):
        v = jnp.linspace(0.0, 8.0, 8001)
        w = np.asarray(R.SCAD(1.0, 3.0).prox(v, step))
        leap = np.diff(w)
        if jump is None:
            assert leap.max() < 0.01
        else:
            close(v[np.argmax(leap)], jump, 2e-3)
