"""Paths, cross-validation, inference, summaries, files."""

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.linear_model import Lasso, enet_path
from sklearn.preprocessing import StandardScaler
from tests.estimators import hospitals

from cofed.estimators import (
    FederatedConstrained,
    FederatedElasticNet,
    FederatedElasticNetCV,
    FederatedGroupLasso,
    FederatedGroupLassoCV,
    FederatedLasso,
    FederatedLassoCV,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
    load,
)
from cofed.losses import Logistic, Poisson, Softmax, Squared
from cofed.sites import Folds

SITES = hospitals.SITES


@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_a_path_is_that_of_the_pooled_rows_from_one_exchange(ratio):
    X, y = hospitals.linear()
    path = FederatedElasticNet(l1_ratio=ratio).path(X, y, SITES, n_alphas=12)
    Z = StandardScaler().fit_transform(X)
    alphas, coefs, _ = enet_path(Z, y - y.mean(), l1_ratio=ratio, alphas=path.alphas, tol=1e-14, max_iter=10**6)
    np.testing.assert_allclose(path.alphas, alphas)
    np.testing.assert_allclose(path.coefs * X.std(axis=0), coefs.T, atol=1e-7)
    assert path.nonzero[0] == 0 < path.nonzero[1]
    assert path.converged.all()
    assert path.n_rounds == 2


def test_a_path_of_a_logistic_model_ends_where_a_fit_does():
    X, y = hospitals.classes()
    path = FederatedLogisticRegression().path(X, y, SITES, n_alphas=5, eps=0.05)
    last = FederatedLogisticRegression(path.alphas[-1]).fit(X, y, clients=SITES)
    np.testing.assert_allclose(path.coefs[-1], last.coef_, atol=1e-7)
    assert path.nonzero[0] == 0
    assert np.all(np.diff(path.deviance) < 0)


def test_a_path_of_groups_and_no_path_without_a_strength():
    X, y = hospitals.linear()
    path = FederatedGroupLasso(groups=[0, 0, 1, 1, 2, 2]).path(X, y, SITES, n_alphas=4, eps=0.1)
    assert (path.nonzero % 2 == 0).all()
    assert path.nonzero[0] == 0 < path.nonzero[-1]
    assert path.converged.all()
    with pytest.raises(ValueError, match="FederatedConstrained has no strength alpha"):
        FederatedConstrained().path(X, y)


def test_cross_validation_splits_inside_each_client():
    X, y = hospitals.linear()
    model = FederatedLassoCV(n_alphas=8, cv=3).fit(X, y, clients=SITES)
    folds = np.empty(60, int)
    for name in ("Bern", "Oslo", "Rome"):
        folds[name == SITES] = Folds(3).of_rows(name, y[name == SITES], None)
    errors = np.zeros(8)
    for k in range(3):
        train = folds != k
        scaler = StandardScaler().fit(X[train])
        for i, alpha in enumerate(model.alphas_):
            lasso = Lasso(alpha, tol=1e-13, max_iter=10**6).fit(scaler.transform(X[train]), y[train])
            errors[i] += np.sum((y[~train] - lasso.predict(scaler.transform(X[~train]))) ** 2)
    np.testing.assert_allclose(model.cv_mean_, errors / 60, rtol=1e-6)
    assert model.alpha_ == model.alpha_min_ <= model.alpha_1se_
    chosen = FederatedLasso(model.alpha_).fit(X, y, clients=SITES)
    np.testing.assert_allclose(model.coef_, chosen.coef_, atol=1e-9)
    assert model.n_rounds_ == sum(one.rounds for one in model.exchanges_) <= 5
    figure = model.plot()
    assert figure.axes[0].get_ylabel() == "mean squared error"
    assert model.path_.plot().axes[0].get_ylabel() == "coefficient x standard deviation"


@pytest.mark.parametrize("cv", [4, 7])
def test_the_standard_error_of_cross_validation_is_that_of_a_mean_over_folds(cv):
    """With folds of unequal size: the weighted variance of the folds' errors, over one less than the folds."""
    X, y = hospitals.linear()
    model = FederatedLassoCV(n_alphas=5, cv=cv, random_state=4).fit(X, y, clients=SITES)
    folds = np.empty(60, int)
    for name in hospitals.SIZES:
        folds[name == SITES] = Folds(cv, 4).of_rows(name, y[name == SITES], None)
    errors = np.zeros((cv, 5))
    for k in range(cv):
        train = folds != k
        scaler = StandardScaler().fit(X[train])
        for i, alpha in enumerate(model.alphas_):
            lasso = Lasso(alpha, tol=1e-13, max_iter=10**6).fit(scaler.transform(X[train]), y[train])
            errors[k, i] = np.mean((y[~train] - lasso.predict(scaler.transform(X[~train]))) ** 2)
    size = np.bincount(folds)
    assert len(set(size)) > 1
    mean = np.average(errors, axis=0, weights=size)
    np.testing.assert_allclose(model.cv_mean_, mean, rtol=1e-6)
    spread = np.average((errors - mean) ** 2, axis=0, weights=size)
    np.testing.assert_allclose(model.cv_se_, np.sqrt(spread / (cv - 1)), rtol=1e-6)


