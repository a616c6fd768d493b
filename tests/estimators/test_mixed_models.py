"""Mixed models from sums of the sites: those of all rows together, by dense matrices, statsmodels, lme4 and glmmPQL."""

import shutil
import subprocess
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import statsmodels.api as sm
from scipy.optimize import minimize
from scipy.special import expit
from tests.sites.secure import worlds
from tests.sites.test_network import DirectLink

from cofed.estimators import FederatedMixedGLM, FederatedMixedModel
from cofed.sites import ChosenColumns
from cofed.sites.network import NetworkSites
from cofed.statistics.mixed_model import SiteProducts, profile

SIZES = {"oslo": 14, "rome": 25, "bern": 30, "lyon": 8, "kiel": 19, "graz": 1}  # all of one padded size


def rows(seed=0, between=(1.5, 0.5)):
    """Unequal sites, one with a single row; columns of different size and place; the rows are not sorted."""
    rng = np.random.default_rng(seed)
    site = rng.permutation(np.repeat(list(SIZES), list(SIZES.values())))
    X = pd.DataFrame(rng.normal(size=(len(site), 2)) * [1.0, 30.0] + [2.0, 100.0], columns=["dose", "weight"])
    own = {name: rng.normal(size=2) * between for name in SIZES}
    effects = np.array([own[name] for name in site])
    z = 0.5 * X.dose - 0.02 * X.weight + effects[:, 0] + effects[:, 1] * X.dose
    return X, z.to_numpy(), site, rng


def linear(seed=0, between=(1.5, 0.5)):
    X, z, site, rng = rows(seed, between)
    return X, z + rng.normal(size=len(z)), site


def dense(X, y, site, slopes, between, within):
    """The definition: log likelihoods of all rows with one matrix V, and what follows from it."""
    A = np.column_stack([np.ones(len(X)), X])
    Z = np.column_stack([np.ones(len(X)), X[list(slopes)]])
    V = np.where(site[:, None] == site[None, :], Z @ between @ Z.T, 0.0) + np.diag(np.broadcast_to(within, len(X)))
    inverse = np.linalg.inv(V)
    information = A.T @ inverse @ A
    beta = np.linalg.solve(information, A.T @ inverse @ y)
    r = y - A @ beta
    log_v, log_i = np.linalg.slogdet(V)[1], np.linalg.slogdet(information)[1]
    n, p = A.shape
    ml = -0.5 * (n * np.log(2 * np.pi) + log_v + r @ inverse @ r)
    reml = -0.5 * ((n - p) * np.log(2 * np.pi) + log_v + log_i + r @ inverse @ r)
    effects = {name: between @ (Z.T * (site == name)) @ inverse @ r for name in SIZES}
    return {"ml": ml, "reml": reml, "beta": beta, "se": np.sqrt(np.diag(np.linalg.inv(information))), "own": effects}


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("slopes", [(), ("dose",)])
def test_the_fit_is_the_best_of_the_definition(slopes, method):
    X, y, site = linear()
    model = FederatedMixedModel(list(slopes), method=method).fit(X, y, clients=site)
    between, within = model.covariance_.to_numpy(), model.residual_variance_
    told = dense(X, y, site, slopes, between, within)
    assert model.log_likelihood_ == pytest.approx(told[method], rel=1e-11)
    np.testing.assert_allclose(np.r_[model.intercept_, model.coef_], told["beta"], rtol=1e-9)
    np.testing.assert_allclose(model.fixed_effects_.se, told["se"], rtol=1e-9)
    for name in SIZES:
        np.testing.assert_allclose(model.random_effects_.loc[name], told["own"][name], rtol=1e-7, atol=1e-9)
    # No other variances are better: a search over the dense likelihood, from the answer and from afar, ends there.
    lower = np.tril_indices(len(between))

    def deviance(theta):
        factor = np.zeros_like(between)
        factor[lower] = theta[:-1]
        return -2 * dense(X, y, site, slopes, factor @ factor.T, np.exp(theta[-1]))[method]

    for begin in (np.r_[np.linalg.cholesky(between)[lower], np.log(within)], np.r_[np.eye(len(between))[lower], 1.0]):
        found = minimize(deviance, begin, method="BFGS", options={"gtol": 1e-6})
        assert -found.fun / 2 == pytest.approx(model.log_likelihood_, abs=1e-8)
        assert -found.fun / 2 <= model.log_likelihood_ + 1e-10
    assert model.is_settled_
    assert not model.is_singular_
    assert {one.what: one.rounds for one in model.exchanges_} == {"sums": 1, "gram": 1}


