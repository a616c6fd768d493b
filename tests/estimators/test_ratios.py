"""A grid over l1_ratio: the choice of one fit after another, in the exchanges of one, and scikit-learn's."""

import numpy as np
import pytest
from sklearn.linear_model import ElasticNetCV
from sklearn.model_selection import KFold
from tests.estimators import hospitals

import cofed
from cofed.estimators import (
    FederatedCoxCV,
    FederatedElasticNetCV,
    FederatedGLMCV,
    FederatedLogisticRegressionCV,
    load,
)

X, Y = hospitals.linear()
SITES = hospitals.SITES
CLASSES = (np.median(Y) < Y).astype(int)
RATIOS = [0.2, 0.6, 1.0]


@pytest.mark.parametrize("criterion", ["min", pytest.param("bic", marks=pytest.mark.slow)])
def test_a_linear_model_has_the_ratio_and_the_strength_of_scikit_learn(criterion, tmp_path):
    folds = KFold(4, shuffle=True, random_state=0)
    given = {"n_alphas": 8, "standardize": False, "criterion": criterion}
    model = FederatedElasticNetCV(l1_ratio=RATIOS, cv=folds, **given).fit(X, Y, clients=SITES)
    alone = [FederatedElasticNetCV(l1_ratio=r, cv=folds, **given).fit(X, Y, clients=SITES) for r in RATIOS]
    best = RATIOS.index(model.l1_ratio_)
    scores = [one.cv_mean_.min() if criterion == "min" else one.path_.criterion("bic").min() for one in alone]
    assert best == int(np.argmin(scores))
    np.testing.assert_allclose(model.ratio_scores_, scores, rtol=1e-6)
    assert model.l1_ratios_.tolist() == RATIOS
    assert model.alpha_ == alone[best].alpha_
    np.testing.assert_allclose(model.coef_, alone[best].coef_, atol=1e-9)
    np.testing.assert_array_equal(model.path_.alphas, alone[best].alphas_)
    assert model.n_rounds_ == alone[best].n_rounds_  # a squared loss is known from the survey
    assert model.certificate_.converged
    if criterion == "min":
        theirs = ElasticNetCV(l1_ratio=RATIOS, cv=folds, alphas=8, tol=1e-12, max_iter=100_000).fit(X, Y)
        assert (model.l1_ratio_, model.alpha_) == pytest.approx((theirs.l1_ratio_, theirs.alpha_), rel=1e-6)
        np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-6)
    model.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    assert read.l1_ratio_ == model.l1_ratio_
    np.testing.assert_array_equal(read.predict(X), model.predict(X))
    table = model.infer(X, Y, clients=SITES)
    np.testing.assert_allclose(table["se"], alone[best].infer(X, Y, clients=SITES)["se"], rtol=1e-9)


def test_other_losses_look_at_the_models_of_all_ratios_together():
    given = {"n_alphas": 4, "cv": 2, "penalty": "elasticnet"}
    model = FederatedLogisticRegressionCV(l1_ratio=RATIOS, **given).fit(X, CLASSES, clients=SITES)
    alone = [FederatedLogisticRegressionCV(l1_ratio=r, **given).fit(X, CLASSES, clients=SITES) for r in RATIOS]
    best = RATIOS.index(model.l1_ratio_)
    scores = [one.cv_mean_.min() for one in alone]
    assert best == int(np.argmin(scores))
    np.testing.assert_allclose(model.ratio_scores_, scores, rtol=1e-4)  # models of folds are less exact
    assert model.alpha_ == alone[best].alpha_
    np.testing.assert_allclose(model.coef_, alone[best].coef_, atol=1e-6)
    assert model.path_.converged.all()
    # All together are hardly more exchanges than one.
    assert model.n_rounds_ <= max(one.n_rounds_ for one in alone) + 2 < sum(one.n_rounds_ for one in alone)


def test_what_is_no_ratio_is_refused():
    for wrong in ([], [0.5, 0.5], [0.5, 2.0], [0.1, "a"], "lasso", None):
        with pytest.raises(ValueError, match="FederatedElasticNetCV: l1_ratio must be"):
            FederatedElasticNetCV(l1_ratio=wrong).fit(X, Y)
    with pytest.raises(ValueError, match="several l1_ratio are for penalty='elasticnet', got 'l1'"):
        FederatedLogisticRegressionCV(l1_ratio=[0.1, 0.5]).fit(X, CLASSES)
    with pytest.raises(ValueError, match="with privacy there are no several l1_ratio"):
        FederatedElasticNetCV(l1_ratio=[0.1, 0.5], privacy=cofed.Privacy(epsilon=1, delta=1e-6)).fit(X, Y)


@pytest.mark.slow
def test_other_families_have_a_grid_of_ratios_too():
    counts = np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(1.5, np.exp(0.3 * X[:, 0]))).astype(float)
    model = FederatedGLMCV(cofed.NegativeBinomial(), l1_ratio=[0.5, 1.0], n_alphas=4, cv=2).fit(
        X, counts, clients=SITES
    )
    assert model.l1_ratio_ in (0.5, 1.0)
    times = np.column_stack([np.random.default_rng(2).exponential(np.exp(-X[:, 0])), np.ones(len(X))])
    cox = FederatedCoxCV(l1_ratio=[0.5, 1.0], n_alphas=4, cv=2).fit(X, times, clients=SITES)
    assert cox.certificate_.converged
    assert cox.l1_ratio_ in (0.5, 1.0)
