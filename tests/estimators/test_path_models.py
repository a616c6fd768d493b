"""The models of a path, at its strengths and between them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.estimators import hospitals

from cofed.estimators import FederatedLasso, FederatedLassoCV, FederatedLogisticRegressionCV, FederatedPoissonCV

SITES = hospitals.SITES


@pytest.fixture(scope="module")
def lasso():
    X, y = hospitals.linear()
    return FederatedLassoCV(n_alphas=12, cv=3).fit(X, y, clients=SITES)


@pytest.fixture(scope="module")
def logistic():
    X, y = hospitals.classes()
    return FederatedLogisticRegressionCV(alphas=[0.1, 0.03, 0.01], criterion="bic").fit(X, y, clients=SITES)


@given(place=st.floats(0, 1), step=st.integers(0, 10))
def test_between_two_strengths_models_are_on_the_line_between_theirs(lasso, place, step):
    path = lasso.path_
    alpha = (1 - place) * path.alphas[step] + place * path.alphas[step + 1]
    t = np.interp(-alpha, -path.alphas, np.arange(len(path.alphas)))
    low, part = int(t), t - int(t)
    wanted = path.coefs[low] * (1 - part) + path.coefs[min(low + 1, 11)] * part
    np.testing.assert_allclose(path.coef_at(alpha), wanted, rtol=1e-9, atol=1e-12)


def test_at_its_own_strengths_a_path_is_exact(lasso, logistic):
    for model in (lasso, logistic):
        for i, alpha in enumerate(model.path_.alphas):
            assert np.array_equal(model.path_.coef_at(alpha), model.path_.coefs[i])
            assert np.array_equal(model.path_.intercept_at(alpha), model.path_.intercepts[i])


def test_a_lasso_between_two_strengths_with_the_same_features_is_exact():
    X, y = hospitals.linear()
    path = FederatedLasso().path(X, y, SITES, alphas=[0.02, 0.01])
    assert np.array_equal(path.coefs[0] != 0, path.coefs[1] != 0)
    np.testing.assert_allclose(path.coef_at(0.014), FederatedLasso(0.014).fit(X, y, clients=SITES).coef_, atol=1e-9)


def test_predictions_of_a_path_and_of_its_estimator_at_a_strength(lasso, logistic):
    X, _ = hospitals.linear()
    alpha = float(np.mean(lasso.alphas_[3:5]))
    np.testing.assert_allclose(lasso.path_.predict(X, alpha=alpha), lasso.at(alpha).predict(X), rtol=1e-12)
    np.testing.assert_allclose(lasso.path_.predict(X, alpha=lasso.alpha_), lasso.predict(X), rtol=1e-9)
    assert lasso.at(alpha).certificate_ is None
    assert lasso.certificate_ is not None
    X, _ = hospitals.classes()
    odds = logistic.path_.predict(X, alpha=0.05)
    np.testing.assert_allclose(1 / (1 + np.exp(-odds)), logistic.at(0.05).predict_proba(X)[:, 1], rtol=1e-9)


def test_columns_of_a_frame_are_taken_by_their_names(lasso):
    X, _ = hospitals.linear()
    names = list(lasso.path_.feature_names)
    shuffled = pd.DataFrame(X, columns=names)[names[::-1]]
    np.testing.assert_allclose(lasso.path_.predict(shuffled, alpha=0.1), lasso.path_.predict(X, alpha=0.1))


def test_strengths_that_a_path_does_not_tell_of(lasso, logistic):
    first, last = lasso.alphas_[0], lasso.alphas_[-1]
    assert not lasso.path_.coef_at(2 * first).any()  # nothing is in use at the first one
    with pytest.raises(ValueError, match=r"alpha must be between .* the strengths of the path, got"):
        lasso.path_.coef_at(last / 2)
    with pytest.raises(ValueError, match="at which features are in use"):
        logistic.path_.coef_at(0.2)
    with pytest.raises(ValueError, match="alpha must be a number >= 0"):
        lasso.path_.coef_at("1se")
    with pytest.raises(ValueError, match="X must have rows of 6 features"):
        lasso.path_.predict(np.zeros((3, 2)), alpha=first)
    with pytest.raises(ValueError, match=r"X must be rows of numbers, but could not convert .*'x'; the estimator's at"):
        lasso.path_.predict(pd.DataFrame({"ward": ["x", "y"]}), alpha=first)


def test_a_path_of_rows_with_offsets_predicts_with_them(lasso):
    X, y = hospitals.linear()
    counts, offset = np.random.default_rng(0).poisson(2.0, len(y)), np.linspace(-1, 1, len(y))
    model = FederatedPoissonCV(alphas=[0.2, 0.1], cv=3).fit(X, counts, clients=SITES, offset=offset)
    found = model.path_.predict(X, alpha=0.2, offset=offset)
    np.testing.assert_allclose(np.exp(found), model.at(0.2).predict(X, offset=offset), rtol=1e-12)
    with pytest.raises(ValueError, match="was fitted with an offset"):
        model.path_.predict(X, alpha=0.2)
    with pytest.raises(ValueError, match="was fitted without an offset"):
        lasso.path_.predict(X, alpha=lasso.alpha_, offset=offset)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="X must be finite numbers"):
        lasso.path_.predict(X, alpha=lasso.alpha_)