@pytest.mark.parametrize(("slopes", "method"), [((), "reml"), (("dose",), "ml")])
def test_weights_are_precisions_and_offsets_are_added(slopes, method):
    X, y, site = linear(1)
    rng = np.random.default_rng(5)
    weight, offset = 1000 * rng.uniform(0.2, 3, len(y)), rng.normal(size=len(y))
    weight[:3] = 0  # rows that are left out
    model = FederatedMixedModel(list(slopes), method=method)
    model.fit(X, y + offset, clients=site, sample_weight=weight, offset=offset)
    kept = weight > 0
    own, labels, sites, precision = X[kept].reset_index(drop=True), y[kept], site[kept], weight[kept]
    between, within = model.covariance_.to_numpy(), model.residual_variance_
    told = dense(own, labels, sites, slopes, between, within / precision)
    assert model.log_likelihood_ == pytest.approx(told[method], rel=1e-10)
    np.testing.assert_allclose(np.r_[model.intercept_, model.coef_], told["beta"], rtol=1e-8)
    np.testing.assert_allclose(model.fixed_effects_.se, told["se"], rtol=1e-8)
    for name in SIZES:
        np.testing.assert_allclose(model.random_effects_.loc[name], told["own"][name], rtol=1e-6, atol=1e-9)
    lower = np.tril_indices(len(between))

    def deviance(theta):
        factor = np.zeros_like(between)
        factor[lower] = theta[:-1]
        return -2 * dense(own, labels, sites, slopes, factor @ factor.T, np.exp(theta[-1]) / precision)[method]

    found = minimize(deviance, np.r_[np.eye(len(between))[lower], 7.0], method="BFGS", options={"gtol": 1e-6})
    assert -found.fun / 2 <= model.log_likelihood_ + 1e-8
    assert -found.fun / 2 == pytest.approx(model.log_likelihood_, abs=1e-6)
    moved = model.predict(X, clients=site, offset=offset) - model.predict(X, clients=site, offset=np.zeros(len(y)))
    np.testing.assert_allclose(moved, offset, atol=1e-12)
    with pytest.raises(ValueError, match="was fitted with an offset, and predicts with one"):
        model.predict(X, clients=site)


def test_weights_and_offsets_are_columns_of_frames_and_of_sites():
    X, y, site = linear(1)
    rng = np.random.default_rng(5)
    more = X.assign(w=rng.uniform(0.2, 3, len(y)), o=rng.normal(size=len(y)))
    near = FederatedMixedModel().fit(more, y, clients=site, sample_weight="w", offset="o")
    plain = FederatedMixedModel().fit(X, y, clients=site, sample_weight=more.w, offset=more.o)
    pd.testing.assert_frame_equal(near.fixed_effects_, plain.fixed_effects_)
    assert near.coef_.shape == (2,)
    np.testing.assert_allclose(near.predict(more, offset="o"), plain.predict(X, offset=more.o), rtol=1e-12)
    there = site != "graz"
    near = FederatedMixedModel().fit(more[there], y[there], clients=site[there], sample_weight="w", offset="o")
    tables = {name: more[site == name].assign(y=y[site == name]) for name in SIZES if name != "graz"}
    sites = NetworkSites.open(DirectLink(tables), list(tables), ChosenColumns(target="y"))
    far = FederatedMixedModel().fit(sites, sample_weight="w", offset="o")
    pd.testing.assert_frame_equal(far.fixed_effects_, near.fixed_effects_, rtol=1e-8)
    assert np.isnan(far.log_likelihood_)
    with pytest.raises(TypeError, match=r"Sparse data was passed for X, and mixed models take dense rows"):
        FederatedMixedModel().fit(scipy.sparse.csr_array(X.to_numpy()), y, clients=site)


