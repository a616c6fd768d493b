"""Permutation importance: the numbers of scikit-learn's measures on rows that were permuted site by site."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss, mean_absolute_error, mean_squared_error, roc_auc_score, zero_one_loss
from tests.estimators.survival import follow_up
from tests.sites.policy import worlds

from cofed.estimators import (
    FederatedCox,
    FederatedLasso,
    FederatedLogisticRegression,
    permutation_importance,
)
from cofed.estimators.permutation import seeds_of
from cofed.sites import SiteTable, sites_of_frame
from cofed.sites.policy import PolicyGuard
from cofed.sites.queries import PermutedMessage, permuted
from cofed.sites.queries.permuted import dealt_anew
from cofed.sites.rows import SiteRows

RNG = np.random.default_rng(0)
SITES = np.repeat(["Bern", "Oslo", "Rome"], [23, 16, 31])
X = RNG.normal(size=(70, 4)) + RNG.normal(size=(3, 4))[np.repeat([0, 1, 2], [23, 16, 31])]
Y = X[:, 1] - 0.3 * X[:, 3] + RNG.normal(size=70)
ILL = np.where(Y > 0, "ill", "well")
SEEDS = seeds_of(7, 2)


def rows_of(X, y, sites=SITES):
    names = tuple(dict.fromkeys(sites))
    return SiteRows.of_sites(names, [X[sites == one] for one in names], [y[sites == one] for one in names])


def permutations(rows):
    table = rows.table(None, None)
    return [np.asarray(dealt_anew(table, jnp.asarray(seed)))[: len(rows.X)] for seed in SEEDS]


def moved(X, order, columns):
    other = np.array(X)
    other[:, columns] = other[order][:, columns]
    return other


def test_rows_are_dealt_anew_within_their_sites_alone():
    rows = rows_of(X, Y)
    for order in permutations(rows):
        assert sorted(order.tolist()) == list(range(len(X)))
        np.testing.assert_array_equal(SITES[order], SITES)
        assert (order != np.arange(len(X))).mean() > 0.8
    first, second = permutations(rows)
    assert (first != second).any()
    # The same at a site of its own as beside others.
    own, at = permutations(rows.alone(1)), rows.bounds[1]
    for mine, order in zip(own, permutations(rows), strict=True):
        np.testing.assert_array_equal(mine + at, order[rows.bounds[1] : rows.bounds[2]])


def test_measures_are_those_of_permuted_rows():
    lasso = FederatedLasso(0.2).fit(X, Y, SITES)
    chance = FederatedLogisticRegression(0.01).fit(X, ILL, SITES)

    def probability(X):
        return chance.predict_proba(X)[:, 1]

    judges = [
        (lasso, Y, "mse", lambda Z: mean_squared_error(Y, lasso.predict(Z))),
        (lasso, Y, "mae", lambda Z: mean_absolute_error(Y, lasso.predict(Z))),
        (chance, ILL, "deviance", lambda Z: 2 * log_loss(ILL, chance.predict_proba(Z))),
        (chance, ILL, "misclassification", lambda Z: zero_one_loss(ILL, chance.predict(Z))),
        (chance, ILL, "auc", lambda Z: roc_auc_score(ILL == "well", probability(Z))),
    ]
    orders = permutations(rows_of(X, Y))
    for model, y, measure, judge in judges:
        found = permutation_importance(model, X, y, SITES, measure=measure, n_repeats=2, random_state=7)
        off = found.bound + 1e-12
        assert abs(found.baseline - judge(X)) <= off, measure
        wanted = np.array([[judge(moved(X, order, [j])) for order in orders] for j in range(4)])
        assert np.abs(found.scores - wanted).max() <= off, measure
        assert (found.bound > 0) == (measure == "auc")
        assert found.n_rounds == 1 + (measure == "auc")
        drop = (wanted - judge(X)) * (-1 if measure == "auc" else 1)
        np.testing.assert_allclose(found.importances, drop, atol=2 * off)
    table = permutation_importance(lasso, X, Y, SITES, n_repeats=2, random_state=7).table
    assert table.index[0] == "x1"
    assert np.all(np.diff(table.importance) <= 0)
    unused = np.flatnonzero(lasso.coef_ == 0)
    assert len(unused)
    assert (table.loc[[f"x{j}" for j in unused]] == 0).all(axis=None)


def test_the_columns_of_a_factor_move_together_and_weights_count():
    ward = np.array(["a", "b", "c"])[np.arange(70) % 3]
    weight = np.where(np.arange(70) % 7 == 0, 0.0, 1.0 + np.arange(70) % 2)
    frame = pd.DataFrame({"age": X[:, 1], "ward": ward, "n": weight, "cost": Y + 2 * (ward == "b"), "site": SITES})
    model = FederatedLasso(0.01).fit(frame.drop(columns="cost"), frame.cost, "site", sample_weight="n")
    asked = {"n_repeats": 2, "random_state": 7}
    here = permutation_importance(model, frame.drop(columns="cost"), frame.cost, "site", sample_weight="n", **asked)
    assert set(here.table.index) == {"age", "ward"}
    kept = frame[frame.n > 0].reset_index(drop=True)
    orders = permutations(rows_of(kept[["age"]].to_numpy(), kept.cost.to_numpy(), kept.site.to_numpy()))
    for place, names in enumerate((["age"], ["ward"])):
        for repeat, order in enumerate(orders):
            other = kept.drop(columns=["cost", "n"])
            other[names] = kept[names].to_numpy()[order]
            wanted = mean_squared_error(kept.cost, model.predict(other), sample_weight=kept.n)
            assert here.scores[place, repeat] == pytest.approx(wanted, rel=1e-12)
    # Sites with tables, whose columns are in another order, are asked by the design of the fit.
    sites = sites_of_frame(frame[["site", "ward", "cost", "n", "age"]], "cost", "site")
    far = permutation_importance(model, sites.with_columns(weight="n"), **asked)
    order = [far.feature_names.index(name) for name in here.feature_names]
    np.testing.assert_allclose(far.scores[order], here.scores, rtol=1e-12)


def test_times_to_an_event_are_judged_by_the_order_of_pairs():
    Z, y = follow_up()
    sites = np.repeat(["Bern", "Oslo", "Rome"], len(Z) // 3 + 1)[: len(Z)]
    cox = FederatedCox(0.01).fit(Z, y, clients=sites)
    found = permutation_importance(cox, Z, y, sites, n_repeats=2, random_state=7)
    assert found.baseline == cox.score(Z, y, clients=sites)
    for repeat, order in enumerate(permutations(rows_of(Z, y, sites))):
        assert found.scores[0, repeat] == cox.score(moved(Z, order, [0]), y, clients=sites)


def test_a_policy_counts_every_permutation_as_a_point():
    table = SiteTable(worlds.frame_of(X[:, :2], (Y > 0).astype(int)), "Oslo")
    design = worlds.design_of(2)
    sites = worlds.Guarded({"Oslo": table}, design, {"Oslo": PolicyGuard(worlds.alone(), None, "Oslo")})
    message = PermutedMessage(
        np.ones((2, 1)) / 9,
        np.zeros(1),
        np.zeros((24, 1), np.int32),
        np.arange(24, dtype=np.int32),
        np.zeros((1, 0)),
        loss=FederatedLogisticRegression().fit(X, ILL)._loss(),
    )
    with pytest.raises(ValueError, match="does not answer: points"):
        sites.ask(permuted, message)
    assert "24 are asked for; of 70 rows of all sites 23 may be" in sites.refusals[0].sentence


def test_the_figure_has_a_bar_for_every_feature(tmp_path):
    model = FederatedLasso(0.1).fit(X, Y, SITES)
    for repeats in (1, 3):
        figure = permutation_importance(model, X, Y, SITES, n_repeats=repeats).plot(tmp_path / "importance.png")
        assert next(text.get_text() for text in figure.axes[0].get_yticklabels()) == "x1"
        assert len(figure.axes[0].patches) == 4
    assert (tmp_path / "importance.png").stat().st_size > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"measure": "auc"}, "measure='auc' is for models of two classes; this one has deviance, mse, mae"),
        ({"measure": "r2"}, "measure must be one of deviance, mse"),
        ({"n_repeats": 0}, "n_repeats must be an integer >= 1, got 0"),
        ({"random_state": -1}, "random_state must be an integer >= 0, got -1"),
        ({"X": X[:, :3]}, "FederatedLasso was fitted to other features than those of X"),
        ({"offset": Y}, "give offset= where FederatedLasso was fitted with one, and only there"),
    ],
)
def test_what_cannot_be_asked_is_said(given, said):
    asked = {"model": FederatedLasso(0.1).fit(X, Y, SITES), "X": X, "y": Y, "clients": SITES, **given}
    with pytest.raises(ValueError, match=f"permutation_importance: {said}"):
        permutation_importance(**asked)


def test_models_that_have_no_importances():
    with pytest.raises(TypeError, match="permutation_importance: model must be a fitted estimator"):
        permutation_importance("lasso", X, Y)
    apart = FederatedLasso(0.1, site_effects="fixed").fit(X, Y, SITES)
    with pytest.raises(ValueError, match="an intercept of each site's"):
        permutation_importance(apart, X, Y, SITES)
    chance = FederatedLogisticRegression(0.01).fit(X, ILL, SITES)
    with pytest.raises(ValueError, match=r"was fitted to the classes .*ill.*well.*, but y has"):
        permutation_importance(chance, X, np.where(Y > 0, "ill", "other"), SITES)
