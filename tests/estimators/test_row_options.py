"""Weights, offsets and weights of classes: the pooled answers of independent solvers, and certificates that hold."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, xlogy
from sklearn.linear_model import ElasticNet, PoissonRegressor
from tests.estimators import hospitals

from cofed import Privacy
from cofed.estimators import (
    FederatedElasticNet,
    FederatedLasso,
    FederatedLassoCV,
    FederatedLogisticRegression,
    FederatedPoisson,
    FederatedPoissonCV,
    load,
)
from cofed.sites import Folds, sites_of_frame

N, SITES = len(hospitals.SITES), hospitals.SITES
RNG = np.random.default_rng(7)
WEIGHT = np.where(np.arange(N) % 11 == 0, 0.0, RNG.exponential(size=N) * 10)
OFFSET = np.log(RNG.uniform(0.5, 20, N))
MEANS = {"linear": lambda z: z, "logistic": expit, "counts": np.exp}


def losses(kind, z, y):
    """The rows' losses."""
    if kind == "linear":
        return (y - z) ** 2 / 2
    return np.logaddexp(0, z) - y * z if kind == "logistic" else np.exp(z) - y * z


def rows(kind, seed=0):
    if kind == "linear":
        return hospitals.linear(seed)
    if kind == "counts":
        X, _ = hospitals.counts(seed)
        return X, np.random.default_rng(seed).poisson(np.exp(0.3 * X[:, 0] - 0.2 * X[:, 2] + OFFSET))
    X, y = hospitals.classes(2, seed)
    return X, (y == "b").astype(int)


MODELS = {"linear": FederatedLasso, "logistic": FederatedLogisticRegression, "counts": FederatedPoisson}


def is_optimal(kind, model, X, y, alpha, weight, offset):
    """Whether the conditions of optimality hold for a lasso of features as they are."""
    coef = np.ravel(model.coef_)
    z = X @ coef + float(np.ravel(model.intercept_)[0]) + offset
    pull = weight * (MEANS[kind](z) - y) / weight.sum()
    gradient = X.T @ pull
    used = coef != 0
    np.testing.assert_allclose(gradient[used], -alpha * np.sign(coef[used]), atol=1e-7)
    assert (np.abs(gradient[~used]) <= alpha + 1e-7).all()
    np.testing.assert_allclose(pull.sum(), 0, atol=1e-7)
    assert 0 < used.sum() < len(coef)


@pytest.mark.parametrize("kind", ["linear", "counts", pytest.param("logistic", marks=pytest.mark.slow)])
def test_fits_with_weights_and_offsets_are_optimal_on_the_pooled_rows(kind):
    (X, y), alpha = rows(kind), {"linear": 0.3, "logistic": 0.06, "counts": 1.5}[kind]
    given = {"clients": SITES, "sample_weight": WEIGHT, "offset": OFFSET}
    model = MODELS[kind](alpha, standardize=False).fit(X, y, **given)
    assert model.certificate_.outcome != "not converged"
    is_optimal(kind, model, X, y, alpha, WEIGHT, OFFSET)
    z = X @ np.ravel(model.coef_) + np.ravel(model.intercept_)[0] + OFFSET
    value = WEIGHT @ losses(kind, z, y) / WEIGHT.sum() + alpha * np.abs(model.coef_).sum()
    assert model.certificate_.objective == pytest.approx(value, rel=1e-9)
    shown = model.decision_function(X, OFFSET) if kind == "logistic" else model.predict(X, OFFSET)
    np.testing.assert_allclose(shown, np.exp(z) if kind == "counts" else z)
    with pytest.raises(ValueError, match="was fitted with an offset, and predicts with one"):
        model.predict(X)


def test_scikit_learn_has_the_same_weighted_fits():
    X, y = hospitals.linear()
    ours = FederatedElasticNet(0.1, l1_ratio=0.7, standardize=False).fit(X, y, SITES, WEIGHT)
    theirs = ElasticNet(0.1, l1_ratio=0.7, tol=1e-14, max_iter=10**6).fit(X, y, sample_weight=WEIGHT)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-9)
    X, y = rows("counts")
    exposed = WEIGHT * np.exp(OFFSET)  # a rate with the exposure as its weight is a count with an offset
    strength = 0.5 * WEIGHT.sum() / exposed.sum()
    ours = FederatedPoisson(0.5, l1_ratio=0.0, standardize=False).fit(X, y, SITES, WEIGHT, OFFSET)
    theirs = PoissonRegressor(alpha=strength, tol=1e-12, max_iter=10**5, solver="newton-cholesky")
    theirs.fit(X, y / np.exp(OFFSET), sample_weight=exposed)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-8)


