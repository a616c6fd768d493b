"""The papers' synthetic data: shapes, truths, and the statistics that the papers state."""

import dataclasses
import functools

import numpy as np
import pytest

from cofed import datasets

SMALL = {
    "yuan_lasso": {"clients": 4, "samples": 6, "d": 8, "nonzeros": 3},
    "yuan_low_rank": {"clients": 4, "samples": 6, "d": 4, "rank": 2},
    "yuan_fmri_like": {
        "clients": 4,
        "samples": 6,
        "d": 100,
        "regions": 3,
        "region_size": 5,
        "test_clients": 2,
    },
    "bao_sparse": {"clients": 4, "samples": 6, "d": 8, "nonzeros": 3},
    "bao_low_rank": {"clients": 4, "samples": 6, "d": 4, "rank": 2},
    "liang_linear": {"clients": 4, "samples": 6, "d": 8, "s": 3},
    "liang_logistic": {"clients": 4, "samples": 6, "d": 8, "s": 3},
    "liang_linear_stream": {"clients": 4, "samples": 6, "d": 8, "s": 3},
    "liang_logistic_stream": {"clients": 4, "samples": 6, "d": 8, "s": 3},
    "zhang_logistic": {"clients": 4, "samples": 6, "d": 8},
    "chen_logistic": {"clients": 4, "samples": 6, "d": 8},
}


@pytest.mark.parametrize("name", SMALL)
def test_shape_seed_and_dtype(name):
    make = functools.partial(getattr(datasets, name), **SMALL[name])
    data = make(seed=1, dtype="float64")
    assert data.federation.X.shape[:2] == (4, 6)
    assert data.federation.dtype == np.float64
    np.testing.assert_array_equal(make(seed=1, dtype="float64").federation.X, data.federation.X)
    assert not np.array_equal(make(seed=2, dtype="float64").federation.X, data.federation.X)
    single = make(seed=1, dtype="float32").federation
    assert single.dtype == np.float32
    if name.endswith("_stream"):  # which draws in its dtype
        return
    np.testing.assert_array_equal(single.X, np.asarray(data.federation.X).astype("float32"))
    np.testing.assert_allclose(single.y, data.federation.y, rtol=1e-6)
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.truth = {}


def test_every_generator_is_tested_above():
    papers = ("bao_", "chen_", "liang_", "yuan_", "zhang_")
    assert set(SMALL) == {name for name in datasets.__all__ if name.startswith(papers)}


@pytest.mark.parametrize("name", SMALL)
def test_bad_sizes_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}: clients must be a whole number >= 1, got 0"):
        getattr(datasets, name)(**{**SMALL[name], "clients": 0})


@pytest.mark.parametrize("name", ["yuan_lasso", "bao_sparse"])
def test_sparse_regression(name):
    data = getattr(datasets, name)(clients=40, samples=50, d=20, nonzeros=5, seed=3, dtype="float64")
    coef, b = data.truth["coef"], data.truth.get("intercept", 0.0)
    assert coef.tolist() == [1.0] * 5 + [0.0] * 15
    X, y = data.federation.pooled()
    residual = y - X @ coef - b
    assert abs(residual.mean()) < 0.1
    assert residual.std() == pytest.approx(1, rel=0.06)
    means = np.array([data.federation.client(m)[0].mean(axis=0) for m in range(40)])
    assert means.std() == pytest.approx(1, rel=0.1)  # mu_m ~ N(0, I): clients differ
    within = np.concatenate([data.federation.client(m)[0] - means[m] for m in range(40)])
    assert within.std() == pytest.approx(1, rel=0.05)
    neighbours = np.corrcoef(within.T)
    expected = 0.0 if name == "yuan_lasso" else 0.5
    assert np.diagonal(neighbours, 1).mean() == pytest.approx(expected, abs=0.02)
    assert np.diagonal(neighbours, 2).mean() == pytest.approx(expected**2, abs=0.02)
    assert within.std(axis=0) == pytest.approx(np.ones(20), rel=0.1)  # also the last: the recursion is stationary


def test_the_intercept_of_yuan_is_drawn():
    make = functools.partial(datasets.yuan_lasso, clients=2, samples=2, d=3, nonzeros=1)
    draws = [make(seed=seed).truth["intercept"] for seed in range(200)]
    assert np.std(draws) == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize("name", ["yuan_low_rank", "bao_low_rank"])
def test_low_rank(name):
    data = getattr(datasets, name)(clients=20, samples=50, d=6, rank=2, dtype="float64")
    np.testing.assert_array_equal(data.truth["coef"], np.diag([1.0, 1, 0, 0, 0, 0]))
    X, y = data.federation.pooled()
    assert X.shape == (1000, 6, 6)
    residual = y - np.einsum("nij,ij->n", X, data.truth["coef"]) - data.truth.get("intercept", 0.0)
    assert residual.std() == pytest.approx(1, rel=0.1)
    assert abs(residual.mean()) < 0.15