@pytest.mark.parametrize("reml", [True, False])
def test_the_fit_is_that_of_statsmodels(reml):
    X, y, site = linear(0)
    centred = (X - X.mean()) / X.std()  # statsmodels' search needs columns of one size
    model = FederatedMixedModel(["dose"], method="reml" if reml else "ml").fit(centred, y, clients=site)
    design = sm.add_constant(centred)
    other = sm.MixedLM(y, design, groups=site, exog_re=design[["const", "dose"]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = other.fit(reml=reml, method=["bfgs"], gtol=1e-10, maxiter=1000)
    assert model.log_likelihood_ == pytest.approx(fit.llf, rel=1e-9)
    np.testing.assert_allclose(model.coef_, fit.fe_params.to_numpy()[1:], rtol=1e-6)
    np.testing.assert_allclose(model.covariance_, fit.cov_re, rtol=1e-5)
    assert model.residual_variance_ == pytest.approx(fit.scale, rel=1e-6)


def test_the_slope_of_the_deviance_is_its_derivative():
    rng = np.random.default_rng(0)
    A = [np.column_stack([np.ones(n), rng.normal(size=(n, 3))]) for n in (5, 9, 2)]
    sites = SiteProducts(np.array([5, 9, 2]), np.array([a.T @ a for a in A]), np.array([0, 2]))
    factor = np.array([[0.7, 0.0], [-0.3, 0.2]])
    for reml in (True, False):
        for known in (None, 1.3):
            posed = SiteProducts(sites.rows, sites.products, sites.random, known)
            slope = 2 * profile(posed, factor, reml).slope @ factor
            for i, j in ((0, 0), (1, 0), (1, 1)):
                h = np.zeros((2, 2))
                h[i, j] = 1e-5
                ahead, behind = (profile(posed, factor + sign * h, reml).deviance for sign in (1, -1))
                assert (ahead - behind) / 2e-5 == pytest.approx(slope[i, j], rel=1e-6)


def test_no_variation_between_sites_is_found_exactly():
    X, y, site = linear(2, between=(0.0, 0.0))
    centred = y - np.array([y[site == name].mean() for name in site])  # less variation than chance would give
    model = FederatedMixedModel().fit(X, centred, clients=site)
    assert model.covariance_.iloc[0, 0] == 0
    assert model.is_singular_
    assert model.is_settled_
    assert (model.random_effects_ == 0).all(axis=None)
    least = sm.OLS(centred, sm.add_constant(X)).fit()
    np.testing.assert_allclose(np.r_[model.intercept_, model.coef_], least.params, rtol=1e-9)
    np.testing.assert_allclose(model.fixed_effects_.se, least.bse, rtol=1e-9)
    assert "no variation in some direction" in model.summary()


def test_slopes_at_sites_where_the_column_does_not_vary():
    X, y, site = linear(4)
    X.loc[site == "rome", "dose"] = 1.0
    model = FederatedMixedModel("dose").fit(X, y, clients=site)
    told = dense(X, y, site, ["dose"], model.covariance_.to_numpy(), model.residual_variance_)
    assert model.log_likelihood_ == pytest.approx(told["reml"], rel=1e-10)
    assert np.isfinite(model.random_effects_).all(axis=None)
    assert model.is_settled_


def test_predictions_with_and_without_the_effects_of_sites():
    X, y, site = linear()
    model = FederatedMixedModel(["weight"]).fit(X.assign(hospital=site), y, clients="hospital")
    fixed = X.to_numpy() @ model.coef_ + model.intercept_
    own = model.random_effects_.loc[site]
    np.testing.assert_allclose(model.predict(X), fixed, rtol=1e-12)
    wanted = fixed + own["(Intercept)"].to_numpy() + own["weight"].to_numpy() * X.weight
    np.testing.assert_allclose(model.predict(X, clients=site), wanted, rtol=1e-12)
    np.testing.assert_allclose(model.predict(X.assign(hospital=site)), wanted, rtol=1e-12)
    with pytest.raises(ValueError, match="'york' is none of the sites of the fit"):
        model.predict(X, clients=["york"] * len(X))


def test_sites_over_a_network_tell_the_same_and_not_under_masks():
    X, y, site = linear()
    tables = {name: X[site == name].assign(y=y[site == name]) for name in SIZES if name != "graz"}
    near = FederatedMixedModel("dose").fit(X[site != "graz"], y[site != "graz"], clients=site[site != "graz"])
    sites = NetworkSites.open(DirectLink(tables), list(tables), ChosenColumns(target="y"))
    far = FederatedMixedModel("dose").fit(sites)
    pd.testing.assert_frame_equal(far.fixed_effects_, near.fixed_effects_, rtol=1e-9)
    pd.testing.assert_frame_equal(far.random_effects_, near.random_effects_, rtol=1e-6)
    masked = worlds.over(worlds.MaskedLink(tables), target="y")
    with pytest.raises(ValueError, match="FederatedMixedModel: the sites' answers are masked"):
        FederatedMixedModel().fit(masked)


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        (FederatedMixedModel(), {"clients": None}, "two sites or more, and there is 1"),
        (FederatedMixedModel(method="best"), {}, "method must be one of reml, ml"),
        (FederatedMixedModel(level=2.0), {}, "level must be"),
        (FederatedMixedModel(["age"]), {}, "there is no feature 'age'"),
        (FederatedMixedModel(["dose", 0]), {}, "dose"),
        (FederatedMixedModel(), {"clients": np.arange(97)}, "explain every row: 97 rows at 97 sites"),
        (FederatedMixedModel(), {"y": np.ones(97)}, "y does not vary"),
        (FederatedMixedGLM("gamma"), {}, "family must be one of binomial, poisson"),
        (FederatedMixedGLM(max_rounds=0), {}, "max_rounds must be"),
        (FederatedMixedGLM(), {"y": np.arange(97) % 3}, "'binomial' is for two classes"),
        (FederatedMixedGLM("poisson"), {"y": np.zeros(97)}, "counts above 0"),
        (FederatedMixedGLM("poisson"), {"y": np.full(97, -1.0)}, "y must be >= 0"),
    ],
)
def test_bad_input_gets_a_sentence(model, given, words):
    X, y, site = linear()
    with pytest.raises(ValueError, match=words):
        model.fit(**({"X": X, "y": y, "clients": site} | given))


