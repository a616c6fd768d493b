"""Of several classes, what rounding could decide about coefficients is decided by a rule."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import cofed
from cofed.estimators import FederatedLogisticRegression
from cofed.estimators.class_shifts import sparsest_shift


@given(st.integers(0, 2**32 - 1), st.integers(3, 6))
def test_a_shift_changes_no_prediction_and_no_norm_and_does_not_depend_on_where_one_begins(seed, classes):
    rng = np.random.default_rng(seed)
    coef = rng.normal(size=(4, classes))
    order = np.sort(coef, axis=1)
    coef -= order[:, [(classes - 1) // 2]]  # the l1 norm is least
    coef[rng.random(coef.shape) < 0.3] = 0.0
    order = np.sort(coef, axis=1)
    low, high = order[:, (classes - 1) // 2], order[:, classes // 2]
    best = sparsest_shift(cofed.L1(0.1), coef)
    apart = best - coef
    np.testing.assert_allclose(apart, np.broadcast_to(apart[:, :1], apart.shape), atol=1e-13)
    assert np.abs(best).sum() <= np.abs(coef).sum() + 1e-12
    assert (np.count_nonzero(best, axis=1) < classes).all()
    assert np.count_nonzero(best) <= np.count_nonzero(coef)
    elsewhere = coef - (low + rng.random(4) * (high - low))[:, None]
    np.testing.assert_allclose(sparsest_shift(cofed.L1(0.1), elsewhere), best, atol=1e-12)


def test_other_penalties_have_no_such_choice():
    coef = np.arange(8.0).reshape(2, 4)
    for psi in (cofed.ElasticNet(0.1, 0.2), cofed.GroupL1(0.1)):
        np.testing.assert_array_equal(sparsest_shift(psi, coef), coef)


def test_the_coefficients_of_an_even_number_of_classes_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = (X @ rng.normal(size=(3, 4)) + rng.gumbel(size=(120, 4))).argmax(axis=1)
    site, order = np.arange(120) % 3, rng.permutation(120)
    one = FederatedLogisticRegression(0.001).fit(X, y, clients=site)
    other = FederatedLogisticRegression(0.001).fit(X[order], y[order], clients=site[order])
    np.testing.assert_allclose(other.coef_, one.coef_, rtol=1e-10, atol=1e-12)
    assert ((one.coef_ == 0).sum(axis=0) >= 1).all()
    assert one.certificate_.converged
