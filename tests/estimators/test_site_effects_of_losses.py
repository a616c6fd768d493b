"""Intercepts of the sites' own beside losses whose links are not canonical: Gamma, Tweedie, negative binomial."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from tests.estimators.test_site_effects import COLUMNS, FACTOR, SITE, SIZES, P
from tests.estimators.test_site_effects import rows as site_rows
from tests.sites.test_network import DirectLink

from cofed import Gamma, Huber, NegativeBinomial, Tweedie
from cofed.estimators import FederatedGLM, FederatedGLMCV, FederatedMultiTaskLasso
from cofed.losses import Reweighted, SiteIntercepts
from cofed.sites import ChosenColumns
from cofed.sites.network import NetworkSites

LOG = sm.families.links.Log
LOSSES = {"gamma": Gamma(), "tweedie": Tweedie(1.5), "negbin": NegativeBinomial(3.0)}
FAMILIES = {
    "gamma": sm.families.Gamma(LOG()),
    "tweedie": sm.families.Tweedie(LOG(), var_power=1.5),
    "negbin": sm.families.NegativeBinomial(LOG(), alpha=1 / 3),
}
# The derivatives of the deviances' halves: (mean - y) / variance times mean.
SLOPES = {
    "gamma": lambda mean, y: 1 - y / mean,
    "tweedie": lambda mean, y: (mean - y) / np.sqrt(mean),
    "negbin": lambda mean, y: 3 * (mean - y) / (3 + mean),
}
KINDS = ["gamma", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("tweedie", "negbin"))]


def labels(kind, mean, rng):
    if kind == "gamma":
        return rng.gamma(2.0, mean / 2)
    if kind == "tweedie":
        return rng.poisson(mean) * rng.gamma(2.0, 0.5, size=len(mean))
    return rng.negative_binomial(3, 3 / (3 + mean)).astype(float)


def rows(kind):
    X, z = site_rows("lasso")
    return X, labels(kind, np.exp(z / 4), np.random.default_rng(1))


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(sorted(LOSSES)), st.integers(0, 2**32 - 1), st.floats(0.1, 8.0))
def test_the_intercept_of_a_site_makes_its_slopes_add_up_to_nothing(kind, seed, size):
    rng = np.random.default_rng(seed)
    z, weight, site = size * rng.normal(size=(12, 1)), rng.uniform(0.5, 2, size=(12, 1)), np.arange(12) // 4
    y = labels(kind, np.exp(z[:, 0] / 2), rng)
    found = eqx.filter_jit(SiteIntercepts(LOSSES[kind]).terms)(*map(jnp.asarray, (z, y, weight, site)))
    for s in range(3):
        own = site == s
        if not y[own].any():
            assert np.isneginf(np.asarray(found.intercept)[own]).all()
            assert not np.asarray(found.value)[own].any()
            continue

        def total(a, own=own):
            return weight[own, 0] @ SLOPES[kind](np.exp(z[own, 0] + a), y[own])

        best = brentq(total, -100, 100, xtol=1e-13)
        np.testing.assert_allclose(np.asarray(found.intercept)[own], best, atol=1e-9)
        judged = SiteIntercepts(Reweighted(LOSSES[kind])).terms(*map(jnp.asarray, (z, y, weight, site)))
        np.testing.assert_allclose(np.asarray(judged.intercept)[own], best, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_model_with_a_column_for_every_site(kind):
    X, y = rows(kind)
    model = FederatedGLM(LOSSES[kind], alpha=0.05, site_effects="fixed").fit(X, y, clients=SITE)
    other = FederatedGLM(LOSSES[kind], alpha=0.05, penalty_factor=FACTOR).fit(np.hstack([X, COLUMNS]), y)
    effects = other.intercept_ + np.r_[0, other.coef_[P:]]
    assert model.certificate_.converged
    np.testing.assert_allclose(model.coef_, other.coef_[:P], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(list(model.site_effects_.values()), effects, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(model.intercept_, np.average(effects, weights=SIZES), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(model.certificate_.objective, other.certificate_.objective, rtol=1e-12)
    np.testing.assert_allclose(model.predict(X, clients=SITE), other.predict(np.hstack([X, COLUMNS])), rtol=1e-8)
    pooled = sm.GLM(y, np.column_stack([X, np.ones(len(X)), COLUMNS]), FAMILIES[kind])
    pooled = pooled.fit(scale=None if kind == "negbin" else "X2", tol=1e-14, maxiter=200)
    table = model.infer(X, y, clients=SITE)
    np.testing.assert_allclose(table["debiased"], pooled.params[:P], rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(table["se"], pooled.bse[:P], rtol=1e-7)


@pytest.mark.slow
def test_sites_elsewhere_and_paths_tell_the_same():
    X, y = rows("gamma")
    model = FederatedGLMCV(Gamma(), site_effects="fixed", n_alphas=5, cv=3).fit(X, y, clients=SITE)
    columns = {"alphas": model.alphas_, "cv": 3, "penalty_factor": FACTOR}
    other = FederatedGLMCV(Gamma(), **columns).fit(np.hstack([X, COLUMNS]), y, clients=SITE)
    assert model.path_.converged.all()
    np.testing.assert_allclose(model.path_.coefs, other.path_.coefs[:, :P], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.cv_mean_, other.cv_mean_, rtol=1e-4)
    table = {name: {f"x{j}": X[name == SITE, j] for j in range(P)} | {"y": y[name == SITE]} for name in "abcd"}
    frames = {name: pd.DataFrame(own) for name, own in table.items()}
    sites = NetworkSites.open(DirectLink(frames), list(frames), ChosenColumns(target="y"))
    far = FederatedGLM(Gamma(), alpha=0.05, site_effects="fixed").fit(sites)
    near = FederatedGLM(Gamma(), alpha=0.05, site_effects="fixed").fit(X, y, clients=SITE)
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(far.infer(sites).se, near.infer(X, y, clients=SITE).se, rtol=1e-8)


@pytest.mark.slow
def test_the_dispersion_of_counts_is_estimated_beside_intercepts_of_sites():
    X, y = rows("negbin")
    model = FederatedGLM(NegativeBinomial(), alpha=0.05, site_effects="fixed").fit(X, y, clients=SITE)
    columns = np.hstack([X, COLUMNS])
    other = FederatedGLM(NegativeBinomial(), alpha=0.05, penalty_factor=FACTOR).fit(columns, y)
    assert model.loss_.theta == pytest.approx(other.loss_.theta, rel=1e-7)
    np.testing.assert_allclose(model.coef_, other.coef_[:P], rtol=1e-7, atol=1e-9)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.sampled_from(sorted(LOSSES)), st.floats(0.005, 0.3))
def test_no_gap_is_below_the_truth(kind, alpha):
    X, y = rows(kind)
    given_one = {"alpha": alpha, "site_effects": "fixed"}
    fits = [FederatedGLM(LOSSES[kind], tol=tol, **given_one).fit(X, y, SITE) for tol in (1e-12, 1e-3, 0.3)]
    best = min(one.certificate_.objective for one in fits)
    for one in fits:
        seen = one.certificate_
        assert seen.objective - best <= seen.gap + seen.rounding + 1e-12 * seen.scale
    assert fits[0].certificate_.outcome != "not converged"


def test_losses_without_a_link_are_refused_in_a_sentence():
    X, y = rows("gamma")
    with pytest.raises(ValueError, match="FederatedGLM: site_effects='fixed': Huber takes no intercepts of sites"):
        FederatedGLM(Huber(), site_effects="fixed").fit(X, y, clients=SITE)
    with pytest.raises(TypeError, match=r"FederatedMultiTaskLasso takes no site_effects: .* for a single response"):
        FederatedMultiTaskLasso(site_effects="fixed")