def test_yuan_test_clients_are_fresh_and_share_the_truth():
    data = datasets.yuan_lasso(clients=3, samples=50, d=5, nonzeros=2, test_clients=4, dtype="float64")
    assert data.test.names == ("test0", "test1", "test2", "test3")
    X, y = data.test.pooled()
    assert abs((y - X @ data.truth["coef"] - data.truth["intercept"]).mean()) < 0.3
    assert not np.isin(X, data.federation.pooled()[0]).any()
    alone = datasets.yuan_lasso(clients=3, samples=50, d=5, nonzeros=2, test_clients=0, dtype="float64")
    assert alone.test is None
    np.testing.assert_array_equal(alone.federation.X, data.federation.X)


@pytest.mark.parametrize("name", ["yuan_lasso", "yuan_low_rank"])
def test_yuan_features_of_another_scale_keep_truth_and_noise(name):
    make = functools.partial(getattr(datasets, name), **SMALL[name], dtype="float64")
    plain, scaled = make(), make(scale=0.25)
    np.testing.assert_allclose(scaled.federation.X, 0.25 * plain.federation.X, rtol=1e-15)
    np.testing.assert_array_equal(scaled.truth["coef"], plain.truth["coef"])

    def noise(data):
        X, y = data.test.pooled()
        return y - X.reshape(len(y), -1) @ data.truth["coef"].ravel() - data.truth["intercept"]

    np.testing.assert_allclose(noise(scaled), noise(plain), atol=1e-13)


def test_fmri_like():
    data = datasets.yuan_fmri_like(clients=30, samples=18, d=3000, test_clients=10, dtype="float64")
    coef = data.truth["coef"]
    assert np.count_nonzero(coef) == 200
    assert {np.sign(c) for c in coef} == {-1.0, 0.0, 1.0}
    X, y = data.federation.pooled()
    assert set(y.tolist()) == {0, 1}
    assert 0.4 < y.mean() < 0.6
    margin = X @ coef
    assert margin.std() == pytest.approx(8, rel=0.15)
    assert 0.88 < ((margin > 0) == y).mean() < 0.98
    noise = np.concatenate([data.federation.client(m)[0] for m in range(30)])
    noise = noise - noise.reshape(30, 18, -1).mean(axis=1).repeat(18, axis=0)
    neighbours = (noise[:, 1:] * noise[:, :-1]).mean() / (noise**2).mean()
    assert neighbours == pytest.approx(8 / 9, abs=0.02)  # a mean over 9 voxels shares 8 with the next
    far = (noise[:, 9:] * noise[:, :-9]).mean() / (noise**2).mean()
    assert abs(far) < 0.05
    assert data.test.n_clients == 10


def test_the_defaults_are_the_papers_sizes():
    fed = datasets.yuan_lasso().federation
    assert (fed.X.shape, fed.dtype) == ((64, 128, 1024), np.float32)
    assert datasets.bao_low_rank().federation.X.shape == (64, 128, 32, 32)
    assert datasets.zhang_logistic().federation.X.shape == (30, 100, 20)


def test_liang_linear():
    data = datasets.liang_linear(clients=8, samples=400, d=30, s=4, heterogeneity=2.0, dtype="float64")
    local, coef = data.local["coef"], data.truth["coef"]
    assert coef.tolist() == [1.0] * 4 + [0.0] * 26
    np.testing.assert_allclose(local.mean(axis=0), coef, atol=1e-14)
    assert np.abs(local).min() > 0  # dense
    assert (local - coef).std() == pytest.approx(2 * np.sqrt(7 / 8), rel=0.1)
    for m in range(8):
        X, y = data.federation.client(m)
        assert (X[:, 0] == 1).all()
        assert (y - X @ local[m]).std() == pytest.approx(1, rel=0.15)


def test_liang_logistic_pairs_and_population_optimum():
    data = datasets.liang_logistic(
        clients=4, samples=40_000, d=6, s=2, heterogeneity=1.0, test_samples=5, seed=2, dtype="float64"
    )
    local, coef = data.local["coef"], data.truth["coef"]
    np.testing.assert_array_equal(local[0::2, :2], local[1::2, :2])
    np.testing.assert_array_equal(local[0::2, 2:], -local[1::2, 2:])
    assert np.abs(local).min() > 0
    assert coef[2:].tolist() == [0.0] * 4
    # The gradient at w* is zero up to the sampling error; at the plain average of the w_m it is not.
    X, y = data.federation.pooled()

    def gradient(w):
        return X.T @ (1 / (1 + np.exp(-X @ w)) - y) / len(y)

    assert np.abs(gradient(coef)).max() < 4 * 0.5 / np.sqrt(len(y))
    assert np.abs(gradient(local.mean(axis=0))).max() > 8 * 0.5 / np.sqrt(len(y))
    assert 0.4 < y.mean() < 0.6
    assert data.test.X.shape == (4, 5, 6)