def test_the_other_selections():
    X, y = hospitals.linear()
    strong = FederatedLassoCV(n_alphas=8, cv=3, criterion="1se").fit(X, y, clients=SITES)
    assert strong.alpha_ == strong.alpha_1se_
    bic = FederatedElasticNetCV(n_alphas=8, l1_ratio=1.0, criterion="bic").fit(X, y, clients=SITES)
    rss = np.array([((y - X @ w - b) ** 2).sum() for w, b in zip(bic.path_.coefs, bic.path_.intercepts, strict=True)])
    expected = 60 * np.log(rss / 60) + np.log(60) * bic.path_.nonzero
    np.testing.assert_allclose(bic.path_.criterion("bic"), expected)
    assert bic.alpha_ == bic.alphas_[expected.argmin()]
    with pytest.raises(ValueError, match="criterion='bic' has no cross-validation to draw"):
        bic.plot()
    with pytest.raises(ValueError, match="criterion must be one of min, 1se, aic, bic, got 'best'"):
        FederatedLassoCV(criterion="best").fit(X, y)


def test_nothing_is_left_of_an_earlier_fit():
    X, y, site = hospitals.linear()[0], hospitals.linear()[1], hospitals.SITES
    again = FederatedElasticNetCV(l1_ratio=[0.5, 1.0], n_alphas=4, cv=3).fit(X, y, clients=site)
    again.infer(X, y, clients=site)
    again.set_params(criterion="bic", l1_ratio=1.0).fit(X, y, clients=site)
    fresh = FederatedElasticNetCV(criterion="bic", l1_ratio=1.0, n_alphas=4, cv=3).fit(X, y, clients=site)
    assert set(vars(again)) == set(vars(fresh))
    assert again.summary() == fresh.summary()  # no intervals of another model
    with pytest.raises(ValueError, match="no cross-validation to draw"):
        again.plot()
    own = FederatedLasso(0.1, site_effects="fixed").fit(X, y, clients=site)
    own.set_params(site_effects="none").fit(X, y, clients=site)
    assert "site_effects_" not in vars(own)


def test_deviances_are_scikit_learns():
    from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error

    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(20, 1)), rng.integers(0, 2, 20)
    assert Logistic().deviance(z, y).mean() == pytest.approx(2 * log_loss(y, 1 / (1 + np.exp(-z[:, 0]))))
    assert Squared().deviance(z, y).mean() == pytest.approx(mean_squared_error(y, z[:, 0]))
    assert Poisson().deviance(z, y).mean() == pytest.approx(mean_poisson_deviance(y, np.exp(z[:, 0])))
    scores = rng.normal(size=(20, 1, 3))
    shares = np.exp(scores[:, 0]) / np.exp(scores[:, 0]).sum(axis=1, keepdims=True)
    labels = np.arange(20) % 3
    assert Softmax().deviance(scores, labels).mean() == pytest.approx(2 * log_loss(labels, shares))


def test_intervals_with_many_rows_are_those_of_least_squares():
    X, y = hospitals.linear()
    df = pd.DataFrame(X, columns=list("abcdef"))
    model = FederatedLasso(0.5).fit(df, y, clients=SITES)
    table = model.infer(df, y, SITES, coefficients=["a", "f"], level=0.9)
    A = np.column_stack([np.ones(60), X])
    inverse = np.linalg.inv(A.T @ A)
    b = inverse @ A.T @ y
    np.testing.assert_allclose(table.debiased, b[[1, 6]], rtol=1e-8)
    variance = np.sum((y - A @ b) ** 2) / (60 - 6 - 1)
    np.testing.assert_allclose(table.se, np.sqrt(variance * np.diag(inverse)[[1, 6]]), rtol=1e-8)
    np.testing.assert_allclose(table.high - table.low, 2 * 1.6741162 * table.se, rtol=1e-6)  # t with 53 degrees
    assert (table.p_value < 1e-3).tolist() == [True, False]
    with pytest.raises(ValueError, match="there is no feature 'z'; give names or positions of 6 features"):
        model.infer(df, y, SITES, coefficients=["z"])
    text = model.summary()
    for word in ("(intercept)", "duality gap", "Bern (22)", "inference 2", "p_value"):
        assert word in text


