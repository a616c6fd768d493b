"""Several responses: scikit-learn's and statsmodels' answers on pooled rows, certificates, paths, folds, intervals."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import MultiTaskElasticNet, MultiTaskLasso
from sklearn.metrics import r2_score

import cofed
from cofed.estimators import FederatedLasso, FederatedMultiTaskLasso, FederatedMultiTaskLassoCV, concave_path, load
from cofed.estimators.row_penalty import RowElasticNet
from cofed.estimators.solver import choose
from cofed.regularizers.base import RowQuadratic
from cofed.sites import Target, table_sites

N, P, K = 150, 7, 3


def rows(seed=0, n=N, p=P, k=K):
    """Features of very different sizes and means; responses of different variances, one far from 0."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * rng.uniform(0.1, 10, p) + 5 * rng.normal(size=p)
    W = np.where(np.arange(p)[:, None] < 3, rng.normal(size=(p, k)), 0)
    return X, X @ W + rng.normal(size=(n, k)) * np.linspace(1, 4, k) + np.linspace(1e3, 0, k), np.arange(n) % 3


def exactly(X, Y, alpha, l1_ratio=1.0, **how):
    kind = MultiTaskElasticNet(alpha, l1_ratio=l1_ratio, tol=1e-15, max_iter=1_000_000, **how)
    return kind.fit(X, Y)


@pytest.mark.parametrize("l1_ratio", [1.0, 0.4])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_answer_is_that_of_scikit_learn(l1_ratio, fit_intercept):
    X, Y, sites = rows()
    Y = Y if fit_intercept else Y - Y.mean(axis=0)
    how = {"l1_ratio": l1_ratio, "fit_intercept": fit_intercept}
    model = FederatedMultiTaskLasso(0.5, standardize=False, **how).fit(X, Y, clients=sites)
    pooled = exactly(X, Y, 0.5, **how)
    np.testing.assert_allclose(model.coef_, pooled.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(model.intercept_, pooled.intercept_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.predict(X), pooled.predict(X), rtol=1e-9, atol=1e-8)
    assert model.certificate_.converged
    assert model.n_rounds_ == 3


def test_standardised_features_are_penalised_as_glmnet_does():
    X, Y, sites = rows(1)
    model = FederatedMultiTaskLasso(0.5).fit(X, Y, clients=sites)
    pooled = exactly((X - X.mean(axis=0)) / X.std(axis=0), Y, 0.5)
    np.testing.assert_allclose(model.coef_ * X.std(axis=0), pooled.coef_, rtol=1e-8, atol=1e-10)


@pytest.mark.filterwarnings("ignore:Objective did not converge")  # scikit-learn's model is then no better than ours
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    strength=st.floats(-4, 0),
    l1_ratio=st.sampled_from([1.0, 0.7, 0.1]),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    p=st.sampled_from([2, 30]),
)
def test_no_gap_is_below_the_truth(seed, strength, l1_ratio, scale, p):
    """More features than rows, too: the model may not be unique, its objective is."""
    X, Y, sites = rows(seed, n=20, p=p)
    Y = scale * Y
    top = FederatedMultiTaskLasso(l1_ratio=l1_ratio).path(X, Y, sites, n_alphas=1).alphas[0]
    model = FederatedMultiTaskLasso(10.0**strength * top, l1_ratio=l1_ratio).fit(X, Y, clients=sites)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)

    def objective(coef, intercept, features):
        lengths = np.linalg.norm(coef * (X.std(axis=0) if features is X else 1.0), axis=0)
        loss = np.sum((Y - features @ coef.T - intercept) ** 2) / 2 / len(Y)
        return loss + model.alpha * (l1_ratio * lengths.sum() + (1 - l1_ratio) * np.sum(lengths**2) / 2)

    other = MultiTaskElasticNet(model.alpha, l1_ratio=l1_ratio, tol=1e-12, max_iter=5000).fit(Z, Y)
    found, pooled = objective(model.coef_, model.intercept_, X), objective(other.coef_, other.intercept_, Z)
    assert found - pooled <= model.certificate_.gap + model.certificate_.rounding + 1e-11 * found
    assert model.certificate_.outcome != "not converged"
    np.testing.assert_allclose(model.certificate_.objective, found, rtol=1e-9)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**16), step=st.floats(0.01, 3))
