"""Families of numbers by their losses: beside statsmodels, scikit-learn and SciPy, and by optimality conditions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import QuantileRegressor, TweedieRegressor
from tests.estimators import hospitals

import cofed
from cofed.estimators import FederatedGLM, FederatedGLMCV, load
from cofed.sites import MemorySites
from cofed.sites.rows import SiteRows

X, Y = hospitals.linear()
SITES, N = hospitals.SITES, len(Y)
RNG = np.random.default_rng(5)
AMOUNTS = RNG.gamma(2.0, np.exp(0.3 * X[:, 0] - 0.2 * X[:, 2] + 2))
COSTS = np.where(RNG.random(N) < 0.3, 0.0, AMOUNTS)  # many are 0
COUNTS = RNG.poisson(RNG.gamma(0.8, np.exp(0.3 * X[:, 0] - 0.2 * X[:, 2] + 1) / 0.8)).astype(float)
WILD = Y + np.where(RNG.random(N) < 0.1, 30, 0) * RNG.normal(size=N)  # with outliers
FAMILIES = {
    "gamma": (cofed.Gamma(), AMOUNTS),
    "tweedie": (cofed.Tweedie(1.4), COSTS),
    "negative binomial": (cofed.NegativeBinomial(0.8), COUNTS),
    "huber": (cofed.Huber(1.2), WILD),
    "quantile": (cofed.SmoothQuantile(0.7, 0.4), WILD),
}
ALPHAS = {"gamma": 0.05, "negative binomial": 0.05, "tweedie": 0.1, "huber": 0.3, "quantile": 0.05}
SLOW = ("tweedie", "quantile", "negative binomial")
every_family = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in FAMILIES]
)
LOG = sm.families.links.Log()


def slopes(loss, model, y, offset=0.0):
    """The derivatives of the rows' losses by their predictions."""
    return np.asarray(
        jax.vmap(jax.grad(loss))(jnp.asarray(X @ model.coef_ + model.intercept_ + offset), jnp.asarray(y))
    )


@every_family
@pytest.mark.parametrize("intercept", [True, False])
def test_a_lasso_is_optimal_in_every_coordinate(name, intercept):
    loss, y = FAMILIES[name]
    model = FederatedGLM(loss, alpha=ALPHAS[name], fit_intercept=intercept).fit(X, y, clients=SITES)
    assert model.certificate_.converged
    theta, used, mean = slopes(loss, model, y), model.support_, X.mean(axis=0) * intercept
    scale = X.std(axis=0)
    g = (X - mean).T @ theta / N / scale
    assert used.sum() > 0
    np.testing.assert_allclose(g[used], -model.alpha * np.sign(model.coef_[used]), atol=1e-7)
    assert (np.abs(g[~used]) <= model.alpha + 1e-7).all()
    if intercept:
        assert abs(theta.mean()) < 1e-7
    value = np.asarray(jax.vmap(loss)(jnp.asarray(X @ model.coef_ + model.intercept_), jnp.asarray(y))).mean()
    objective = value + model.alpha * scale @ np.abs(model.coef_)
    assert model.certificate_.objective == pytest.approx(objective, rel=1e-10)


@every_family
@pytest.mark.slow
@settings(max_examples=8)
@given(st.floats(-3, 0.5), st.sampled_from([0.0, 0.5, 1.0]), st.integers(1, 6))
def test_a_certificate_is_never_below_the_truth(name, strength, ratio, digits):
    loss, y = FAMILIES[name]
    given = {"alpha": 10.0**strength, "l1_ratio": ratio}
    best = FederatedGLM(loss, **given).fit(X, y, clients=SITES).certificate_
    rough = FederatedGLM(loss, **given, tol=10.0**-digits).fit(X, y, clients=SITES).certificate_
    assert best.converged
    assert rough.objective - best.objective <= rough.gap + rough.rounding + best.rounding
    assert best.objective - rough.objective <= best.gap + best.rounding + rough.rounding


@pytest.mark.parametrize("power", [1.0, 1.4, 2.0])
def test_a_ridge_is_scikit_learns(power):
    y = AMOUNTS if power == 2 else COSTS
    theirs = TweedieRegressor(power=power, alpha=0.3, link="log", tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    theirs.fit(X, y)
    ours = FederatedGLM(cofed.Tweedie(power), alpha=0.3, l1_ratio=0.0, standardize=False).fit(X, y, clients=SITES)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-6)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), rel=1e-6)


