"""Estimators with differential privacy of rows: what the sites are asked, what comes out, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import ElasticNet, LogisticRegression

import cofed
from cofed import Privacy
from cofed.estimators import (
    FederatedElasticNet,
    FederatedElasticNetCV,
    FederatedLasso,
    FederatedLassoCV,
    FederatedLogisticRegression,
    load,
)
from cofed.estimators.noised import longest, plan, public_units
from cofed.privacy import noise_shares
from cofed.sites import Folds, MemorySites, Scaling, SiteRows
from cofed.sites.queries import (
    PrivateGradientMessage,
    PrivateMomentsMessage,
    moments_of,
    private_gradient,
    private_moments,
)

HARDLY_ANY = 1e7  # an epsilon of almost no noise
UNITS = {"centre": [1.0, -2.0, 0.0], "spread": [2.0, 0.5, 1.0]}


def rows(n=4000, seed=0):
    """Features in the units of UNITS, and z, what they predict."""
    rng = np.random.default_rng(seed)
    X = np.array(UNITS["centre"]) + rng.normal(size=(n, 3)) * UNITS["spread"]
    return X, X @ [0.5, 2.0, 0.0] + 4.0, rng


def linear(n=4000, seed=0):
    X, z, rng = rows(n, seed)
    return X, 10 + 3 * (z + rng.normal(size=n))


def classes(n=4000, seed=0):
    X, z, rng = rows(n, seed)
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-z)), "ill", "well")


def clients(n, count=5):
    return np.arange(n) % count


def weights(Z, bound):
    """What rows count with, so that none is longer than the bound."""
    return np.minimum(1, bound**2 / np.sum(Z**2, axis=1))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("standardize", [True, False])
def test_without_noise_it_is_the_fit_to_weighted_rows(fit_intercept, standardize):
    X, y = linear()
    privacy = Privacy(HARDLY_ANY, 1e-6, **UNITS, label_centre=13.0, label_spread=5.0)
    model = FederatedElasticNet(
        0.2, l1_ratio=0.7, fit_intercept=fit_intercept, standardize=standardize, privacy=privacy
    ).fit(X, y, clients=clients(len(y)))
    centre, spread = (np.array(UNITS[name]) for name in ("centre", "spread"))
    U, v = (X - centre) / spread, (y - 13.0) / 5.0
    w = weights(np.column_stack([U, v, np.ones(len(v))]), longest(3, 1e-9))
    divided = spread if standardize else np.ones(3)
    pooled = ElasticNet(0.2, l1_ratio=0.7, fit_intercept=fit_intercept, tol=1e-10).fit(X / divided, y, sample_weight=w)
    assert model.coef_ == pytest.approx(pooled.coef_ / divided, rel=1e-4, abs=1e-4)
    assert model.intercept_ == pytest.approx(pooled.intercept_, rel=1e-4, abs=1e-3)
    assert model.support_.tolist() == (pooled.coef_ != 0).tolist()


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_noise_the_logistic_fit_is_that_to_weighted_rows(fit_intercept):
    X, y = classes()
    privacy = Privacy(HARDLY_ANY, 1e-6, **UNITS, rounds=150)
    model = FederatedLogisticRegression(
        0.05, penalty="elasticnet", l1_ratio=0.0, fit_intercept=fit_intercept, standardize=False, privacy=privacy
    ).fit(X, y, clients=clients(len(y)))
    U = (X - UNITS["centre"]) / UNITS["spread"]
    w = weights(np.column_stack([U, np.ones(len(U))]), 2.0)
    pooled = LogisticRegression(C=1 / (0.05 * w.sum()), fit_intercept=fit_intercept, tol=1e-10, max_iter=1000)
    pooled.fit(X, y, sample_weight=w)
    # Dual averaging over k rounds is within about 1/k^2 of the optimum, and its first steps are the largest.
    assert model.coef_ == pytest.approx(pooled.coef_, abs=0.01)
    assert model.intercept_ == pytest.approx(pooled.intercept_, abs=0.02)


@pytest.mark.parametrize("estimator", [FederatedLasso, FederatedLogisticRegression])
def test_guesses_that_cannot_be_right_are_warned_of_by_name(estimator):
    """An age in years, taken to be around 0 with a spread of 1."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(60, 12, 8000), "dose": rng.normal(size=8000)})
    y = (X["age"] / 12 - 5 + rng.normal(size=8000) > 0).astype(float)
    with pytest.warns(UserWarning, match=r"do not fit the rows.* age .*\(guessed: 0 and 1\)") as caught:
        estimator(0.01, privacy=Privacy(1)).fit(X, y, clients=clients(8000))
    assert "dose" not in str(caught[0].message)
    with pytest.warns(UserWarning, match=r"age seems to be around [56]\d.* with a spread of 1\d"):
        estimator(0.01, privacy=Privacy(20, centre=[30, 0], spread=[8, 1])).fit(X, y, clients=clients(8000))
    estimator(0.01, privacy=Privacy(1, centre=[55, 0], spread=[10, 1])).fit(X, y, clients=clients(8000))


