"""Intervals: the pooled answers of statsmodels, dependent columns, robust errors, and what has no interval."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import norm
from tests.estimators import hospitals

from cofed.estimators import (
    FederatedConstrained,
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
    FederatedPoisson,
    FederatedTraceRegression,
    load,
)
from cofed.estimators.inference.debiased import nodewise
from cofed.estimators.inference.independence import independence

N, P = 400, 4
NAMES = list("abcd")
SITES = np.random.default_rng(9).permutation(np.repeat(["Bern", "Oslo", "Rome", "York"], [200, 120, 60, 20]))
PEOPLE = np.arange(N) // 8  # eight visits each
TRUTH = np.array([0.8, 0.0, -0.5, 0.0])


def features(seed=0):
    """Correlated columns, of very different sizes, around means that are far from 0."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P)) @ (np.eye(P) + 0.4)
    return pd.DataFrame(X * [1.0, 100.0, 0.01, 1.0] + [0.0, 5000.0, 1.0, -3.0], columns=NAMES)


def scores(df):
    return (df.to_numpy() - df.to_numpy().mean(axis=0)) / df.to_numpy().std(axis=0) @ TRUTH


def linear(seed=0):
    df, rng = features(seed), np.random.default_rng(seed + 1)
    visits = rng.normal(size=N // 8)[PEOPLE]
    return df, scores(df) + visits + rng.normal(size=N) * (1 + np.abs(df.d.to_numpy() + 3))


def binary(seed=0):
    df, rng = features(seed), np.random.default_rng(seed + 1)
    return df, (rng.uniform(size=N) < 1 / (1 + np.exp(-scores(df)))).astype(int)


def counts(seed=0):
    df, rng = features(seed), np.random.default_rng(seed + 1)
    return df, rng.poisson(np.exp(1 + 0.3 * scores(df)) * rng.gamma(2, 0.5, N)).astype(float)


def agrees(table, fit, *, rtol=1e-6, errors=1e-6, level=0.95):
    """Whether the table is statsmodels' fit, its first parameter being the intercept."""
    np.testing.assert_allclose(table.debiased, np.asarray(fit.params)[1:], rtol=rtol)
    np.testing.assert_allclose(table.se, np.asarray(fit.bse)[1:], rtol=errors)
    interval = np.asarray(fit.conf_int(1 - level))[1:]
    scale = np.asarray(fit.bse)[1:]
    np.testing.assert_allclose((table.low - interval[:, 0]) / scale, 0, atol=10 * errors)
    np.testing.assert_allclose((table.high - interval[:, 1]) / scale, 0, atol=10 * errors)
    np.testing.assert_allclose(table.p_value, np.asarray(fit.pvalues)[1:], rtol=1e3 * errors, atol=1e-12)


ROBUST = {
    "model": {},
    "hc1": {"cov_type": "HC1", "use_t": True},
    "hc3": {"cov_type": "HC3", "use_t": True},
    "people": {"cov_type": "cluster", "cov_kwds": {"groups": PEOPLE}, "use_t": True},
}


# statsmodels takes HC1's n / (n - k) for linear models only.
HC1 = {"cov_type": "HC0", "cov_kwds": {"scaling_factor": N / (N - P - 1)}}


@pytest.mark.parametrize("errors", ROBUST)
def test_a_linear_model_has_the_intervals_of_least_squares(errors):
    df, y = linear()
    sites = pd.Series(SITES)
    model = FederatedLasso(0.3).fit(df, y, clients=sites)
    if errors == "people":
        people = pd.Series([f"{site}-{person}" for site, person in zip(SITES, PEOPLE, strict=True)])
        reference = {**ROBUST[errors], "cov_kwds": {"groups": pd.factorize(people)[0]}}
        table = model.infer(df.assign(person=PEOPLE), y, sites, errors="person", level=0.9)
        again = model.infer(df, y, sites, errors=PEOPLE, level=0.9)
        pd.testing.assert_frame_equal(table, again)
    else:
        reference = ROBUST[errors]
        table = model.infer(df, y, sites, errors=errors, level=0.9)
    fit = sm.OLS(y, sm.add_constant(df.to_numpy())).fit(**reference)
    agrees(table, fit, rtol=1e-9, errors=1e-8, level=0.9)
    np.testing.assert_allclose(table.coef, model.coef_, rtol=1e-9)


def test_sites_can_be_the_clusters():
    df, y = linear()
    model = FederatedLasso(0.3).fit(df, y, clients=SITES)
    with pytest.warns(UserWarning, match="standard errors by sites rest on many of them, and there are 4: with fewer"):
        table = model.infer(df, y, SITES, errors="site")
    groups = pd.factorize(SITES)[0]
    fit = sm.OLS(y, sm.add_constant(df.to_numpy())).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    agrees(table, fit, rtol=1e-9, errors=1e-8)
    assert "standard errors by 4 sites; t with 3 degrees of freedom" in model.summary()
    alone = FederatedLasso(0.3).fit(df, y)
    with pytest.raises(ValueError, match="standard errors by sites need at least 2 of them, and there is 1"):
        alone.infer(df, y, errors="site")


@pytest.mark.parametrize("alpha", [0.001, 0.1])
@pytest.mark.parametrize("errors", ["model", "hc1", "people"])
def test_a_logistic_model_has_the_intervals_of_maximum_likelihood(errors, alpha):
    df, y = binary()
    model = FederatedLogisticRegression(alpha).fit(df, y, clients=SITES)
    if errors == "people":
        groups = pd.factorize(pd.Series([f"{s}-{p}" for s, p in zip(SITES, PEOPLE, strict=True)]))[0]
        reference = {"cov_type": "cluster", "cov_kwds": {"groups": groups}, "use_t": True}
    else:
        reference = {"model": {}, "hc1": HC1}[errors]
    table = model.infer(df, y, SITES, errors=PEOPLE if errors == "people" else errors)
    fit = sm.GLM(y, sm.add_constant(df.to_numpy()), sm.families.Binomial()).fit(tol=1e-12, **reference)
    agrees(table, fit, rtol=1e-5, errors=2e-4)


def test_hc3_of_a_logistic_model_takes_its_leverages():
    df, y = binary()
    table = FederatedLogisticRegression(0.01).fit(df, y, clients=SITES).infer(df, y, SITES, errors="hc3")
    A = sm.add_constant(df.to_numpy())
    share = sm.GLM(y, A, sm.families.Binomial()).fit(tol=1e-12).fittedvalues
    V = np.linalg.inv(A.T @ (A * (share * (1 - share))[:, None]))
    leverage = share * (1 - share) * np.einsum("ij,jk,ik->i", A, V, A)
    rows = A * ((y - share) / (1 - leverage))[:, None]
    np.testing.assert_allclose(table.se, np.sqrt(np.diag(V @ rows.T @ rows @ V))[1:], rtol=2e-4)


@pytest.mark.parametrize("errors", ["model", "hc1"])
def test_a_model_of_counts_has_the_intervals_of_maximum_likelihood(errors):
    df, y = counts()
    table = FederatedPoisson(0.05).fit(df, y, clients=SITES).infer(df, y, SITES, errors=errors)
    reference = {} if errors == "model" else HC1
    fit = sm.GLM(y, sm.add_constant(df.to_numpy()), sm.families.Poisson()).fit(tol=1e-12, **reference)
    agrees(table, fit, rtol=1e-5, errors=2e-4)


def test_several_classes_have_log_odds_against_the_first():
    df, rng = features(), np.random.default_rng(3)
    y = np.array(["high", "low", "mid"])[(np.outer(scores(df), [1.0, 0.0, -0.5]) + rng.gumbel(size=(N, 3))).argmax(1)]
    model = FederatedLogisticRegression(0.02).fit(df, y, clients=SITES)
    table = model.infer(df, y, SITES)
    Z = sm.add_constant((df - df.mean()) / df.std(ddof=0))  # MNLogit does not converge on columns as they are
    fit = sm.MNLogit(np.searchsorted(["high", "low", "mid"], y), Z).fit(disp=0, method="newton", maxiter=50)
    scale = df.std(ddof=0)
    for place, label in enumerate(("low", "mid")):
        rows = table.loc[[f"{label}: {name}" for name in NAMES]]
        np.testing.assert_allclose(rows.debiased, fit.params.iloc[1:, place] / scale, rtol=1e-4)
        np.testing.assert_allclose(rows.se, fit.bse.iloc[1:, place] / scale, rtol=1e-3)
        np.testing.assert_allclose(rows.coef, model.coef_[place + 1] - model.coef_[0], atol=1e-9)
    some = model.infer(df, y, SITES, coefficients=["c"], errors="hc3")
    assert some.index.tolist() == ["low: c", "mid: c"]
    assert "mid: c" in model.summary()


def test_robust_errors_of_several_classes_are_sums_over_rows():
    df, rng = features(), np.random.default_rng(3)
    y = (np.outer(scores(df), [1.0, 0.0, -0.5]) + rng.gumbel(size=(N, 3))).argmax(1)
    model = FederatedLogisticRegression(0.02).fit(df, y, clients=SITES)
    table = model.infer(df, y, SITES, errors="hc1")
    Z = sm.add_constant(((df - df.mean()) / df.std(ddof=0)).to_numpy())
    theta = np.asarray(sm.MNLogit(y, Z).fit(disp=0, method="newton", maxiter=50).params)
    share = softmax(np.column_stack([np.zeros(N), Z @ theta]), axis=1)
    bread, meat = np.zeros((10, 10)), np.zeros((10, 10))
    for z, q, label in zip(Z, share, y, strict=True):
        rows = np.kron(np.eye(2), z[:, None])
        bread += rows @ (np.diag(q[1:]) - np.outer(q[1:], q[1:])) @ rows.T
        score = rows @ (q[1:] - np.eye(3)[label][1:])
        meat += np.outer(score, score)
    V = np.linalg.inv(bread)
    error = np.sqrt(N / (N - 10) * np.diag(V @ meat @ V)).reshape(2, 5)[:, 1:] / df.std(ddof=0).to_numpy()
    np.testing.assert_allclose(table.se.to_numpy().reshape(4, 2).T, error, rtol=1e-3)


@pytest.mark.parametrize("family", ["linear", "logistic", "counts"])
def test_dependent_columns_have_no_interval_and_are_named(family):
    make, kind, other = {
        "linear": (linear, FederatedLasso, sm.families.Gaussian()),
        "logistic": (binary, FederatedLogisticRegression, sm.families.Binomial()),
        "counts": (counts, FederatedPoisson, sm.families.Poisson()),
    }[family]
    df, y = make()
    wide = df.assign(ab=2 * df.a - df.b / 50, one=7.0)[["a", "one", "b", "ab", "c", "d"]]
    model = kind(0.01).fit(wide, y, clients=SITES)
    with pytest.warns(UserWarning, match=r"\(NaN\): 'one' is constant, 'ab' depends on 'a', 'b'$"):
        table = model.infer(wide, y, SITES)
    assert table.index[table.se.isna()].tolist() == ["one", "ab"]
    assert table.loc[["one", "ab"], ["debiased", "se", "low", "high", "z", "p_value"]].isna().all(axis=None)
    assert table.coef.notna().all()
    fit = sm.GLM(y, sm.add_constant(df.to_numpy()), other).fit(tol=1e-12)
    own = table.loc[NAMES]
    np.testing.assert_allclose(own.debiased, fit.params[1:], rtol=1e-5)
    np.testing.assert_allclose(own.se, fit.bse[1:], rtol=2e-4)
    assert "'ab' depends on 'a', 'b'" in model.summary()
    model.infer(wide, y, SITES, coefficients=["a", "c"])  # nobody asked for the dependent ones: no warning


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=3), st.integers(0, 2**31))
def test_independent_columns_are_those_that_raise_the_rank(p, copies, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, p))
    columns = [*X.T, *(X[:, i % p] - 2 * X[:, j % p] for i, j in copies)]
    order = rng.permutation(len(columns))
    X = np.array(columns).T[:, order] * 10.0 ** rng.integers(-6, 6, len(columns))
    found = independence(X.T @ X, np.arange(len(columns)))
    Z = X / np.where(np.linalg.norm(X, axis=0) > 0, np.linalg.norm(X, axis=0), 1)
    ranks = [np.linalg.matrix_rank(Z[:, : j + 1], tol=1e-9) for j in range(len(columns))]
    assert found.kept.tolist() == (np.diff([0, *ranks]) > 0).tolist()
    np.testing.assert_allclose(
        X[:, found.kept] @ found.shares / np.abs(X).max(axis=0), X / np.abs(X).max(axis=0), atol=1e-6
    )


