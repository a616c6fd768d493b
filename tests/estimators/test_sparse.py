"""Sparse rows: the fits of the same rows as an array, and no array of all rows and features."""

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from jax.extend.core import ClosedJaxpr, Jaxpr
from sklearn.linear_model import Lasso

import cofed
from cofed.estimators import (
    FederatedConstrained,
    FederatedCoxCV,
    FederatedGLM,
    FederatedGroupLasso,
    FederatedLasso,
    FederatedLassoCV,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
    FederatedPoissonCV,
    FederatedStandardScaler,
    FederatedTraceRegression,
)
from cofed.sites import MemorySites, Scaling, SiteRows, queries
from cofed.sites.host_rows import SparseRows

RNG = np.random.default_rng(0)
N, P = 90, 6
CLIENTS = np.repeat(["Oslo", "Rome", "Bern"], [40, 20, 30])
ROWS = np.where(RNG.random((N, P)) < 0.3, RNG.normal(size=(N, P)) + 1, 0.0)
ROWS[:, 2] = 2000 + RNG.normal(size=N)  # a year: no zero in it
Z = ROWS[:, 0] - ROWS[:, 1] + 0.3 * (ROWS[:, 2] - 2000)
NUMBERS = Z + RNG.normal(size=N) + 5
TWO = Z + RNG.logistic(size=N) > 0
THREE = np.argmax(ROWS[:, [0, 1, 3]] + RNG.gumbel(size=(N, 3)), axis=1)
COUNTS = RNG.poisson(np.exp(0.5 * Z))
TIMES = np.column_stack([RNG.exponential(np.exp(-Z)) + 0.01, RNG.random(N) < 0.7])
WEIGHTS = RNG.integers(0, 4, size=N)
FEW = {"n_alphas": 4, "cv": 3, "eps": 0.05}
FAST = {
    "lasso": (FederatedLassoCV(**FEW), NUMBERS, {}),
    "logistic": (FederatedLogisticRegression(0.02), TWO, {}),
}
SLOW = {
    "lasso, weights": (FederatedLasso(0.1), NUMBERS, {"sample_weight": WEIGHTS, "offset": ROWS[:, 3]}),
    "lasso, as given": (FederatedLasso(0.1, standardize=False, fit_intercept=False), NUMBERS, {}),
    "lasso, sites' intercepts": (FederatedLasso(0.1, site_effects="fixed"), NUMBERS, {}),
    "logistic, chosen": (FederatedLogisticRegressionCV(**FEW, measure="auc"), TWO, {}),
    "logistic, sites' intercepts": (FederatedLogisticRegression(0.02, site_effects="fixed"), TWO, {}),
    "multinomial": (FederatedLogisticRegression(0.02), THREE, {}),
    "multinomial, grouped": (FederatedLogisticRegression(0.02, penalty="group"), THREE, {}),
    "poisson": (FederatedPoissonCV(**FEW), COUNTS, {}),
    "gamma": (FederatedGLM(cofed.Gamma(), alpha=0.02), np.exp(Z / 2) * RNG.gamma(3.0, size=N), {}),
    "huber": (FederatedGLM(cofed.Huber(), alpha=0.05), NUMBERS, {}),
    "quantile": (FederatedGLM(cofed.SmoothQuantile(0.5, 0.5), alpha=0.05), NUMBERS, {}),
    "negative binomial": (FederatedGLM(cofed.NegativeBinomial(2.0), alpha=0.02), COUNTS, {}),
    "cox": (FederatedCoxCV(**FEW), TIMES, {}),
    "groups": (FederatedGroupLasso(0.1, groups=[0, 0, 1, 1, 2, 2]), NUMBERS, {}),
    "trace": (FederatedTraceRegression(0.1, shape=(2, 3)), NUMBERS, {}),
    "constrained": (FederatedConstrained(constraint="l1_ball", radius=1.0), NUMBERS, {}),
    "rounds without Hessians": (FederatedLogisticRegression(0.02, algorithm="fista"), TWO, {}),
}