@pytest.mark.parametrize("kind", ["linear", pytest.param("logistic", marks=pytest.mark.slow)])
def test_weights_are_repetitions_and_0_leaves_out(kind):
    X, y = rows(kind)
    times = RNG.integers(0, 3, N)
    again = np.repeat(np.arange(N), times)
    alpha = 0.02
    ours = MODELS[kind](alpha).fit(X, y, SITES, times)
    theirs = MODELS[kind](alpha).fit(X[again], y[again], SITES[again])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-9)
    assert sum(ours.client_sizes_) == np.count_nonzero(times)
    np.testing.assert_allclose(MODELS[kind](alpha).fit(X, y, SITES, 1e6 * times).coef_, ours.coef_, atol=1e-9)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(list(MODELS)), st.floats(0.02, 0.9), st.booleans())
def test_a_certificate_with_weights_and_offsets_is_never_below_the_truth(seed, kind, part, intercept):
    X, y = rows(kind, seed % 7)
    rng = np.random.default_rng(seed)
    weight, offset = rng.exponential(size=N) ** 3, rng.normal(size=N)
    given = {"clients": SITES, "sample_weight": weight, "offset": offset}
    top = MODELS[kind](fit_intercept=intercept).path(X, y, **given, n_alphas=2).alphas[0]
    fits = [MODELS[kind](part * top, fit_intercept=intercept, tol=tol).fit(X, y, **given) for tol in (1e-12, 1e-3, 0.5)]
    best = min(one.certificate_.objective for one in fits)
    scale = np.sqrt(np.average((X - np.average(X, axis=0, weights=weight)) ** 2, axis=0, weights=weight))
    for one in fits:
        coef, seen = np.ravel(one.coef_), one.certificate_
        z = X @ coef + np.ravel(one.intercept_)[0] + offset
        value = np.average(losses(kind, z, y), weights=weight) + part * top * np.abs(coef * scale).sum()
        assert seen.objective == pytest.approx(value, rel=1e-8, abs=1e-8 * seen.scale)
        assert value - best <= seen.gap + seen.rounding + 1e-12 * seen.scale
    assert fits[0].certificate_.outcome != "not converged"


@pytest.mark.slow
def test_cross_validation_weighs_held_out_rows_and_adds_their_offsets():
    X, y = rows("counts")
    given = {"clients": SITES, "sample_weight": WEIGHT, "offset": OFFSET}
    model = FederatedPoissonCV(alphas=[2.0, 0.5, 0.1], cv=3).fit(X, y, **given)
    kept = np.flatnonzero(WEIGHT > 0)
    fold = np.empty(N, int)
    for site in set(SITES):
        own = kept[SITES[kept] == site]
        fold[own] = Folds(3).of_rows(site, y[own], None)
    total = np.zeros(3)
    for k in range(3):
        learn, held = kept[fold[kept] != k], kept[fold[kept] == k]
        for i, alpha in enumerate(model.alphas_):
            one = FederatedPoisson(alpha).fit(X[learn], y[learn], SITES[learn], WEIGHT[learn], OFFSET[learn])
            mean = one.predict(X[held], OFFSET[held])
            total[i] += WEIGHT[held] @ (2 * (xlogy(y[held], y[held] / mean) - y[held] + mean))
    np.testing.assert_allclose(model.cv_mean_, total / WEIGHT.sum(), rtol=1e-4)
    assert model.path_.weight == pytest.approx(WEIGHT.sum())