@pytest.mark.parametrize("name", ["gamma", "tweedie"])
def test_without_a_penalty_it_is_statsmodels_with_its_intervals(name):
    loss, y = FAMILIES[name]
    family = sm.families.Gamma(LOG) if name == "gamma" else sm.families.Tweedie(LOG, var_power=1.4)
    weight, offset = np.random.default_rng(1).uniform(0.5, 2, N), 0.1 * X[:, 1]
    theirs = sm.GLM(y, sm.add_constant(X[:, :3]), family=family, var_weights=weight, offset=offset)
    fitted = theirs.fit(tol=1e-14, maxiter=1000, use_t=True)
    given = {"clients": SITES, "sample_weight": weight, "offset": offset}
    ours = FederatedGLM(loss, alpha=0.0, exclude=[3, 4, 5]).fit(X, y, **given)
    assert ours.certificate_.outcome in ("converged", "limited by rounding")
    np.testing.assert_allclose([ours.intercept_, *ours.coef_[:3]], fitted.params, rtol=1e-6)
    # A penalised model has the same intervals.
    table = FederatedGLM(loss, alpha=0.2, exclude=[3, 4, 5]).fit(X, y, **given).infer(X, y, **given)
    np.testing.assert_allclose(table["debiased"], fitted.params[1:], rtol=1e-6)
    np.testing.assert_allclose(table["se"], fitted.bse[1:], rtol=1e-6)
    np.testing.assert_allclose(table[["low", "high"]], fitted.conf_int()[1:], rtol=1e-6)
    np.testing.assert_allclose(table["p_value"], fitted.pvalues[1:], rtol=1e-6)
    robust = ours.infer(X, y, **given, errors="hc1")
    # statsmodels' HC0 (with the observed information), with the factor n / (n - k) of HC1.
    hc0 = theirs.fit(tol=1e-14, maxiter=1000, cov_type="HC0").bse[1:]
    np.testing.assert_allclose(robust["se"], hc0 * np.sqrt(N / (N - 4)), rtol=1e-6)


@pytest.mark.parametrize("name", ["huber", pytest.param("quantile", marks=pytest.mark.slow)])
def test_information_criteria_do_not_depend_on_the_units_of_labels(name):
    large = {"huber": cofed.Huber(1200.0), "quantile": cofed.SmoothQuantile(0.7, 400.0)}[name]
    alphas = np.array([1.0, 0.3, 0.1]) * ALPHAS[name]
    small = FederatedGLM(FAMILIES[name][0]).path(X, WILD, SITES, alphas=alphas)
    grown = FederatedGLM(large).path(X, 1000 * WILD, SITES, alphas=alphas * (1000 if name == "huber" else 1))
    for kind in ("aic", "bic"):
        np.testing.assert_allclose(np.diff(grown.criterion(kind)), np.diff(small.criterion(kind)), rtol=1e-6)
    # As of numbers with a normal distribution, or Laplace's, whose scale is not known.
    likelihood = {"huber": N, "quantile": 2 * N}[name] * np.log(small.deviance)
    np.testing.assert_allclose(small.criterion("aic"), likelihood + 2 * small.nonzero)


def test_information_criteria_know_no_dispersion():
    path = FederatedGLM(cofed.Gamma()).path(X, AMOUNTS, SITES, alphas=[0.1, 0.05])
    np.testing.assert_allclose(path.criterion("bic"), N * np.log(path.deviance) + np.log(N) * path.nonzero)