def test_files_bring_back_what_was_saved(tmp_path):
    X, y = hospitals.classes()
    df = pd.DataFrame(X, columns=list("abcdef"))
    model = FederatedLogisticRegressionCV(n_alphas=4, eps=0.1, criterion="bic").fit(df, y, clients=SITES)
    model.infer(df, y, SITES, coefficients="a")
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict_proba(df), model.predict_proba(df))
    assert again.summary() == model.summary()
    assert again.get_params() == model.get_params()
    assert again.classes_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(again.path_.coefs, model.path_.coefs)
    (tmp_path / "half").write_bytes((tmp_path / "model.safetensors").read_bytes()[:200])
    with pytest.raises(ValueError, match="half is not a whole file of a cofed estimator"):
        load(tmp_path / "half")
    with pytest.raises(ValueError, match="there is no file"):
        load(tmp_path / "none")


def test_files_of_older_versions_are_read(tmp_path):
    """Parameters had other names then."""
    X, y = hospitals.linear()
    model = FederatedLassoCV(n_alphas=4, criterion="bic", random_state=3).fit(X, y, clients=SITES)
    model.save(tmp_path / "new")
    with safe_open(tmp_path / "new", framework="numpy") as file:
        state = file.metadata()["cofed"].replace('"criterion"', '"selection"').replace('"random_state"', '"seed"')
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(arrays, tmp_path / "old", metadata={"cofed": state})
    again = load(tmp_path / "old")
    assert again.get_params() == model.get_params()
    assert again.exchanges_ == model.exchanges_


def test_groups_are_cross_validated_as_models_one_by_one():
    X, y = hospitals.linear()
    single = FederatedGroupLassoCV(n_alphas=6, cv=3).fit(X, y, clients=SITES)
    lasso = FederatedLassoCV(n_alphas=6, cv=3).fit(X, y, clients=SITES)  # groups of one feature each
    np.testing.assert_allclose(single.cv_mean_, lasso.cv_mean_, rtol=1e-5)
    np.testing.assert_allclose(single.coef_, lasso.coef_, rtol=1e-7, atol=1e-9)
    groups, turn = [0, 0, 1, 1, 2, 2], np.arange(len(y)) % 3
    folds = [(np.flatnonzero(turn != k), np.flatnonzero(turn == k)) for k in range(3)]
    chosen = FederatedGroupLassoCV(groups=groups, alphas=[1.0, 0.1], cv=folds, standardize=False)
    chosen.fit(X, y, clients=SITES)
    for i, alpha in enumerate(chosen.alphas_):
        one = FederatedGroupLasso(alpha, groups=groups, standardize=False)
        errors = [(y[held] - one.fit(X[learn], y[learn]).predict(X[held])) ** 2 for learn, held in folds]
        assert chosen.cv_mean_[i] == pytest.approx(np.concatenate(errors).mean(), rel=1e-4)


def test_groups_of_unequal_columns_are_cross_validated_by_the_standard_deviations_of_all_rows():
    X, y = hospitals.linear()
    X[:, [1, 4]] = np.exp(2 * X[:, [1, 4]] / X[:, [1, 4]].std(axis=0))  # without a fold they vary much less
    groups, turn = [0, 0, 1, 1, 1, 2], np.arange(len(y)) % 3
    folds = [(np.flatnonzero(turn != k), np.flatnonzero(turn == k)) for k in range(3)]
    chosen = FederatedGroupLassoCV(groups=groups, alphas=[0.5, 0.05], cv=folds).fit(X, y, clients=SITES)
    ill = (y > np.median(y)).astype(int)
    odds = FederatedLogisticRegressionCV(penalty="group", groups=groups, alphas=[0.05, 0.02], cv=folds)
    odds.fit(X, ill, clients=SITES)
    errors, deviances = np.zeros(2), np.zeros(2)
    for learn, held in folds:
        scale = X.std(axis=0)
        scale[5] = X[learn, 5].std()  # a group of its own
        Z = X / scale
        for i in range(2):
            one = FederatedGroupLasso(chosen.alphas_[i], groups=groups, standardize=False).fit(Z[learn], y[learn])
            errors[i] += np.sum((y[held] - one.predict(Z[held])) ** 2)
            two = FederatedLogisticRegression(odds.alphas_[i], penalty="group", groups=groups, standardize=False)
            share = two.fit(Z[learn], ill[learn]).predict_proba(Z[held])
            deviances[i] -= 2 * np.sum(np.log(share[np.arange(len(held)), ill[held]]))
    np.testing.assert_allclose(chosen.cv_mean_, errors / len(y), rtol=1e-5)
    np.testing.assert_allclose(odds.cv_mean_, deviances / len(y), rtol=1e-4)