def test_nearly_dependent_columns_are_solved_for_twice():
    """A column that has 1e-10 of its variance for itself: from products alone few digits would be right."""
    df, y = linear()
    df["e"] = df.a + df.c * 100 + 1e-5 * np.random.default_rng(5).normal(size=N)
    model = FederatedLasso(0.01).fit(df, y, clients=SITES)
    table = model.infer(df, y, SITES)
    Q, R = np.linalg.qr(sm.add_constant(((df - df.mean()) / df.std()).to_numpy()))
    exact = np.linalg.solve(R, Q.T @ y)[1:] / df.std()
    np.testing.assert_allclose(table.debiased, exact, rtol=1e-6)


def test_a_linear_model_without_an_intercept():
    df, y = linear()
    model = FederatedLasso(0.1, fit_intercept=False).fit(df, y, clients=SITES)
    table = model.infer(df, y, SITES)
    fit = sm.OLS(y, df.to_numpy()).fit()
    np.testing.assert_allclose(table.debiased, fit.params, rtol=1e-6)
    np.testing.assert_allclose(table.se, fit.bse, rtol=1e-6)


def test_a_path_is_near_enough_for_two_more_looks():
    df, y = binary()
    model = FederatedLogisticRegressionCV(n_alphas=20, criterion="bic").fit(df, y, clients=SITES)
    before = model.n_rounds_
    model.infer(df, y, SITES)
    assert model.n_rounds_ - before <= 4  # with two for sums


