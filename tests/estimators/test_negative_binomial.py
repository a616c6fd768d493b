"""Negative binomial counts, whose dispersion is estimated with the model: beside statsmodels, R's results and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import nbinom
from sklearn.exceptions import ConvergenceWarning
from tests.estimators import hospitals

import cofed
from cofed.estimators import FederatedGLM, FederatedGLMCV, load
from cofed.losses import Reweighted

X, _ = hospitals.linear()
SITES, N = hospitals.SITES, len(X)
RNG = np.random.default_rng(3)
COUNTS = RNG.poisson(RNG.gamma(1.3, np.exp(0.3 * X[:, 0] - 0.2 * X[:, 2] + 2) / 1.3)).astype(float)
LOG_FACTOR = st.floats(-3, 5)


@pytest.fixture(scope="module")
def free():
    """The model without a penalty, of all rows."""
    return FederatedGLM(cofed.NegativeBinomial(), alpha=0.0, exclude=[3, 4, 5]).fit(X, COUNTS, clients=SITES)


@jax.jit
def parts_of(theta, z, y):
    """What a loss says of a prediction: its value and derivatives, and how A(z) - y B(z) changes over a step of 1."""
    loss = cofed.NegativeBinomial(theta)
    slope, bend = jax.grad(loss), jax.grad(jax.grad(loss))
    apart = loss.cumulant(z) - y * loss.natural(z) - loss.cumulant(z + 1) + y * loss.natural(z + 1)
    step, scored = loss(z, y) - loss(z + 1, y), jax.grad(Reweighted(loss))(z, y)
    return loss(z, y), slope(z, y), bend(z, y), jax.grad(bend)(z, y), apart, step, scored


@given(st.floats(-8, 8), st.integers(0, 30), LOG_FACTOR)
def test_the_loss_is_half_the_deviance_of_the_likelihood(z, y, log_theta):
    theta, mean = np.exp(log_theta), np.exp(z)
    chances = [nbinom.logpmf(y, theta, theta / (theta + m)) for m in (mean, max(y, 1e-300))]
    found = map(float, parts_of(jnp.asarray(theta), jnp.asarray(z), jnp.asarray(float(y))))
    value, slope, bend, third, apart, step, scored = found
    assert value == pytest.approx(chances[1] - chances[0], rel=1e-7, abs=1e-7)
    assert slope == pytest.approx(theta * (mean - y) / (theta + mean), rel=1e-9, abs=1e-12)
    assert bend == pytest.approx((y + theta) * theta * mean / (theta + mean) ** 2, rel=1e-9)
    assert abs(third) <= bend * (1 + 1e-9) + 1e-12
    assert apart == pytest.approx(step, rel=1e-7, abs=1e-9)
    assert scored == pytest.approx(slope, rel=1e-9, abs=1e-12)


def test_far_predictions_are_finite_and_units_change_nothing():
    loss = cofed.NegativeBinomial(2.0)
    for y in (0.0, 3.0):
        for z in (-2000.0, 2000.0):
            assert np.isfinite(loss(jnp.asarray(z), jnp.asarray(y)))
            assert np.isfinite(jax.grad(loss)(jnp.asarray(z), jnp.asarray(y)))
    units = loss.label_units(cofed.losses.LabelMoments(9, 4.0, 1.0, 0.0), True)
    other = loss.in_units(units)
    z, y = jnp.asarray(0.7), jnp.asarray(3.0)
    again = units.objective * other((z - units.shift) / units.stretch, y / units.size)
    assert float(loss(z, y)) == pytest.approx(float(again), rel=1e-12)


def test_theta_and_coefficients_are_those_of_statsmodels(free):
    A = sm.add_constant(X[:, :3])
    theirs = sm.NegativeBinomial(COUNTS, A).fit(disp=0, method="newton", maxiter=500, tol=1e-13)
    assert free.certificate_.outcome in ("converged", "limited by rounding")
    np.testing.assert_allclose([free.intercept_, *free.coef_[:3]], theirs.params[:-1], rtol=1e-6)
    assert free.loss_.theta == pytest.approx(1 / theirs.params[-1], rel=1e-6)
    # Intervals are those of the model with that theta, as R's glm.nb gives them.
    fixed = sm.GLM(COUNTS, A, family=sm.families.NegativeBinomial(alpha=1 / free.loss_.theta)).fit(tol=1e-14)
    table = free.infer(X, COUNTS, clients=SITES)
    np.testing.assert_allclose(table["se"], fixed.bse[1:], rtol=1e-6)
    np.testing.assert_allclose(table[["low", "high"]], fixed.conf_int()[1:], rtol=1e-6)
    assert 0 < free.score(X, COUNTS) < 1


@pytest.mark.slow
def test_a_penalised_model_and_its_theta_are_each_the_best_beside_the_other():
    weight, offset = np.random.default_rng(1).uniform(0.5, 2, N), 0.1 * X[:, 1]
    given = {"clients": SITES, "sample_weight": weight, "offset": offset}
    model = FederatedGLM(cofed.NegativeBinomial(), alpha=0.05).fit(X, COUNTS, **given)
    assert model.certificate_.converged
    mean = np.exp(X @ model.coef_ + model.intercept_ + offset)

    def surprise(log_theta):
        theta = np.exp(log_theta)
        return -weight @ nbinom.logpmf(COUNTS, theta, theta / (theta + mean))

    best = minimize_scalar(surprise, bracket=(-1, 1), tol=1e-13)
    assert np.log(model.loss_.theta) == pytest.approx(best.x, abs=1e-6)
    again = FederatedGLM(cofed.NegativeBinomial(model.loss_.theta), alpha=0.05).fit(X, COUNTS, **given)
    np.testing.assert_allclose(model.coef_, again.coef_, atol=1e-8)
    assert model.certificate_.objective == pytest.approx(again.certificate_.objective, rel=1e-9)


@pytest.mark.slow
def test_a_strength_is_chosen_with_a_theta_of_its_own(tmp_path):
    model = FederatedGLMCV(cofed.NegativeBinomial(), n_alphas=6, cv=3, eps=0.05).fit(X, COUNTS, clients=SITES)
    assert model.path_.converged.all()
    single = FederatedGLM(cofed.NegativeBinomial(), alpha=model.alpha_).fit(X, COUNTS, clients=SITES)
    assert model.loss_.theta == pytest.approx(single.loss_.theta, rel=2e-3)
    fixed = FederatedGLMCV(model.loss_, n_alphas=6, cv=3, eps=0.05).fit(X, COUNTS, clients=SITES)
    assert model.alpha_ == pytest.approx(fixed.alpha_, rel=1e-9)
    np.testing.assert_allclose(model.coef_, fixed.coef_, atol=1e-7)
    model.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    assert read.loss_ == model.loss_
    assert read.loss == cofed.NegativeBinomial()
    assert read.score(X, COUNTS) == model.score(X, COUNTS)
    path = FederatedGLM(cofed.NegativeBinomial()).path(X, COUNTS, SITES, n_alphas=3)
    assert path.converged.all()


def test_bad_input_and_counts_like_poissons_get_a_sentence():
    for wrong in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="NegativeBinomial: theta must be a finite number > 0"):
            cofed.NegativeBinomial(wrong)
    with pytest.raises(ValueError, match="theta is not known here; give it, or let FederatedGLM estimate it"):
        cofed.NegativeBinomial()(jnp.zeros(()), jnp.zeros(()))
    with pytest.raises(ValueError, match="FederatedGLM: y must be >= 0"):
        FederatedGLM(cofed.NegativeBinomial()).fit(X, COUNTS - 1, clients=SITES)
    with pytest.raises(ValueError, match="FederatedGLM: y must have a value above 0"):
        FederatedGLM(cofed.NegativeBinomial()).fit(X, 0 * COUNTS, clients=SITES)
    even = np.where(np.arange(N) % 2 == 0, 3.0, 4.0)  # less than Poisson's variance
    with pytest.warns(ConvergenceWarning, match=r"vary no more than Poisson's do.* take FederatedPoisson"):
        model = FederatedGLM(cofed.NegativeBinomial(), alpha=0.1).fit(X, even, clients=SITES)
    with pytest.warns(ConvergenceWarning, match="vary no more than Poisson's do"):  # nor where all are the same
        same = FederatedGLM(cofed.NegativeBinomial()).fit(X, np.full(len(X), 3.0))
    assert same.intercept_ == pytest.approx(np.log(3))
    poisson = FederatedGLM(cofed.Poisson(), alpha=0.1).fit(X, even, clients=SITES)
    np.testing.assert_allclose(model.predict(X), poisson.predict(X), rtol=1e-4)
