"""Factors of groups of features, of which 0 is not penalised: conditions of optimality on pooled rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from tests.estimators import hospitals
from tests.sites.test_network import DirectLink

from cofed.estimators import (
    FederatedGroupLasso,
    FederatedGroupLassoCV,
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
    FederatedMultiTaskLasso,
    adaptive,
)
from cofed.sites import ChosenColumns, sites_of_frame
from cofed.sites.network import NetworkSites

SITES, GROUPS = hospitals.SITES, np.array([0, 0, 1, 1, 1, 2])
FACTORS = np.array([0.0, 1.0, 2.0])
PER_FEATURE = FACTORS[GROUPS]


def violation(X, y, coef, intercept, alpha, factors=FACTORS, groups=GROUPS):
    """How far the conditions of optimality are from holding, for a penalty of standardised features."""
    scale, outputs = X.std(axis=0), coef.shape[0]
    z = X @ coef.T + intercept
    off = softmax(z, axis=1) - (y[:, None] == np.unique(y)) if outputs > 1 else z - y[:, None]
    slope, own, found = X.T @ off / len(y) / scale[:, None], coef.T * scale[:, None], [float(np.abs(off.mean(0)).max())]
    for g, factor in enumerate(factors):
        j = groups == g
        level, size = alpha * factor * np.sqrt(j.sum() * outputs), np.linalg.norm(own[j])
        if size > 0:
            found.append(np.linalg.norm(slope[j] + level * own[j] / size))
        else:
            found.append(max(np.linalg.norm(slope[j]) - level, 0.0))
    return max(found)


def test_group_lassos_with_factors_are_optimal_on_the_pooled_rows():
    X, y = hospitals.linear()
    model = FederatedGroupLasso(0.3, groups=GROUPS, penalty_factor=PER_FEATURE).fit(X, y, SITES)
    assert model.certificate_.converged
    assert violation(X, y, model.coef_[None], model.intercept_, 0.3) < 1e-9
    assert model.support_.tolist() == [True] * 5 + [False]
    alone = FederatedGroupLasso(0.1, penalty_factor=[0, 1, 1, 1, 2, 1]).fit(X, y, SITES)
    lasso = FederatedLasso(0.1, penalty_factor=[0, 1, 1, 1, 2, 1]).fit(X, y, SITES)
    np.testing.assert_allclose(alone.coef_, lasso.coef_, atol=1e-10)
    every = FederatedGroupLasso(0.3, groups=GROUPS, penalty_factor=0.0).fit(X, y, SITES)
    least = np.linalg.lstsq(np.column_stack([np.ones(len(X)), X]), y, rcond=None)[0]
    np.testing.assert_allclose(every.coef_, least[1:], rtol=1e-8)


@pytest.mark.slow
def test_multinomial_groups_with_factors_are_optimal_in_process_and_over_sites():
    X, y = hospitals.classes(3)
    options = {"penalty": "group", "groups": GROUPS, "penalty_factor": PER_FEATURE}
    model = FederatedLogisticRegression(0.05, **options).fit(X, y, SITES)
    assert model.certificate_.outcome != "not converged"
    assert violation(X, y, model.coef_, model.intercept_, 0.05) < 1e-8
    assert np.abs(model.coef_[:, :2]).min() > 0
    # The shortest of all coefficients that predict the same.
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0, atol=1e-9)
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(6)]).assign(y=y)
    tables = {name: table[name == SITES] for name in hospitals.SIZES}
    sites = NetworkSites.open(DirectLink(tables), list(tables), ChosenColumns(target="y"))
    there = FederatedLogisticRegression(0.05, **options).fit(sites)
    np.testing.assert_allclose(there.coef_, model.coef_, atol=1e-7)


def test_paths_and_folds_with_factors():
    X, y = hospitals.linear()
    model = FederatedGroupLassoCV(groups=GROUPS, penalty_factor=PER_FEATURE, n_alphas=6, eps=0.01, cv=3)
    path = model.fit(X, y, SITES).path_
    assert path.converged.all()
    assert np.flatnonzero(path.coefs[0]).tolist() == [0, 1]
    assert path.coefs[1][2:].any()
    for alpha, coef, intercept in zip(path.alphas, path.coefs, path.intercepts, strict=True):
        assert violation(X, y, coef[None], intercept, alpha) < 1e-8
    assert np.isfinite(model.cv_mean_).all()


@pytest.mark.slow
def test_multinomial_paths_with_factors():
    X, y = hospitals.classes(3)
    options = {"penalty": "group", "groups": GROUPS, "penalty_factor": PER_FEATURE}
    model = FederatedLogisticRegressionCV(**options, n_alphas=4, eps=0.05, cv=3).fit(X, y, SITES)
    for alpha, coef, intercept in zip(model.alphas_, model.path_.coefs, model.path_.intercepts, strict=True):
        assert violation(X, y, coef, intercept, alpha) < 1e-6
    assert model.certificate_.outcome != "not converged"


def test_groups_that_are_left_out_might_as_well_not_be_there():
    X, y = hospitals.linear()
    model = FederatedGroupLasso(0.2, groups=GROUPS, exclude=["x2", "x3", 4]).fit(X, y, SITES)
    alone = FederatedGroupLasso(0.2, groups=[0, 0, 1]).fit(X[:, [0, 1, 5]], y, SITES)
    np.testing.assert_allclose(model.coef_[[0, 1, 5]], alone.coef_, atol=1e-9)
    assert not model.coef_[2:5].any()
    assert model.infer(X, y, SITES).index.tolist() == ["x0", "x1", "x5"]


def test_a_column_of_levels_is_a_group_with_one_factor():
    X, y = hospitals.linear()
    ward = np.random.default_rng(3).choice(["north", "south", "west"], len(X))
    table = pd.DataFrame({"age": X[:, 0], "ward": ward, "dose": X[:, 2], "cost": y, "site": SITES})
    model = FederatedGroupLasso(0.5, groups=["age", "ward", "ward", "dose"], penalty_factor={"ward": 0})
    model.fit(sites_of_frame(table, "cost", "site"))
    coded = np.column_stack([X[:, 0], ward == "south", ward == "west", X[:, 2]]).astype(float)
    found = violation(coded, y, model.coef_[None], model.intercept_, 0.5, [1, 0, 1], np.array([0, 1, 1, 2]))
    assert found < 1e-9
    assert model.support_[1:3].all()


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 0.9))
def test_a_certificate_with_factors_is_never_below_the_truth(seed, part):
    rng = np.random.default_rng(seed)
    X, y = hospitals.linear(seed % 5)
    factors = rng.choice([0.0, 0.5, 1.0, 3.0], 3)
    factors[rng.integers(3)] = 1.0
    options = {"groups": GROUPS, "penalty_factor": factors[GROUPS]}
    top = FederatedGroupLasso(**options).path(X, y, SITES, n_alphas=2).alphas[0]
    fits = [FederatedGroupLasso(part * top, tol=tol, **options).fit(X, y, SITES) for tol in (1e-12, 1e-3, 0.5)]
    best = min(one.certificate_.objective for one in fits)
    for one in fits:
        seen = one.certificate_
        assert seen.objective - best <= seen.gap + seen.rounding + 1e-12 * seen.scale
    assert fits[0].certificate_.outcome != "not converged"
    assert violation(X, y, fits[0].coef_[None], fits[0].intercept_, part * top, factors) < 1e-8


def test_the_adaptive_group_lasso_has_one_factor_for_a_group():
    X, y = hospitals.linear()
    first = FederatedGroupLasso(0.01, groups=GROUPS).fit(X, y, SITES)
    assert first.support_.all()
    new = adaptive(FederatedGroupLasso(0.1, groups=GROUPS), first)
    sizes = [np.linalg.norm((first.coef_ * X.std(axis=0))[g == GROUPS]) for g in range(3)]
    np.testing.assert_allclose(new.penalty_factor, (1 / np.array(sizes))[GROUPS], rtol=1e-9)
    assert new.fit(X, y, SITES).certificate_.converged


def test_what_groups_do_not_have_is_refused_in_a_sentence():
    X, y = hospitals.linear()
    with pytest.raises(ValueError, match="the features of a group have one penalty_factor, but 'x0' has 0 and 'x1'"):
        FederatedGroupLasso(groups=GROUPS, penalty_factor={"x0": 0.0}).fit(X, y, SITES)
    with pytest.raises(ValueError, match="exclude leaves out 'x3' and not 'x2', which is in the same group"):
        FederatedGroupLasso(groups=GROUPS, exclude=["x3"]).fit(X, y, SITES)
    for estimator in (FederatedGroupLasso, FederatedGroupLassoCV, FederatedMultiTaskLasso):
        with pytest.raises(TypeError, match=f"{estimator.__name__} takes no low: coefficients that are in one norm"):
            estimator(low=0.0)