@pytest.mark.parametrize("how", ["complete", "a rare level", "no counts"])
def test_separated_rows_have_no_intervals(how):
    df, y = binary()
    kind = FederatedLogisticRegression
    level = (np.arange(N) % 20 == 0).astype(float)
    if how == "complete":
        df["e"] = (2 * y - 1) * (1 + np.random.default_rng(2).uniform(size=N))
    elif how == "a rare level":
        df["e"] = level
        y = np.where(level > 0, 1, y)
    else:
        df, y = counts()
        df["e"], y, kind = level, np.where(level > 0, 0.0, y), FederatedPoisson
    model = kind(0.01).fit(df, y, clients=SITES)
    with pytest.raises(ValueError, match=r"no intervals: without a penalty the coefficients grow .* that of 'e'"):
        model.infer(df, y, SITES)
    assert "inference_" not in vars(model)


def test_a_row_that_decides_alone_has_no_leverage():
    df, y = linear()
    df["e"] = (np.arange(N) == 7).astype(float)
    model = FederatedLasso(0.01).fit(df, y, clients=SITES)
    with pytest.raises(ValueError, match=r"errors='hc3' is not defined where a row decides .* as 1 row does"):
        model.infer(df, y, SITES, errors="hc3")
    assert model.infer(df, y, SITES, errors="hc1").se.notna().all()