def test_what_cannot_be_told_from_noise_is_not_warned_of():
    X, y = linear(60)
    FederatedLasso(0.1, privacy=Privacy(0.1)).fit(X, y, clients=clients(60))


def test_a_linear_model_takes_one_exchange_and_a_logistic_one_a_gradient_a_round():
    X, y = linear()
    lasso = FederatedLasso(0.1, privacy=Privacy(1, label_centre=13.0, **UNITS)).fit(X, y, clients=clients(len(y)))
    assert lasso.privacy_.releases == ("private_moments 1",)
    assert [one.what for one in lasso.exchanges_] == ["private_moments"]
    X, y = classes()
    logistic = FederatedLogisticRegression(privacy=Privacy(1, rounds=7, **UNITS)).fit(X, y, clients=clients(len(y)))
    assert logistic.privacy_.releases == ("private_moments 1", "private_gradient 7")
    for model in (lasso, logistic):
        assert 0.95 < model.privacy_.epsilon <= 1
        assert (model.privacy_.delta, model.privacy_.level, model.privacy_.shares) == (1e-6, "row", 4)
        assert model.certificate_ is None


@pytest.mark.parametrize("seed", range(3))
def test_many_rows_give_a_useful_model_at_epsilon_1(seed):
    X, y = linear(20_000, seed)
    known = {"label_centre": 11.5, "label_spread": 5.0, **UNITS}
    model = FederatedLasso(0.1, privacy=Privacy(1, **known)).fit(X, y, clients=clients(len(y), 20))
    exact = FederatedLasso(0.1).fit(X, y)
    # Rows of more than the bound move the fit by 2% of its length, which is 4; the noise of a moment is 0.003.
    assert np.linalg.norm((model.coef_ - exact.coef_) * UNITS["spread"]) < 0.2
    X, y = classes(20_000, seed)
    model = FederatedLogisticRegression(0.01, privacy=Privacy(1, **UNITS)).fit(X, y, clients=clients(len(y), 20))
    exact = FederatedLogisticRegression(0.01).fit(X, y)
    assert model.score(X, y) > exact.score(X, y) - 0.01


numbers = st.floats(-1e6, 1e6) | st.floats(-3, 3)
ONE_ROW = st.tuples(st.lists(numbers, min_size=2, max_size=2), numbers)


@given(
    st.lists(ONE_ROW, min_size=1, max_size=5), ONE_ROW, ONE_ROW, st.lists(st.floats(-50, 50), min_size=3, max_size=3)
)
@settings(max_examples=60, deadline=None)
def test_replacing_a_row_moves_no_sum_further_than_was_said(others, before, after, model):
    scaling, bound = Scaling(np.zeros(2), np.ones(2)), 1.7
    common = (np.array([bound]), np.array([1.0]), np.array([1.0]))

    def answers(row):
        whole = [*others, row]
        X, y = np.array([x for x, _ in whole]), np.array([y for _, y in whole])
        at = SiteRows.of_sites(("a",), [X], [y])
        moments = at.exact(private_moments, PrivateMomentsMessage(*common, np.ones(1), scaling=scaling))
        at = SiteRows.of_sites(("a",), [X], [(y > 0).astype(float)])
        message = PrivateGradientMessage(
            *common, np.array(model[:2]), np.array(model[2:]), scaling=scaling, loss=cofed.Logistic()
        )
        return moments, at.exact(private_gradient, message)

    moved = [np.linalg.norm(a - b) for a, b in zip(answers(before), answers(after), strict=True)]
    assert moved[0] <= private_moments.sensitivity(bound) * (1 + 1e-9)
    assert moved[1] <= private_gradient.sensitivity(bound) * (1 + 1e-9)
    lengths = [np.linalg.norm(moments_of(one, 2)) for one in answers(before)[0]]
    assert lengths == pytest.approx([np.linalg.norm(one) for one in answers(before)[0]])


