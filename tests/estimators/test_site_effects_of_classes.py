"""Intercepts of the sites' own for several classes: the model with a column for every site that is not penalised."""

import functools
import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning
from tests.sites.processes import ProcessSites
from tests.sites.secure.worlds import MaskedLink, over

from cofed.estimators import FederatedLogisticRegression, FederatedLogisticRegressionCV, load
from cofed.losses import Logistic, SiteClassIntercepts, Softmax
from cofed.losses.site_class_intercepts import potentials
from cofed.sites import Folds, MemorySites, SiteRows
from cofed.sites.policy import points
from cofed.sites.queries import InterceptsMessage, LookMessage, ProductMessage, intercepts, look, product

P, K, SIZES = 4, 3, {"a": 160, "b": 110, "c": 90, "d": 70}
N, CODE = sum(SIZES.values()), np.repeat(np.arange(4), list(SIZES.values()))
SITE = np.repeat(list(SIZES), list(SIZES.values()))
COLUMNS = (CODE[:, None] == np.arange(1, 4)).astype(float)
FACTOR = np.r_[np.ones(P), np.zeros(3)]
LOSS = SiteClassIntercepts(Softmax(K))
TERMS, POTENTIALS = eqx.filter_jit(LOSS.terms), eqx.filter_jit(potentials)


def rows_of(site):
    """The rows of a site, with means and levels of its own."""
    rng, code = np.random.default_rng(ord(site)), "abcd".index(site)
    X = rng.normal(size=(SIZES[site], P)) + 0.5 * code
    X[:, 1] = 5 * X[:, 1] + 20
    level = [[0.5, 0, 1.5], [1.5, 0.5, 0.0], [0.0, 1.0, -0.5], [0.0, 0.0, 0.0]][code]
    z = X @ [[0.8, 0, 0], [-0.1, 0.1, 0], [0, 0, 0], [0.4, -0.4, 0.2]] + level + [2, -2, 0]
    return X, np.argmax(z + rng.gumbel(size=z.shape), axis=1)


def rows():
    X, y = zip(*map(rows_of, SIZES), strict=True)
    return np.concatenate(X), np.concatenate(y)


def effects_of(model):
    """The intercepts of the sites of a model with columns, up to what is added to all classes."""
    found = model.intercept_[None] + np.vstack([np.zeros(K), model.coef_[:, P:].T])
    return found - found.mean(axis=1, keepdims=True)


def centred(effects):
    return np.array(effects) - np.mean(effects, axis=1, keepdims=True)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1.0, 10.0, 200.0]))