@pytest.mark.parametrize("errors", ["HC1", "person", None, 3, ["a"], [[1], [2]], np.zeros(N - 1), [None] * N])
def test_bad_errors_are_refused(errors):
    df, y = linear()
    model = FederatedLasso(0.3).fit(df, y, clients=SITES)
    with pytest.raises(ValueError, match=r"FederatedLasso: errors must (be one of|name one cluster per row)"):
        model.infer(df, y, SITES, errors=errors)


def wide(seed=0, n=80, p=100):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, 2 * X[:, 0] - X[:, 3], rng


def test_more_features_than_rows_are_debiased_one_by_one():
    X, z, rng = wide()
    y = z + rng.normal(size=80)
    X[:, 7] = X[:, 3]
    X[:, 9] = 4.0
    model = FederatedLasso(0.3).fit(X, y)
    with pytest.warns(UserWarning, match="'x3' depends on 'x7', 'x7' depends on 'x3', 'x9' is constant"):
        table = model.infer(X, y, coefficients=[0, 3, 7, 9, 50])
    assert table.se.isna().tolist() == [False, True, True, True, False]
    assert abs(table.debiased.iloc[0] - 2) < 3 * table.se.iloc[0] < 1
    np.testing.assert_allclose(table.high - table.low, 2 * norm.ppf(0.975) * table.se)
    robust = model.infer(X, y, coefficients=[0, 50], errors="hc1")
    np.testing.assert_allclose(robust.se / table.se.iloc[[0, 4]], 1, atol=0.4)
    with pytest.raises(ValueError, match="errors='hc3' needs several rows for each parameter"):
        model.infer(X, y, coefficients=[0], errors="hc3")


