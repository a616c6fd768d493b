"""Baseline hazards, predicted survival and the C-index of Cox's model, beside their definitions."""

import copy

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimators import hospitals, survival
from tests.sites.secure import worlds

from cofed.estimators import FederatedCox, FederatedCoxCV, load, nested_cv
from cofed.sites import Folds, Target
from cofed.statistics.survival import baseline_hazard

SITES = hospitals.SITES


def hazard_by_definition(y, risk, efron):
    """The cumulative hazard at each event time, event by event."""
    entry, time, event = (y[:, 0] if y.shape[1] == 3 else np.full(len(y), -np.inf)), y[:, -2], y[:, -1] == 1
    total, found = 0.0, []
    for t in np.unique(time[event]):
        here, there = event & (time == t), (entry < t) & (time >= t)
        d = here.sum()
        for k in range(d):
            total += 1 / (np.exp(risk[there]).sum() - (k / d * np.exp(risk[here]).sum() if efron else 0))
        found.append(total)
    return np.unique(time[event]), np.array(found)


def index_by_definition(y, risk, sites):
    """Harrell's C, pair by pair."""
    entry = y[:, 0] if y.shape[1] == 3 else np.full(len(y), -np.inf)
    good = pairs = 0.0
    for i in np.flatnonzero(y[:, -1] == 1):
        for j in np.flatnonzero(sites == sites[i]):
            later = y[j, -2] > y[i, -2] or (y[j, -2] == y[i, -2] and y[j, -1] == 0)
            if j != i and later and entry[j] < y[i, -2]:
                pairs += 1
                good += 1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0
    return good / pairs


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), entries=st.booleans(), efron=st.booleans())
def test_baseline_hazards_are_those_of_the_definition(seed, entries, efron):
    X, y = survival.follow_up(seed, entries)
    risk = X[:, 0] - X[:, 2]
    found = baseline_hazard(y, risk, efron)
    times, cumulative = hazard_by_definition(y, risk, efron)
    np.testing.assert_array_equal(found.time, times)
    np.testing.assert_allclose(found.cumulative, cumulative, rtol=1e-9)


@pytest.fixture(scope="module", params=["breslow", "efron"])
def model(request):
    X, y = survival.follow_up()
    return FederatedCox(0.02, ties=request.param).fit(X, y, clients=SITES)


def test_survival_at_a_site_is_that_of_its_own_rows(model, tmp_path):
    X, y = survival.follow_up()
    own, times = SITES == "Bern", np.array([0.0, 0.2, 1.0, y[SITES == "Bern", 0].max()])
    at, cumulative = hazard_by_definition(y[own], X[own] @ model.coef_, model.ties == "efron")
    until = cumulative[at <= times[2]][-1]
    expected = np.exp(-np.exp(X[:3] @ model.coef_) * until)
    np.testing.assert_allclose(model.predict_survival(X[:3], "Bern", times)[:, 2], expected, rtol=1e-9)
    found = model.predict_survival(X, "Bern", times)
    assert (found[:, 0] == 1).all()
    assert (np.diff(found, axis=1) <= 0).all()
    # Of later times nobody there tells anything.
    beyond = model.predict_survival(X, "Bern", [times[3], times[3] + 1e-9, 50.0])
    np.testing.assert_array_equal(beyond[:, 0], found[:, 3])
    assert np.isnan(beyond[:, 1:]).all()
    # It belongs to the site: neither files nor copies have it, and the site makes it again from its own rows.
    model.save(tmp_path / "cox.safetensors")
    for other in (load(tmp_path / "cox.safetensors"), copy.deepcopy(model)):
        with pytest.raises(ValueError, match="the baseline hazard of 'Bern' is not known here"):
            other.predict_survival(X, "Bern", times)
        other.keep_baselines(X[own], y[own], clients=SITES[own])
        np.testing.assert_array_equal(other.predict_survival(X, "Bern", times), found)
        with pytest.raises(ValueError, match=r"'Rome' is not known here \(known: Bern\)|known: 'Bern'"):
            other.predict_survival(X, "Rome", times)
    with pytest.raises(ValueError, match="clients must name the client of every row"):
        model.keep_baselines(X, y)
    with pytest.raises(ValueError, match="times must be a list of numbers"):
        model.predict_survival(X, "Bern", 3.0)


def test_a_site_without_an_event_tells_survival_until_its_last_time():
    X, y = survival.follow_up()
    y[SITES == "Rome", 1] = 0
    last = y[SITES == "Rome", 0].max()
    found = FederatedCox(0.05).fit(X, y, clients=SITES).predict_survival(X[:2], "Rome", [0.0, last, 2 * last])
    np.testing.assert_array_equal(found, [[1, 1, np.nan]] * 2)