def test_the_penalty_of_rows_keeps_the_laws_of_duality(seed, step):
    rng = np.random.default_rng(seed)
    psi = RowElasticNet(jnp.asarray(rng.uniform(0.1, 2, 5)), jnp.asarray(rng.choice([0.0, 0.5], 5)))
    v = jnp.asarray(2 * rng.normal(size=(5, 3)))
    w = psi.prox(v, step)
    u = (v - w) / step  # a subgradient at the prox: Fenchel and Young hold with equality
    both = psi.value(w) + psi.conjugate(u * (1 - 1e-12))  # where rounding does not lead out of its domain
    np.testing.assert_allclose(both, np.sum(np.asarray(u * w)), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(psi.excess(w, -u), 0, atol=1e-12)
    other = w + 0.1 * jnp.asarray(rng.normal(size=w.shape))
    assert psi.value(other) >= psi.value(w) + np.sum(np.asarray(u) * (other - w)) - 1e-12
    at = psi.scaled(float(psi.zeroing_factor(v)) * (1 + 1e-12))
    assert not np.any(at.prox(-v, 1.0))
    assert np.any(at.scaled(0.99).prox(-v, 1.0))
    told, size = psi.row_quadratic(), np.linalg.norm(v, axis=1)
    np.testing.assert_allclose(told.l1 @ size + told.ridge @ size**2 / 2, psi.value(v), rtol=1e-12)


class Lengths(cofed.AbstractRegularizer):
    """A penalty of rows that knows neither a conjugate nor another name, and may tell what it is."""

    told: RowQuadratic | None = eqx.field(static=True)

    def value(self, w):
        return 0.1 * jnp.sum(jnp.linalg.norm(w, axis=1))

    def prox(self, v, step):
        return RowElasticNet(jnp.full(len(v), 0.1), jnp.zeros(len(v))).prox(v, step)

    def row_quadratic(self):
        return self.told


@pytest.mark.parametrize("tells", [True, False])
def test_a_penalty_says_itself_that_a_server_can_solve_for_its_rows(tells):
    X, Y, sites = rows(n=60, p=260, k=2)
    model = FederatedMultiTaskLasso()
    problem = model._standardized(model._intake(X, Y, sites))
    psi = Lengths(RowQuadratic(np.full(260, 0.1), np.zeros(260)) if tells else None)
    assert choose(problem, psi) == ("newton" if tells else "fista")
    assert choose(problem, cofed.GroupL1(0.1, np.repeat(np.arange(260), 2))) == "fista"


def test_paths_and_folds_are_those_of_models_one_by_one():
    X, Y, sites = rows(2)
    path = FederatedMultiTaskLasso(standardize=False).path(X, Y, sites, n_alphas=12, eps=1e-2)
    assert path.coefs.shape == (12, K, P)
    assert not path.coefs[0].any()
    assert path.converged.all()
    for alpha, coef in zip(path.alphas[1::5], path.coefs[1::5], strict=True):
        np.testing.assert_allclose(coef, exactly(X, Y, alpha).coef_, rtol=1e-8, atol=1e-9)
    folds = [(np.flatnonzero(np.arange(N) % 4 != k), np.flatnonzero(np.arange(N) % 4 == k)) for k in range(4)]
    chosen = FederatedMultiTaskLassoCV(alphas=path.alphas, cv=folds, standardize=False).fit(X, Y, clients=sites)
    errors = np.zeros((4, 12))
    for k, (learn, held) in enumerate(folds):
        for i, alpha in enumerate(path.alphas):
            one = MultiTaskLasso(alpha, tol=1e-10, max_iter=100_000).fit(X[learn], Y[learn])
            errors[k, i] = np.mean(np.sum((Y[held] - one.predict(X[held])) ** 2, axis=1))
    weight = np.array([len(held) for _, held in folds]) / N
    np.testing.assert_allclose(chosen.cv_mean_, weight @ errors, rtol=1e-4)
    assert chosen.alpha_ == path.alphas[np.argmin(weight @ errors)]
    absolute = FederatedMultiTaskLassoCV(alphas=path.alphas, cv=folds, measure="mae").fit(X, Y, clients=sites)
    assert absolute.n_rounds_ == chosen.n_rounds_ + 1
    mixed = FederatedMultiTaskLassoCV(l1_ratio=[0.2, 1.0], n_alphas=5, cv=3).fit(X, Y, clients=sites)
    assert mixed.l1_ratio_ in (0.2, 1.0)
    assert len(mixed.ratio_scores_) == 2
    few = FederatedMultiTaskLasso().path(X, Y, sites, n_alphas=12, dfmax=2)
    assert np.any(few.coefs[-1], axis=0).sum() <= 2


def test_information_criteria_count_all_responses():
    """Responses of independent errors of one variance: N K numbers with that variance."""
    X, Y, sites = rows(3)
    model = FederatedMultiTaskLassoCV(criterion="bic", n_alphas=10).fit(X, Y, clients=sites)
    path = model.path_
    expected = N * K * np.log(path.deviance) + np.log(N) * (path.coefs != 0).sum(axis=(1, 2))
    np.testing.assert_allclose(path.criterion("bic"), expected)


@pytest.mark.parametrize("errors", ["model", "hc1", "hc3"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_intervals_are_those_of_least_squares_for_each_response(errors, fit_intercept):
    X, Y, sites = rows(4)
    model = FederatedMultiTaskLasso(0.5, fit_intercept=fit_intercept).fit(X, Y, clients=sites)
    table = model.infer(X, Y, clients=sites, errors=errors)
    design = sm.add_constant(X) if fit_intercept else X
    kind = {"model": "nonrobust", "hc1": "HC1", "hc3": "HC3"}[errors]
    for r in range(K):
        pooled = sm.OLS(Y[:, r], design).fit(cov_type=kind, use_t=True)
        own = table.loc[[f"y{r}: x{j}" for j in range(P)]]
        for name, values in (("debiased", pooled.params), ("se", pooled.bse), ("p_value", pooled.pvalues)):
            np.testing.assert_allclose(own[name], values[int(fit_intercept) :], rtol=1e-7, atol=1e-12)
    assert "by response:" in model.summary()
    X, Y, sites = rows(4, n=20, p=30)
    model.fit(X, Y, clients=sites)
    with pytest.raises(ValueError, match=f"several responses need more rows than the {30 + fit_intercept} parameters"):
        model.infer(X, Y, clients=sites)


def test_options_of_rows_and_features():
    X, Y, sites = rows(5)
    weight = np.arange(N) % 4
    many = np.repeat(np.arange(N), weight)
    weighted = FederatedMultiTaskLasso(0.5).fit(X, Y, clients=sites, sample_weight=weight)
    repeated = FederatedMultiTaskLasso(0.5).fit(X[many], Y[many], clients=sites[many])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-10, atol=1e-12)
    sparse = FederatedMultiTaskLasso(0.5).fit(scipy.sparse.csr_array(X), Y, clients=sites)
    np.testing.assert_allclose(sparse.coef_, FederatedMultiTaskLasso(0.5).fit(X, Y).coef_, rtol=1e-10, atol=1e-12)
    factors = {"penalty_factor": [0, 1, 2, 1, 1, 1, 1], "exclude": [6]}
    model = FederatedMultiTaskLasso(100.0, **factors).fit(X, Y, clients=sites)
    assert model.support_.tolist() == [True] + [False] * 6
    assert model.certificate_.converged
    slopes = np.linalg.lstsq(np.c_[X[:, :1], np.ones(N)], Y, rcond=None)[0][0]
    np.testing.assert_allclose(model.coef_[:, 0], slopes, rtol=1e-9)
    free = FederatedMultiTaskLasso(0.0).fit(X, Y, clients=sites)
    np.testing.assert_allclose(free.coef_, np.linalg.lstsq(np.c_[X, np.ones(N)], Y, rcond=None)[0][:P].T, rtol=1e-9)


def test_offsets_are_taken_off_the_responses():
    X, Y, sites = rows(5)
    offset, weight = np.random.default_rng(1).normal(size=Y.shape), np.arange(N) % 4
    given = {"clients": sites, "sample_weight": weight}
    model = FederatedMultiTaskLasso(0.5).fit(X, Y + offset, **given, offset=offset)
    plain = FederatedMultiTaskLasso(0.5).fit(X, Y, **given)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(model.predict(X, offset=offset), plain.predict(X) + offset, rtol=1e-9)
    table = model.infer(X, Y + offset, **given, offset=offset)
    np.testing.assert_allclose(table.se, plain.infer(X, Y, **given).se, rtol=1e-9)
    chosen = FederatedMultiTaskLassoCV(n_alphas=5, cv=3).fit(X, Y + offset, clients=sites, offset=offset)
    other = FederatedMultiTaskLassoCV(n_alphas=5, cv=3).fit(X, Y, clients=sites)
    np.testing.assert_allclose(chosen.cv_mean_, other.cv_mean_, rtol=1e-8)
    moved = chosen.path_.predict(X, alpha=chosen.alpha_, offset=offset) - other.path_.predict(X, alpha=other.alpha_)
    np.testing.assert_allclose(moved, offset, atol=1e-8)
    with pytest.raises(ValueError, match="offset must have a column for each of the 3 responses, got 1 column"):
        model.predict(X, offset=offset[:, 0])
    with pytest.raises(ValueError, match="was fitted with an offset, and predicts with one"):
        model.predict(X)


def test_one_response_is_the_lasso():
    X, Y, sites = rows(6)
    model = FederatedMultiTaskLasso(0.3).fit(X, Y[:, :1], clients=sites)
    lasso = FederatedLasso(0.3).fit(X, Y[:, 0], clients=sites)
    assert model.coef_.shape == (1, P)
    assert model.predict(X).shape == (N, 1)
    np.testing.assert_allclose(model.coef_[0], lasso.coef_, rtol=1e-10, atol=1e-12)


def test_a_response_that_does_not_vary_has_no_coefficients():
    X, Y, sites = rows(7)
    Y[:, 1] = 1e6
    model = FederatedMultiTaskLasso(0.3).fit(X, Y, clients=sites)
    assert np.abs(model.coef_[1]).max() < 1e-12 * np.abs(model.coef_).max()
    np.testing.assert_allclose(model.intercept_[1], 1e6)
    flat = FederatedMultiTaskLasso(0.3).fit(X, np.ones((N, 2)), clients=sites)
    assert not flat.coef_.any()


def test_more_coefficients_than_products_are_asked_for(monkeypatch):
    """The server does not know the loss then: it asks for gradients."""
    monkeypatch.setattr("cofed.estimators.survey.PRODUCTS", {True: 2 * K, False: 512})
    monkeypatch.setattr("cofed.estimators.solver.DENSE", 2 * K)
    X, Y, sites = rows(8)
    model = FederatedMultiTaskLasso(2.0).fit(X, Y, clients=sites)
    assert model.algorithm_ == "fista"
    assert model.certificate_.converged
    pooled = exactly((X - X.mean(axis=0)) / X.std(axis=0), Y, 2.0)
    np.testing.assert_allclose(model.coef_ * X.std(axis=0), pooled.coef_, rtol=1e-5, atol=1e-6)


def test_scores_files_and_frames(tmp_path):
    X, Y, sites = rows(9)
    frame = pd.DataFrame(Y, columns=["systolic", "diastolic", "pulse"])
    model = FederatedMultiTaskLassoCV(n_alphas=5, cv=3).fit(X, frame, clients=sites)
    assert model.responses_.tolist() == ["systolic", "diastolic", "pulse"]
    assert "diastolic" in model.summary()
    expected = r2_score(Y, model.predict(X), multioutput="variance_weighted")
    np.testing.assert_allclose(model.score(X, Y), expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"fitted to the responses .* and is given them as .*: order them so"):
        model.score(X, frame[["pulse", "systolic", "diastolic"]])
    table = pd.DataFrame(X).add_prefix("x").join(frame)
    here = {f"site {name}": table[sites == name] for name in range(3)}
    swapped = Target(name="diastolic", responses=("pulse", "systolic"))
    with pytest.raises(ValueError, match="order them so"):
        model.score(table_sites(here, swapped))
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.at(model.alphas_[2]).coef_.shape == (K, P)


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (lambda Y: Y[:, 0], "one for each response"),
        (lambda Y: Y[:, :0], "one for each response"),
        (lambda Y: None, "requires y to be passed"),
        (lambda Y: np.where(np.arange(K) == 1, np.nan, Y), "y contains NaN in column 1"),
        (lambda Y: np.full(Y.shape, "x"), "y must be numbers"),
        (lambda Y: Y[:-1], "inconsistent numbers of samples"),
        (lambda Y: np.ma.masked_array(Y, Y > 0), "no masked values"),
        (lambda Y: Y.astype("m8[D]"), "y must be numbers, got timedelta64"),
    ],
)
def test_bad_responses_get_a_sentence(y, match):
    X, Y, sites = rows()
    with pytest.raises(ValueError, match=match):
        FederatedMultiTaskLasso().fit(X, y(Y), clients=sites)


def test_what_several_responses_have_no_place_for_is_refused():
    X, Y, sites = rows()
    with pytest.raises(ValueError, match="offset must have a column for each of the 3 responses, got 1 column;"):
        FederatedMultiTaskLasso().fit(X, Y, clients=sites, offset=np.ones(N))
    with pytest.raises(ValueError, match="offset must have a column for each of the 3 responses, got 2 columns;"):
        FederatedMultiTaskLasso().fit(X, Y, clients=sites, offset=np.ones((N, 2)))
    with pytest.raises(ValueError, match="FederatedLasso: offset must be one number per row, got 2 columns"):
        FederatedLasso().fit(X, Y[:, 0], clients=sites, offset=np.ones((N, 2)))
    with pytest.raises(ValueError, match="one vector of coefficients"):
        concave_path(FederatedMultiTaskLasso(), X, Y, sites, penalty=cofed.MCP(1.0))
