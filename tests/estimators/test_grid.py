"""Whole paths with cross-validation in few exchanges: how many, and that they are what separate pooled fits give."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Lasso, LogisticRegression

from cofed.estimators import (
    FederatedElasticNetCV,
    FederatedLassoCV,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
    FederatedPoisson,
    FederatedPoissonCV,
    lock_step,
    training_set,
)
from cofed.estimators.grid import Grid
from cofed.estimators.training_set import TrainingSet
from cofed.sites import Folds

SITES = np.repeat(["Bern", "Oslo", "Rome"], (70, 80, 50))


def features(p=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(len(SITES), p)) + rng.normal(size=(3, p))[np.unique(SITES, return_inverse=True)[1]]


def labels(X, seed=1):
    return (X[:, 0] - X[:, 1] + np.random.default_rng(seed).logistic(size=len(X)) > 0).astype(int)


def folds_of(y, count, by_class, sites=SITES):
    """The folds, as every site deals them."""
    dealt = np.empty(len(y), int)
    for name in np.unique(sites):
        dealt[sites == name] = Folds(count, 0, by_class).of_rows(str(name), y[sites == name], None)
    return dealt


def asked(model):
    return {one.what: one.rounds for one in model.exchanges_}


@pytest.mark.parametrize("kind", [FederatedLassoCV, FederatedElasticNetCV])
def test_a_linear_path_with_folds_takes_three_exchanges(kind):
    X = features()
    y = X[:, 0] + np.random.default_rng(2).normal(size=len(X))
    model = kind().fit(X, y, clients=SITES)
    assert asked(model) == {"sums": 1, "gram": 1, "look": 1}
    assert model.path_.converged.all()
    assert model.certificate_.converged


def test_held_out_errors_of_a_lasso_are_those_of_pooled_fits_without_the_fold():
    X = features() * np.array([1, 10, 1e3, 1e-3, 1, 1]) + 1e3
    y = 1e4 + X[:, 0] + np.random.default_rng(2).normal(size=len(X))
    model = FederatedLassoCV(n_alphas=6, cv=3, eps=1e-2).fit(X, y, clients=SITES)
    fold = folds_of(y, 3, by_class=False)
    assert len(set(np.bincount(fold).tolist())) > 1
    errors = np.zeros((3, 6))
    for k in range(3):
        A, b = X[fold != k], y[fold != k]
        mean, sd = A.mean(axis=0), A.std(axis=0)
        for i, alpha in enumerate(model.alphas_):
            fit = Lasso(alpha, tol=1e-14, max_iter=10**6).fit((A - mean) / sd, b - b.mean())
            off = y[fold == k] - b.mean() - fit.predict((X[fold == k] - mean) / sd)
            errors[k, i] = np.mean(off**2)
    share = np.bincount(fold) / len(fold)
    mean = share @ errors
    np.testing.assert_allclose(model.cv_mean_, mean, rtol=1e-4)
    np.testing.assert_allclose(model.cv_se_, np.sqrt(share @ (errors - mean) ** 2 / 2), rtol=1e-3)


def test_a_logistic_path_with_folds_is_that_of_separate_pooled_fits_in_at_most_twelve_exchanges():
    X = features()
    y = labels(X)
    model = FederatedLogisticRegressionCV(n_alphas=20, cv=3, eps=1e-2).fit(X, y, clients=SITES)
    assert asked(model) == {"sums": 1, "gram": 1, "look": pytest.approx(6, abs=4)}
    assert model.path_.converged.all()
    fold = folds_of(y, 3, by_class=True)
    losses = np.zeros(3)
    which = 12
    for k in range(-1, 3):
        A, b = X[fold != k], y[fold != k]
        mean, sd = A.mean(axis=0), A.std(axis=0)
        pooled = LogisticRegression(
            l1_ratio=1, C=1 / (len(b) * model.alphas_[which]), solver="saga", tol=1e-13, max_iter=200_000
        ).fit((A - mean) / sd, b)
        if k < 0:
            np.testing.assert_allclose(model.path_.coefs[which, 0] * sd, pooled.coef_[0], atol=1e-7)
            continue
        out = pooled.predict_log_proba((X[fold == k] - mean) / sd)
        losses[k] = -2 * np.mean(out[np.arange(len(out)), y[fold == k]])
    assert model.cv_mean_[which] == pytest.approx(np.bincount(fold) @ losses / len(fold), rel=1e-4)


def test_the_certificate_is_never_below_the_true_gap():
    """Of models that are not solved to the end, beside ones that are."""
    X = features(8, seed=3)
    y = np.random.default_rng(4).poisson(np.exp(0.4 * X[:, 0])).astype(float)
    alphas = np.geomspace(0.3, 0.003, 9)
    exact = FederatedPoisson().path(X, y, SITES, alphas=alphas)
    assert exact.converged.all()
    for rounds in (1, 2, 3, 4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rough = FederatedPoisson(max_rounds=rounds).path(X, y, SITES, alphas=alphas)
        scale = exact.scale
        true = [
            (rough.deviance[i] - exact.deviance[i]) / 2
            + a * (np.abs(rough.coefs[i] * scale).sum() - np.abs(exact.coefs[i] * scale).sum())
            for i, a in enumerate(alphas)
        ]
        assert np.all(rough.gaps >= np.array(true) - 1e-11)
        assert rounds > 1 or rough.gaps.max() > 1e-6


def test_a_single_fit_takes_few_exchanges_and_is_that_of_the_path():
    X = features()
    y = labels(X)
    for model in (FederatedLogisticRegression(0.01), FederatedLogisticRegression(0.02, penalty="group")):
        model.fit(X, y, clients=SITES)
        assert model.certificate_.converged
        assert model.n_rounds_ <= 10
        path = model.path(X, y, SITES, alphas=[0.05, model.alpha])
        np.testing.assert_allclose(path.coefs[1], model.coef_, atol=1e-8)


def test_a_column_that_is_constant_within_the_training_rows_of_a_fold_is_not_used_there():
    X = features(3)
    y = labels(X)
    fold = folds_of(y, 4, by_class=True)
    X[:, 2] = np.where(fold == 1, X[:, 2], 0.5)
    model = FederatedLogisticRegressionCV(n_alphas=10, cv=4, eps=1e-2).fit(X, y, clients=SITES)
    assert np.isfinite(model.cv_mean_).all()
    assert model.path_.converged.all()
    linear = FederatedLassoCV(n_alphas=10, cv=4).fit(X, y.astype(float), clients=SITES)
    assert np.isfinite(linear.cv_mean_).all()


def test_several_classes_and_a_strength_of_zero():
    X = features(4)
    y = np.digitize(X[:, 0] + np.random.default_rng(5).logistic(size=len(X)), [-1, 1])
    model = FederatedLogisticRegressionCV(n_alphas=12, cv=3, eps=1e-2).fit(X, y, clients=SITES)
    assert model.path_.converged.all()
    assert model.n_rounds_ <= 20
    path = FederatedLogisticRegression().path(X, y, SITES, alphas=[0.1, 0.0])
    assert path.converged.all()
    assert path.nonzero[0] < path.nonzero[1] == 12


@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 10**6), ratio=st.sampled_from([0.2, 1.0]))
def test_paths_of_counts_are_certified(seed, ratio):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(len(SITES), 4))
    y = rng.poisson(np.exp(np.clip(X @ rng.normal(size=4), None, 3))).astype(float)
    model = FederatedPoissonCV(l1_ratio=ratio, n_alphas=8, cv=2, eps=0.05).fit(X, y, clients=SITES)
    assert all(g <= 1e-9 for g in model.path_.gaps / max(model.path_.deviance))
    assert model.n_rounds_ <= 20


@pytest.mark.slow
def test_wide_data_take_at_most_twenty_exchanges():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 300))
    y = (X[:, :5].sum(axis=1) + rng.logistic(size=120) > 0).astype(int)
    model = FederatedLogisticRegressionCV(eps=0.05, cv=3).fit(X, y, clients=np.arange(120) % 4)
    assert model.n_rounds_ <= 20
    assert model.certificate_.outcome != "not converged"


def test_a_strength_that_is_not_tried_does_not_count_as_stuck():
    X = features()
    estimator = FederatedLogisticRegression()
    problem = estimator._standardized(estimator._intake(X, labels(X), SITES))
    alphas = np.geomspace(0.1, 0.01, 5)
    one = TrainingSet(problem, estimator._penalty(problem, 1.0), alphas, np.ones(5, bool), 1e-12)
    grid = Grid([one])
    grid.judge()
    assert [i for i, _ in one.candidates(every=4)] == [0, 4]
    before = one.standing.stayed.copy()
    grid.judge()
    assert (one.standing.stayed - before).tolist() == [1, 0, 0, 0, 1]


def test_hessians_that_are_too_large_for_every_fold_are_shared(monkeypatch):
    """As with 500 features in use, but smaller: a message has room for four whole Hessians, and there are six sets."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(900, 60))
    y = (X[:, :8].sum(axis=1) / 2 + rng.logistic(size=900) > 0).astype(int)
    sites, given = np.arange(900) % 4, {"n_alphas": 40, "eps": 1e-3, "cv": 5}
    usual = FederatedLogisticRegressionCV(**given).fit(X, y, clients=sites)
    monkeypatch.setattr("cofed.estimators.grid.BYTES", 4.0 * 4 * 61**2)
    monkeypatch.setattr("cofed.estimators.grid.LARGEST_PART", 61)
    monkeypatch.setattr("cofed.estimators.grid.WHOLE", 20)
    monkeypatch.setattr("cofed.estimators.grid.STEP", 8)
    sizes, ask = [], Grid.ask
    monkeypatch.setattr(
        Grid, "ask", lambda self, m, closer, where: (sizes.append(where.shape), ask(self, m, closer, where))[1]
    )
    found = FederatedLogisticRegressionCV(**given).fit(X, y, clients=sites)
    assert max(size for _, size in sizes) == 61  # all parameters, though they are in use in few models only
    assert all(count <= 4 for count, size in sizes if size == 61)
    assert found.n_rounds_ <= 20
    assert found.path_.converged.all()
    np.testing.assert_allclose(found.path_.coefs, usual.path_.coefs, atol=1e-6)
    np.testing.assert_allclose(found.cv_mean_, usual.cv_mean_, rtol=1e-4)


def test_a_path_moves_no_numbers_one_by_one_and_puts_hessians_together_once_a_look(monkeypatch):
    found, made, plain, answered = [], [], training_set.joined, lock_step.answered

    def joined(*given):
        made.append(given)
        return plain(*given)

    def kept(*given):
        found.append(answered(*given))
        return found[-1]

    monkeypatch.setattr(training_set, "joined", joined)
    monkeypatch.setattr(lock_step, "answered", kept)
    X = features()
    model = FederatedLogisticRegressionCV(n_alphas=20, cv=3).fit(X, labels(X), clients=SITES)
    fits = [*found[0].models, *(one for own in found[0].of_folds for one in own)]
    assert len(fits) == 80
    assert all(isinstance(fit.w.coef, np.ndarray) for fit in fits)
    assert not isinstance(fits[0].on_device().w.coef, np.ndarray)
    # A training set has new ones once a look; the models are more than a thousand times asked for.
    assert len(made) <= 4 * (asked(model)["look"] + 1)