@pytest.mark.parametrize("entries", [False, True])
def test_the_score_is_the_c_index_of_pairs_within_sites(entries):
    X, y = survival.follow_up(2, entries)
    X[:, 0] = np.round(X[:, 0])  # ties
    model = FederatedCox(0.1).fit(X, y, clients=SITES)
    risk = X @ model.coef_
    assert model.score(X, y, clients=SITES) == pytest.approx(index_by_definition(y, risk, SITES), abs=1e-15)
    assert model.score(X, y) == pytest.approx(index_by_definition(y, risk, np.zeros(len(X))), abs=1e-15)
    with pytest.raises(ValueError, match="of no two rows of a client it is known"):
        model.score(X[:3], y[:3] * 0 + [*([0.0] * entries), 1.0, 0.0], clients=SITES[:3])


def test_the_c_index_of_held_out_rows_chooses_a_strength():
    X, y = survival.follow_up()
    alphas = [0.2, 0.03]
    model = FederatedCoxCV(alphas=alphas, cv=2, measure="c_index").fit(X, y, clients=SITES)
    fold = np.empty(len(y), int)
    for site in np.unique(SITES):
        fold[site == SITES] = Folds(2, 0, FederatedCoxCV._classifies).of_rows(str(site), y[site == SITES], None)
    found = np.empty((2, 2))
    for k in range(2):
        for i, alpha in enumerate(alphas):
            # The strength is of all rows' features, standardised by the rows that are learnt from.
            own = FederatedCox(alpha).fit(X[fold != k], y[fold != k], clients=SITES[fold != k])
            found[k, i] = index_by_definition(y[fold == k], X[fold == k] @ own.coef_, SITES[fold == k])
    weight = np.bincount(fold) / len(fold)
    np.testing.assert_allclose(model.cv_mean_, weight @ found, atol=2e-3)  # pairs that are nearly tied
    assert model.alpha_min_ == alphas[int(np.argmax(model.cv_mean_))]
    assert [one.what for one in model.exchanges_].count("concordance") == 1


def test_a_site_that_tells_no_c_index_is_left_out_of_the_mean():
    X, y = survival.follow_up()
    y[SITES == "Rome", 1] = 0
    given = {"alphas": [0.2, 0.03], "cv": "leave-one-site-out", "measure": "c_index"}
    with pytest.warns(
        UserWarning, match="FederatedCoxCV: at 'Rome' it is known of no two rows .* over the other sites"
    ):
        model = FederatedCoxCV(**given).fit(X, y, clients=SITES)
    found, rows = [], []
    for site in ("Oslo", "Bern"):
        out = site == SITES
        risks = [X[out] @ FederatedCox(a).fit(X[~out], y[~out], clients=SITES[~out]).coef_ for a in (0.2, 0.03)]
        found.append([index_by_definition(y[out], risk, SITES[out]) for risk in risks])
        rows.append(out.sum())
    mean = np.average(found, axis=0, weights=rows)
    np.testing.assert_allclose(model.cv_mean_, mean, atol=2e-3)  # pairs that are nearly tied
    spread = np.average((found - mean) ** 2, axis=0, weights=rows)
    np.testing.assert_allclose(model.cv_se_, np.sqrt(spread), atol=2e-3)
    four = np.where((SITES == "Oslo") & (np.arange(60) % 2 == 0), "Bonn", SITES)
    with pytest.warns(UserWarning, match="nested_cv: at 'Rome' it is known"):
        nested = nested_cv(FederatedCoxCV(alphas=[0.2, 0.03], cv="leave-one-site-out"), X, y, four)
    told = ~np.isnan(nested.scores)
    assert nested.measure == "c_index"
    assert nested.rows[~told].tolist() == [8]
    assert nested.mean == pytest.approx(np.average(nested.scores[told], weights=nested.rows[told]))
    y[SITES == "Bern", 1] = 0
    y[SITES == "Rome", 1] = np.arange(8) == np.argmax(y[SITES == "Rome", 0])  # an event after which nobody is left
    with pytest.raises(
        ValueError, match=r"needs two sites at which .* but at '(Rome|Bern)', '(Rome|Bern)' it is of none; take measure"
    ):
        FederatedCoxCV(**given).fit(X, y, clients=SITES)


def test_sites_elsewhere_tell_counts_of_pairs():
    X, y = survival.follow_up()
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(days=y[:, 0], dead=y[:, 1])
    tables = {name: frame[name == SITES].reset_index(drop=True) for name in hospitals.SIZES}
    sites = worlds.over(worlds.MaskedLink(tables), target=Target(name="days", event="dead"))
    model = FederatedCox(0.1).fit(sites)
    assert model.score(sites) == pytest.approx(model.score(frame[list("abcdef")], y, clients=SITES), abs=1e-15)
    assert sites.exchanges[-1].what == "concordance"
    with pytest.raises(ValueError, match="whoever has its rows gives them to keep_baselines"):
        model.predict_survival(frame[list("abcdef")], "Rome", [1.0])
