"""Coefficients are those of scikit-learn or skglm on the pooled rows."""

import numpy as np
import pytest
from scipy.optimize import nnls
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor
from sklearn.preprocessing import StandardScaler
from tests.estimators import hospitals

from cofed.estimators import (
    FederatedConstrained,
    FederatedElasticNet,
    FederatedGroupLasso,
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedPoisson,
    FederatedTraceRegression,
)

SITES = hospitals.SITES


def close(model, coef, intercept, rtol=1e-7):
    np.testing.assert_allclose(model.coef_, coef, rtol=0, atol=rtol * np.abs(coef).max())
    np.testing.assert_allclose(model.intercept_, intercept, rtol=0, atol=rtol * (1 + np.abs(intercept).max()))
    assert model.certificate_.converged
    assert model.n_rounds_ == sum(one.rounds for one in model.exchanges_)


@pytest.mark.parametrize("alpha", [0.01, 0.3, 10.0])
def test_lasso_and_elastic_net(alpha):
    X, y = hospitals.linear()
    exact = {"tol": 1e-14, "max_iter": 10**6}
    ours = FederatedLasso(alpha, standardize=False).fit(X, y, clients=SITES)
    theirs = Lasso(alpha, **exact).fit(X, y)
    close(ours, theirs.coef_, theirs.intercept_)
    np.testing.assert_array_equal(ours.support_, theirs.coef_ != 0)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-7)
    ours = FederatedElasticNet(alpha, l1_ratio=0.3, standardize=False).fit(X, y, clients=SITES)
    theirs = ElasticNet(alpha, l1_ratio=0.3, **exact).fit(X, y)
    close(ours, theirs.coef_, theirs.intercept_)


def test_the_penalty_acts_on_standardised_features_by_default():
    X, y = hospitals.linear()
    scaler = StandardScaler().fit(X)
    theirs = Lasso(0.2, tol=1e-14, max_iter=10**6).fit(scaler.transform(X), y)
    ours = FederatedLasso(0.2).fit(X, y, clients=SITES)
    close(ours, theirs.coef_ / scaler.scale_, theirs.intercept_ - scaler.mean_ / scaler.scale_ @ theirs.coef_)


def test_whose_rows_they_are_changes_nothing():
    X, y = hospitals.linear()
    split = FederatedLasso(0.2).fit(X, y, clients=SITES)
    close(FederatedLasso(0.2).fit(X, y), split.coef_, split.intercept_, 1e-12)


def test_without_an_intercept():
    X, y = hospitals.linear()
    theirs = Lasso(0.2, fit_intercept=False, tol=1e-14, max_iter=10**6).fit(X, y)
    ours = FederatedLasso(0.2, fit_intercept=False, standardize=False).fit(X, y, clients=SITES)
    close(ours, theirs.coef_, np.zeros(()))


@pytest.mark.parametrize("algorithm", ["fista", "decouple"])
def test_other_algorithms_reach_the_same(algorithm):
    X, y = hospitals.linear()
    default = FederatedLasso(0.2).fit(X, y, clients=SITES)
    other = FederatedLasso(0.2, algorithm=algorithm).fit(X, y, clients=SITES)
    close(other, default.coef_, default.intercept_, 1e-5)
    assert other.n_rounds_ > 3 * default.n_rounds_
    assert other.bytes_ > default.bytes_


def test_more_features_than_rows_take_a_working_set():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 150)) + rng.normal(size=150)
    y = X[:, :3].sum(axis=1) + rng.normal(size=60)
    theirs = Lasso(0.1, tol=1e-14, max_iter=10**6).fit(X, y)
    ours = FederatedLasso(0.1, standardize=False).fit(X, y, clients=SITES)
    close(ours, theirs.coef_, theirs.intercept_)


def test_logistic_of_two_classes_is_optimal():
    X, y = hospitals.classes()
    model = FederatedLogisticRegression(0.02, standardize=False).fit(X, y, clients=SITES)
    share = model.predict_proba(X)[:, 1]
    g, w = X.T @ (share - (y == "b")) / len(y), model.coef_[0]
    assert 0 < np.count_nonzero(w) < len(w)
    np.testing.assert_allclose(g[w != 0], -0.02 * np.sign(w[w != 0]), atol=1e-12)
    assert (np.abs(g[w == 0]) <= 0.02).all()
    assert np.mean(share) == pytest.approx(np.mean(y == "b"), abs=1e-12)
    assert model.score(X, y) > 0.6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'@' is faster on contiguous arrays")  # within skglm