def test_robust_losses_have_the_least_loss_and_robust_intervals():
    for loss in (cofed.Huber(1.2), cofed.SmoothQuantile(0.7, 0.4)):
        model = FederatedGLM(loss, alpha=0.0, exclude=[3, 4, 5]).fit(X, WILD, clients=SITES)
        A = np.column_stack([X[:, :3], np.ones(N)])
        mean = jax.jit(lambda w, loss=loss, A=A: jnp.mean(jax.vmap(loss)(A @ w, jnp.asarray(WILD))))
        least = minimize(mean, np.zeros(4), jac=jax.grad(mean), method="BFGS", options={"gtol": 1e-12})
        assert abs(model.certificate_.objective - least.fun) <= model.certificate_.gap + 1e-9
        assert model.certificate_.converged
        np.testing.assert_allclose(model.coef_[:3], least.x[:3], atol=1e-6)
        with pytest.raises(ValueError, match=r"is no likelihood that would know .* such as errors='hc1'"):
            model.infer(X, WILD, SITES)
        # The sandwich by its definition.
        theta = slopes(loss, model, WILD)
        bend = np.asarray(jax.vmap(jax.grad(jax.grad(loss)))(jnp.asarray(X @ model.coef_ + model.intercept_), WILD))
        bread, scores = np.linalg.inv(A.T @ (A * bend[:, None])), A * theta[:, None]
        expected = np.sqrt(np.diag(bread @ scores.T @ scores @ bread)[:3] * N / (N - 4))
        np.testing.assert_allclose(model.infer(X, WILD, SITES, errors="hc1")["se"], expected, rtol=1e-6)


@pytest.mark.slow
def test_a_narrow_quantile_is_nearly_scikit_learns():
    theirs = QuantileRegressor(quantile=0.7, alpha=0.2).fit(X, WILD)
    ours = FederatedGLM(cofed.SmoothQuantile(0.7, 0.01), alpha=0.2, standardize=False).fit(X, WILD, clients=SITES)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.02)
    assert abs(np.mean(ours.predict(X) > WILD) - 0.7) < 0.1


@pytest.mark.parametrize("name", ["tweedie", pytest.param("huber", marks=pytest.mark.slow)])
def test_a_path_is_chosen_from_and_kept(name, tmp_path):
    loss, y = FAMILIES[name]
    model = FederatedGLMCV(loss, n_alphas=6, cv=3, eps=0.05).fit(X, y, clients=SITES)
    assert model.path_.converged.all()
    assert model.path_.nonzero[0] == 0 < model.path_.nonzero[-1]
    again = FederatedGLM(loss, alpha=model.alpha_).fit(X, y, clients=SITES)
    np.testing.assert_allclose(model.coef_, again.coef_, atol=1e-7)
    assert np.isfinite(model.cv_mean_).all()
    model.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(read.predict(X), model.predict(X))
    assert read.loss == loss
    assert type(loss).__name__ in repr(read)


@every_family
def test_scores_of_sites_are_those_of_rows_and_offsets_count(name):
    loss, y = FAMILIES[name]
    model = FederatedGLM(loss, alpha=0.05).fit(X, y, clients=SITES)
    groups = [site == SITES for site in hospitals.SIZES]
    sites = MemorySites(SiteRows.of_sites(tuple(hospitals.SIZES), [X[g] for g in groups], [y[g] for g in groups]), None)
    assert model.score(sites) == pytest.approx(model.score(X, y), rel=1e-7)
    assert 0 < model.score(X, y) < 1
    offset = 0.3 * X[:, 1]
    other = FederatedGLM(loss, alpha=0.05).fit(X, y, clients=SITES, offset=offset)
    assert abs(slopes(loss, other, y, offset).mean()) < 1e-7
    assert other.certificate_.converged


class Squareplus(cofed.AbstractLoss):
    """sqrt(1 + r^2) - 1: one's own loss, of which nothing else is said than that it is convex."""

    attains_zero = True

    def __call__(self, prediction, y):
        return jnp.sqrt(1 + (prediction - y) ** 2) - 1

    def inverse_link(self, prediction):
        return prediction + 1  # whatever its user predicts

    @property
    def curvature(self):
        return 1.0


def test_ones_own_loss_is_a_family(tmp_path):
    model = FederatedGLM(Squareplus(), alpha=0.05).fit(X, Y, clients=SITES)
    assert model.certificate_.converged
    r = X @ model.coef_ + model.intercept_ - Y
    g = ((X - X.mean(axis=0)) / X.std(axis=0)).T @ (r / np.sqrt(1 + r**2)) / N
    np.testing.assert_allclose(g[model.support_], -0.05 * np.sign(model.coef_[model.support_]), atol=1e-7)
    np.testing.assert_allclose(model.predict(X), r + Y + 1)
    assert 0 < model.score(X, Y) < 1
    assert FederatedGLMCV(Squareplus(), n_alphas=3, cv=2).fit(X, Y, clients=SITES).path_.converged.all()
    with pytest.raises(ValueError, match=r"Squareplus.* is not a part of cofed"):
        model.save(tmp_path / "own.safetensors")