def test_the_loss_is_that_of_the_best_intercepts_of_every_site(seed, size):
    """One site has rows of two classes only, one of one; predictions may be nearly certain, and wrong."""
    rng, site = np.random.default_rng(seed), np.arange(24) // 8
    z, weight, y = size * rng.normal(size=(24, 2, K)), rng.uniform(0.5, 2, size=(24, 2)), np.arange(24) % 3
    y = np.where(site == 1, 2 * (y % 2), np.where(site == 2, 1, y))
    found = TERMS(*map(jnp.asarray, (z, y, weight, site)))
    assert np.asarray(found.finite).all(axis=1).tolist() == (site == 0).tolist()
    np.testing.assert_array_equal(np.asarray(found.slope)[site == 2], 0)
    for m in range(2):
        for s in range(3):
            own, there = site == s, np.unique(y[site == s])
            label = np.searchsorted(there, y[own])

            def total(a, own=own, m=m, there=there, label=label):
                at = z[own, m][:, there] + a
                return float(weight[own, m] @ (logsumexp(at, axis=1) - at[np.arange(len(label)), label]))

            best = minimize(total, np.zeros(len(there)), method="BFGS", options={"gtol": 1e-10}).fun
            value, slope = np.asarray(found.value)[own, m].sum(), np.asarray(found.slope)[own, m]
            assert value <= best + 1e-9 * (1 + abs(best))
            np.testing.assert_allclose(
                value, total(np.asarray(found.intercept)[own, m][0, there]), rtol=1e-9, atol=1e-12
            )
            assert np.abs(slope.sum(axis=0)).max() <= 1e-12 * max(np.abs(slope).max(), 1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_potentials_are_those_of_the_laplacian(seed, k):
    rng = np.random.default_rng(seed)
    wires = np.exp(5 * rng.normal(size=(k, k)))
    wires += wires.T
    laplacian = np.diag(wires.sum(axis=1) - np.diag(wires)) - wires + np.diag(np.diag(wires))
    current = laplacian @ rng.normal(size=(k, 2))
    found = np.asarray(POTENTIALS(jnp.asarray(wires), jnp.asarray(current)))
    np.testing.assert_allclose(laplacian @ found, current, rtol=1e-9, atol=1e-9 * np.abs(current).max())
    # No two neighbours are farther apart than the strongest battery: what `range_factor` rests on.
    battery = rng.uniform(-1, 1, size=(k, k))
    battery -= battery.T
    own = np.asarray(POTENTIALS(jnp.asarray(wires), jnp.asarray((wires * battery).sum(axis=1)[:, None])))[:, 0]
    assert np.diff(np.sort(own)).max() <= np.abs(battery).max() * (1 + 1e-9)


def test_what_is_no_loss_of_classes_is_refused():
    for loss in (Logistic(), Softmax()):
        with pytest.raises(TypeError, match="takes no intercepts of sites for classes"):
            SiteClassIntercepts(loss)


def asked(models, folds, seed=3):
    rng = np.random.default_rng(seed)
    return LookMessage(
        coef=0.2 * rng.normal(size=(models, P, K)),
        intercept=np.zeros((models, K)),
        without=rng.integers(-1, 2, models).astype(np.int32) if folds else np.full(models, -1, np.int32),
        closer=np.array([1], np.int32),
        where=np.arange(P * K, dtype=np.int32)[None],
        folds=folds,
        loss=LOSS,
    )


def test_answers_are_derivatives_and_rows_times_what_the_policy_judges():
    X, y = rows_of("a")
    X, folds = X - X.mean(axis=0), Folds(2)
    sites = MemorySites(SiteRows.of_sites(("a",), [X], [y.astype(np.int32)]))
    message = asked(4, folds)
    found, own = sites.ask(look, message), points.multipliers(message, X, y, sites.rows.folds(folds))
    np.testing.assert_allclose(X.T @ own[:, : 4 * K], np.moveaxis(found.gradient, 0, 1).reshape(P, -1), atol=1e-10)
    assert own.shape[1] == points.count_points(message) == 4 * K + K * (K + 1) // 2
    whole = sites.ask(look, asked(4, None))
    at = asked(4, None).coef[1]
    bent = ProductMessage(at, np.zeros(K), np.eye(P * K).reshape(-1, P, K), np.zeros((P * K, K)), loss=LOSS)
    hessian = np.asarray(sites.ask(product, bent).coef).reshape(P * K, P * K)
    np.testing.assert_allclose(hessian[np.triu_indices(P * K)], whole.hessian[0], rtol=1e-11, atol=1e-11)
    told = X.T @ points.multipliers(bent, X, y, np.zeros(len(X)))
    np.testing.assert_allclose(np.moveaxis(told.reshape(P, P * K, K), 1, 0).reshape(P * K, -1), hessian, atol=1e-10)
    step = 1e-6
    near = asked(2 * P * K, None)
    moved = at + step * np.vstack([np.eye(P * K), -np.eye(P * K)]).reshape(-1, P, K)
    seen = sites.ask(look, eqx.tree_at(lambda m: m.coef, near, moved))
    up, down = np.split(np.asarray(seen.gradient).reshape(-1, P * K), 2)
    np.testing.assert_allclose(hessian, (up - down) / (2 * step), rtol=1e-5, atol=1e-5)
    loss = np.asarray(seen.loss)
    gradient = (loss[: P * K] - loss[P * K :]) / (2 * step)
    np.testing.assert_allclose(np.ravel(whole.gradient[1]), gradient, rtol=1e-5, atol=1e-5)


def test_the_third_derivative_is_within_the_range_times_the_number_of_classes():
    X, y = rows_of("b")
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    sites = MemorySites(SiteRows.of_sites(("b",), [X], [y.astype(np.int32)]))
    rng, step, most = np.random.default_rng(0), 1e-4, 0.0
    for _ in range(20):
        d = rng.normal(size=(P, K)) * rng.choice([0.1, 1.0, 3.0])
        at = rng.normal(size=(P, K)) * rng.choice([0.1, 1.0, 3.0])
        second = []
        for t in (-step, 0.0, step):
            message = ProductMessage(at + t * d, np.zeros(K), d[None], np.zeros((1, K)), loss=LOSS)
            second.append(float(np.sum(np.asarray(sites.ask(product, message).coef)[0] * d)))
        third = abs(second[2] - second[0]) / (2 * step)
        widest = np.ptp(X @ d, axis=1).max()
        most = max(most, third / (widest * second[1]))
    assert 0.01 < most <= LOSS.range_factor


def test_it_is_the_model_with_a_column_for_every_site(tmp_path):
    X, y = rows()
    model = FederatedLogisticRegression(0.03, site_effects="fixed").fit(X, y, clients=SITE)
    other = FederatedLogisticRegression(0.03, penalty_factor=FACTOR).fit(np.hstack([X, COLUMNS]), y)
    assert model.certificate_.converged
    assert 0 < np.count_nonzero(model.coef_) < P * K
    np.testing.assert_allclose(model.coef_, other.coef_[:, :P], rtol=1e-8, atol=1e-10)
    effects = list(model.site_effects_.values())
    np.testing.assert_allclose(centred(effects), effects_of(other), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(model.intercept_, np.average(effects, axis=0, weights=list(SIZES.values())), rtol=1e-9)
    np.testing.assert_allclose(model.certificate_.objective, other.certificate_.objective, rtol=1e-12)
    theirs = other.predict_proba(np.hstack([X, COLUMNS]))
    np.testing.assert_allclose(model.predict_proba(X, clients=SITE), theirs, atol=1e-9)
    np.testing.assert_array_equal(model.predict(X, clients=SITE), theirs.argmax(axis=1))
    assert "shown above is their mean" in model.summary()
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict_proba(X, clients=SITE), model.predict_proba(X, clients=SITE))
    # Maximum likelihood, and its standard errors, by statsmodels.
    table = model.infer(X, y, clients=SITE)
    pooled = sm.MNLogit(y, sm.add_constant(np.hstack([X, COLUMNS]))).fit(method="newton", tol=1e-14, disp=0)
    np.testing.assert_allclose(table["debiased"], np.ravel(pooled.params[1 : P + 1]), rtol=1e-6)
    np.testing.assert_allclose(table["se"], np.ravel(pooled.bse[1 : P + 1]), rtol=1e-5)


def test_a_site_that_lacks_a_class_tells_of_the_others_and_has_no_intercepts():
    """By the conditions of optimality of rows whose classes are those of their site."""
    X, y = rows()
    y = np.where((SITE == "b") & (y == 2), 0, np.where(SITE == "d", 1, y))
    alpha = 0.03
    model = FederatedLogisticRegression(alpha, standardize=False, site_effects="fixed").fit(X, y, clients=SITE)
    assert model.certificate_.outcome != "not converged"
    slope = np.zeros((N, K))
    for s in "abc":
        own, there = s == SITE, np.unique(y[s == SITE])
        scores, hot = (X[own] @ model.coef_.T)[:, there], y[own][:, None] == there

        def best(a, scores=scores, hot=hot):
            p = softmax(scores + a, axis=1)
            return -np.sum(np.log(p[hot])), np.sum(p - hot, axis=0)

        a = minimize(best, np.zeros(len(there)), jac=True, method="BFGS", options={"gtol": 1e-11}).x
        slope[np.ix_(own, there)] = softmax(scores + a, axis=1) - hot
    pull = -(slope.T @ X) / N
    used = model.coef_ != 0
    assert used.any()
    assert not used.all()
    np.testing.assert_allclose(pull[used], alpha * np.sign(model.coef_[used]), rtol=1e-6)
    assert np.abs(pull[~used]).max() <= alpha * (1 + 1e-6)
    known = {name: not np.isnan(own).any() for name, own in model.site_effects_.items()}
    assert known == {"a": True, "b": False, "c": True, "d": False}
    mean = np.average([model.site_effects_[s] for s in "ac"], axis=0, weights=[160, 90])
    np.testing.assert_allclose(model.intercept_, mean, rtol=1e-9)
    with pytest.raises(ValueError, match="the labels of 'b' lack a class, which tell no intercept"):
        model.predict(X, clients=SITE)


def test_held_out_rows_of_a_class_that_was_not_learnt_are_judged_by_all_rows_of_the_site():
    z, site, y = jnp.asarray(np.random.default_rng(0).normal(size=(6, 1, K))), jnp.zeros(6, int), jnp.arange(6) % 3
    rows, own = jnp.ones((6, 1)), jnp.array([[1.0], [1], [0], [1], [1], [0]])  # the last class is held out
    found = LOSS.terms(z, y, rows, site)
    whole = np.asarray(found.value)[[2, 5]].sum()
    np.testing.assert_allclose(LOSS.held(z, y, (own, rows - own), site), [whole], rtol=1e-12)
    own = own.at[2].set(1.0)  # and now only one row
    a = LOSS.terms(z, y, own, site).intercept[0, 0]
    alone = float(Softmax(K)(z[5, 0] + a, y[5]))
    np.testing.assert_allclose(LOSS.held(z, y, (own, rows - own), site), [alone], rtol=1e-12)
    assert abs(whole / 2 - alone) > 1e-3


@pytest.mark.slow
def test_paths_and_folds_are_those_of_columns():
    X, y = rows()
    given = {"n_alphas": 6, "cv": 3}
    model = FederatedLogisticRegressionCV(**given, site_effects="fixed").fit(X, y, clients=SITE)
    other = FederatedLogisticRegressionCV(**given, penalty_factor=FACTOR)
    with warnings.catch_warnings():  # where columns are not penalised, some models without a fold have a poor bound
        warnings.simplefilter("ignore", ConvergenceWarning)
        other.fit(np.hstack([X, COLUMNS]), y, clients=SITE)
    np.testing.assert_allclose(model.alphas_, other.alphas_, rtol=1e-6)
    same = FederatedLogisticRegressionCV(alphas=other.alphas_, cv=3, site_effects="fixed").fit(X, y, clients=SITE)
    np.testing.assert_allclose(same.path_.coefs, other.path_.coefs[..., :P], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(same.cv_mean_, other.cv_mean_, rtol=1e-4)
    assert same.path_.converged.all()
    means = other.path_.intercepts + np.einsum("akp,p->ak", other.path_.coefs[..., P:], COLUMNS.mean(axis=0))
    np.testing.assert_allclose(centred(same.path_.intercepts), centred(means), rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_groups_of_features_over_all_classes():
    X, y = rows()
    given = {"penalty": "group", "standardize": False, "site_effects": "fixed"}
    model = FederatedLogisticRegression(0.06, **given).fit(X, y, clients=SITE)
    assert model.certificate_.converged
    effects = np.array([model.site_effects_[s] for s in SITE])
    pull = -((softmax(X @ model.coef_.T + effects, axis=1) - np.eye(K)[y]).T @ X) / N
    most, length = 0.06 * np.sqrt(K), np.linalg.norm(model.coef_, axis=0)
    assert 0 < np.count_nonzero(length) < P
    for j in range(P):
        if length[j]:
            np.testing.assert_allclose(pull[:, j], most * model.coef_[:, j] / length[j], rtol=1e-5, atol=1e-9)
        else:
            assert np.linalg.norm(pull[:, j]) <= most * (1 + 1e-9)


def test_rows_in_other_processes_and_masked_ones():
    X, y = rows()
    near = FederatedLogisticRegression(0.03, site_effects="fixed").fit(X, y, clients=SITE)
    sites = ProcessSites({site: functools.partial(rows_of, site) for site in SIZES})
    try:
        away = FederatedLogisticRegression(0.03, site_effects="fixed").fit(sites)
    finally:
        sites.close()
    np.testing.assert_allclose(away.coef_, near.coef_, rtol=0, atol=1e-11)
    np.testing.assert_allclose(away.intercept_, near.intercept_, rtol=0, atol=1e-10)
    assert [one.what for one in away.exchanges_] == [one.what for one in near.exchanges_]
    names = [f"x{j}" for j in range(P)]
    tables = {s: pd.DataFrame(X[s == SITE], columns=names).assign(kind=y[s == SITE]) for s in SIZES}
    far = FederatedLogisticRegression(0.03, site_effects="fixed").fit(over(MaskedLink(tables), target="kind"))
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(far.intercept_, near.intercept_, rtol=0, atol=1e-8)
    assert far.site_effects_ is None
    with pytest.raises(ValueError, match="own intercepts are not known"):
        far.predict(pd.DataFrame(X, columns=names), clients=SITE)


def test_a_question_for_intercepts_is_about_models_of_as_many_classes():
    X, y = rows_of("a")
    sites = MemorySites(SiteRows.of_sites(("a",), [X], [y.astype(np.int32)]))
    with pytest.raises(
        ValueError, match=r"coefficients of the shape \(1, 4\), and the question is about ones of \(1, 4, 3\)"
    ):
        sites.ask(intercepts, InterceptsMessage(np.zeros((1, P)), loss=LOSS))
