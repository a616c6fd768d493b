"""Factors of the penalty, features left out, and limits: conditions of optimality on pooled rows, and certificates."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from tests.estimators import hospitals

from cofed import Privacy
from cofed.estimators import (
    FederatedLasso,
    FederatedLassoCV,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
    FederatedPoisson,
)
from cofed.sites import sites_of_frame

SITES, P = hospitals.SITES, hospitals.P
MEANS = {"linear": lambda z: z, "logistic": expit, "counts": np.exp}
MODELS = {"linear": FederatedLasso, "logistic": FederatedLogisticRegression, "counts": FederatedPoisson}
FACTOR = np.array([1.0, 0.0, 1.0, 2.0, 1.0, 0.5])


def rows(kind, seed=0):
    if kind == "linear":
        return hospitals.linear(seed)
    X, y = hospitals.counts(seed) if kind == "counts" else hospitals.classes(2, seed)
    return X, y if kind == "counts" else (y == "b").astype(int)


def violation(kind, coef, intercept, alpha, factor, low, high, seed=0):
    """How far the conditions of optimality are from holding, for a penalty of standardised features."""
    X, y = rows(kind, seed)
    pull = -X.T @ (MEANS[kind](X @ coef + intercept) - y) / len(y)
    level = alpha * factor * X.std(axis=0)
    least = np.where(coef <= 0, -level, level)
    most = np.where(coef >= 0, level, -level)
    least, most = np.where(coef <= low + 1e-12, -np.inf, least), np.where(coef >= high - 1e-12, np.inf, most)
    return max(float((least - pull).max()), float((pull - most).max()))


OPTIONS = {
    "factors": ({"penalty_factor": FACTOR}, FACTOR, -np.inf, np.inf),
    "factors by name": ({"penalty_factor": {"x1": 0, "x3": 2, "x5": 0.5}}, FACTOR, -np.inf, np.inf),
    "not negative": ({"low": 0.0}, np.ones(P), 0.0, np.inf),
    "limits": (
        {"low": -0.1, "high": {2: 0.0, "x0": 0.05}},
        np.ones(P),
        -0.1,
        np.array([0.05, np.inf, 0, *[np.inf] * 3]),
    ),
    "both": ({"penalty_factor": FACTOR, "low": 0.0}, FACTOR, 0.0, np.inf),
}
SLOW = [
    pytest.param(name, kind, marks=[] if kind == "linear" else pytest.mark.slow) for name in OPTIONS for kind in MODELS
]


@pytest.mark.parametrize(("name", "kind"), SLOW)
def test_fits_are_optimal_on_the_pooled_rows(name, kind):
    (options, factor, low, high), (X, y) = OPTIONS[name], rows(kind)
    alpha = {"linear": 0.1, "logistic": 0.02, "counts": 0.05}[kind]
    model = MODELS[kind](alpha, **options).fit(X, y, SITES)
    assert model.certificate_.outcome != "not converged"
    coef = np.ravel(model.coef_)
    assert violation(kind, coef, np.ravel(model.intercept_)[0], alpha, factor, low, high) < 1e-9
    assert ((coef >= low - 1e-15) & (coef <= high + 1e-15)).all()


@pytest.mark.parametrize("name", ["factors", "limits", "both"])
@pytest.mark.parametrize("kind", ["linear", pytest.param("logistic", marks=pytest.mark.slow)])
def test_paths_are_optimal_and_begin_where_penalised_features_are_unused(name, kind):
    (options, factor, low, high), (X, y) = OPTIONS[name], rows(kind)
    estimator = {"linear": FederatedLassoCV, "logistic": FederatedLogisticRegressionCV}[kind]
    model = estimator(n_alphas=6, eps=0.01, cv=3, **options).fit(X, y, SITES)
    path = model.path_
    assert path.converged.all()
    assert not np.reshape(path.coefs[0], -1)[factor > 0].any()
    assert np.reshape(path.coefs[1], -1)[factor > 0].any()
    for alpha, coef, intercept in zip(path.alphas, path.coefs, path.intercepts, strict=True):
        found = violation(kind, np.ravel(coef), np.ravel(intercept)[0], alpha, factor, low, high)
        assert found < 1e-8
    assert np.isfinite(model.cv_mean_).all()


def test_what_is_excluded_might_as_well_not_be_there():
    X, y = hospitals.linear()
    model = FederatedLasso(0.05, exclude=["x2", 4]).fit(X, y, SITES)
    others = [0, 1, 3, 5]
    alone = FederatedLasso(0.05).fit(X[:, others], y, SITES)
    np.testing.assert_allclose(model.coef_[others], alone.coef_, atol=1e-9)
    assert not model.coef_[[2, 4]].any()
    table = model.infer(X, y, SITES)
    assert table.index.tolist() == ["x0", "x1", "x3", "x5"]
    fit = sm.OLS(y, sm.add_constant(X[:, others])).fit()
    np.testing.assert_allclose(table.se, fit.bse[1:], rtol=1e-6)
    with pytest.raises(ValueError, match="'x2' is left out of the model"):
        model.infer(X, y, SITES, coefficients=["x2"])


def test_a_column_of_tables_stands_for_all_its_features():
    X, y = hospitals.linear()
    ward = np.random.default_rng(3).choice(["north", "south", "west"], len(X))
    table = pd.DataFrame({"age": X[:, 0], "ward": ward, "dose": X[:, 2], "cost": y, "site": SITES})
    model = FederatedLasso(0.2, exclude=["ward"], penalty_factor={"dose": 0.0}).fit(
        sites_of_frame(table, "cost", "site")
    )
    other = FederatedLasso(0.2, penalty_factor=[1.0, 0.0]).fit(X[:, [0, 2]], y, SITES)
    np.testing.assert_allclose(model.coef_, [other.coef_[0], 0, 0, other.coef_[1]], atol=1e-9)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(list(MODELS)), st.floats(0.05, 0.9))
def test_a_certificate_with_factors_and_limits_is_never_below_the_truth(seed, kind, part):
    rng = np.random.default_rng(seed)
    X, y = rows(kind, seed % 5)
    factor = rng.choice([0.5, 1.0, 3.0], P)
    low, high = -rng.choice([0.0, 0.05, np.inf], P), rng.choice([0.0, 0.05, np.inf], P)
    options = {"penalty_factor": factor, "low": low, "high": high}
    top = MODELS[kind](**options).path(X, y, SITES, n_alphas=2).alphas[0]
    fits = [MODELS[kind](part * top, tol=tol, **options).fit(X, y, SITES) for tol in (1e-12, 1e-3, 0.5)]
    best = min(one.certificate_.objective for one in fits)
    for one in fits:
        seen = one.certificate_
        assert seen.objective - best <= seen.gap + seen.rounding + 1e-12 * seen.scale
    sharp = fits[0]
    assert sharp.certificate_.outcome != "not converged"
    coef = np.ravel(sharp.coef_)
    assert violation(kind, coef, np.ravel(sharp.intercept_)[0], part * top, factor, low, high, seed % 5) < 1e-8


def test_options_are_refused_where_they_cannot_apply():
    X, y = hospitals.linear()
    with pytest.raises(ValueError, match="there are no intervals for coefficients with limits"):
        FederatedLasso(0.1, low=0.0).fit(X, y, SITES).infer(X, y, SITES)
    with pytest.raises(ValueError, match="penalty_factor has 'x9', which is no feature; they are 'x0'"):
        FederatedLasso(penalty_factor={"x9": 0.0}).fit(X, y, SITES)
    with pytest.raises(ValueError, match="exclude leaves no feature"):
        FederatedLasso(exclude=list(range(P))).fit(X, y, SITES)
    with pytest.raises(ValueError, match="low must be at most 0 and high at least 0"):
        FederatedLasso(low=0.5).fit(X, y, SITES)
    with pytest.raises(ValueError, match="with privacy there are no factors of the penalty"):
        FederatedLasso(low=0.0, privacy=Privacy(epsilon=1.0)).fit(X, y, SITES)
    with pytest.raises(ValueError, match="low is for the penalties l1 and elasticnet: coefficients that are in"):
        FederatedLogisticRegression(penalty="group", low=0.0).fit(X, y > 0, SITES)


def test_a_feature_that_is_named_twice_is_refused():
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match=r"penalty_factor has the feature 'x0' twice"):
        FederatedLasso(penalty_factor={"x0": 0.0, 0: 2.0}).fit(X, X[:, 0])
