"""The adaptive lasso, relaxed paths, MCP and SCAD: as scikit-learn, statsmodels and skglm on pooled rows."""

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from skglm import GeneralizedLinearEstimator
from skglm.datafits import Quadratic
from skglm.penalties import SCAD as PeerSCAD
from skglm.penalties import MCPenalty
from skglm.solvers import AndersonCD
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

import cofed
from cofed.estimators import (
    FederatedElasticNet,
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedPoisson,
    adaptive,
    concave_path,
    relaxed_path,
)

N, P = 120, 6
SITE = np.repeat(["a", "b", "c"], [70, 30, 20])
PATH = {"n_alphas": 6, "eps": 0.05}
PENALTIES = {"mcp": cofed.MCP(1.0, gamma=3.0), "scad": cofed.SCAD(1.0, a=3.7)}


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P))
    X[:, 1] = 4 * X[:, 1] + 9
    return X, X @ [1.0, 0.2, 0, -0.5, 0, 0.1] + rng.normal(size=N)


def classes(seed=0):
    X, z = rows(seed)
    return X, (z > np.median(z)).astype(int)


@pytest.fixture(scope="module")
def ridge():
    return FederatedElasticNet(0.01, l1_ratio=0).fit(*rows(), clients=SITE)


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_the_adaptive_lasso_is_a_lasso_of_rescaled_features(ridge, gamma):
    X, y = rows()
    model = adaptive(FederatedLasso(0.05), ridge, gamma).fit(X, y, clients=SITE)
    unit = X.std(axis=0) / np.abs(ridge.coef_ * X.std(axis=0)) ** gamma
    other = Lasso(0.05, tol=1e-15, max_iter=100_000).fit(X / unit, y)
    np.testing.assert_allclose(model.coef_, other.coef_ / unit, rtol=1e-9, atol=1e-12)
    assert 0 < model.support_.sum() < P


def test_what_a_first_lasso_leaves_out_stays_out():
    X, y = rows()
    first = FederatedLasso(0.2).fit(X, y, clients=SITE)
    next_one = adaptive(FederatedLasso(1e-4, exclude=[3], penalty_factor={"x0": 0.0}), first)
    assert next_one.exclude == sorted({3, *np.flatnonzero(~first.support_).tolist()})
    assert next_one.penalty_factor[0] == 0
    assert not next_one.fit(X, y, clients=SITE).support_[next_one.exclude].any()


def test_what_no_adaptive_lasso_can_be_made_of_is_refused(ridge):
    X, y = rows()
    with pytest.raises(ValueError, match="uses no feature"):
        adaptive(FederatedLasso(), FederatedLasso(1e3).fit(X, y, clients=SITE))
    with pytest.raises(ValueError, match="the same standardize"):
        adaptive(FederatedLasso(standardize=False), ridge)
    with pytest.raises(ValueError, match="must be a fitted estimator"):
        adaptive(FederatedLasso(), FederatedLasso())
    with pytest.raises(ValueError, match="gamma must be"):
        adaptive(FederatedLasso(), ridge, 0.0)


def pooled(family, X, y, used):
    columns = np.column_stack([np.ones(len(X)), X[:, used]])
    return sm.GLM(y, columns, family).fit(tol=1e-14, maxiter=100)


@pytest.mark.parametrize("kind", ["linear", pytest.param("logistic", marks=pytest.mark.slow)])
def test_a_relaxed_path_has_the_models_without_a_penalty(kind):
    linear = kind == "linear"
    (X, y), estimator = (rows(), FederatedLasso()) if linear else (classes(), FederatedLogisticRegression())
    path = relaxed_path(estimator, X, y, SITE, **PATH)
    plain = estimator.path(X, y, SITE, **PATH)
    assert path.converged.all()
    np.testing.assert_array_equal(path.coefs != 0, plain.coefs != 0)
    for coef, intercept, deviance in zip(path.coefs, path.intercepts, path.deviance, strict=True):
        used = np.flatnonzero(np.ravel(coef))
        other = pooled(sm.families.Gaussian() if linear else sm.families.Binomial(), X, y, used)
        np.testing.assert_allclose(
            np.r_[np.ravel(intercept), np.ravel(coef)[used]], other.params, rtol=1e-8, atol=1e-10
        )
        np.testing.assert_allclose(deviance * N, other.deviance, rtol=1e-10)
    half = relaxed_path(estimator, X, y, SITE, gamma=0.25, **PATH)
    np.testing.assert_allclose(half.coefs, 0.25 * plain.coefs + 0.75 * path.coefs, rtol=1e-9, atol=1e-12)
    if linear:
        error = np.mean((y - X @ half.coefs[-1] - half.intercepts[-1]) ** 2)
        np.testing.assert_allclose(half.deviance[-1], error, rtol=1e-11)
        assert path.n_rounds == plain.n_rounds


@pytest.mark.slow
def test_a_relaxed_fit_of_separable_rows_warns():
    X, _ = rows()
    with pytest.warns(ConvergenceWarning, match="relaxed fits are not converged"):
        relaxed_path(FederatedLogisticRegression(), X, (X[:, 0] > 0).astype(int), SITE, **PATH)


