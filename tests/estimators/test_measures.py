"""Measures of held-out rows, beside scikit-learn's of the pooled rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, mean_absolute_error, roc_auc_score
from statsmodels.stats.proportion import proportion_confint
from tests.estimators import hospitals

from cofed import Logistic
from cofed.estimators import (
    FederatedCoxCV,
    FederatedLassoCV,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
    FederatedPoissonCV,
    load,
)
from cofed.estimators.measures import area_under_curve, spread_edges
from cofed.sites import Folds, MemorySites, SiteRows
from cofed.sites.queries import HeldOutMessage, held_out

SITES = hospitals.SITES
ALPHAS = [0.1, 0.02]


def folds_of(y, folds):
    fold = np.empty(len(y), int)
    for site in np.unique(SITES):
        fold[site == SITES] = folds.of_rows(str(site), y[site == SITES], None)
    return fold


@pytest.fixture(scope="module")
def predicted():
    """Labels, folds, and the probabilities of all rows by the models that have not learnt from their fold."""
    X, y = hospitals.classes()
    y = np.unique(y, return_inverse=True)[1]
    fold, chance = folds_of(y, Folds(3, 0, True)), np.empty((2, len(y)))
    for i, alpha in enumerate(ALPHAS):
        for k in range(3):
            model = FederatedLogisticRegression(alpha, standardize=False).fit(X[fold != k], y[fold != k])
            chance[i, fold == k] = model.predict_proba(X[fold == k])[:, 1]
    return y, fold, chance


@pytest.mark.parametrize("measure", ["mse", "mae", "misclassification", "auc", "deviance"])
def test_a_measure_is_that_of_the_pooled_rows_by_fold(predicted, measure):
    X, _ = hospitals.classes()
    y, fold, chance = predicted
    of = {
        "mse": brier_score_loss,
        "mae": mean_absolute_error,
        "misclassification": lambda y, p: 1 - accuracy_score(y, p > 0.5),
        "auc": roc_auc_score,
        "deviance": lambda y, p: 2 * log_loss(y, p, labels=[0, 1]),
    }[measure]
    table = np.array([[of(y[fold == k], p[fold == k]) for k in range(3)] for p in chance])
    weight = np.bincount(fold) / len(fold)
    model = FederatedLogisticRegressionCV(alphas=ALPHAS, standardize=False, cv=3, measure=measure)
    model.fit(X, y, clients=SITES)
    bound = model.cv_bound_ if measure == "auc" else np.zeros(2)
    # The models without a fold are solved to a gap of 1e-5 of what the features explain.
    assert (np.abs(model.cv_mean_ - table @ weight) <= bound + 1e-4).all()
    if measure == "auc":
        assert (bound < 0.12).all()
        assert model.alpha_min_ == model.alphas_[np.argmax(model.cv_mean_)]
    else:
        spread = np.sqrt((table - (table @ weight)[:, None]) ** 2 @ weight / 2)
        np.testing.assert_allclose(model.cv_se_, spread, atol=1e-4)
        assert model.alpha_min_ == model.alphas_[np.argmin(model.cv_mean_)]


def test_curves_are_those_of_the_pooled_rows(predicted, tmp_path):
    X, _ = hospitals.classes()
    y, _, chance = predicted
    model = FederatedLogisticRegressionCV(alphas=ALPHAS, standardize=False, cv=3, measure="auc")
    model.fit(X, y, clients=SITES)
    model.save(tmp_path / "model.safetensors")
    curves, own = load(tmp_path / "model.safetensors").curves_, chance[ALPHAS.index(model.alpha_)]
    assert abs(curves.auc - roc_auc_score(y, own)) <= curves.auc_bound + 1e-3
    place = np.searchsorted(curves.edges, np.log(own / (1 - own)))
    bins = len(curves.rows)
    # A row of which the prediction is next to an edge may be counted beside it: models of folds are exact to 1e-5.
    for counts, weight in ((curves.rows, 1.0 + 0 * y), (curves.ones, y), (curves.expected, own)):
        assert np.abs(np.cumsum(counts) - np.cumsum(np.bincount(place, weight, minlength=bins))).max() <= 1.01
    found = curves.roc
    assert found.iloc[[0, -1], 1:].to_numpy().tolist() == [[0, 0], [1, 1]]
    for _, (threshold, false, true) in found.iloc[1:-1].iterrows():
        assert abs(np.mean(own[y == 1] > threshold) - true) <= 1.01 / np.sum(y == 1)
        assert abs(np.mean(own[y == 0] > threshold) - false) <= 1.01 / np.sum(y == 0)
    table = curves.calibration(4)
    assert table["rows"].sum() == len(y)
    assert (table["rows"] @ table["observed"], table["rows"] @ table["expected"]) == pytest.approx(
        (y.sum(), own.sum()), rel=1e-3
    )
    low, high = proportion_confint(table["rows"] * table["observed"], table["rows"], method="wilson")
    np.testing.assert_allclose(table[["low", "high"]], np.column_stack([low, high]), atol=1e-12)
    curves.plot(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 0
    other = FederatedLogisticRegressionCV(alphas=ALPHAS, standardize=False, cv=3).fit(X, y, clients=SITES)
    assert not hasattr(other, "curves_")


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), rows=st.integers(12, 32), steep=st.floats(0, 3))
def test_counts_in_bins_bound_the_area_and_sums_are_those_of_scikit_learn(seed, rows, steep):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(rows, 2)), (np.arange(rows) % 3 == 0).astype(np.int32)
    site, weight, offset = np.sort(rng.integers(0, 2, rows)), rng.uniform(0.5, 2, rows), rng.normal(size=rows)
    site[:2], site[-2:] = 0, 1
    sites = MemorySites(SiteRows(("a", "b"), X, y, site.astype(np.int32), None, weight, offset))
    coef, intercept = steep * rng.normal(size=(1, 2, 1)), rng.normal(size=(1, 1))
    nobody = np.array([-1], np.int32)
    first = sites.ask(held_out, HeldOutMessage(coef, intercept, nobody, np.zeros((1, 0)), loss=Logistic()))
    z = X @ coef[0, :, 0] + intercept[0, 0] + offset
    chance = 1 / (1 + np.exp(-z))
    np.testing.assert_allclose(first.squares / first.n, brier_score_loss(y, chance, sample_weight=weight), rtol=1e-9)
    np.testing.assert_allclose(first.absolute / first.n, np.average(np.abs(y - chance), weights=weight), rtol=1e-9)
    np.testing.assert_allclose(first.wrong / first.n, np.average((z > 0) != y, weights=weight), atol=1e-12)
    np.testing.assert_allclose(first.loss, log_loss(y, chance, sample_weight=weight, normalize=False), rtol=1e-9)
    edges = spread_edges(first, 8)
    found = sites.ask(held_out, HeldOutMessage(coef, intercept, nobody, edges, loss=Logistic()))
    area, bound = area_under_curve(found)
    assert abs(area[0] - roc_auc_score(y, z, sample_weight=weight)) <= bound[0] + 1e-12
    place = np.searchsorted(edges[0], z)
    np.testing.assert_allclose(found.rows[0], np.bincount(place, weight, minlength=8), atol=1e-12)
    np.testing.assert_allclose(found.ones[0], np.bincount(place, weight * y, minlength=8), atol=1e-12)
    np.testing.assert_allclose(found.expected[0], np.bincount(place, weight * chance, minlength=8), atol=1e-12)


def test_errors_of_numbers_and_of_counts_are_on_their_own_scale(tmp_path):
    X, y = hospitals.linear()
    given = {"alphas": ALPHAS, "standardize": False, "cv": 3}
    model = FederatedLassoCV(**given, measure="mae").fit(X, 100 * y + 1e4, clients=SITES)
    one = FederatedLassoCV(alphas=np.array(ALPHAS) / 100, standardize=False, cv=3, measure="mae")
    np.testing.assert_allclose(model.cv_mean_, 100 * one.fit(X, y + 100, clients=SITES).cv_mean_, rtol=1e-6)
    squared = FederatedLassoCV(**given, measure="mse").fit(X, y, clients=SITES)
    deviance = FederatedLassoCV(**given).fit(X, y, clients=SITES)
    assert np.array_equal(squared.cv_mean_, deviance.cv_mean_)
    assert squared.n_rounds_ == deviance.n_rounds_  # known without asking
    counts = np.random.default_rng(0).poisson(np.exp(0.3 * X[:, 0]))
    poisson = FederatedPoissonCV(alphas=[1e3], standardize=False, cv=3, measure="mse").fit(X, counts, clients=SITES)
    fold = folds_of(counts, Folds(3))
    errors = [(counts[fold == k] - counts[fold != k].mean()) ** 2 for k in range(3)]  # a model without features
    np.testing.assert_allclose(poisson.cv_mean_[0], np.concatenate(errors).mean(), rtol=1e-6)
    poisson.save(tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").measure == "mse"


def test_measures_that_a_model_does_not_have():
    X, y = hospitals.linear()
    with pytest.raises(ValueError, match="measure='auc' is for models of two classes; this one has"):
        FederatedLassoCV(measure="auc").fit(X, y, clients=SITES)
    with pytest.raises(ValueError, match="measure must be one of deviance, mse, mae, misclassification, auc, c_index"):
        FederatedLassoCV(measure="accuracy").fit(X, y, clients=SITES)
    times = np.column_stack([np.arange(1.0, len(y) + 1), np.ones(len(y))])
    with pytest.raises(ValueError, match="measure='mse' is for models of single rows; this one has deviance, c_index"):
        FederatedCoxCV(measure="mse").fit(X, times, clients=SITES)