def test_bad_input_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="FederatedGLM: y must be > 0, but 1 values of y are not"):
        FederatedGLM(cofed.Gamma()).fit(X, np.where(np.arange(N) == 3, 0.0, AMOUNTS), clients=SITES)
    with pytest.raises(ValueError, match="FederatedGLM: y must be >= 0, but 2 values of y are not"):
        FederatedGLM(cofed.Tweedie(1.5)).fit(X, np.where(np.arange(N) < 2, -1.0, COSTS), clients=SITES)
    with pytest.raises(ValueError, match="FederatedGLM: y must have a value above 0, but all are 0"):
        FederatedGLM(cofed.Tweedie(1.5)).fit(X, 0 * Y, clients=SITES)
    for power in (0.5, 2.5, np.nan, 3):
        with pytest.raises(ValueError, match=r"Tweedie: power must be in \[1, 2\]"):
            cofed.Tweedie(power)
    with pytest.raises(ValueError, match=r"SmoothQuantile: level must be in \[0.001, 0.999\], got 1"):
        cofed.SmoothQuantile(1.0)
    with pytest.raises(ValueError, match="SmoothQuantile: width must be a finite number > 0"):
        cofed.SmoothQuantile(0.5, 0.0)
    with pytest.raises(
        ValueError, match="FederatedGLM: the loss Softmax is of classes: take FederatedLogisticRegression"
    ):
        FederatedGLM(cofed.Softmax()).fit(X, Y)
    with pytest.raises(ValueError, match="FederatedGLM: the loss Efron is of the time to an event: take FederatedCox"):
        FederatedGLM(cofed.losses.Efron()).fit(X, Y)
    for wrong in ("gamma", cofed.Gamma, abs):
        with pytest.raises(
            TypeError, match=r"FederatedGLM: loss must be a cofed.AbstractLoss, such as cofed.Gamma\(\)"
        ):
            FederatedGLM(wrong).fit(X, Y)


@every_family
def test_a_constant_target_and_a_constant_site_are_fitted(name):
    loss, y = FAMILIES[name]
    flat = FederatedGLM(loss, alpha=0.01).fit(X, np.full(N, 4.0), clients=SITES)
    assert not flat.support_.any()
    best = 4.0 + 0.4 * np.log(0.7 / 0.3) if name == "quantile" else 4.0
    np.testing.assert_allclose(flat.predict(X), best, rtol=1e-9)
    one = FederatedGLM(loss, alpha=0.01).fit(X, np.where(SITES == "Rome", 4.0, y), clients=SITES)
    assert one.certificate_.converged


def test_a_quantile_of_no_width_is_told_what_helps():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4))
    y = X[:, 0] + rng.normal(size=150)
    with pytest.warns(ConvergenceWarning, match="A larger width may help"):
        FederatedGLM(cofed.SmoothQuantile(0.5, width=1e-5), alpha=0.0).fit(X, y)


def test_scores_refuse_what_are_no_labels_and_weights():
    model = FederatedGLM(cofed.Gamma(), alpha=0.1).fit(X, AMOUNTS, clients=SITES)
    assert model.score(X, AMOUNTS[:, None]) == model.score(X, AMOUNTS)
    for y, weight, sentence in (
        (AMOUNTS[1:], None, f"y must be one number per row: {N} rows, {N - 1} numbers"),
        (np.where(np.arange(N) == 0, np.nan, AMOUNTS), None, "Input y contains NaN"),
        (AMOUNTS - AMOUNTS[0], None, "FederatedGLM: y must be > 0"),
        (None, None, "y is None"),
        (AMOUNTS, -np.ones(N), "sample_weight must be >= 0"),
        (AMOUNTS, np.zeros(N), "sample_weight must be above 0 for some rows"),
        (AMOUNTS, np.ones(3), f"sample_weight must be one number per row: {N} rows, 3 numbers"),
    ):
        with pytest.raises(ValueError, match=sentence):
            model.score(X, y, sample_weight=weight)