def assert_same_fit(model, y, more):
    """Fit an array and a sparse matrix, and compare all that can be told of both."""
    held = scipy.sparse.csr_array(ROWS)
    dense = type(model)(**model.get_params()).fit(ROWS, y, clients=CLIENTS, **more)
    sparse = type(model)(**model.get_params()).fit(held, y, clients=CLIENTS, **more)
    size = 1e-10 * (1 + np.abs(dense.coef_).max())
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=size)
    np.testing.assert_allclose(sparse.intercept_, dense.intercept_, rtol=1e-10, atol=2000 * size)
    assert sparse.certificate_.outcome == dense.certificate_.outcome
    for name in {"alpha_", "cv_mean_", "cv_se_"} & vars(dense).keys():
        np.testing.assert_allclose(vars(sparse)[name], vars(dense)[name], rtol=1e-8)
    return dense, sparse


@pytest.mark.parametrize("case", FAST)
def test_sparse_rows_have_the_fit_of_dense_ones(case):
    model, y, more = FAST[case]
    dense, sparse = assert_same_fit(model, y, more)
    held = scipy.sparse.csc_array(ROWS)
    np.testing.assert_allclose(sparse.predict(held), dense.predict(ROWS))
    np.testing.assert_allclose(sparse.score(held, y), dense.score(ROWS, y))
    one = sparse.infer(scipy.sparse.csr_array(ROWS), y, clients=CLIENTS, errors="hc3")
    other = dense.infer(ROWS, y, clients=CLIENTS, errors="hc3")
    pd.testing.assert_frame_equal(one, other, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW)
def test_sparse_rows_have_the_fit_of_dense_ones_for_every_family(case):
    assert_same_fit(*SLOW[case])


def test_the_fit_is_scikit_learns_of_the_pooled_sparse_rows():
    held = scipy.sparse.csr_array(np.where(ROWS > 2000, ROWS - 2000, ROWS))
    pooled = Lasso(0.05, tol=1e-14, max_iter=100_000).fit(held, NUMBERS)
    ours = FederatedLasso(0.05, standardize=False).fit(held, NUMBERS, clients=CLIENTS)
    np.testing.assert_allclose(ours.coef_, pooled.coef_, atol=1e-8)
    np.testing.assert_allclose(ours.predict(held), pooled.predict(held), atol=1e-8)


def sizes(jaxpr):
    """How many numbers each array has that a program makes on its way."""
    for equation in jaxpr.eqns:
        for made in equation.outvars:
            yield int(np.prod(made.aval.shape, dtype=float))
        for value in jax.tree.leaves(equation.params, is_leaf=lambda leaf: isinstance(leaf, ClosedJaxpr | Jaxpr)):
            if isinstance(value, ClosedJaxpr | Jaxpr):
                yield from sizes(value.jaxpr if isinstance(value, ClosedJaxpr) else value)


WIDE_N, WIDE_P, MODELS = 4000, 20_000, 3


def wide_questions():
    """What a fit asks of wide rows."""
    coef, without = np.zeros((MODELS, WIDE_P, 1)), np.full(MODELS, -1, np.int32)
    intercept, zero = np.zeros((MODELS, 1)), np.zeros(1)
    where = np.arange(30, dtype=np.int32)
    loss = {"loss": cofed.Logistic()}
    yield queries.sums, queries.Message(**loss)
    yield queries.moments, queries.MomentsMessage(np.zeros(WIDE_P))
    yield queries.gram, queries.GramMessage(np.zeros(WIDE_P), zero, where, zero, uneven=True, **loss)
    yield queries.columns, queries.ColumnsMessage(where)
    yield queries.look, queries.LookMessage(coef, intercept, without, np.array([1]), where[None], **loss)
    yield queries.product, queries.ProductMessage(coef[0], zero, coef[:1], zero[None], **loss)
    yield queries.score, queries.ScoreMessage(coef[0], zero, zero, **loss)
    yield queries.held_out, queries.HeldOutMessage(coef, intercept, without, np.zeros((MODELS, 1)), **loss)
    yield queries.meat, queries.MeatMessage(coef[0], zero, where, np.zeros((0, 0)), **loss)
    yield queries.histogram, queries.HistogramMessage(where[:2], np.tile([0.0, 1.0], (2, 1)))
    yield (
        queries.intercepts,
        queries.InterceptsMessage(coef[:, :, 0], loss=cofed.losses.SiteIntercepts(cofed.Logistic())),
    )


