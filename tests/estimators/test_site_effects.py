"""Intercepts of the sites' own: the model with a column for every site that is not penalised, to round-off."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.linear_model import Lasso
from tests.sites.secure.worlds import MaskedLink, over

from cofed.estimators import (
    FederatedGroupLasso,
    FederatedLasso,
    FederatedLassoCV,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
    FederatedPoisson,
    load,
)
from cofed.losses import Huber, Logistic, Poisson, SiteIntercepts, Softmax, Squared
from cofed.sites import Folds, MemorySites, SiteRows
from cofed.sites.policy import points
from cofed.sites.queries import LookMessage, ProductMessage, look, product

N, P, SIZES = 300, 4, (120, 80, 60, 40)
SITE = np.repeat(list("abcd"), SIZES)
CODE = np.repeat(np.arange(4), SIZES)
COLUMNS = (CODE[:, None] == np.arange(1, 4)).astype(float)
FACTOR = np.r_[np.ones(P), np.zeros(3)]
FAMILIES = {"lasso": FederatedLasso, "logistic": FederatedLogisticRegression, "poisson": FederatedPoisson}
ALPHA = {"lasso": 0.1, "logistic": 0.03, "poisson": 0.1}
LOSSES = {"lasso": Squared(), "logistic": Logistic(), "poisson": Poisson()}
ROWS = {
    "lasso": lambda z, y: (z - y) ** 2 / 2,
    "logistic": lambda z, y: np.logaddexp(0, z) - y * z,
    "poisson": lambda z, y: np.exp(z) - y * z,
}
GLM = {"lasso": sm.families.Gaussian(), "logistic": sm.families.Binomial(), "poisson": sm.families.Poisson()}


def rows(kind, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P)) + 0.5 * CODE[:, None]
    X[:, 1] = 5 * X[:, 1] + 20
    z = X @ [0.8, -0.1, 0.0, 0.4] + np.array([1.0, 2.5, 4.0, 2.0])[CODE]
    if kind == "lasso":
        return X, z + rng.normal(size=N)
    if kind == "logistic":
        return X, (rng.random(N) < 1 / (1 + np.exp(-z))).astype(int)
    return X, rng.poisson(np.exp(z / 3))


@settings(max_examples=12)
@given(st.sampled_from(sorted(LOSSES)), st.integers(0, 2**32 - 1), st.floats(0.1, 6.0))
def test_the_loss_is_that_of_the_best_intercept_of_every_site(kind, seed, size):
    loss, rng = SiteIntercepts(LOSSES[kind]), np.random.default_rng(seed)
    z, weight, site = size * rng.normal(size=(12, 2)), rng.uniform(0.5, 2, size=(12, 2)), np.arange(12) // 4
    y = {"lasso": rng.normal(size=12), "logistic": np.arange(12) % 2, "poisson": rng.poisson(2.0, 12)}[kind]
    found = eqx.filter_jit(loss.terms)(*map(jnp.asarray, (z, y.astype(float), weight, site)))
    for m in range(2):
        for s in range(3):
            own = site == s
            if kind == "poisson" and y[own].sum() == 0:
                continue

            def total(a, own=own, m=m):
                return float(ROWS[kind](z[own, m] + a, y[own]) @ weight[own, m])

            best = minimize_scalar(total, bracket=(-1, 1), tol=1e-12)
            assert np.asarray(found.value)[own, m].sum() <= best.fun + 1e-9 * (1 + abs(best.fun))
            scale = np.abs(np.asarray(found.slope)[own, m]).max() + 1
            assert abs(np.asarray(found.slope)[own, m].sum()) <= 1e-13 * (scale + np.abs(z).max()) * 100


def test_a_site_on_the_edge_tells_nothing_and_held_out_rows_are_always_judged():
    loss, z, site = SiteIntercepts(Logistic()), jnp.array([[0.5], [-1.0], [2.0], [0.1]]), jnp.array([0, 0, 1, 1])
    y, all_rows = jnp.array([1, 1, 0, 1]), jnp.ones((4, 1))
    found = loss.terms(z, y, all_rows, site)
    assert not np.asarray(found.finite)[:2].any()
    assert np.asarray(found.finite)[2:].all()
    np.testing.assert_array_equal(np.asarray(found.slope)[:2], 0)
    np.testing.assert_array_equal(np.asarray(found.value)[:2], 0)
    own = all_rows.at[3].set(0)  # the rows that are learnt from are of one class at both sites
    held = loss.held(z, y, (own, all_rows - own), site)
    whole = float(Logistic()(z[3, 0] + found.intercept[3, 0], y[3]))
    np.testing.assert_allclose(held, [whole], rtol=1e-12)


@pytest.mark.parametrize("loss", [Huber(1.0), Softmax(3)])
def test_a_loss_without_a_link_takes_no_intercepts_of_sites(loss):
    with pytest.raises(TypeError, match="takes no intercepts of sites"):
        SiteIntercepts(loss)


@pytest.mark.parametrize(
    "kind", ["lasso", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("logistic", "poisson"))]
)
def test_it_is_the_model_with_a_column_for_every_site(kind):
    X, y = rows(kind)
    model = FAMILIES[kind](ALPHA[kind], site_effects="fixed").fit(X, y, clients=SITE)
    other = FAMILIES[kind](ALPHA[kind], penalty_factor=FACTOR).fit(np.hstack([X, COLUMNS]), y)
    coef, effects = np.ravel(other.coef_), np.ravel(other.intercept_)[0] + np.r_[0, np.ravel(other.coef_)[P:]]
    assert model.certificate_.converged
    assert 0 < model.support_.sum() < P or kind != "lasso"
    np.testing.assert_allclose(np.ravel(model.coef_), coef[:P], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(list(model.site_effects_.values()), effects, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(np.ravel(model.intercept_), np.average(effects, weights=SIZES), rtol=1e-9)
    np.testing.assert_allclose(model.certificate_.objective, other.certificate_.objective, rtol=1e-12)
    np.testing.assert_allclose(model.predict(X, clients=SITE), other.predict(np.hstack([X, COLUMNS])), rtol=1e-9)
    pooled = sm.GLM(y, sm.add_constant(np.hstack([X, COLUMNS])), GLM[kind]).fit(tol=1e-14)
    table = model.infer(X, y, clients=SITE)
    np.testing.assert_allclose(table["debiased"], pooled.params[1 : P + 1], rtol=1e-6)
    np.testing.assert_allclose(table["se"], pooled.bse[1 : P + 1], rtol=1e-5)
    assert "shown above is their mean" in model.summary()


@pytest.mark.parametrize("kind", ["lasso", "logistic"])
def test_a_column_that_does_not_vary_within_sites_has_no_interval_beside_their_intercepts(kind):
    X, y = rows(kind)
    X[:, 2] = CODE % 2  # of the sites, such as whether they teach
    model = FAMILIES[kind](ALPHA[kind], site_effects="fixed").fit(X, y, clients=SITE)
    with pytest.warns(UserWarning, match="no interval of their own .*: 'x2' is constant within every site"):
        table = model.infer(X, y, clients=SITE)
    kept = [0, 1, 3]
    pooled = sm.GLM(y, sm.add_constant(np.hstack([X[:, kept], COLUMNS])), GLM[kind]).fit(tol=1e-14)
    np.testing.assert_allclose(table["debiased"].iloc[kept], pooled.params[1:4], rtol=1e-6)
    np.testing.assert_allclose(table["se"].iloc[kept], pooled.bse[1:4], rtol=1e-5)
    assert table.loc["x2", ["debiased", "se", "p_value"]].isna().all()


@pytest.mark.slow
def test_nor_has_it_where_events_are_few_and_no_feature_passes_the_noise():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(N, 12)), (rng.random(N) < 0.3).astype(int)
    X[:, 1] = CODE % 2
    model = FederatedLogisticRegression(0.05, site_effects="fixed").fit(X, y, clients=SITE)
    with pytest.warns(UserWarning, match="'x1' is constant within every site"):
        table = model.infer(X, y, clients=SITE)
    assert "debiased lasso" in model.summary()
    assert table.index[table["se"].isna()].tolist() == ["x1"]
    assert table["se"].drop("x1").between(0.05, 0.5).all()


def test_a_lasso_is_that_of_rows_less_the_means_of_their_sites():
    X, y = rows("lasso")
    means = np.stack([np.column_stack([X, y])[s == SITE].mean(axis=0) for s in "abcd"])[CODE]
    size = X.std(axis=0)
    other = Lasso(0.1, fit_intercept=False, tol=1e-15, max_iter=100_000)
    other.fit((X - means[:, :P]) / size, y - means[:, P])
    weighted = FederatedLasso(0.1, site_effects="fixed").fit(X, y, clients=SITE, sample_weight=np.full(N, 2.0))
    np.testing.assert_allclose(weighted.coef_, other.coef_ / size, rtol=1e-9, atol=1e-12)


def test_groups_of_features_beside_intercepts_of_sites():
    """The group lasso of rows less the means of their sites, by its conditions of optimality."""
    X, y = rows("lasso")
    means = np.stack([np.column_stack([X, y])[s == SITE].mean(axis=0) for s in "abcd"])[CODE]
    groups, alpha = np.array([0, 0, 1, 0]), 0.15
    model = FederatedGroupLasso(alpha, groups=groups, standardize=False, site_effects="fixed").fit(X, y, clients=SITE)
    Z, t = X - means[:, :P], y - means[:, P]
    residual = t - Z @ model.coef_
    slope = Z.T @ residual / N
    used = 0
    for group in np.unique(groups):
        own, w = slope[groups == group], model.coef_[groups == group]
        most = alpha * np.sqrt(len(own))
        if w.any():
            used += 1
            np.testing.assert_allclose(own, most * w / np.linalg.norm(w), rtol=1e-6)
        else:
            assert np.linalg.norm(own) <= most * (1 + 1e-9)
    assert 0 < used < len(np.unique(groups))
    assert model.certificate_.converged
    effects = [(y - X @ model.coef_)[site == SITE].mean() for site in "abcd"]
    np.testing.assert_allclose([model.site_effects_[site] for site in "abcd"], effects, rtol=1e-9)
    np.testing.assert_allclose(model.predict(X, clients=SITE), y - residual, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "chosen"), [("lasso", FederatedLassoCV), ("logistic", FederatedLogisticRegressionCV)])
def test_paths_and_folds_are_those_of_columns(kind, chosen):
    X, y = rows(kind)
    given = {"n_alphas": 8, "cv": 3}
    model = chosen(**given, site_effects="fixed").fit(X, y, clients=SITE)
    other = chosen(**given, penalty_factor=FACTOR).fit(np.hstack([X, COLUMNS]), y, clients=SITE)
    np.testing.assert_allclose(model.alphas_, other.alphas_, rtol=1e-6)
    same = chosen(alphas=other.alphas_, cv=3, site_effects="fixed").fit(X, y, clients=SITE)
    np.testing.assert_allclose(same.path_.coefs, other.path_.coefs[..., :P], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(same.cv_mean_, other.cv_mean_, rtol=1e-4)
    effects = np.reshape(other.path_.intercepts, -1) + np.reshape(other.path_.coefs, (8, -1))[:, P:] @ COLUMNS.mean(
        axis=0
    )
    np.testing.assert_allclose(np.reshape(same.path_.intercepts, -1), effects, rtol=1e-6, atol=1e-9)
    assert same.path_.converged.all()


def message(kind, models, folds):
    rng = np.random.default_rng(3)
    return LookMessage(
        coef=0.2 * rng.normal(size=(models, P, 1)),
        intercept=np.zeros((models, 1)),
        without=rng.integers(-1, 2, models).astype(np.int32),
        closer=np.array([1], np.int32),
        where=np.arange(P, dtype=np.int32)[None],
        folds=folds,
        loss=SiteIntercepts(LOSSES[kind]),
    )


def test_answers_are_rows_times_what_the_policy_judges_and_products_of_the_hessian():
    X, y = rows("poisson")
    X, y, folds = (X - X.mean(axis=0))[:60], y[:60].astype(float), Folds(2)
    sites = MemorySites(SiteRows.of_sites(("a",), [X], [y]))
    asked = message("poisson", 4, folds)
    found, own = sites.ask(look, asked), points.multipliers(asked, X, y, sites.rows.folds(folds))
    np.testing.assert_allclose(X.T @ own[:, :4], found.gradient[..., 0].T, atol=1e-10)
    assert own.shape == (60, 5)
    bent = ProductMessage(
        asked.coef[1], np.zeros(1), np.eye(P)[..., None], np.zeros((P, 1)), loss=SiteIntercepts(Poisson())
    )
    whole = sites.ask(look, message("poisson", 4, None))
    hessian = np.asarray(sites.ask(product, bent).coef)[..., 0]
    np.testing.assert_allclose(hessian[np.triu_indices(P)], whole.hessian[0], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(X.T @ points.multipliers(bent, X, y, np.zeros(60)), hessian, atol=1e-10)
    step = 1e-6
    moved = np.stack([asked.coef[1, :, 0] + step * d for d in (*np.eye(P), *-np.eye(P))])[..., None]
    near = sites.ask(
        look,
        LookMessage(
            moved,
            np.zeros((8, 1)),
            np.full(8, -1, np.int32),
            np.zeros(0, np.int32),
            np.zeros((0, 0), np.int32),
            loss=SiteIntercepts(Poisson()),
        ),
    )
    slope = (near.gradient[:P, :, 0] - near.gradient[P:, :, 0]) / (2 * step)
    np.testing.assert_allclose(hessian, slope, rtol=1e-5, atol=1e-5)


def test_masked_sites_keep_their_intercepts_to_themselves(tmp_path):
    X, y = rows("lasso")
    names = [f"x{j}" for j in range(P)]
    tables = {s: pd.DataFrame(X[s == SITE], columns=names).assign(cost=y[s == SITE]) for s in "abcd"}
    near = FederatedLasso(0.1, site_effects="fixed").fit(X, y, clients=SITE)
    far = FederatedLasso(0.1, site_effects="fixed").fit(over(MaskedLink(tables), target="cost"))
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(far.intercept_, near.intercept_, rtol=1e-9)
    assert far.site_effects_ is None
    assert "keeps it to itself" in far.summary()
    near.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.site_effects_ == near.site_effects_
    new = pd.DataFrame(X, columns=names)
    np.testing.assert_array_equal(again.predict(X, clients=SITE), near.predict(X, clients=SITE))
    np.testing.assert_allclose(near.predict(X), X @ near.coef_ + near.intercept_, rtol=1e-12)
    with pytest.raises(ValueError, match="own intercepts are not known"):
        far.predict(new, clients=SITE)
    with pytest.raises(
        ValueError, match=r"'e' is none of the clients of the fit, .* leave clients out .also of X. for the"
    ):
        near.predict(X[:2], clients=["a", "e"])
    with pytest.raises(ValueError, match="must name one client per row: 2 rows"):
        near.predict(X[:2], clients=["a"])


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"site_effects": "random"}, "site_effects must be one of none, fixed"),
        ({"site_effects": "fixed", "fit_intercept": False}, "gives every site an intercept, and fit_intercept=False"),
        ({"site_effects": "fixed", "algorithm": "decouple"}, "algorithm must be one of auto, newton, fista"),
    ],
)
def test_what_does_not_go_together_is_refused(given, match):
    X, y = rows("lasso")
    with pytest.raises(ValueError, match=match):
        FederatedLasso(0.1, **given).fit(X, y, clients=SITE)


def test_robust_errors_have_no_intercepts_of_sites():
    X, y = rows("lasso")
    plain = FederatedLasso(0.1).fit(X, y, clients=SITE)
    with pytest.raises(ValueError, match="clients have the same intercept, unless site_effects='fixed'"):
        plain.predict(X, clients=SITE)
    model = FederatedLasso(0.1, site_effects="fixed").fit(X, y, clients=SITE)
    with pytest.raises(ValueError, match="errors must be 'model' beside intercepts of sites"):
        model.infer(X, y, clients=SITE, errors="hc1")


def test_what_cannot_be_judged_with_intercepts_of_sites_is_refused_in_a_sentence():
    X, y = rows("logistic")
    for options, sentence in (
        ({"measure": "auc"}, "measure='auc' is for models of two classes; this one, with an intercept for each site, "),
        ({"cv": "leave-one-site-out"}, "a site that is left out has no intercept"),
    ):
        with pytest.raises(ValueError, match=sentence):
            FederatedLogisticRegressionCV(site_effects="fixed", **options).fit(X, y, clients=SITE)
    # A criterion without folds leaves no site out.
    FederatedLogisticRegressionCV(site_effects="fixed", criterion="bic", cv="leave-one-site-out", n_alphas=3).fit(
        X, y, clients=SITE
    )


def test_squared_errors_of_held_out_rows_are_the_deviance_of_lassos_with_intercepts_of_sites():
    X, y = rows("lasso")
    one, other = (
        FederatedLassoCV(site_effects="fixed", measure=measure, alphas=[0.3, 0.1]).fit(X, y, clients=SITE)
        for measure in ("deviance", "mse")
    )
    assert np.array_equal(one.cv_mean_, other.cv_mean_)
