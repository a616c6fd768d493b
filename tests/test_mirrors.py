"""The geometries: their maps are inverse to each other, minimise what they say, and refuse what they cannot do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize

import cofed.regularizers as R
from cofed.mirrors import Entropy, Euclidean, PNorm

PS = [2.0, 2.5, 4.0, 12.0]
VECTORS = hnp.arrays(np.float64, (5,), elements=st.one_of(st.just(0.0), st.floats(0.01, 10), st.floats(-10, -0.01)))
MIRRORS = [Euclidean(), PNorm(), PNorm(3.0), Entropy()]
mirrors = pytest.mark.parametrize("mirror", MIRRORS, ids=["Euclidean", "PNorm default", "PNorm 3", "Entropy"])


def interior(seed, dtype=np.float64):
    w = np.random.default_rng(seed).uniform(0.1, 1.0, size=6)
    return jnp.asarray(w / w.sum(), dtype)


@pytest.mark.parametrize("p", PS)
@given(VECTORS)
def test_pnorm_maps_are_inverse(p, w):
    """Both ways; on the way through the primal, entries below the p-th power of round-off vanish."""
    mirror = PNorm(p)
    np.testing.assert_allclose(mirror.to_primal_smooth(mirror.to_dual(w)), w, rtol=1e-12, atol=0)
    np.testing.assert_allclose(mirror.to_dual(mirror.to_primal_smooth(w)), w, rtol=1e-12, atol=0)


@pytest.mark.parametrize("p", PS)
@given(VECTORS)
def test_pnorm_formula(p, z):
    """As printed, without scaling."""
    q = p / (p - 1)
    norm_p, norm_q = (np.abs(z) ** p).sum() ** (1 / p), (np.abs(z) ** q).sum() ** (1 / q)
    if norm_p > 0:
        primal = norm_p ** (2 - p) * np.sign(z) * np.abs(z) ** (p - 1) / (p - 1)
        dual = norm_q ** (2 - q) * np.sign(z) * np.abs(z) ** (q - 1) / (q - 1)
        np.testing.assert_allclose(PNorm(p).to_primal_smooth(z), primal, rtol=1e-11)
        np.testing.assert_allclose(PNorm(p).to_dual(z), dual, rtol=1e-11)
    np.testing.assert_allclose(PNorm(p).value(z), norm_q**2 / (2 * (q - 1)), rtol=1e-12)


@mirrors
def test_to_dual_is_the_gradient_of_the_value(mirror):
    w = interior(0)
    np.testing.assert_allclose(mirror.to_dual(w), jax.grad(mirror.value)(w), rtol=1e-10)


@mirrors
def test_round_trip(mirror):
    w = interior(1)
    np.testing.assert_allclose(mirror.to_primal_smooth(mirror.to_dual(w)), w, rtol=1e-13)


@pytest.mark.parametrize("p", PS)
@pytest.mark.parametrize("penalty", [R.L1(0.6), R.L1(0.6, [1.0, 0.0, 2.0, 0.5])], ids=["plain", "weighted"])
def test_pnorm_dual_map_minimises(p, penalty):
    """No point near or far has a lower -<z,w> + t psi(w) + h(w), and a general solver finds the same minimum."""
    mirror, t, rng = PNorm(p), 0.8, np.random.default_rng(int(p))
    cost = jax.jit(lambda w, z: -jnp.vdot(z, w) + t * penalty.value(w) + mirror.value(w))
    for _ in range(5):
        z = jnp.asarray(rng.normal(size=4) * 2)
        w = mirror.to_primal(penalty, z, t)
        best = float(cost(w, z))
        for size in (1e-4, 1e-2, 1.0):
            for _ in range(10):
                assert float(cost(w + size * rng.normal(size=4), z)) >= best - 1e-12
        found = minimize(lambda u, z=z: float(cost(u, z)), w + 0.1, method="Nelder-Mead", options={"fatol": 1e-10})
        assert found.fun >= best - 1e-10


@pytest.mark.parametrize(
    "regularizer", [R.L1(0.3), R.L2Ball(1.0), R.Simplex(), R.MCP(0.3)], ids=lambda r: type(r).__name__
)
def test_euclidean_dual_map_is_the_prox(regularizer):
    z = jnp.array([1.0, -2.0, 0.1])
    assert np.array_equal(Euclidean().to_primal(regularizer, z, 0.7), regularizer.prox(z, 0.7))
    assert np.array_equal(Euclidean().to_primal_smooth(z), z)
    assert np.array_equal(Euclidean().to_dual(z), z)
    assert float(Euclidean().value(z)) == pytest.approx(2.505)


def test_p_two_is_euclidean():
    z = jnp.array([1.0, -2.0, 0.1, 0.0])
    np.testing.assert_allclose(
        PNorm(2).to_primal(R.L1(0.3), z, 0.5), Euclidean().to_primal(R.L1(0.3), z, 0.5), rtol=1e-15
    )
    np.testing.assert_allclose(PNorm(2.0).to_dual(z), z, rtol=1e-15)
    assert float(PNorm(2.0).value(z)) == pytest.approx(float(Euclidean().value(z)))


@pytest.mark.parametrize(("size", "p"), [(2, 2.0), (3, 2 * np.log(3)), (50, 2 * np.log(50))])
def test_the_default_p(size, p):
    z = jnp.linspace(-1.0, 2.0, size)
    np.testing.assert_allclose(PNorm().to_primal_smooth(z), PNorm(p).to_primal_smooth(z), rtol=1e-14)
    tree = {"a": z[:1], "b": z[1:]}
    joint = PNorm().to_primal_smooth(tree)
    np.testing.assert_allclose(jnp.concatenate([joint["a"], joint["b"]]), PNorm(p).to_primal_smooth(z), rtol=1e-14)


@pytest.mark.parametrize("size", [1e-250, 1e250])
def test_pnorm_neither_overflows_nor_vanishes(size):
    z = jnp.array([1.0, -0.5, 0.0])
    for move in (PNorm(30.0).to_primal_smooth, PNorm(30.0).to_dual):
        np.testing.assert_allclose(move(z * size) / size, move(z), rtol=1e-12)


@pytest.mark.parametrize("p", [None, 2.0, 2.5, 8.0])
def test_pnorm_derivatives_are_finite_at_zero(p):
    mirror = PNorm(p)
    for z in (jnp.zeros(4), jnp.array([0.0, 1.0, -1.0, 0.0])):
        assert not np.asarray(mirror.to_primal_smooth(jnp.zeros(4))).any()
        assert not np.asarray(mirror.to_dual(jnp.zeros(4))).any()
        for move in (mirror.to_primal_smooth, mirror.to_dual):
            assert np.isfinite(jax.jacobian(move)(z)).all()
        assert np.isfinite(jax.grad(mirror.value)(z)).all()


def test_p_is_differentiable_and_a_grid():
    z = jnp.array([0.5, -2.0, 0.0, 1.0])

    def score(p):
        return PNorm(p).to_primal_smooth(z)[1]

    difference = (score(3.0 + 1e-6) - score(3.0 - 1e-6)) / 2e-6
    np.testing.assert_allclose(jax.grad(score)(3.0), difference, rtol=1e-7)
    grid = jax.vmap(lambda p: PNorm(p).to_primal_smooth(z))(jnp.array([2.0, 3.0]))
    np.testing.assert_allclose(grid, jnp.stack([PNorm(p).to_primal_smooth(z) for p in (2.0, 3.0)]), rtol=1e-14)


@given(VECTORS, st.floats(0.1, 5))
def test_entropy_is_softmax(z, radius):
    w = np.asarray(Entropy().to_primal(R.Simplex(radius), z, 3.0))
    np.testing.assert_allclose(w, radius * np.exp(z) / np.exp(z).sum(), rtol=1e-12)
    np.testing.assert_allclose(Entropy().to_primal(R.Zero(), z, 3.0), w / radius, rtol=1e-12)
    # It minimises over the simplex: moving mass between two entries does not pay.
    cost = w @ np.log(w) - z @ w
    for i, j in ((0, 1), (3, 2)):
        moved = w.copy()
        moved[i] += 0.01 * w[j]
        moved[j] -= 0.01 * w[j]
        assert moved @ np.log(moved) - z @ moved >= cost - 1e-12


def test_entropy_at_the_boundary():
    w = jnp.array([0.0, 1.0])
    assert float(Entropy().value(w)) == 0.0
    assert float(Entropy().value(jnp.array([-0.1, 1.1]))) == np.inf
    assert np.isfinite(Entropy().to_dual(w)).all()
    assert np.isfinite(jax.grad(Entropy().value)(w)).all()
    np.testing.assert_allclose(Entropy().to_primal_smooth(Entropy().to_dual(w)), w, atol=1e-300)
    assert np.isfinite(Entropy().to_primal_smooth(jnp.array([1e4, -1e4]))).all()


@mirrors
def test_float32_trees_jit(mirror):
    tree = {"a": interior(2, np.float32), "b": [interior(3, np.float32).reshape(2, 3)]}
    penalty = R.Simplex() if isinstance(mirror, Entropy) else R.L1(0.01)
    for move in (
        mirror.to_dual,
        mirror.to_primal_smooth,
        lambda z: mirror.to_primal(penalty, z, 0.5),
        lambda z: mirror.to_primal(penalty, z, jnp.asarray(0.5)),
    ):
        out = jax.jit(move)(tree)
        assert jax.tree.structure(out) == jax.tree.structure(tree)
        assert {leaf.dtype for leaf in jax.tree.leaves(out)} == {jnp.dtype(jnp.float32)}
        wide = move(jax.tree.map(lambda x: x.astype(jnp.float64), tree))
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4), out, wide)
    assert mirror.value(tree).dtype == jnp.float32


@mirrors
def test_vmap_is_a_loop(mirror):
    z = jnp.stack([interior(seed) for seed in range(3)])
    penalty = R.Simplex() if isinstance(mirror, Entropy) else R.L1(0.1)
    steps = jnp.array([0.0, 0.5, 2.0])
    loop = [mirror.to_primal(penalty, x, t) for x, t in zip(z, steps, strict=True)]
    np.testing.assert_allclose(
        jax.vmap(lambda x, t: mirror.to_primal(penalty, x, t))(z, steps), jnp.stack(loop), rtol=1e-13
    )


FITS = {
    "PNorm": [R.Zero(), R.L1(1.0), R.On(R.L1(1.0), "x"), R.Scaled(R.L1(1.0), 2.0)],
    "Entropy": [R.Simplex(), R.Simplex(3.0), R.Zero()],
}
UNFIT = {
    "PNorm": [
        (R.ElasticNet(1.0, 0.5), "ElasticNet"),
        (R.On(R.Nuclear(1.0), "x"), r"On\(Nuclear\)"),
        (R.Simplex(), "Simplex"),
    ],
    "Entropy": [(R.L1(1.0), "L1"), (R.On(R.Simplex(), "x"), r"On\(Simplex\)"), (R.NonNegative(), "NonNegative")],
}


@pytest.mark.parametrize("mirror", [PNorm(), Entropy()], ids=["PNorm", "Entropy"])
def test_refuses(mirror):
    name = type(mirror).__name__
    for regularizer in FITS[name]:
        assert mirror.refuses(regularizer) is None
        assert Euclidean().refuses(regularizer) is None
    for regularizer, title in UNFIT[name]:
        assert Euclidean().refuses(regularizer) is None
        with pytest.raises(ValueError, match=f"{name} and {title} do not fit: .*"):
            raise ValueError(mirror.refuses(regularizer))
    missing = "weighted_l1" if name == "PNorm" else "neither Simplex nor Zero"
    assert missing in mirror.refuses(UNFIT[name][0][0])


@pytest.mark.parametrize("p", [1.5, 0, -3.0, float("inf"), float("nan")])
def test_bad_p_gets_a_sentence(p):
    with pytest.raises(ValueError, match="PNorm: p must be a finite number >= 2"):
        PNorm(p)
