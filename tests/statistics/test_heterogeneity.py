"""The estimate of R^2: fits against independent solvers, coverage, advice, exclusions."""

import dataclasses

import numpy as np
import pytest
from scipy import optimize
from tests import worlds

import cofed
from cofed.statistics.heterogeneity import heterogeneity_of
from cofed.statistics.local_fits import LocalFits, local_fits

LOGISTIC = cofed.Problem(cofed.Linear(intercept=False), cofed.Logistic())


def firth(X, y):
    """Firth's logistic regression by SciPy."""
    s = np.where(y > 0, 1.0, -1.0)

    def objective(w):
        q = 1 / (1 + np.exp(-X @ w))
        return np.logaddexp(0, -s * (X @ w)).sum() - np.linalg.slogdet(X.T @ (X * (q * (1 - q))[:, None]))[1] / 2

    return optimize.minimize(objective, np.zeros(X.shape[1]), method="BFGS", options={"gtol": 1e-8}).x


def test_fits_are_firths_also_where_classes_are_separated():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    pairs = [(X, (X[:, 0] > 0).astype(int)), (X, (X @ [1, 1] + rng.normal(size=40) > 0).astype(int))]
    fits = local_fits(LOGISTIC, cofed.Federation.from_arrays(pairs))
    for m, (X, y) in enumerate(pairs):
        np.testing.assert_allclose(fits.parameters[m], firth(X, y), rtol=1e-4)


def test_linear_fits_are_least_squares_with_the_hc2_covariance():
    federation = worlds.linear(sizes=(60, 80), d=3)
    fits = local_fits(cofed.Problem(), federation)
    for m in range(2):
        X, y = federation.client(m)
        X = np.column_stack([X, np.ones(len(X))])
        w, *_ = np.linalg.lstsq(X, y, rcond=None)
        inverse = np.linalg.inv(X.T @ X)
        residual = (y - X @ w) / np.sqrt(1 - np.einsum("ij,jk,ik->i", X, inverse, X))
        np.testing.assert_allclose(fits.parameters[m], w, rtol=1e-8)
        np.testing.assert_allclose(fits.covariances[m], inverse @ (X.T * residual**2) @ X @ inverse, rtol=1e-7)


def test_repeated_rows_of_a_group_bring_no_precision():
    federation = worlds.linear(sizes=(60, 80), d=3)
    pairs, groups = [], []
    for m in range(2):
        X, y = federation.client(m)
        pairs.append((np.repeat(X, 3, axis=0), np.repeat(y, 3)))
        groups.append(np.repeat(np.arange(len(y)), 3))
    once = local_fits(cofed.Problem(), federation)
    grouped = local_fits(cofed.Problem(), cofed.Federation.from_arrays(pairs), groups)
    # The leverages differ (a third each), so the agreement is that of HC2 with the plain sandwich.
    np.testing.assert_allclose(np.trace(grouped.covariances[0]), np.trace(once.covariances[0]), rtol=0.12)


@pytest.mark.parametrize("kind", ["linear", "logistic", "softmax", "poisson"])
def test_every_model_covers_the_truth(kind):
    """Twelve data sets each, of 30 clients: the interval misses at most two, and says "share" where R = 0."""
    loss = {"linear": cofed.Squared(), "logistic": cofed.Logistic(), "softmax": cofed.Softmax(3)}.get(
        kind, cofed.Poisson()
    )
    problem = cofed.Problem(cofed.Linear(intercept=False), loss)
    covered, shared = 0, 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        R = [0.0, 0.4][seed % 2]
        shape = (30, 2, 3) if kind == "softmax" else (30, 2)
        gaps = rng.normal(size=shape)
        gaps -= gaps.mean(axis=0)
        if kind == "softmax":
            gaps -= gaps.mean(axis=2, keepdims=True)
        gaps *= R / np.sqrt((gaps**2).sum() / 30)
        centre = rng.normal(size=shape[1:]) / 2
        pairs = []
        for gap in gaps:
            X = rng.normal(size=(120, 2))
            z = X @ (centre + gap)
            if kind == "linear":
                y = z + rng.normal(size=120)
            elif kind == "logistic":
                y = (rng.random(120) < 1 / (1 + np.exp(-z))).astype(int)
            elif kind == "softmax":
                y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
            else:
                y = rng.poisson(np.exp(z))
            pairs.append((X, y))
        found = cofed.heterogeneity(problem, cofed.Federation.from_arrays(pairs))
        covered += found.interval[0] <= R**2 <= found.interval[1]
        shared += R == 0 and found.verdict == "share"
    assert covered >= 10
    assert shared >= 5


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 500])
@pytest.mark.parametrize("m", [10, 100])
@pytest.mark.parametrize("R", [0.0, 0.5, 2.0])
def test_the_interval_covers_in_ninety_of_a_hundred_seeds(m, n, R):
    covered = 0
    for seed in range(100):
        data = cofed.datasets.chen_logistic(clients=m, samples=n, heterogeneity=R, seed=seed)
        low, high = cofed.heterogeneity(LOGISTIC, data.federation).interval
        covered += low <= R**2 <= high
    assert covered >= 90, covered


