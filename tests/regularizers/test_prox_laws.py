"""What every prox, norm and trait must satisfy, whatever the formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from regularizer_table import CONVEX_ROWS, DUAL, FINITE, ROWS, SETS, STEPS, array, close, names

import cofed.regularizers as R

TRAITS = ("convex", "separable", "is_indicator", "weighted_l1", "is_zero", "is_norm")
rows = pytest.mark.parametrize("row", ROWS, ids=names(ROWS))
convex_rows = pytest.mark.parametrize("row", CONVEX_ROWS, ids=names(CONVEX_ROWS))
finite_rows = pytest.mark.parametrize("row", FINITE, ids=names(FINITE))
dual_rows = pytest.mark.parametrize("row", DUAL, ids=names(DUAL))


@rows
def test_traits(row):
    regularizer = row.regularizer
    assert {trait for trait in TRAITS if getattr(regularizer, trait)} == row.traits
    assert regularizer.structure == row.structure
    assert regularizer.weak_convexity == pytest.approx(row.weak_convexity)
    assert isinstance(regularizer, R.AbstractRegularizer)
    gives_a_ball = type(regularizer).prox_in_ball is not R.AbstractRegularizer.prox_in_ball
    assert gives_a_ball == regularizer.is_norm, "is_norm promises prox_in_ball: give it, or state is_norm = False"


def test_only_norms_have_a_dual_norm():
    norms = [row for row in ROWS if isinstance(row.regularizer, R.AbstractNorm)]
    assert norms == DUAL, "what gives dual_norm derives from AbstractNorm"
    assert {R.L1, R.GroupL1, R.SparseGroupL1, R.Nuclear} <= {type(row.regularizer) for row in DUAL}


@convex_rows
@given(st.data())
def test_optimality(row, data):
    """(v - w)/step is a subgradient at w: <v - w, u - w> <= step (psi(u) - psi(w)) for every u with a finite value."""
    v, step = data.draw(row.arrays()), data.draw(STEPS)
    w = np.asarray(row.prox(array(v), step))
    for _ in range(3):
        u = np.asarray(row.prox(array(data.draw(row.arrays())), 0.1))
        rise = step * (row.value(u) - row.value(w))
        assert np.vdot(v - w, u - w) <= rise + 1e-8 * (1 + np.abs(v).max() ** 2)


@convex_rows
@given(st.data())
def test_firmly_nonexpansive(row, data):
    v, u, step = data.draw(row.arrays()), data.draw(row.arrays()), data.draw(STEPS)
    moved = np.asarray(row.prox(array(v), step)) - np.asarray(row.prox(array(u), step))
    assert np.vdot(moved, moved) <= np.vdot(moved, v - u) + 1e-9


@dual_rows
@given(st.data())
def test_moreau(row, data):
    """v - prox(v) is the projection onto the dual ball of radius step * strength."""
    v, step = data.draw(row.arrays()), data.draw(st.floats(0.1, 4))
    regularizer = row.regularizer
    w = row.prox(array(v), step)
    rest = array(v) - w
    assert float(row.dual_norm(rest)) <= step * regularizer.strength * (1 + 1e-9) + 1e-12 or _unweighted(row, rest)
    close(jnp.vdot(rest, w), step * float(row.psi(w)), 1e-10)
    other = array(data.draw(row.arrays()))
    size = float(row.dual_norm(other))
    point = other * (step * regularizer.strength / size) if 0 < size < np.inf else jnp.zeros_like(other)
    assert float(jnp.vdot(w, point - rest)) <= 1e-8 * (1 + float(jnp.abs(w).max()))


def _unweighted(row, rest):
    """A coordinate of weight 0 must not move at all; round-off there makes the dual norm infinite."""
    return "weighted" in row.name and float(jnp.abs(rest).max()) < 1e-12


@dual_rows
@given(st.data())
def test_dual_norm_is_the_least_strength_that_kills(row, data):
    z = array(data.draw(row.arrays()))
    regularizer = row.regularizer
    size = float(row.dual_norm(z))
    if 1e-3 < size < np.inf:
        step = size / regularizer.strength
        assert float(jnp.abs(row.prox(z, step * (1 + 1e-9))).max()) == pytest.approx(0.0, abs=1e-12)
        assert float(jnp.abs(row.prox(z, step * (1 - 1e-6))).max()) > 1e-9
    elif size == np.inf:
        assert float(jnp.abs(row.prox(z, 1e6)).max()) > 0


CONJUGATE = [row for row in CONVEX_ROWS if row.make().has_conjugate]


def test_which_regularizers_have_a_conjugate():
    lacking = {type(row.regularizer) for row in CONVEX_ROWS} - {type(row.regularizer) for row in CONJUGATE}
    assert lacking == {R.TotalVariation}, "a convex regularizer gives `conjugate`, or is named here"


@pytest.mark.parametrize("row", CONJUGATE, ids=names(CONJUGATE))
@given(st.data())
def test_fenchel_and_young(row, data):
    """u = v - prox(v) is a subgradient at w = prox(v), so psi(w) + psi*(u) = <u, w>; elsewhere the sum is larger."""
    v, other = array(data.draw(row.arrays())), array(data.draw(row.arrays()))
    psi, slack = row.regularizer, 1e-12
    w, point = row.prox(v, 1.0), row.prox(other, 1.0)
    u = (v - w) * (1 - 1e-13)
    conjugate = float(psi.conjugate(u, slack))
    close(conjugate + float(row.psi(w)), jnp.vdot(u, w), 1e-9)
    room = 1e-9 * (1 + float(jnp.abs(other).max()) ** 2)
    assert conjugate + float(row.psi(point)) >= float(jnp.vdot(u, point)) - room
    s = float(psi.dual_scaling(other))
    assert 0 <= s <= 1
    if row in DUAL:
        assert np.isfinite(psi.conjugate(s * other))


@rows
def test_pieces_and_multiples_are_the_same_function(row):
    psi, w = row.regularizer, row.prox(array(row.draw(3)), 0.1)
    pieces = psi.piecewise_quadratic()
    if pieces is not None:
        inside = np.all((pieces.low <= np.asarray(w)) & (np.asarray(w) <= pieces.high))
        value = np.sum(pieces.l1 * np.abs(w) + pieces.ridge / 2 * np.asarray(w) ** 2)
        assert inside
        close(value, row.psi(w), 1e-12)
    if not psi.is_indicator:
        close(psi.scaled(2.5).value(w), 2.5 * row.psi(w), 1e-12)
        close(psi.scaled(2.5).prox(w, 0.2), row.prox(w, 0.5), 1e-12)


@dual_rows
def test_dual_norm_derivative(row):
    z, direction = array(row.draw(21)), array(row.draw(22))
    if "weighted" in row.name:  # finite only without entries of weight 0
        z, direction = (jnp.where(row.subgradient(jnp.ones_like(x)) > 0, x, 0.0) for x in (z, direction))
    along = jax.jit(jax.value_and_grad(lambda h: row.dual_norm(z + h * direction)))
    difference = (along(1e-6)[0] - along(-1e-6)[0]) / 2e-6
    assert abs(float(difference)) > 1e-3
    close(along(0.0)[1], difference, 1e-7)


def test_dual_norm_edges():
    z = jnp.array([3.0, -4.0, 1.0])
    assert float(R.L1(0.1).dual_norm(z)) == 4.0
    assert float(R.L1(0.1, [1.0, 0.0, 1.0]).dual_norm(z)) == np.inf
    assert float(R.SparseGroupL1(0.1, 1.0, [0, 0, 1]).dual_norm(z)) == pytest.approx(4.0, rel=1e-14)
    close(R.SparseGroupL1(0.1, 0.0, [0, 0, 1], [1, 1]).dual_norm(z), 5.0, 1e-14)
    assert float(R.SparseGroupL1(0.1, 0.0, [0, 0, 1], [1, 0]).dual_norm(z)) == np.inf
    assert float(R.SparseGroupL1(0.1, 0.5, [0, 0, 1]).dual_norm(jnp.zeros(3))) == 0.0
    assert float(R.Nuclear(0.1).dual_norm([jnp.diag(z), jnp.eye(2)])) == pytest.approx(4.0)


@rows
@given(st.data())
def test_separable_means_coordinatewise(row, data):
    v, step = data.draw(row.arrays()), data.draw(STEPS)
    place = np.unravel_index(data.draw(st.integers(0, v.size - 1)), v.shape)
    changed = v.copy()
    changed[place] += 1.75
    moved = np.asarray(row.prox(array(v), step)) != np.asarray(row.prox(array(changed), step))
    moved[place] = False
    if row.regularizer.separable:
        assert not moved.any()


@pytest.mark.parametrize("row", [row for row in ROWS if "separable" not in row.traits], ids=lambda row: row.name)
def test_not_separable_means_coupled(row):
    coupled = False
    for seed in range(20):
        v = row.draw(seed)
        changed = v.copy()
        changed[(0,) * v.ndim] += 3.0
        moved = np.asarray(row.prox(array(v), 1.0)) != np.asarray(row.prox(array(changed), 1.0))
        moved[(0,) * v.ndim] = False
        coupled |= bool(moved.any())
    assert coupled


@pytest.mark.parametrize("row", SETS, ids=names(SETS))
@given(st.data())
def test_projections_ignore_the_step_and_repeat(row, data):
    v = array(data.draw(row.arrays()))
    w = row.prox(v, 1.0)
    for step in (0.0, 1e-3, 50.0):
        assert np.array_equal(row.prox(v, step), w)
    close(row.prox(w, 1.0), w, 1e-14)


@finite_rows
@given(st.data())
def test_step_zero_is_the_identity(row, data):
    v = data.draw(row.arrays())
    close(row.prox(array(v), 0.0), v, 1e-14 if row.structure != "rank" else 1e-13)


@finite_rows
@given(st.data())
def test_weak_convexity(row, data):
    """psi + rho ||.||^2/2 lies below its chords."""
    rho = row.regularizer.weak_convexity

    def lifted(w):
        return row.value(w) + rho / 2 * float(np.sum(w**2))

    u, w = data.draw(row.arrays()), data.draw(row.arrays())
    assert lifted((u + w) / 2) <= (lifted(u) + lifted(w)) / 2 + 1e-10


@pytest.mark.parametrize(("regularizer", "bend"), [(R.MCP(1.0, 2.5), 1.0), (R.SCAD(1.0, 3.5), 2.0)])
def test_weak_convexity_is_the_least(regularizer, bend):
    def lifted(w):
        return float(regularizer.value(jnp.array([w]))) + 0.99 * regularizer.weak_convexity / 2 * w**2

    assert lifted(bend) > (lifted(bend - 0.1) + lifted(bend + 0.1)) / 2


@finite_rows
def test_weighted_l1_is_what_it_says(row):
    value = row.psi
    matches = []
    for seed in range(5):
        w = row.draw(seed)
        total = 0.0
        for place in np.ndindex(w.shape):
            unit = np.zeros_like(w)
            unit[place] = 1.0
            total += abs(w[place]) * float(value(array(unit)))
        matches.append(np.isclose(total, float(value(array(w))), rtol=1e-10))
    assert all(matches) == row.regularizer.weighted_l1


@finite_rows
@given(st.data())
def test_norms_are_norms(row, data):
    if not row.regularizer.is_norm:
        return
    u, w = array(data.draw(row.arrays())), array(data.draw(row.arrays()))
    value = row.psi
    close(value(-2.5 * u), 2.5 * float(value(u)), 1e-12)
    assert float(value(u + w)) <= float(value(u) + value(w)) + 1e-10


@finite_rows
@given(st.data())
def test_subgradients(row, data):
    """psi(u) >= psi(w) + <g, u - w> - rho/2 ||u - w||^2."""
    w, u = data.draw(row.arrays()), data.draw(row.arrays())
    g = np.asarray(row.subgradient(array(w)))
    gap = row.value(u) - row.value(w) - np.vdot(g, u - w) + row.regularizer.weak_convexity / 2 * np.sum((u - w) ** 2)
    assert gap >= -1e-9
    assert g.dtype == np.float64


@finite_rows
def test_subgradient_is_the_gradient_away_from_kinks_and_zero_at_zero(row):
    w = array(row.draw(3))
    close(row.subgradient(w), jax.grad(row.psi)(w), 1e-10)
    assert not np.asarray(row.subgradient(jnp.zeros_like(w))).any()


@pytest.mark.parametrize("row", SETS, ids=names(SETS))
def test_sets_have_no_subgradient(row):
    with pytest.raises(TypeError, match=f"{type(row.regularizer).__name__} is the indicator of a set"):
        row.subgradient(array(row.draw(0)))