def test_the_worst_row_comes_near_the_bound():
    scaling, bound = Scaling(np.zeros(2), np.ones(2)), 1.7
    message = PrivateMomentsMessage(np.array([bound]), np.ones(1), np.ones(1), np.ones(1), scaling=scaling)
    ends = [
        SiteRows.of_sites(("a",), [np.array([x])], [np.zeros(1)]).exact(private_moments, message)
        for x in ([1e9, 0.0], [0.0, 1e9])
    ]
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(private_moments.sensitivity(bound), rel=1e-6)


def site_sums(shares, secret=b"fixed", sites=20):
    """A noised sum over sites whose exact sum is 0, with noise of the standard deviation 10."""
    p = 60
    X, y = [np.zeros((4, p))] * sites, [np.zeros(4)] * sites
    door = MemorySites(SiteRows.of_sites(tuple(f"s{k:02}" for k in range(sites)), X, y), secret=secret)
    scaling = Scaling(np.zeros(p), np.ones(p))
    common = np.array([8.0]), np.array([10.0]), np.array([float(shares)]), np.ones(1)
    found = door.ask(private_moments, PrivateMomentsMessage(*common, scaling=scaling))[0]
    return np.asarray(found)[:-1]  # the last entry is the number of rows


def test_sites_share_the_noise_of_one():
    # Of 1,952 numbers a standard deviation is known to 1.6%.
    assert site_sums(shares=20).std() == pytest.approx(10, rel=0.06)
    assert site_sums(shares=19).std() == pytest.approx(10 * np.sqrt(20 / 19), rel=0.06)
    assert site_sums(shares=1).std() == pytest.approx(10 * np.sqrt(20), rel=0.06)


def test_a_repeated_question_has_the_same_noise_and_another_secret_another():
    assert np.array_equal(site_sums(20), site_sums(20))
    assert abs(np.corrcoef(site_sums(20), site_sums(20, secret=b"another"))[0, 1]) < 0.1
    assert abs(np.corrcoef(site_sums(20), site_sums(19))[0, 1]) < 0.1  # another question


def test_sites_whose_answers_are_seen_add_all_of_the_noise_each():
    X, y = linear(200)
    door = MemorySites(SiteRows.of_sites(tuple("abcd"), np.split(X, 4), np.split(y, 4)))
    units = public_units(Privacy(1), 3, True, True, True)
    assert plan(Privacy(1), door, units, gradients=False).moments.shares == 3
    door.sums_only = False
    assert plan(Privacy(1), door, units, gradients=False).moments.shares == 1


def test_cross_validation_is_by_noised_sums_of_folds():
    X, y = linear(20_000)
    known = {"label_centre": 11.5, "label_spread": 5.0, **UNITS}
    model = FederatedLassoCV(privacy=Privacy(2, **known), n_alphas=30).fit(X, y, clients=clients(len(y)))
    assert model.privacy_.releases == ("private_moments 1",)
    assert model.alpha_ == model.alpha_min_ <= model.alpha_1se_
    assert model.path_.nonzero[0] == 0
    assert not model.path_.converged.any()
    # The best model explains most of the variance, which is about 25: the folds' noise is small beside that.
    assert 6 < model.cv_mean_.min() < 12  # 8.9 with a standard deviation of 0.4
    assert model.cv_mean_[0] == pytest.approx(np.var(y), rel=0.3)
    by_bic = FederatedElasticNetCV(l1_ratio=1.0, criterion="bic", privacy=Privacy(2, **known)).fit(X, y)
    assert by_bic.support_.tolist()[:2] == [True, True]
    assert "cv_mean_" not in vars(by_bic)