def test_the_advice_follows_the_interval():
    verdicts = {}
    for R in (0.0, 0.45, 2.0):
        data = cofed.datasets.chen_logistic(clients=10, samples=200, d=3, heterogeneity=R, seed=0)
        found = cofed.heterogeneity(LOGISTIC, data.federation)
        verdicts[found.verdict] = str(found)
    assert "one model for all is better" in verdicts["share"]
    assert "a model each is better" in verdicts["separate"]
    assert "try both on held-out data" in verdicts["between"]


def test_traces_alone_will_do():
    data = cofed.datasets.chen_logistic(clients=12, samples=100, d=3, heterogeneity=1.0)
    fits = local_fits(LOGISTIC, data.federation)
    full = heterogeneity_of(fits)
    traces = heterogeneity_of(dataclasses.replace(fits, covariances=np.trace(fits.covariances, axis1=1, axis2=2)))
    assert traces.R_squared == full.R_squared
    np.testing.assert_allclose(traces.interval, full.interval, rtol=0.2)


def test_unfit_clients_are_left_out_by_name():
    federation = worlds.linear(sizes=(60, 80, 70, 3, 40), names=["a", "b", "constant", "tiny", "one value"], d=3)
    pairs = {name: federation.client(name) for name in federation.names}
    pairs["constant"][0][:, 1] = 7.0
    pairs["one value"] = (pairs["one value"][0], np.zeros(40))
    found = cofed.heterogeneity(cofed.Problem(), cofed.Federation.from_arrays(pairs))
    assert list(found.table.index) == ["a", "b"]
    assert set(found.left_out) == {"constant", "tiny", "one value"}
    assert "3 samples for 4 parameters" in found.left_out["tiny"]
    assert "column 1 is constant" in found.left_out["constant"]
    assert "the one value 0" in found.left_out["one value"]
    assert "Left out: constant" in found.advice


@pytest.mark.parametrize(
    ("problem", "federation", "words"),
    [
        (cofed.Problem(cofed.MLP()), worlds.linear(), "is for Linear"),
        (cofed.Problem(loss=cofed.Huber()), worlds.linear(), "is for Linear"),
        (cofed.Problem(), worlds.linear(), "at least two clients"),
        (cofed.Problem(), worlds.linear(sizes=(600, 600), d=310), "up to 300"),
    ],
)
def test_bad_input_gets_a_sentence(problem, federation, words):
    with pytest.raises(ValueError, match=words):
        cofed.heterogeneity(problem, federation)


def test_a_level_outside_0_1_is_refused():
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        cofed.heterogeneity(cofed.Problem(), worlds.linear(sizes=(60, 80), d=2), level=95.0)


def given(parameters, covariances, samples=100):
    """Fits as clients would share them."""
    m = len(parameters)
    return LocalFits(tuple("abcdefgh"[:m]), np.full(m, samples), np.array(parameters), np.array(covariances), {})


def test_fits_that_coincide_and_fits_without_error():
    same = heterogeneity_of(given(np.ones((3, 2)), [np.eye(2) * 0.01] * 3))
    assert same.R_squared == 0
    assert same.verdict == "share"
    exact = heterogeneity_of(given([[0.0, 0.0], [2.0, 0.0]], np.zeros((2, 2, 2))))
    np.testing.assert_allclose(exact.interval, (1.0, 1.0), rtol=1e-6)


def test_two_clients_far_apart_are_told_apart():
    found = heterogeneity_of(given([[0.0, 0.0], [3.0, 0.0]], [np.eye(2) * 0.01] * 2))
    assert found.verdict == "separate"


def test_groups_count_as_samples():
    federation = worlds.linear(sizes=(60, 80, 70), d=2)
    few = [np.arange(60), np.arange(80), np.arange(70) // 10]
    found = cofed.heterogeneity(cofed.Problem(), federation, groups=few)
    assert found.left_out == {"2": "7 groups of samples for 3 parameters, at least 15 are needed"}
    with pytest.raises(ValueError, match="60 samples have no group"):
        cofed.heterogeneity(cofed.Problem(), federation, groups=[np.full(60, np.nan), *few[1:]])


def test_fits_that_are_no_fits_get_a_sentence():
    with pytest.raises(ValueError, match="at least two clients, got 1"):
        heterogeneity_of(given([[1.0, 2.0]], [np.eye(2)]))
    with pytest.raises(ValueError, match="parameters must be finite"):
        heterogeneity_of(given([[1.0, np.nan], [1.0, 2.0]], [np.eye(2)] * 2))