@pytest.mark.parametrize("kind", ["mcp", pytest.param("scad", marks=pytest.mark.slow)])
def test_concave_paths_are_those_of_skglm_where_there_is_one_answer(kind):
    X, y = rows()
    path = concave_path(FederatedLasso(), X, y, SITE, penalty=PENALTIES[kind], **PATH)
    size = X.std(axis=0)
    unit = (X - X.mean(axis=0)) / size
    # Curvature beyond that of the penalty makes the whole objective convex.
    assert np.linalg.eigvalsh(unit.T @ unit / N).min() > float(PENALTIES[kind].weak_convexity)
    assert path.stationarity.max() < 1e-10
    assert path.converged.all()
    assert np.isnan(path.gaps).all()
    for alpha, coef in zip(path.alphas, path.coefs, strict=True):
        penalty = MCPenalty(alpha, 3.0) if kind == "mcp" else PeerSCAD(alpha, 3.7)
        solver = AndersonCD(tol=1e-12, fit_intercept=False, max_iter=1000)
        other = GeneralizedLinearEstimator(Quadratic(), penalty, solver).fit(unit, y - y.mean())
        np.testing.assert_allclose(coef, other.coef_ / size, rtol=1e-8, atol=1e-10)


@settings(max_examples=4)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(PENALTIES)))
def test_models_of_concave_paths_are_stationary_and_no_worse_than_the_lasso(seed, kind):
    rng = np.random.default_rng(seed)
    X, y = rows(seed)
    X[:, 5] = X[:, 4] + 0.3 * rng.normal(size=N)  # far from a convex objective
    path = concave_path(FederatedLasso(), X, y, SITE, penalty=PENALTIES[kind], **PATH)
    plain = FederatedLasso().path(X, y, SITE, alphas=path.alphas)
    size, own = X.std(axis=0), PENALTIES[kind]
    for i, alpha in enumerate(path.alphas):
        penalty = type(own)(alpha, own.gamma if kind == "mcp" else own.a)

        def objective(model, i=i, penalty=penalty):
            left = y - X @ model.coefs[i] - model.intercepts[i]
            return np.mean(left**2) / 2 + float(penalty.value(size * model.coefs[i]))

        assert objective(path) <= objective(plain) * (1 + 1e-12)
        left = y - X @ path.coefs[i] - path.intercepts[i]
        slope, used = X.T @ left / N / size, path.coefs[i] != 0
        wanted = np.asarray(penalty.subgradient(size * path.coefs[i]))
        if path.converged[i]:
            np.testing.assert_allclose(slope[used], wanted[used], atol=1e-7 * alpha)
            assert np.all(np.abs(slope[~used]) <= alpha * (1 + 1e-7))
    assert path.converged.all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mcp", "scad"])
def test_concave_paths_of_counts_are_stationary(kind):
    X, z = rows()
    y = np.random.default_rng(1).poisson(np.exp(z / 3))
    path = concave_path(FederatedPoisson(), X, y, SITE, penalty=PENALTIES[kind], **PATH)
    size = X.std(axis=0)
    for alpha, coef, intercept in zip(path.alphas, path.coefs, path.intercepts, strict=True):
        slope = X.T @ (y - np.exp(X @ coef + intercept)) / N / size
        penalty = type(PENALTIES[kind])(alpha, 3.0 if kind == "mcp" else 3.7)
        wanted, used = np.asarray(penalty.subgradient(size * coef)), coef != 0
        np.testing.assert_allclose(slope[used], wanted[used], atol=1e-7 * alpha)
        assert np.all(np.abs(slope[~used]) <= alpha * (1 + 1e-7))
    assert path.converged.all()


def test_dfmax_ends_a_path_and_what_does_not_fit_is_refused():
    X, y = rows()
    whole, cut = (FederatedLasso().path(X, y, SITE, n_alphas=20, dfmax=most) for most in (None, 3))
    assert cut.nonzero.max() <= 3 < whole.nonzero[len(cut.alphas)]
    np.testing.assert_array_equal(cut.coefs, whole.coefs[: len(cut.alphas)])
    with pytest.raises(ValueError, match="dfmax=1, but the first model of the path has"):
        FederatedLasso().path(X, y, SITE, alphas=[1e-3], dfmax=1)
    with pytest.raises(ValueError, match="dfmax must be"):
        FederatedLasso().path(X, y, SITE, dfmax=0)
    with pytest.raises(TypeError, match=r"penalty must be a cofed.MCP or a cofed.SCAD"):
        concave_path(FederatedLasso(), X, y, SITE, penalty=cofed.L1(1.0))
    with pytest.raises(ValueError, match="MCP and SCAD take the place of an l1 norm alone"):
        concave_path(FederatedElasticNet(), X, y, SITE, penalty=cofed.MCP(1.0), alphas=[0.1])
    with pytest.raises(ValueError, match="relaxed fits have no limits"):
        relaxed_path(FederatedLasso(low=0), X, y, SITE, alphas=[0.1])
    with pytest.raises(ValueError, match="gamma must be"):
        relaxed_path(FederatedLasso(), X, y, SITE, gamma=2.0)


def test_the_strength_of_a_concave_penalty_is_not_ignored():
    with pytest.raises(ValueError, match="penalty must have the strength 1, which alphas multiply"):
        concave_path(FederatedLasso(), np.eye(4), np.arange(4.0), penalty=cofed.MCP(5.0))