def test_zhang_features_and_labels():
    data = datasets.zhang_logistic(alpha=4.0, beta=9.0, clients=400, samples=40, d=8, seed=1)
    coef, intercept = data.local["coef"], data.local["intercept"]
    for m in range(5):
        X, y = data.federation.client(m)
        np.testing.assert_array_equal(y, np.sign(X @ coef[m] + intercept[m]))
    X = np.asarray(data.federation.X)
    assert X.std(axis=1).mean(axis=0) == pytest.approx(np.arange(1, 9) ** -0.6, rel=0.1)
    # Client means: N(B_k, 1) with B_k ~ N(0, beta): the variance of the average over d entries is beta + 1/d.
    assert X.mean(axis=(1, 2)).var() == pytest.approx(9 + 1 / 8, rel=0.25)
    assert coef.mean(axis=1).var() == pytest.approx(4 + 1 / 8, rel=0.25)


def test_zhang_alpha_and_beta_move_models_and_features_apart():
    make = functools.partial(datasets.zhang_logistic, clients=200, samples=20)
    calm, wild = make(alpha=0.0, beta=0.0), make(alpha=50.0, beta=50.0)
    assert wild.local["coef"].mean(axis=1).std() > 10 * calm.local["coef"].mean(axis=1).std()
    means = [np.asarray(d.federation.X).mean(axis=(1, 2)).std() for d in (calm, wild)]
    assert means[1] > 10 * means[0]
    _, y = wild.federation.pooled()
    assert set(y.tolist()) == {-1, 1}
    assert 0.35 < (y == 1).mean() < 0.65
    unit = make(normalize=True).federation
    np.testing.assert_allclose(np.linalg.norm(np.asarray(unit.X), axis=2), 1, rtol=1e-12)
    np.testing.assert_array_equal(unit.y, wild.federation.y)


def test_zhang_clients_differ_along_one_direction_or_along_all():
    make = functools.partial(datasets.zhang_logistic, clients=400, samples=5, d=8, normalize=True)
    for by_coordinate, low, high in ((False, 0.7, 1.0), (True, 1 / 8, 0.25)):
        data = make(by_coordinate=by_coordinate)
        X, _ = data.federation.pooled()
        assert low < np.linalg.eigvalsh(X.T @ X / len(X))[-1] < high  # the eigenvalues of unit rows add up to 1
        assert data.local["coef"].var() == pytest.approx(51, rel=0.2)


@pytest.mark.parametrize("samples", [30, [10, 20, 30, 60]])
@pytest.mark.parametrize("R", [0.0, 0.3, 4.0])
def test_chen_heterogeneity_is_exact(samples, R):
    data = datasets.chen_logistic(clients=4, samples=samples, d=3, heterogeneity=R, norm=2.0)
    share = np.asarray(data.federation.weights("samples"))
    local, average = data.local["coef"], data.truth["coef"]
    np.testing.assert_allclose(share @ local, average, atol=1e-14)
    assert share @ ((local - average) ** 2).sum(axis=1) == pytest.approx(R**2, rel=1e-12, abs=0)
    assert np.linalg.norm(average) == pytest.approx(2, rel=1e-12)
    assert R == data.R


def test_chen_features_and_labels():
    data = datasets.chen_logistic(clients=3, samples=20_000, d=2, heterogeneity=1.0, test_samples=7)
    assert data.test.sizes.tolist() == [7, 7, 7]
    for m in range(3):
        X, y = data.federation.client(m)
        assert np.abs(X).max() <= 1
        assert X.var() == pytest.approx(1 / 3, rel=0.05)
        assert set(y.tolist()) == {-1, 1}
        p = 1 / (1 + np.exp(-X @ data.local["coef"][m]))
        # Calibrated: the gradient of the loss at w_m* is zero up to sampling error.
        assert np.abs(X.T @ ((y == 1) - p)).max() / len(y) < 4 * 0.5 / np.sqrt(3 * len(y))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: datasets.yuan_lasso(d=4, nonzeros=5), "nonzeros must be between 0 and d=4, got 5"),
        (lambda: datasets.yuan_low_rank(d=4, rank=5), "rank must be between 0 and d=4, got 5"),
        (
            lambda: datasets.yuan_fmri_like(d=100),
            r"regions \* region_size must be between 0 and d=100, got 200",
        ),
        (lambda: datasets.bao_sparse(correlation=1.0), "correlation must be between -1 and 1"),
        (lambda: datasets.liang_linear(d=4, s=5), "s must be between 0 and d=4, got 5"),
        (lambda: datasets.liang_logistic(clients=3), "number must be even, got 3"),
        (lambda: datasets.zhang_logistic(alpha=-1.0), "alpha must be a finite number >= 0"),
        (lambda: datasets.chen_logistic(clients=3, samples=[5, 5]), "2 numbers for 3 clients"),
        (
            lambda: datasets.chen_logistic(clients=2, samples=[5, 0]),
            r"samples\[1\] must be a whole number >= 1",
        ),
        (lambda: datasets.chen_logistic(clients=1), "one client alone cannot differ"),
        (lambda: datasets.chen_logistic(heterogeneity=-1.0), "heterogeneity must be a finite number >= 0"),
        (lambda: datasets.chen_logistic(dtype="int32"), "dtype must be 'float32' or 'float64'"),
    ],
)
def test_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
