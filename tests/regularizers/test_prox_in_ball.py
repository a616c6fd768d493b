"""The prox within a ball around another point, against slow twins."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from regularizer_table import GROUPS, MAIN, WEIGHTS, array, bisect, close, group_value, names, nuclear_norm

import cofed.regularizers as R

NORMS = [row for row in MAIN if "is_norm" in row.traits]
norms = pytest.mark.parametrize("row", NORMS, ids=names(NORMS))
RADII = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.01, 30))


@functools.cache
def compiled(name):
    row = next(row for row in NORMS if row.name == name)
    return jax.jit(lambda v, step, anchor, radius: row.regularizer.prox_in_ball(v, step, anchor, radius))


def norm(row, w):
    return row.value(np.asarray(w, float)) / row.regularizer.strength


def l1_twin(v, kappa, a, c, radius):
    """For each multiplier try every possible minimiser of each coordinate; then bisection on the multiplier."""

    def at(nu):
        w = np.zeros_like(v)
        for j in range(v.size):
            k, m = kappa * c[j], nu * c[j]
            tries = np.array([0.0, a[j], *(v[j] + s * k + r * m for s in (-1, 1) for r in (-1, 1))])
            w[j] = tries[np.argmin((tries - v[j]) ** 2 / 2 + k * abs(tries) + m * abs(tries - a[j]))]
        return w

    def excess(nu):
        return (c * np.abs(at(nu) - a)).sum() - radius

    if excess(0.0) <= 0:
        return at(0.0)
    return at(bisect(lambda nu: -excess(nu), 0.0, 1e4))


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@given(st.data())
def test_l1_is_the_twins(weights, data):
    row = next(row for row in NORMS if row.name == ("L1" if weights is None else "L1 weighted"))
    v, a = data.draw(row.arrays()), data.draw(row.arrays())
    step, radius = data.draw(st.floats(0, 4)), data.draw(RADII)
    w = compiled(row.name)(array(v), step, array(a), radius)
    c = np.ones(6) if weights is None else weights
    close(w, l1_twin(v, 0.7 * step, a, c, radius), 1e-9)


def dykstra_twin(row, v, step, a, radius):
    """The plain algorithm, for long, with the ball's projection by bisection on the norm's own prox."""

    def project(u):
        d = u - a
        if norm(row, d) <= radius:
            return u
        strength = row.regularizer.strength
        level = bisect(lambda s: radius - norm(row, row.twin(d, s / strength)), 0.0, 100.0)
        return a + row.twin(d, level / strength)

    q = np.zeros_like(v)
    for _ in range(400):
        y = row.twin(v - q, step)
        x = project(y + q)
        q = y + q - x
        if np.abs(x - y).max() < 1e-10:
            break
    return x


@pytest.mark.parametrize("name", ["GroupL1 of a vector", "GroupL1 of rows", "Nuclear (4, 3)", "Nuclear (2, 4)"])
def test_dykstra_is_the_twins(name):
    row = next(row for row in NORMS if row.name == name)
    v, a = row.draw(1), row.draw(101)
    for radius in (0.5, 3.0):
        w = compiled(name)(array(v), 1.2, array(a), radius)
        twin = dykstra_twin(row, v, 1.2, a, radius)
        close(w, twin, 1e-6)
        assert norm(row, w - a) == pytest.approx(radius, rel=1e-9)
        assert np.abs(np.asarray(w) - np.asarray(row.prox(array(v), 1.2))).max() > 0.1


@norms
@given(st.data())
def test_optimal_and_feasible(row, data):
    """<v - w, u - w> <= step (psi(u) - psi(w)) for every u in the ball."""
    v, a, step, radius = data.draw(row.arrays()), data.draw(row.arrays()), data.draw(st.floats(0, 4)), data.draw(RADII)
    w = np.asarray(compiled(row.name)(array(v), step, array(a), radius))
    assert norm(row, w - a) <= radius * (1 + 1e-12) + 1e-12
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    for towards in (v, np.zeros_like(v), *(w + rng.normal(size=v.shape) for _ in range(4))):
        distance = norm(row, towards - a)
        u = a + (towards - a) * (min(1.0, radius / distance) if distance > 0 else 0.0)
        rise = step * (row.value(u) - row.value(w))
        assert np.vdot(v - w, u - w) <= rise + 1e-6 * (1 + np.abs(v).max() ** 2)


@norms
def test_a_wide_ball_is_no_ball(row):
    v, a = array(row.draw(0)), array(row.draw(1))
    free = row.prox(v, 0.8)
    for radius in (jnp.inf, 1e6):
        assert np.array_equal(compiled(row.name)(v, 0.8, a, radius), free)


@norms
def test_a_ball_of_radius_zero_is_its_center(row):
    v, a = array(row.draw(0)), array(row.draw(1))
    w = compiled(row.name)(v, 0.8, a, 0.0)
    if "weighted" not in row.name:
        close(w, a, 1e-12)
    assert norm(row, w - a) <= 1e-12


@norms
def test_float32(row):
    v, a = row.draw(0), row.draw(1)
    exact = compiled(row.name)(array(v), 0.8, array(a), 2.0)
    w = compiled(row.name)(array(v.astype(np.float32)), 0.8, array(a.astype(np.float32)), 2.0)
    assert w.dtype == jnp.float32
    close(w, exact, 1e-4)


@pytest.mark.parametrize("name", ["L1", "GroupL1 of rows", "Nuclear (4, 3)"])
def test_vmap_is_a_loop(name):
    row = next(row for row in NORMS if row.name == name)
    v, a = jnp.stack([array(row.draw(s)) for s in range(3)]), jnp.stack([array(row.draw(s + 7)) for s in range(3)])
    radii, steps = jnp.array([0.3, 2.0, jnp.inf]), jnp.array([0.0, 1.0, 0.5])
    batch = jax.vmap(compiled(row.name))(v, steps, a, radii)
    close(batch, jnp.stack([compiled(row.name)(*each) for each in zip(v, steps, a, radii, strict=True)]), 1e-9)


def test_it_is_not_soft_thresholding_then_projection():
    v, a, radius = jnp.array([3.5, 0.2]), jnp.array([2.0, 1.0]), 1.2
    projected = a + R.L1Ball(radius).prox(R.L1(1.0).prox(v, 1.0) - a, 1.0)
    close(projected, [2.35, 0.15], 1e-14)
    # By hand: while nu < 0.8, the second entry stays at its kink 0 and the first pays the whole excess of
    # 0.3.
    close(R.L1(1.0).prox_in_ball(v, 1.0, a, radius), [2.2, 0.0], 1e-14)


def test_the_leaves_share_one_ball():
    rng = np.random.default_rng(3)
    v, a = rng.normal(size=6) * 3, rng.normal(size=6)
    whole = R.L1(0.5).prox_in_ball(array(v), 1.0, array(a), 2.0)
    split = R.L1(0.5).prox_in_ball(
        {"x": array(v[:2]), "y": array(v[2:])}, 1.0, {"x": array(a[:2]), "y": array(a[2:])}, 2.0
    )
    close(jnp.concatenate([split["x"], split["y"]]), whole, 1e-14)
    for regularizer, value in ((R.GroupL1(0.5), lambda w: group_value(w, None)), (R.Nuclear(0.5), nuclear_norm)):
        tree, anchor = (
            [array(rng.normal(size=(3, 2)) * 3), array(rng.normal(size=(2, 3)) * 3)],
            [jnp.zeros((3, 2)), jnp.ones((2, 3))],
        )
        w = regularizer.prox_in_ball(tree, 1.0, anchor, 2.0)
        total = sum(value(np.asarray(x - y)) for x, y in zip(w, anchor, strict=True))
        assert total == pytest.approx(2.0, rel=1e-9)


def test_through_on_and_scaled():
    rng = np.random.default_rng(4)
    v = {
        "coef": array(rng.normal(size=5) * 3),
        "intercept": jnp.array(7.0),
        "more": {"coef": array(rng.normal(size=4))},
    }
    a = jax.tree.map(lambda x: 0.5 * jnp.ones_like(x), v)
    w = R.On(R.Scaled(R.L1(0.25), 2.0), "coef").prox_in_ball(v, 1.0, a, 1.5)
    joint = R.L1(0.5).prox_in_ball([v["coef"], v["more"]["coef"]], 1.0, [a["coef"], a["more"]["coef"]], 1.5)
    close(w["coef"], joint[0], 1e-13)
    close(w["more"]["coef"], joint[1], 1e-13)
    assert float(w["intercept"]) == 7.0
    grouped = R.Scaled(R.On(R.GroupL1(0.25, [0, 0, 1, 1, 1]), "x"), 2.0)
    assert float(grouped.prox_in_ball({"x": v["coef"]}, 1.0, {"x": a["coef"]}, 0.0)["x"][0]) == pytest.approx(0.5)
    for regularizer in (R.On(R.L1Ball(1.0), "coef"), R.Scaled(R.MCP(1.0), 2.0)):
        with pytest.raises(TypeError, match="is not a norm"):
            regularizer.prox_in_ball(v, 1.0, a, 1.0)


class Largest(R.AbstractRegularizer):
    """The largest entry, which says that it is a norm and gives nothing of one."""

    is_norm = True

    def value(self, w):
        return jnp.abs(w).max()

    def prox(self, v, step):
        return v


def test_a_norm_that_gives_no_ball_is_not_told_that_it_is_none():
    one = jnp.ones(3)
    with pytest.raises(TypeError, match="Largest states is_norm but gives no prox_in_ball"):
        Largest().prox_in_ball(one, 1.0, one, 1.0)
    with pytest.raises(TypeError, match="Largest states is_norm but gives no norm_strength"):
        _ = Largest().norm_strength
    with pytest.raises(TypeError, match="Largest states is_norm but gives no dual_norm"):
        Largest().dual_norm(one)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
def test_the_exact_one_is_differentiable(weights):
    rng = np.random.default_rng(5)
    v, a, dv, da, covector = (array(2 * rng.normal(size=6)) for _ in range(5))

    def along(h, radius):
        penalty = R.L1(0.5 + 0.2 * h, weights)
        return penalty.prox_in_ball(v + h * dv, 0.8 + 0.3 * h, a + h * da, radius + 0.4 * h)

    @jax.jit
    def everything(h, radius):
        def path(h):
            return along(h, radius)

        return *jax.jvp(path, (h,), (1.0,)), jax.grad(lambda h: jnp.vdot(covector, path(h)))(h)

    for radius in (0.7, 2.0, 50.0):
        _, forward, reverse = everything(0.0, radius)
        difference = (everything(1e-6, radius)[0] - everything(-1e-6, radius)[0]) / 2e-6
        close(forward, difference, 1e-6)
        close(reverse, jnp.vdot(covector, difference), 1e-6)


def test_finite_derivatives_at_the_anchor():
    zero = jnp.zeros(6)
    gradient_at = jax.jit(jax.grad(lambda v, r: R.L1(0.5).prox_in_ball(v, 1.0, zero, r).sum(), argnums=(0, 1)))
    for radius in (0.0, 1.0, jnp.inf):
        gradient = gradient_at(zero, radius)
        assert all(np.isfinite(part).all() for part in jax.tree.leaves(gradient))
    tangent = jax.jvp(lambda v: R.GroupL1(0.5, GROUPS).prox_in_ball(v, 1.0, zero, 1.0), (zero,), (zero + 1,))[1]
    assert np.isfinite(tangent).all()