def test_folds_are_disjoint_and_add_up():
    X, y = linear(300)
    one = SiteRows.of_sites(("a",), [X], [y])
    common = np.array([9.0]), np.ones(1), np.ones(1), np.ones(1)
    scaling = Scaling(np.zeros(3), np.ones(3))
    whole = one.exact(private_moments, PrivateMomentsMessage(*common, scaling=scaling))
    parts = one.exact(private_moments, PrivateMomentsMessage(*common, scaling=scaling, folds=Folds(5)))
    assert parts.shape == (5, 15)
    assert parts.sum(axis=0) == pytest.approx(whole[0])


def test_it_can_be_saved_copied_and_shown(tmp_path):
    X, y = linear()
    known = {"label_centre": 13.0, "label_spread": 5.0}
    privacy = Privacy(1, centre=np.array(UNITS["centre"]), spread=UNITS["spread"], **known)
    model = FederatedLasso(0.1, privacy=privacy).fit(X, y, clients=clients(len(y)))
    model.save(tmp_path / "private.safetensors")
    read = load(tmp_path / "private.safetensors")
    assert read.privacy == privacy
    assert read.privacy_ == model.privacy_
    assert read.certificate_ is None
    assert np.array_equal(read.coef_, model.coef_)
    assert clone(model).privacy == privacy
    assert "epsilon 0.99" in model.summary()
    assert "certificate   none" in model.summary()
    assert "features around 1, -2, 0 with a spread of 2, 0.5, 1, y around 13 with a spread of 5" in model.summary()
    plain = model.set_params(privacy=None).fit(X, y)
    assert plain.certificate_.converged
    assert "privacy_" not in vars(plain)


def test_what_would_ask_for_more_is_refused():
    X, y = linear(100)
    model = FederatedLasso(0.1, privacy=Privacy(1)).fit(X, y)
    with pytest.raises(ValueError, match="with privacy there are no intervals"):
        model.infer(X, y)
    with pytest.raises(ValueError, match="with privacy there are no paths"):
        model.path(X, y)
    with pytest.raises(ValueError, match="with privacy there are no scores of sites"):
        model.score(MemorySites(SiteRows.of_sites(("a",), [X], [y])))
    assert isinstance(model.score(X, y), float)


@pytest.mark.parametrize(
    ("model", "labels", "sentence"),
    [
        (FederatedLasso(privacy=1.0), None, "privacy must be a cofed.Privacy, got 1.0"),
        (FederatedLasso(privacy=Privacy(1), algorithm="fista"), None, "leave algorithm at 'auto'"),
        (FederatedLasso(privacy=Privacy(1, centre=[0.0, 1.0])), None, "one for each of 3 features, got 2"),
        (FederatedLogisticRegression(privacy=Privacy(1), penalty="group"), 2, "penalties l1 and elasticnet"),
        (FederatedLogisticRegression(privacy=Privacy(1)), 3, "privacy is for two classes, got 3"),
    ],
)
def test_what_cannot_be_fitted_privately_is_refused_before_anybody_is_asked(model, labels, sentence):
    X, y = linear(90)
    y = y if labels is None else np.arange(90) % labels
    with pytest.raises((TypeError, ValueError), match=sentence):
        model.fit(X, y)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"epsilon": 0}, "epsilon must be a finite number > 0, got 0"),
        ({"epsilon": "1"}, "epsilon must be a number, got '1'"),
        ({"epsilon": True}, "epsilon must be a number, got True"),
        ({"delta": 1.0}, "delta must be below 1"),
        ({"delta": np.nan}, "delta must be a finite number"),
        ({"spread": 0.0}, "spread must be finite numbers > 0"),
        ({"spread": [[1.0]]}, "spread must be a number, or one for each feature"),
        ({"centre": "x"}, "centre must be a number, or one for each feature"),
        ({"label_spread": -1.0}, "label_spread must be a finite number > 0"),
        ({"colluding": 0.5}, "colluding must be an integer"),
        ({"rounds": 0}, "rounds must be an integer from 1 to 10000"),
    ],
)
def test_settings_that_mean_nothing_are_refused(given, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        Privacy(**{"epsilon": 1.0} | given)


@pytest.mark.parametrize(("sites", "colluding", "shares"), [(1, 1, 1), (2, 1, 1), (5, 1, 4), (5, 0, 5), (5, 9, 1)])
def test_shares_leave_out_the_sites_that_may_collude(sites, colluding, shares):
    assert noise_shares(Privacy(1, colluding=colluding), sites) == shares