def test_intervals_with_weights_and_offsets_are_those_of_statsmodels():
    X, y = hospitals.linear()
    A, used = sm.add_constant(X), WEIGHT > 0
    given = {"sample_weight": WEIGHT, "offset": OFFSET}
    model = FederatedLasso(0.1).fit(X, y, SITES, **given)
    wls = sm.WLS((y - OFFSET)[used], A[used], weights=WEIGHT[used])
    for errors, how in (("model", {}), ("hc1", {"cov_type": "HC1"}), ("hc3", {"cov_type": "HC3"})):
        table, theirs = model.infer(X, y, SITES, **given, errors=errors), wls.fit(**how)
        np.testing.assert_allclose(table.debiased, theirs.params[1:], rtol=1e-7)
        np.testing.assert_allclose(table.se, theirs.bse[1:], rtol=1e-7)
    X, y = rows("counts")
    model = FederatedPoisson(0.1).fit(X, y, SITES, **given)
    glm = sm.GLM(y[used], A[used], family=sm.families.Poisson(), offset=OFFSET[used], var_weights=WEIGHT[used])
    table, theirs = model.infer(X, y, SITES, **given), glm.fit(tol=1e-12)
    np.testing.assert_allclose(table.debiased, theirs.params[1:], rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(table.se, theirs.bse[1:], rtol=1e-5)
    with pytest.raises(ValueError, match="infer needs the rows of the fit"):
        model.infer(X, y, SITES, sample_weight=WEIGHT)


def test_columns_of_tables_are_weights_and_offsets(tmp_path):
    X, y = rows("counts")
    table = pd.DataFrame(X, columns=list("abcdef")).assign(n=WEIGHT, log_time=OFFSET, events=y, site=SITES)
    named = {"sample_weight": "n", "offset": "log_time"}
    by_arrays = FederatedPoisson(0.2).fit(X, y, SITES, WEIGHT, OFFSET)
    by_frame = FederatedPoisson(0.2).fit(table.drop(columns="events"), y, "site", **named)
    sites = sites_of_frame(table, "events", "site")
    by_sites = FederatedPoisson(0.2).fit(sites, **named)
    for model in (by_frame, by_sites):
        assert model.feature_names_in_.tolist() == list("abcdef")
        np.testing.assert_allclose(model.coef_, by_arrays.coef_, atol=1e-12)
    rows_of = table.drop(columns=["events", "site"])
    np.testing.assert_allclose(by_frame.predict(rows_of, "log_time"), by_arrays.predict(X, OFFSET))
    np.testing.assert_allclose(by_sites.predict(table, "log_time"), by_arrays.predict(X, OFFSET))
    with pytest.raises(ValueError, match="beside offsets there is no constant to compare with, and no score"):
        by_sites.score(sites)
    by_frame.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.predict(rows_of, "log_time"), by_arrays.predict(X, OFFSET))
    before = len(sites.exchanges)
    found = by_sites.infer(sites, **named)
    assert {one.what for one in sites.exchanges[before:]} == {"look"}
    np.testing.assert_allclose(found.se, by_arrays.infer(X, y, SITES, sample_weight=WEIGHT, offset=OFFSET).se)
    with pytest.raises(ValueError, match="infer needs the rows of the fit"):
        by_sites.infer(sites, sample_weight="n")
    with pytest.raises(ValueError, match="site 'Bern', column 'n' must hold weights >= 0, but is below 0 in 22 rows"):
        FederatedPoisson().fit(sites_of_frame(table.assign(n=-1.0 - np.arange(N)), "events", "site"), sample_weight="n")


@pytest.mark.slow
def test_weights_of_classes_are_weights_of_rows():
    X, y = hospitals.classes(3)
    counts = pd.Series(y).map(pd.Series(y).value_counts()).to_numpy()
    balanced = FederatedLogisticRegression(class_weight="balanced").fit(X, y, SITES)
    by_rows = FederatedLogisticRegression().fit(X, y, SITES, N / (3 * counts))
    np.testing.assert_allclose(balanced.coef_, by_rows.coef_, atol=1e-9)
    assert balanced.n_rounds_ == by_rows.n_rounds_ + 1
    given = FederatedLogisticRegression(class_weight={"a": 2.5}).fit(X, y, SITES)
    by_rows = FederatedLogisticRegression().fit(X, y, SITES, np.where(y == "a", 2.5, 1.0))
    np.testing.assert_allclose(given.coef_, by_rows.coef_, atol=1e-9)
    with pytest.raises(ValueError, match="class_weight has 'z', but the classes are 'a', 'b', 'c'"):
        FederatedLogisticRegression(class_weight={"z": 1.0}).fit(X, y, SITES)