def test_no_question_makes_an_array_of_all_rows_and_features():
    rng = np.random.default_rng(0)
    held = scipy.sparse.random_array((WIDE_N, WIDE_P), density=1e-3, rng=rng)
    sites = MemorySites(SiteRows.of_sites(("all",), [SparseRows(held)], [np.arange(WIDE_N) % 2.0]))
    table = sites.rows.table(Scaling(np.ones(WIDE_P), np.ones(WIDE_P)), None)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(table)) < WIDE_N * WIDE_P / 4
    for query, message in wide_questions():
        made = max(sizes(jax.make_jaxpr(query.answer, static_argnums=())(table, query.padded(message)).jaxpr))
        assert made < WIDE_N * WIDE_P / 10, query.name


@pytest.mark.slow
def test_wide_sparse_rows_are_fitted_as_scikit_learn_does():
    rng = np.random.default_rng(0)
    held = scipy.sparse.random_array((2000, 20_000), density=1e-3, rng=rng, format="csr")
    y = held[:, :5].sum(axis=1) * 3 + 0.1 * rng.normal(size=2000)
    ours = FederatedLasso(1e-3, standardize=False).fit(held, y, clients=np.arange(2000) % 3)
    pooled = Lasso(1e-3, tol=1e-12, max_iter=100_000).fit(held, y)
    assert ours.certificate_.converged
    np.testing.assert_allclose(ours.coef_, pooled.coef_, atol=1e-6)


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(st.integers(0, 2**32 - 1), st.sampled_from(["csr", "csc", "coo"]), st.booleans())
def test_any_form_of_the_same_numbers_is_the_same_fit(seed, form, whole):
    """Values stored twice count together; zeros may be stored; rows and columns may be empty, and numbers integers."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-2, 3, size=150)
    parts = scipy.sparse.coo_array(
        (values if whole else values * 0.5, (rng.integers(0, 30, size=150), rng.integers(1, 5, size=150))),
        shape=(30, 6),
    )
    y = rng.normal(size=30)
    before = parts.data.copy()
    given_form = parts if form == "coo" else parts.asformat(form)
    dense = FederatedLasso(0.05).fit(parts.toarray(), y)
    sparse = FederatedLasso(0.05).fit(given_form, y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-9)
    np.testing.assert_array_equal(parts.data, before)  # what is given stays as it is


def test_what_is_wrong_with_sparse_rows_is_said():
    held = scipy.sparse.csr_array(ROWS)
    holed = held.copy()
    holed.data[holed.indices == 3] = np.nan
    for X, y, words in (
        (holed, NUMBERS, "FederatedLasso: X contains NaN in column 3; fill"),
        (held * 1e200, NUMBERS, "X must be of a size between"),
        (held[:5], NUMBERS, "inconsistent numbers of samples"),
        (held, [*"ab"] * (N // 2), "FederatedLasso: y must be numbers"),
        (held.astype(complex), NUMBERS, "Complex data"),
    ):
        with pytest.raises(ValueError, match=words):
            FederatedLasso(0.1).fit(X, y)
    with pytest.raises(ValueError, match="FedAvg takes rows as an array, and X is sparse: algorithm='auto'"):
        FederatedLasso(0.1, algorithm=cofed.FedAvg(0.1)).fit(held, NUMBERS)
    model = FederatedLasso(0.1).fit(held, NUMBERS)
    with pytest.raises(ValueError, match="X has 3 features, but FederatedLasso is expecting 6"):
        model.predict(held[:, :3])
    with pytest.raises(TypeError, match=r"Sparse data was passed for X.*toarray"):
        FederatedStandardScaler().fit(held)


def test_a_path_predicts_for_sparse_rows():
    held = scipy.sparse.csr_array(ROWS)
    path = FederatedLasso().path(held, NUMBERS, clients=CLIENTS, n_alphas=3, eps=0.1)
    alpha = float(path.alphas[1])
    np.testing.assert_allclose(path.predict(held, alpha), path.predict(ROWS, alpha))
    with pytest.raises(ValueError, match=r"rows of 6 features, got the shape \(90, 2\)"):
        path.predict(held[:, :2], alpha)