def test_columns_that_tell_nothing_get_a_sentence():
    X, y, site = linear()
    with pytest.raises(ValueError, match="the column 'one' does not vary"):
        FederatedMixedModel().fit(X.assign(one=1.0), y, clients=site)
    with pytest.raises(ValueError, match="the column 'twice' depends on those before it"):
        FederatedMixedModel().fit(X.assign(twice=2 * X.dose - X.weight), y, clients=site)
    with pytest.raises(ValueError, match="explains y wholly"):
        FederatedMixedModel().fit(X, X.dose + 2 * X.weight, clients=site)


# Penalised quasi-likelihood


def labels(family, seed=0):
    X, z, site, rng = rows(seed, between=(1.0, 0.4))
    if family == "binomial":
        return X, (rng.uniform(size=len(z)) < expit(z + 1)).astype(int), site
    return X, rng.poisson(np.exp(z / 3)).astype(float), site


def test_the_quasi_likelihood_rests_where_dense_matrices_do():
    """At the answer, the working response's linear mixed model by dense matrices has the same answer."""
    for family, slopes, method in (("binomial", ["dose"], "reml"), ("poisson", [], "ml")):
        X, y, site = labels(family)
        model = FederatedMixedGLM(family, slopes, method=method).fit(X, y, clients=site)
        own = model.random_effects_.loc[site]
        eta = X.to_numpy() @ model.coef_ + model.intercept_ + own["(Intercept)"].to_numpy()
        eta = eta + sum(own[name].to_numpy() * X[name].to_numpy() for name in slopes)
        mean = expit(eta) if family == "binomial" else np.exp(eta)
        weight = mean * (1 - mean) if family == "binomial" else mean
        z = eta + (y - mean) / weight
        between = model.covariance_.to_numpy()
        told = dense(X, z, site, slopes, between, 1 / weight)
        np.testing.assert_allclose(np.r_[model.intercept_, model.coef_], told["beta"], rtol=1e-6)
        np.testing.assert_allclose(model.fixed_effects_.se, told["se"], rtol=1e-6)
        for name in SIZES:
            np.testing.assert_allclose(model.random_effects_.loc[name], told["own"][name], rtol=1e-5, atol=1e-7)
        turn = np.random.default_rng(0)
        for _ in range(10):
            near = between + 0.01 * (lambda a: a @ a.T - between / 3)(turn.normal(size=between.shape))
            if np.linalg.eigvalsh(near)[0] > 0:
                assert dense(X, z, site, slopes, near, 1 / weight)[method] < told[method]
        assert model.is_settled_
        assert "penalised quasi-likelihood" in model.summary()


