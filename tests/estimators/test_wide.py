"""Squared losses of so many features that their Gram matrix is asked for by columns: the same answers as with all."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sites.processes import ProcessSites

from cofed.estimators import FederatedElasticNetCV, FederatedLasso, FederatedLassoCV
from cofed.estimators.column_grid import ColumnGrid
from cofed.estimators.lock_step import solve_paths as solve_together
from cofed.estimators.path import solve_paths
from cofed.estimators.survey import survey
from cofed.estimators.wide_set import WideTrainingSet, fold_products
from cofed.sites import Folds, MemorySites, SiteRows
from cofed.sites.queries import ColumnsMessage, columns

SITES = np.repeat(["Bern", "Oslo", "Rome"], (40, 25, 35))


def table(p, rho=0.5, n=100):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    return X, 5 + 2 * X[:, 0] - X[:, p // 2] + rng.normal(size=n)


def posed(estimator, X, y, most=None, sites=SITES):
    """The problem of all rows with three folds; of more than `most` features no products are known."""
    asked = estimator._intake(X, y, sites)
    folds = Folds(3, 0, by_class=False)
    return estimator._posed(survey(asked, estimator._loss(), estimator.fit_intercept, lambda _: None, folds, most))


DESIGNS = {
    "more features than rows": (FederatedLassoCV(), table(160)),
    "more rows than features": (FederatedLassoCV(), table(40)),
    "features that are nearly alike": (FederatedLassoCV(), table(120, rho=0.99)),
    "an elastic net without an intercept": (FederatedElasticNetCV(l1_ratio=0.6, fit_intercept=False), table(120)),
    "features in their own units": (FederatedLassoCV(standardize=False), (table(120)[0] * 3 + 50, table(120)[1])),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_models_are_those_of_the_whole_gram_matrix(name):
    estimator, (X, y) = DESIGNS[name]
    whole, wide = posed(estimator, X, y), posed(estimator, X, y, most=0)
    assert whole.hessian is not None
    assert wide.hessian is None
    top = float(estimator._penalty(whole, 1.0).zeroing_factor(whole.null.gradient.coef))
    alphas = np.geomspace(top, 0.02 * top, 12)
    dense, found = (solve_paths(estimator, one, alphas, folds=True) for one in (whole, wide))
    scale = max(np.abs(np.asarray(fit.w.coef)).max() for fit in dense.models)
    for one, other in zip(found.models, dense.models, strict=True):
        assert one.certificate.converged
        np.testing.assert_allclose(one.w.coef, other.w.coef, atol=1e-6 * scale)
        assert one.certificate.objective == pytest.approx(other.certificate.objective, rel=1e-11)
    np.testing.assert_allclose(found.held, dense.held, rtol=1e-3)
    assert not any(fit.cause for own in found.of_folds for fit in own)
    assert [one.what for one in wide.exchanges] == ["sums", "gram", "columns", "look"]
    assert wide.n_rounds <= 5


def test_columns_are_asked_for_as_models_use_their_features():
    estimator, (X, y) = FederatedLasso(), table(60)
    problem = posed(estimator, X, y, most=0)
    psi = estimator._penalty(problem, 1.0)
    alphas = np.geomspace(1, 0.05, 10) * float(psi.zeroing_factor(problem.null.gradient.coef))
    one = WideTrainingSet(problem, psi, alphas, np.ones(10, bool), 1e-12)
    grid = ColumnGrid([one], first=6)
    assert grid.run(20) <= 8
    assert one.finished
    used = {j for i in range(10) for j in np.flatnonzero(np.asarray(one.model(i).coef))}
    assert used <= set(grid.where.tolist())
    assert len(grid.where) == len(set(grid.where.tolist())) < 60
    [found] = solve_together([posed(estimator, X, y)], [(estimator._penalty, alphas)], 1e-12, 0)
    np.testing.assert_allclose(one.model(9).coef, found.models[9].w.coef, atol=1e-8)


def test_one_feature_twice_and_one_that_is_constant():
    X, y = table(120)
    X[:, 7], X[:, 9] = X[:, 0], 3.0
    estimator = FederatedLassoCV()
    whole, wide = posed(estimator, X, y), posed(estimator, X, y, most=0)
    alphas = np.geomspace(1, 0.05, 8) * float(np.abs(whole.null.gradient.coef).max()) * whole.units.labels.size
    dense, found = (solve_paths(estimator, one, alphas, folds=True) for one in (whole, wide))
    for one, other in zip(found.models, dense.models, strict=True):
        assert one.certificate.outcome != "not converged"
        assert one.certificate.objective == pytest.approx(other.certificate.objective, rel=1e-10)
        assert one.w.coef[9] == 0


def test_a_wide_lasso_with_folds_takes_four_exchanges():
    X, y = table(2100)
    model = FederatedLassoCV(n_alphas=20, eps=0.05, cv=3).fit(X, y, clients=SITES)
    assert {one.what: one.rounds for one in model.exchanges_} == {"sums": 1, "gram": 1, "columns": 1, "look": 1}
    assert model.path_.converged.all()
    assert model.certificate_.converged
    assert np.isfinite(model.cv_mean_).all()


def rows_of(site):
    X, y = table(2060)
    return X[site == SITES], y[site == SITES]


def test_from_other_processes():
    estimator = FederatedLassoCV(n_alphas=6, eps=0.1, cv=3)
    sites = ProcessSites({site: functools.partial(rows_of, site) for site in ("Bern", "Oslo", "Rome")})
    try:
        away = estimator.fit(sites)
    finally:
        sites.close()
    X, y = table(2060)
    here = FederatedLassoCV(n_alphas=6, eps=0.1, cv=3).fit(X, y, clients=SITES)
    np.testing.assert_allclose(away.coef_, here.coef_, rtol=0, atol=1e-10 * np.abs(here.coef_).max())
    np.testing.assert_allclose(away.cv_mean_, here.cv_mean_, rtol=1e-8)
    assert away.certificate_.converged
    assert [one.what for one in away.exchanges_] == ["sums", "gram", "columns", "look"]


def test_the_query_gives_products_by_fold():
    X, y = table(9, n=50)
    names = ("a", "b")
    sites = MemorySites(SiteRows.of_sites(names, [X[:20], X[20:]], [y[:20], y[20:]]))
    folds, where = Folds(2), np.array([4, 0, 8], np.int32)
    found = sites.ask(columns, ColumnsMessage(where, folds=folds))
    fold = sites.rows.folds(folds)
    wanted = [X[fold == k][:, where].T @ X[fold == k] for k in range(2)]
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="a feature that is not there: there are 9"):
        sites.ask(columns, ColumnsMessage(np.array([9], np.int32)))


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), st.integers(0, 10**6))
def test_products_from_some_columns(n, d, size, seed):
    """Right on those columns, nowhere larger than they are, and everywhere right where the columns span all rows."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, d))
    G, where = A.T @ A, rng.permutation(d)[:size]
    found = fold_products(G[where], where, G.diagonal())
    made = found.rows.T @ found.rows
    np.testing.assert_allclose(made[:, where], G[:, where], atol=1e-7 * np.abs(G).max())
    assert np.linalg.eigvalsh(G - made).min() >= -1e-7 * np.abs(G).max()
    assert found.rest.min() >= 0
    if np.linalg.svd(A[:, where])[1].min() > 1e-3 and len(where) >= n:
        np.testing.assert_allclose(made, G, atol=1e-7 * np.abs(G).max())