@pytest.mark.slow
def test_robust_intervals_know_weights_of_classes(tmp_path):
    X, y = rows("logistic")
    model = FederatedLogisticRegression(class_weight={0: 3.0}).fit(X[:, :1], y, SITES)
    with pytest.raises(ValueError, match="with class_weight the model does not know the variances"):
        model.infer(X[:, :1], y, SITES)
    table = model.infer(X[:, :1], y, SITES, errors="hc1")
    glm = sm.GLM(y, sm.add_constant(X[:, :1]), family=sm.families.Binomial(), freq_weights=np.where(y == 0, 3.0, 1.0))
    theirs = glm.fit(tol=1e-12)
    A, slope = sm.add_constant(X[:, :1]), np.where(y == 0, 3.0, 1.0) * (theirs.mu - y)
    V = np.linalg.inv(A.T @ (A * (np.where(y == 0, 3.0, 1.0) * theirs.mu * (1 - theirs.mu))[:, None]))
    robust = V @ (A.T @ (A * slope[:, None] ** 2)) @ V * N / (N - 2)
    np.testing.assert_allclose(table.debiased, theirs.params[1:], rtol=1e-5)
    np.testing.assert_allclose(table.se, np.sqrt(np.diag(robust))[1:], rtol=1e-5)
    model.save(tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").class_weight == {0: 3.0}


LIST = [1.0] * N
BAD = [
    ({"sample_weight": LIST[1:]}, "sample_weight must be one number per row: 60 rows, 59 numbers"),
    ({"sample_weight": [0.0] * N}, "sample_weight must be above 0 for some rows, but all are zero"),
    ({"sample_weight": [-1.0, *LIST[1:]]}, "sample_weight must be >= 0, but 1 of 60 are below"),
    ({"sample_weight": [np.nan, *LIST[1:]]}, "sample_weight must be finite numbers, but 1 of 60 are not"),
    ({"sample_weight": [1e300, *LIST[1:]]}, "sample_weight must be 0 or between 1e-100 and 1e\\+100"),
    ({"sample_weight": "w"}, "sample_weight='w' must name a column of a pandas X, or be one number per row"),
    ({"sample_weight": ["a"] * N}, "sample_weight must be one number per row, got "),
    ({"offset": np.ones((N, 2))}, r"offset must be one number per row, got 2 columns"),
    ({"offset": [np.inf, *LIST[1:]]}, "offset must be finite numbers, but 1 of 60 are not"),
    ({"sample_weight": np.ones(N).astype("m8[D]")}, "sample_weight must be numbers, got timedelta64"),
    ({"offset": pd.Series(np.ones(N).astype("m8[s]"))}, "offset must be numbers, got timedelta64"),
]


@pytest.mark.parametrize(("options", "sentence"), BAD)
def test_what_is_no_weight_or_offset_is_refused(options, sentence):
    X, y = hospitals.linear()
    with pytest.raises(ValueError, match=f"FederatedLasso: {sentence}"):
        FederatedLasso().fit(X, y, SITES, **options)


def test_options_are_refused_where_they_cannot_apply():
    X, y = hospitals.classes(3)
    with pytest.raises(ValueError, match="an offset is for two classes, and there are 3"):
        FederatedLogisticRegression().fit(X, y, SITES, offset=OFFSET)
    with pytest.raises(ValueError, match="no row of the class 'a' counts"):
        FederatedLogisticRegression().fit(X, y, SITES, np.where(y == "a", 0.0, 1.0))
    X, y = hospitals.linear()
    private = Privacy(epsilon=1.0)
    with pytest.raises(ValueError, match="with privacy there are no weights and offsets"):
        FederatedLassoCV(privacy=private).fit(X, y, SITES, WEIGHT)
    with pytest.raises(ValueError, match="FedDecouple takes rows without weights and offsets"):
        FederatedLasso(algorithm="decouple").fit(X, y, SITES, WEIGHT)
    model = FederatedLasso().fit(X, y, SITES)
    with pytest.raises(ValueError, match="was fitted without an offset, and predicts without one"):
        model.predict(X, OFFSET)
    frame = pd.DataFrame({"x": X[:, 0], "y": y, "site": SITES})
    sites = sites_of_frame(frame, "y", "site")
    with pytest.raises(ValueError, match="sample_weight of sites is the name of a column of their tables"):
        FederatedLasso().fit(sites, sample_weight=LIST)
    with pytest.raises(ValueError, match="no column is left to learn from"):
        FederatedLasso().fit(sites, sample_weight="x")
    with pytest.raises(ValueError, match="the target 'y' can be neither a weight nor an offset"):
        FederatedLasso().fit(sites, offset="y")
    with pytest.raises(ValueError, match="site 'Bern' has no column 'w'"):
        FederatedLasso().fit(sites, sample_weight="w")