@pytest.mark.slow
def test_quasi_likelihood_over_a_network():
    X, y, site = labels("binomial")
    there = site != "graz"
    tables = {name: X[site == name].assign(y=y[site == name]) for name in SIZES if name != "graz"}
    near = FederatedMixedGLM().fit(X[there], y[there], clients=site[there])
    far = FederatedMixedGLM().fit(NetworkSites.open(DirectLink(tables), list(tables), ChosenColumns(target="y")))
    pd.testing.assert_frame_equal(far.fixed_effects_, near.fixed_effects_, rtol=1e-8)
    assert {one.what: one.rounds for one in far.exchanges_} == {"sums": 1, "gram": 1, "look": 5 * far.n_iter_}
    np.testing.assert_allclose(far.predict(X[there], clients=site[there]).mean(), y[there].mean(), rtol=1e-6)


def test_labels_that_features_tell_with_certainty():
    X, _, site = labels("binomial")
    with pytest.raises(ValueError, match=r"grow without end|still change"):
        FederatedMixedGLM(max_rounds=12).fit(X, X.dose > 2, clients=site)


def in_r(code, table, folder):
    """What R prints, as numbers."""
    table.to_csv(folder / "rows.csv", index=False)
    script = (
        f'd <- read.csv("{folder}/rows.csv"); suppressMessages({{library(lme4); library(MASS); library(nlme)}})\n{code}'
    )
    (folder / "oracle.R").write_text(script)
    done = subprocess.run(["Rscript", str(folder / "oracle.R")], capture_output=True, text=True, check=True)
    return {line.split()[0]: np.array(line.split()[1:], float) for line in done.stdout.splitlines() if line.strip()}


def has_r():
    """Whether R and lme4 are there."""
    if shutil.which("Rscript") is None:
        return False
    return subprocess.run(["Rscript", "-e", "library(lme4)"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_the_fits_are_those_of_r(tmp_path):
    if not has_r():
        pytest.skip("needs R with lme4, Debian's r-cran-lme4")
    X, y, site = linear(0)
    table = ((X - X.mean()) / X.std()).assign(y=y, site=site)
    code = """
tight <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-10, maxfun = 1e6), calc.derivs = FALSE)
for (reml in c(TRUE, FALSE)) {
  m <- lmer(y ~ dose + weight + (1 + dose | site), d, REML = reml, control = tight)
  name <- if (reml) "reml" else "ml"
  cat(name, sprintf("%.15g", c(fixef(m), sqrt(diag(as.matrix(vcov(m)))), VarCorr(m)$site[c(1, 2, 4)], sigma(m)^2,
      logLik(m), as.matrix(ranef(m)$site))), "\\n")
}"""
    for method, wanted in in_r(code, table, tmp_path).items():
        model = FederatedMixedModel(["dose"], method=method).fit(table[["dose", "weight"]], y, clients=site)
        between = model.covariance_.to_numpy()[[0, 0, 1], [0, 1, 1]]
        effects = model.random_effects_.loc[sorted(SIZES)].to_numpy().ravel(order="F")
        found = np.r_[model.fixed_effects_.coef, model.fixed_effects_.se, between]
        found = np.r_[found, model.residual_variance_, model.log_likelihood_, effects]
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    for family in ("binomial", "poisson"):
        X, y, site = labels(family)
        table = ((X - X.mean()) / X.std()).assign(y=y, site=site)
        code = f"""
control <- lmeControl(sigma = 1, tolerance = 1e-10, msTol = 1e-12, msMaxIter = 500, maxIter = 500)
m <- glmmPQL(y ~ dose + weight, random = ~ 1 | site, family = {family}, data = d, control = control, verbose = FALSE)
cat("ml", sprintf("%.15g", c(fixef(m), getVarCov(m)[1])), "\\n")"""
        model = FederatedMixedGLM(family, method="ml").fit(table[["dose", "weight"]], y, clients=site)
        found = np.r_[model.fixed_effects_.coef, model.covariance_.iloc[0, 0]]
        # glmmPQL stops where a round changes predictors by less than a thousandth of their size.
        np.testing.assert_allclose(found, in_r(code, table, tmp_path)["ml"], rtol=1e-3, atol=1e-4)
