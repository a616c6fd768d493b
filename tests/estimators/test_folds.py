"""Folds by rows, groups, sites and splitters of scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Lasso, LinearRegression
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut, ShuffleSplit, StratifiedKFold, cross_val_score
from tests.estimators import hospitals

import cofed
from cofed.estimators import (
    FederatedElasticNetCV,
    FederatedGLMCV,
    FederatedLassoCV,
    FederatedLogisticRegressionCV,
    FederatedPoissonCV,
)
from cofed.sites import Folds, GroupFolds, SiteFolds, sites_of_frame, table_sites
from cofed.sites import folds as forms

SITES = hospitals.SITES
ALPHAS = [0.3, 0.1]


def pooled_errors(X, y, fold):
    """The mean squared errors of held-out rows, each fold counting by its rows."""
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in np.unique(fold)]
    weight = np.array([len(test) for _, test in splits]) / len(y)
    model = {"tol": 1e-12, "max_iter": 10**6}
    scores = [cross_val_score(Lasso(a, **model), X, y, cv=splits, scoring="neg_mean_squared_error") for a in ALPHAS]
    return -np.array(scores) @ weight


def fitted(X, y, **given):
    return FederatedLassoCV(alphas=ALPHAS, standardize=False, **given).fit(X, y, clients=SITES)


def test_splits_of_scikit_learn_are_taken_as_they_are():
    X, y = hospitals.linear()
    groups = np.arange(len(y)) // 5
    for cv, splits in (
        (KFold(3), KFold(3).split(X)),
        (list(GroupKFold(4).split(X, y, groups)), GroupKFold(4).split(X, y, groups)),
        (StratifiedKFold(3, shuffle=True, random_state=1), None),
    ):
        if splits is None:
            with pytest.raises(ValueError, match="StratifiedKFold makes no splits of these rows"):
                fitted(X, y, cv=cv)
            continue
        fold = np.empty(len(y), int)
        for k, (_, test) in enumerate(splits):
            fold[test] = k
        np.testing.assert_allclose(fitted(X, y, cv=cv).cv_mean_, pooled_errors(X, y, fold), rtol=1e-5)


def test_leave_one_site_out_is_leave_one_group_out():
    X, y = hospitals.linear()
    model = fitted(X, y, cv="leave-one-site-out")
    fold = np.unique(SITES, return_inverse=True)[1]
    np.testing.assert_allclose(model.cv_mean_, pooled_errors(X, y, fold), rtol=1e-5)
    assert len(list(LeaveOneGroupOut().split(X, y, SITES))) == len(np.unique(fold))


def test_whole_groups_of_a_column_are_in_one_fold():
    X, y = hospitals.linear()
    patient = np.array([f"p{i // 3}" for i in range(len(y))])
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])]).assign(patient=patient)
    model = FederatedLassoCV(alphas=ALPHAS, standardize=False, cv=("patient", 4)).fit(frame, y, clients=SITES)
    fold = np.empty(len(y), int)
    for site in np.unique(SITES):
        own = site == SITES
        fold[own] = GroupFolds(4).of_rows(str(site), y[own], pd.factorize(patient[own])[0])
        assert max(np.ptp(fold[own][patient[own] == one]) for one in np.unique(patient[own])) == 0
    np.testing.assert_allclose(model.cv_mean_, pooled_errors(X, y, fold), rtol=1e-5)
    assert model.n_features_in_ == X.shape[1]
    np.testing.assert_allclose(model.predict(frame), model.predict(frame.drop(columns="patient")))
    model.infer(frame, y, clients=SITES)  # the column is no feature there either
    # Tables of sites, whose own column it is.
    tables = {str(s): frame[s == SITES].assign(y=y[s == SITES]).reset_index(drop=True) for s in np.unique(SITES)}
    sites = table_sites(tables, "y", features=[f"f{j}" for j in range(X.shape[1])])
    again = FederatedLassoCV(alphas=ALPHAS, standardize=False, cv=("patient", 4)).fit(sites)
    np.testing.assert_allclose(again.cv_mean_, model.cv_mean_, rtol=1e-9)


def test_rows_of_weight_zero_leave_the_others_folds_as_they_are():
    X, y = hospitals.linear()
    fold = np.arange(len(y)) % 3
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    weight = (np.arange(len(y)) % 7 > 0).astype(float)
    own = weight > 0
    model = FederatedLassoCV(alphas=ALPHAS, standardize=False, cv=splits)
    model.fit(X, y, clients=SITES, sample_weight=weight)
    np.testing.assert_allclose(model.cv_mean_, pooled_errors(X[own], y[own], fold[own]), rtol=1e-5)


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=30),
    count=st.integers(2, 6),
    seed=st.integers(0, 99),
    left_out=st.integers(-1, 1),
)
def test_groups_are_dealt_evenly_and_written_as_they_are_read(sizes, count, seed, left_out):
    group = np.repeat(np.arange(len(sizes)), sizes)
    folds = GroupFolds(count, seed)
    fold = folds.of_rows("a", np.zeros(len(group)), group)
    assert all(np.ptp(fold[group == g]) == 0 for g in range(len(sizes)))
    rows = np.bincount(fold, minlength=count)
    assert rows.max() - rows.min() <= max(sizes)
    part = GroupFolds(count, seed, left_out=left_out)
    kept = part.of_rows("a", np.zeros(len(group)), group)
    assert np.array_equal(kept < 0, fold == left_out)
    assert kept.max(initial=-1) < part.n
    for one in (part, Folds(count, seed, True, left_out=left_out), SiteFolds.of(("a", "b"))):
        assert forms.read(forms.written(one)) == one


@pytest.mark.parametrize(
    ("cv", "sentence"),
    [
        (1, "cv must be an integer >= 2"),
        (2.5, "cv must be an integer >= 2"),
        ("patient", "must name a column of a pandas X or of the sites' tables"),
        (("patient", 1), "cv must be an integer >= 2"),
        (GroupKFold(3), r"cv=list\(GroupKFold"),
        (list(ShuffleSplit(30, random_state=0).split(np.zeros(120))), "every row must be in the test set of one split"),
        ([(np.arange(60), np.arange(60, 120))], "in 2 splits at least; 60 rows never are"),
        ([1, 2], r"splits that are not \(train, test\)"),
    ],
)
def test_what_are_no_folds(cv, sentence):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 2)), np.arange(120) % 2
    with pytest.raises(ValueError, match=sentence):
        FederatedLogisticRegressionCV(cv=cv).fit(X, y, clients=np.arange(120) % 3)


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), smallest=st.sampled_from([1e-9, 1e-3]), ratio=st.sampled_from([0.5, 1.0]))
def test_models_of_folds_without_a_penalty_have_not_seen_the_rows_held_out(seed, smallest, ratio):
    rng = np.random.default_rng(seed)
    X, site = rng.normal(size=(60, 3)), np.arange(60) % 3
    y = X[:, 0] + rng.normal(size=60)
    splits = list(KFold(5, shuffle=True, random_state=seed).split(X))
    model = FederatedElasticNetCV(alphas=[0.1, smallest, 0.0], l1_ratio=ratio, cv=splits).fit(X, y, clients=site)
    ols = -cross_val_score(LinearRegression(), X, y, cv=splits, scoring="neg_mean_squared_error").mean()
    np.testing.assert_allclose(model.cv_mean_[-1], ols, rtol=1e-8)


def test_a_single_site_cannot_be_left_out():
    X, y = hospitals.linear()
    with pytest.raises(ValueError, match=r"cv='leave-one-site-out' needs two sites or more, and there is 1"):
        FederatedLassoCV(cv="leave-one-site-out").fit(X, y)


@pytest.mark.parametrize(
    "model", [FederatedPoissonCV(cv=3, n_alphas=3), FederatedGLMCV(cofed.Tweedie(1.5), cv=3, n_alphas=3)]
)
def test_folds_must_leave_a_count_to_learn_from(model):
    """Where none is left, the best model of a training set predicts nothing, and is infinitely far."""
    X, y = hospitals.linear()[0], (np.arange(len(SITES)) == 7).astype(float)
    with pytest.raises(ValueError, match="all rows with a value above 0 are in one fold, so that there are none to"):
        model.fit(X, y, clients=SITES)


def test_the_column_of_clients_is_told_from_groups():
    X, y = hospitals.linear()
    frame = pd.DataFrame(X).set_axis(list("abcdef"), axis=1).assign(ward=SITES)
    with pytest.raises(ValueError, match="cv='ward' names the clients: a fold for each of them is cv='leave-one-site"):
        FederatedLassoCV(cv="ward").fit(frame, y, clients="ward")


def test_groups_that_sites_number_alike_are_dealt_as_each_site_deals_its_own():
    X, y = hospitals.linear()
    person = np.random.default_rng(0).integers(12, size=len(y))
    frame = pd.DataFrame(X).set_axis(list("abcdef"), axis=1).assign(person=person, ward=SITES)
    here = FederatedLassoCV(alphas=ALPHAS, cv=("person", 3)).fit(frame, y, clients="ward")
    there = FederatedLassoCV(alphas=ALPHAS, cv=("person", 3)).fit(sites_of_frame(frame.assign(y=y), "y", "ward"))
    np.testing.assert_allclose(here.cv_mean_, there.cv_mean_, rtol=1e-9)
