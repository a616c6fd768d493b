"""Certificates are true and warnings are right at every scale of X, y and alpha, beside an exact solver."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from tests.estimators import fuzz, hospitals

from cofed.estimators import FederatedLasso, FederatedLogisticRegression, FederatedPoisson

SITES = hospitals.SITES
WIDE = fuzz.SHAPES[1]


def check(family, shape, seeds):
    for seed in seeds:
        verdict = fuzz.judge(seed, family, shape)
        assert not verdict.false_certificate, verdict
        assert not verdict.false_warning, verdict
        assert not verdict.false_limit, verdict


WIDE_IS_SLOW = [pytest.param(shape, marks=pytest.mark.slow if shape == WIDE else ()) for shape in fuzz.SHAPES]


@pytest.mark.parametrize("shape", WIDE_IS_SLOW)
@pytest.mark.parametrize("family", fuzz.FAMILIES)
def test_certificates_are_true_and_warnings_right(family, shape):
    check(family, shape, [0])


@pytest.mark.slow
def test_a_walk_among_models_that_fit_alike_is_not_limited_by_rounding():
    """Huge coefficients that cancel make the gradient uncertain, and so seem optimal: then the path is walked down."""
    check("multinomial", WIDE, [5005, 5020])


def test_a_small_gap_is_no_minimum():
    """Counts without a penalty, as near to the infimum as one likes, which no model attains."""
    verdict = fuzz.judge(7004, "poisson", WIDE)
    assert verdict.without_end
    assert verdict.gap <= 1e-12
    assert verdict.outcome == "not converged"


@pytest.mark.slow
@pytest.mark.parametrize("shape", fuzz.SHAPES)
@pytest.mark.parametrize("family", fuzz.FAMILIES)
def test_certificates_are_true_and_warnings_right_at_length(family, shape):
    check(family, shape, range(100, 130))


def test_a_weak_penalty_at_a_large_scale_is_not_ignored():
    X, y = hospitals.linear()
    plain = FederatedLasso(1e-10).fit(X, y, clients=SITES)
    large = FederatedLasso(1e-4).fit(X, 1e6 * y, clients=SITES)
    np.testing.assert_allclose(large.coef_ / 1e6, plain.coef_, rtol=1e-10)
    both = FederatedLasso(1e-6, standardize=False).fit(1e5 * X, 1e5 * y, clients=SITES)
    assert large.certificate_.converged
    assert both.certificate_.converged
    assert both.support_.all()


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_scales_and_means_change_nothing(scale):
    X, y = hospitals.linear()
    plain = FederatedLasso(0.2, standardize=False).fit(X, y, clients=SITES)
    moved = FederatedLasso(0.2 * scale**2, standardize=False).fit(scale * (X + 1e4), scale * (y + 1e6), clients=SITES)
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-7, atol=1e-9)
    assert moved.certificate_.converged
    assert moved.certificate_.gap <= 1e-12 * moved.certificate_.scale


def test_separable_data_without_a_penalty_are_never_converged():
    X, _ = hospitals.linear()
    y = X[:, 0] > 0
    with pytest.warns(ConvergenceWarning, match="the data are separable .* alpha > 0 helps"):
        model = FederatedLogisticRegression(0.0).fit(X, y, clients=SITES)
    assert model.certificate_.outcome == "not converged"
    assert "NOT converged" in model.summary()
    assert FederatedLogisticRegression(1e-6).fit(X, y, clients=SITES).certificate_.converged


def test_partly_separable_data_without_a_penalty_are_never_converged():
    """Rows with a flag are all of one class; the others overlap. So for counts: no row with the flag has one."""
    X, y = hospitals.classes()
    X, y = X.copy(), (y == "b").astype(int)
    X[:, 5] = np.arange(len(y)) % 4 == 0
    y = np.where(X[:, 5] == 1, 0, y)
    for model in (FederatedLogisticRegression(0.0), FederatedPoisson(0.0)):
        with pytest.warns(ConvergenceWarning, match="the data are separable"):
            assert model.fit(X, y, clients=SITES).certificate_.outcome == "not converged"


def test_without_a_penalty_data_that_overlap_are_certified():
    X, y = hospitals.classes()
    model = FederatedLogisticRegression(0.0).fit(X, y, clients=SITES)
    assert model.certificate_.converged
    assert model.certificate_.gap <= 1e-12 * model.certificate_.scale


def test_what_float64_cannot_give_is_said_to_be_limited_by_rounding():
    X, y = hospitals.linear()
    model = FederatedLasso(0.2, tol=1e-16).fit(X, y, clients=SITES)  # a warning would be an error here
    assert model.certificate_.outcome == "limited by rounding"
    assert not model.certificate_.converged
    assert "limited by rounding" in model.summary()


def test_a_constant_target_is_explained_by_the_intercept():
    X, _ = hospitals.linear()
    model = FederatedLasso(0.2).fit(X, np.full(len(X), 0.1), clients=SITES)
    assert not model.support_.any()
    assert model.intercept_ == pytest.approx(0.1, rel=1e-15)
    assert model.certificate_.converged


def test_few_rounds_are_named_as_the_cause():
    X, y = hospitals.classes()
    with pytest.warns(ConvergenceWarning, match="max_rounds is used up: stopped after"):
        FederatedLogisticRegression(0.001, max_rounds=2).fit(X, y, clients=SITES)
