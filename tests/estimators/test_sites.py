"""Fits to sites: what is learnt of tables is kept for new rows, and scores are sums."""

import copy

import numpy as np
import pandas as pd
import pytest
from tests.estimators import hospitals

from cofed.estimators import (
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
    FederatedPoisson,
    load,
)
from cofed.sites import sites_of_frame


def frame(target, labels):
    X = hospitals.features()
    ward = np.random.default_rng(3).choice(["north", "south", "west"], len(X))
    return pd.DataFrame({"age": X[:, 0], "ward": ward, "dose": X[:, 2], target: labels, "site": hospitals.SITES})


def test_a_table_with_factors_is_fitted_and_new_rows_are_encoded_alike(tmp_path):
    _, y = hospitals.linear()
    table = frame("cost", y)
    model = FederatedLasso(0.05).fit(sites_of_frame(table, "cost", "site"))
    assert model.feature_names_in_.tolist() == ["age", "ward[south]", "ward[west]", "dose"]
    coded = pd.get_dummies(table.ward)[["south", "west"]].to_numpy(float)
    rows = np.column_stack([table.age, coded, table.dose])
    np.testing.assert_allclose(
        model.predict(table.drop(columns=["cost", "site"])), rows @ model.coef_ + model.intercept_
    )
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(table[["ward", "dose", "age"]]), model.predict(table))
    with pytest.raises(ValueError, match="site 'new rows', column 'ward' has 'attic', but the levels are 'north'"):
        again.predict(table.assign(ward="attic"))


def test_intervals_of_sites_ask_no_question_twice():
    _, y = hospitals.classes()
    sites = sites_of_frame(frame("ill", y), "ill", "site")
    model = FederatedLogisticRegressionCV(n_alphas=5, cv=3).fit(sites)
    before = len(sites.exchanges)
    table = model.infer(sites)
    assert {one.what for one in sites.exchanges[before:]} == {"look"}
    again = FederatedLogisticRegressionCV(n_alphas=5, cv=3).fit(sites)
    pd.testing.assert_frame_equal(again.infer(sites_of_frame(frame("ill", y), "ill", "site")), table, rtol=1e-9)
    assert "_surveyed" not in vars(copy.copy(model))


def test_scores_of_sites_are_those_of_the_rows():
    X, y = hospitals.linear()
    lasso = FederatedLasso(0.05).fit(X, y, clients=hospitals.SITES)
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(y=y, site=hospitals.SITES)
    assert lasso.score(sites_of_frame(table, "y", "site")) == pytest.approx(lasso.score(X, y), rel=1e-10)
    X, y = hospitals.classes(3)
    softmax = FederatedLogisticRegression(0.02).fit(X, y, clients=hospitals.SITES)
    sites = sites_of_frame(table.assign(y=y), "y", "site")
    assert softmax.score(sites) == pytest.approx(softmax.score(X, y), rel=1e-12)
    with pytest.raises(
        ValueError, match=r"was fitted to the classes \['a', 'b', 'c'\], but the sites have \['a', 'b'\]"
    ):
        softmax.score(sites_of_frame(table.assign(y=np.where(y == "a", "a", "b")), "y", "site"))
    X, y = hospitals.counts()
    poisson = FederatedPoisson(0.02).fit(X, y, clients=hospitals.SITES)
    sites = sites_of_frame(table.assign(y=y), "y", "site")
    assert poisson.score(sites) == pytest.approx(poisson.score(X, y), rel=1e-10)
    with pytest.raises(ValueError, match="sites carry their own targets"):
        poisson.score(sites, y)


def test_columns_of_sites_are_matched_by_name_in_scores():
    X, y = hospitals.linear()
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(y=y, site=hospitals.SITES)
    model = FederatedLasso(0.05).fit(sites_of_frame(table, "y", "site"))
    right = model.score(sites_of_frame(table, "y", "site"))
    assert model.score(sites_of_frame(table[table.columns[::-1]], "y", "site")) == pytest.approx(right, rel=1e-10)
    with pytest.raises(ValueError, match="has no column 'x0'"):
        model.score(sites_of_frame(table.rename(columns={"x0": "other"}), "y", "site"))
    plain = FederatedLasso(0.05).fit(table.drop(columns=["y", "site"]), y, clients=hospitals.SITES)
    with pytest.raises(ValueError, match=r"was fitted to the features 'x0', .* but those of the sites"):
        plain.score(sites_of_frame(table[table.columns[::-1]], "y", "site"))


def test_what_sites_cannot_do_is_said():
    X, y = hospitals.linear()
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(y=y, site=hospitals.SITES)
    with pytest.raises(ValueError, match="FederatedLasso: the sites have no target"):
        FederatedLasso().fit(sites_of_frame(table.drop(columns="y"), None, "site"))
    with pytest.raises(ValueError, match="FederatedLogisticRegression: y must be the labels of classes"):
        FederatedLogisticRegression().fit(sites_of_frame(table, "y", "site"))
    with pytest.raises(TypeError, match="those of sites stay there"):
        FederatedLasso().fit(X, y).predict(sites_of_frame(table, "y", "site"))
