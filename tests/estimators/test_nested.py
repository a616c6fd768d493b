"""Nested cross-validation, beside a loop over the folds of pooled rows."""

import numpy as np
import pytest
from tests.estimators import hospitals

import cofed
from cofed.estimators import (
    FederatedCoxCV,
    FederatedGLMCV,
    FederatedLasso,
    FederatedLassoCV,
    FederatedLogisticRegressionCV,
    nested_cv,
)
from cofed.sites import Folds

X, Y = hospitals.linear()
SITES = hospitals.SITES


def folds_of(y, folds):
    fold = np.empty(len(y), int)
    for site in np.unique(SITES):
        fold[site == SITES] = folds.of_rows(str(site), y[site == SITES], None)
    return fold


def test_strengths_are_chosen_without_the_fold_that_they_are_tried_on():
    estimator = FederatedLassoCV(cv=4, n_alphas=6, standardize=False, random_state=3)
    found = nested_cv(estimator, X, Y, SITES)
    fold = folds_of(Y, Folds(4, 3))
    assert not hasattr(estimator, "alpha_")
    for k in range(4):
        inside, others = fold == k, fold[fold != k]
        splits = [(np.flatnonzero(others != j), np.flatnonzero(others == j)) for j in range(4) if j != k]
        again = FederatedLassoCV(cv=splits, n_alphas=6, standardize=False).fit(
            X[~inside], Y[~inside], clients=SITES[~inside]
        )
        assert found.alphas[k] == pytest.approx(again.alpha_, rel=1e-9)
        np.testing.assert_allclose(found.coefs[k], again.coef_, atol=1e-8)
        assert found.scores[k] == pytest.approx(np.mean((Y[inside] - again.predict(X[inside])) ** 2), rel=1e-8)
    np.testing.assert_array_equal(found.rows, np.bincount(fold))
    assert found.mean == pytest.approx(found.rows @ found.scores / len(Y))


@pytest.mark.slow
def test_classes_and_times_have_theirs():
    classes = (np.median(Y) < Y).astype(int)
    given = {"cv": 3, "n_alphas": 3}
    found = nested_cv(FederatedLogisticRegressionCV(measure="auc", **given), X, classes, SITES)
    assert found.curves is not None
    assert abs(found.curves.auc - found.mean) < 0.15
    assert 0.5 < found.mean <= 1
    times = np.column_stack([np.random.default_rng(2).exponential(np.exp(-X[:, 0])), np.ones(len(X))])
    for measure in ("c_index", "deviance"):  # by which the strengths are chosen
        found = nested_cv(FederatedCoxCV(measure=measure, **given), X, times, SITES)
        assert found.measure == "c_index"
        assert found.mean > 0.5


def test_what_cannot_be_nested_is_refused():
    with pytest.raises(TypeError, match=r"nested_cv: estimator must choose its strength, such as FederatedLassoCV\(\)"):
        nested_cv(FederatedLasso(), X, Y, SITES)
    for estimator, said in (
        (FederatedLassoCV(criterion="bic"), "criterion must be 'min' or '1se'"),
        (FederatedLassoCV(cv=2), "cv must be 3 folds or more"),
        (FederatedLassoCV(site_effects="fixed"), "with an intercept of each site's"),
        (FederatedGLMCV(cofed.NegativeBinomial()), "NegativeBinomial needs a theta here"),
    ):
        with pytest.raises(ValueError, match=f"nested_cv: .*{said}|{said}"):
            nested_cv(estimator, X, np.abs(Y), SITES)