def test_logistic_of_two_classes_is_skglms():
    from skglm import SparseLogisticRegression

    X, y = hospitals.classes()
    ours = FederatedLogisticRegression(0.02, standardize=False).fit(X, y, clients=SITES)
    theirs = SparseLogisticRegression(0.02, tol=1e-12, max_epochs=10_000).fit(X, y == "b")
    close(ours, theirs.coef_, theirs.intercept_)


def test_logistic_of_three_classes():
    X, y = hospitals.classes(3)
    ridge = {"penalty": "elasticnet", "l1_ratio": 0.0, "standardize": False}
    ours = FederatedLogisticRegression(0.02, **ridge).fit(X, y, clients=SITES)
    theirs = LogisticRegression(C=1 / (0.02 * len(y)), tol=1e-12, max_iter=10_000, solver="newton-cg").fit(X, y)
    close(ours, theirs.coef_, theirs.intercept_ - theirs.intercept_.mean(), 1e-6)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_groups_of_features_come_in_whole():
    X, y = hospitals.linear()
    groups = ["u", "v", "u", "v", "w", "w"]
    model = FederatedGroupLasso(1.0, groups=groups, standardize=False).fit(X, y, clients=SITES)
    assert model.certificate_.converged
    residual = y - model.predict(X)
    g = (X - X.mean(axis=0)).T @ residual / len(y)
    for label in "uvw":
        members = np.array(groups) == label
        w, size = model.coef_[members], np.sqrt(2.0)
        if w.any():
            np.testing.assert_allclose(g[members], size * w / np.linalg.norm(w), atol=1e-9)
        else:
            assert np.linalg.norm(g[members]) <= size
    assert 0 < model.support_.sum() < 6


def test_poisson():
    X, y = hospitals.counts()
    theirs = PoissonRegressor(alpha=0.1, tol=1e-12, max_iter=10_000).fit(X, y)
    ours = FederatedPoisson(0.1, l1_ratio=0, standardize=False).fit(X, y, clients=SITES)
    close(ours, theirs.coef_, theirs.intercept_, 1e-6)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), rel=1e-6)


def test_low_rank_matrices():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, P := 6))
    y = X @ np.outer([1.0, 2.0], [1.0, -1.0, 0.5]).ravel() + 0.1 * rng.normal(size=60)
    model = FederatedTraceRegression(0.3, shape=(2, 3), fit_intercept=False).fit(X, y, clients=SITES)
    assert model.certificate_.converged
    assert model.rank_ == 1
    gradient = (X.T @ (y - X @ model.coef_) / 60).reshape(2, 3)
    assert np.linalg.norm(gradient, 2) == pytest.approx(0.3, rel=1e-9)
    assert np.sum(gradient * model.matrix_) == pytest.approx(0.3 * np.linalg.norm(model.matrix_, "nuc"), rel=1e-9)
    assert len(model.coef_) == P


def test_positive_coefficients():
    X, y = hospitals.linear()
    model = FederatedConstrained().fit(X, y, clients=SITES)
    expected = nnls(X - X.mean(axis=0), y - y.mean())[0]
    close(model, expected, y.mean() - X.mean(axis=0) @ expected)
    assert model.certificate_.gap <= 1e-12 * model.certificate_.scale
    assert model.certificate_.prox_gradient < 1e-10


@pytest.mark.parametrize(
    ("constraint", "numbers"),
    [
        ("l1_ball", {"radius": 1.0}),
        pytest.param("l2_ball", {"radius": 1.0}, marks=pytest.mark.slow),
        ("simplex", {"radius": 2.0}),
        pytest.param("box", {"low": -1, "high": 0.5}, marks=pytest.mark.slow),
    ],
)
def test_constraints_hold_and_are_optimal(constraint, numbers):
    X, y = hospitals.linear()
    model = FederatedConstrained(constraint=constraint, **numbers).fit(X, y, clients=SITES)
    w = model.coef_
    inside = {
        "l1_ball": np.abs(w).sum() <= 1 + 1e-12,
        "l2_ball": np.linalg.norm(w) <= 1 + 1e-12,
        "simplex": (w >= 0).all() and np.isclose(w.sum(), 2),
        "box": (w >= -1).all() and (w <= 0.5).all(),
    }
    assert inside[constraint]
    assert model.certificate_.gap <= 1e-12 * model.certificate_.scale


def test_any_algorithm_of_cofed_may_be_given_and_says_how_far_it_came():
    import cofed

    X, y = hospitals.linear()
    with pytest.warns(UserWarning, match="duality gap of .* prox-gradient norm of .* tol \\* scale"):
        model = FederatedLasso(0.2, algorithm=cofed.FedDualAvg(0.05), max_rounds=40).fit(X, y, clients=SITES)
    assert not model.certificate_.converged
    assert model.algorithm_ == "FedDualAvg"