def test_an_approximate_inverse_is_one_up_to_its_penalty():
    X, _, _ = wide()
    H = np.cov(X, rowvar=False, bias=True)
    rate = np.log(100) / 80
    row = np.asarray(nodewise(np.asarray(H), np.int32(4), np.asarray(rate)))
    off = H @ row - np.eye(100)[4]
    tau = 1 / row[4]
    assert np.all(np.abs(off) <= 0.3 * np.sqrt(rate * H[4, 4] * np.diag(H)) / tau * (1 + 1e-6))
    assert abs(off[4]) < 1e-9


def test_few_events_are_debiased_from_a_sparse_model_and_not_from_the_penalised_one():
    X, z, rng = wide(n=200, p=100)
    y = (rng.uniform(size=200) < 1 / (1 + np.exp(-z))).astype(int)
    strong, weak = (FederatedLogisticRegression(alpha).fit(X, y) for alpha in (0.1, 0.01))
    tables = [model.infer(X, y, coefficients=[0, 3, 50]) for model in (strong, weak)]
    np.testing.assert_allclose(tables[0].debiased, tables[1].debiased, rtol=1e-3)
    np.testing.assert_allclose(tables[0].se, tables[1].se, rtol=1e-3)
    assert np.all(np.abs(tables[0].debiased - [2, -1, 0]) < 3 * tables[0].se)
    assert "debiased lasso" in strong.summary()


def test_few_events_leave_dependent_columns_out_too():
    df, y = binary()
    few = pd.concat([df, pd.DataFrame(np.random.default_rng(1).normal(size=(N, 20))).add_prefix("n")], axis=1)
    first = few.assign(ab=df.a + df.b / 100)
    last = first[["ab", *(name for name in first.columns if name != "ab")]]
    tables = []
    for wide in (first, last):
        model = FederatedLogisticRegression(0.02).fit(wide, y, clients=SITES)
        with pytest.warns(UserWarning, match="depends on"):
            tables.append(model.infer(wide, y, SITES, errors="hc3"))
    assert tables[0].index[tables[0].se.isna()].tolist() == ["ab"]
    assert tables[1].index[tables[1].se.isna()].tolist() == ["b"]
    # Without ab, a has what it has with ab and without b, and ab's: a + b / 100 = ab.
    np.testing.assert_allclose(tables[0].debiased.a, tables[1].debiased.a + tables[1].debiased.ab, atol=0.05)
    np.testing.assert_allclose(tables[0].debiased.n3, tables[1].debiased.n3, atol=0.05)


def test_what_has_no_intervals_says_so():
    X, labels = hospitals.classes(3)
    model = FederatedLogisticRegression(0.05).fit(X, labels)
    with pytest.raises(ValueError, match="several classes need 10 rows of the rarest class for each of the 7"):
        model.infer(X, labels)
    X, y = hospitals.linear()
    trace = FederatedTraceRegression(0.1, shape=(2, 3)).fit(X, y)
    with pytest.raises(ValueError, match="intervals are for a vector of coefficients, not for a matrix"):
        trace.infer(X, y)


def test_intervals_are_kept_in_files_and_forgotten_by_a_new_fit(tmp_path):
    df, y = linear()
    model = FederatedLasso(0.3).fit(df, y, clients=SITES)
    model.infer(df, y, SITES, errors="hc3")
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    pd.testing.assert_frame_equal(again.inference_, model.inference_)
    assert again.summary() == model.summary()
    assert "95 %, least squares; HC3 standard errors; t with 395 degrees of freedom" in model.summary()
    assert "least squares" not in model.fit(df, y, clients=SITES).summary()


def test_a_constrained_fit_has_the_intervals_of_least_squares_too():
    df, y = linear()
    model = FederatedConstrained(constraint="nonnegative").fit(df, y, clients=SITES)
    agrees(model.infer(df, y, SITES), sm.OLS(y, sm.add_constant(df.to_numpy())).fit(), rtol=1e-8, errors=1e-8)
