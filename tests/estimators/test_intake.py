"""Rows, names and clients in; sentences where they do not fit."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.estimators import hospitals

import cofed
from cofed.estimators import (
    FederatedGLM,
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedMixedModel,
    FederatedPoisson,
    FederatedStandardScaler,
)
from cofed.sites import sites_of_frame

SITES = hospitals.SITES


def frame():
    X, y = hospitals.linear()
    return pd.DataFrame(X, columns=list("abcdef")), y


def test_a_frame_keeps_its_names_and_may_hold_the_clients():
    df, y = frame()
    plain = FederatedLasso(0.2).fit(df, y, clients=SITES)
    assert plain.feature_names_in_.tolist() == list("abcdef")
    assert plain.clients_ == ("Bern", "Oslo", "Rome")
    assert plain.client_sizes_ == (22, 30, 8)
    named = FederatedLasso(0.2).fit(df.assign(site=SITES), y, clients="site")
    np.testing.assert_array_equal(named.coef_, plain.coef_)
    np.testing.assert_array_equal(named.predict(df.assign(site=SITES)), plain.predict(df))


def test_a_federation_carries_everything():
    df, y = frame()
    federation = cofed.Federation.from_frame(df.assign(y=y, site=SITES), target="y", client="site")
    model = FederatedLasso(0.2).fit(federation)
    np.testing.assert_allclose(model.coef_, FederatedLasso(0.2).fit(df, y, clients=SITES).coef_, rtol=1e-10)
    assert model.feature_names_in_.tolist() == list("abcdef")
    with pytest.raises(ValueError, match="FederatedLasso: a Federation carries its own targets"):
        FederatedLasso().fit(federation, y)


def test_the_scaler_is_that_of_the_pooled_rows():
    X, _ = hospitals.linear()
    X[:, 3] = 0.1  # constant
    ours, theirs = FederatedStandardScaler().fit(X, clients=SITES), StandardScaler().fit(X)
    np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-14)
    np.testing.assert_allclose(ours.scale_, theirs.scale_, rtol=1e-13)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), X, rtol=1e-12)
    assert (ours.n_rounds_, ours.bytes_) == (2, 3 * 8 * (7 + 6 + 6))


def test_clients_are_routed_through_pipelines_and_searches():
    X, y = hospitals.linear()
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = FederatedStandardScaler().set_fit_request(clients=True)
        lasso = FederatedLasso(0.2, standardize=False).set_fit_request(clients=True)
        pipe = make_pipeline(scaler, lasso).fit(X, y, clients=SITES)
        assert pipe[-1].clients_ == ("Bern", "Oslo", "Rome")
        whole = FederatedLasso(0.2).fit(X, y, clients=SITES)
        np.testing.assert_allclose(pipe.predict(X), whole.predict(X), rtol=1e-9)
        search = GridSearchCV(FederatedLasso().set_fit_request(clients=True), {"alpha": [0.1, 100.0]}, cv=2)
        assert search.fit(X, y, clients=SITES).best_params_ == {"alpha": 0.1}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"clients": ["a", "b"]}, "FederatedLasso: clients must name one client per row: 60 rows, 2 names"),
        ({"clients": "site"}, "clients='site' must name a column of a pandas X"),
        ({"clients": np.where(SITES == "Rome", None, SITES)}, "but 8 of 60 are missing"),
    ],
)
def test_bad_clients_get_a_sentence(arguments, sentence):
    X, y = hospitals.linear()
    with pytest.raises(ValueError, match=sentence):
        FederatedLasso().fit(X, y, **arguments)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (FederatedLasso(-1), "alpha must be a number >= 0, got -1"),
        (FederatedLasso(tol=0), "tol must be a number > 0, got 0"),
        (FederatedLasso(max_rounds=0), "max_rounds must be an integer >= 1, got 0"),
        (FederatedLasso(algorithm="sgd"), "algorithm must be one of auto, newton, fista, decouple"),
        (FederatedLogisticRegression(penalty="l3"), "penalty must be one of l1, elasticnet, group, got 'l3'"),
        (FederatedLogisticRegression(penalty="group", groups=[1, 2]), "groups must be one label per feature"),
    ],
)
def test_bad_numbers_get_a_sentence(model, sentence):
    X, y = hospitals.classes() if isinstance(model, FederatedLogisticRegression) else hospitals.linear()
    with pytest.raises(ValueError, match=sentence):
        model.fit(X, y)


def test_bad_targets_get_a_sentence():
    X, y = hospitals.linear()
    with pytest.raises(ValueError, match="contains only one class: 'ill'"):
        FederatedLogisticRegression().fit(X, ["ill"] * 60)
    with pytest.raises(ValueError, match=r"FederatedPoisson: y must be >= 0, .* \(client 'Bern'\)"):
        FederatedPoisson().fit(X, np.where(SITES == "Bern", -1, 1), clients=SITES)
    with pytest.raises(ValueError, match="y must have a count above 0"):
        FederatedPoisson().fit(X, 0 * y)


def test_rows_are_matched_by_position_but_not_against_their_labels():
    X, y = hospitals.linear()
    frame, target = pd.DataFrame(X), pd.Series(y)
    shuffled = target.sample(frac=1, random_state=0)
    with pytest.raises(ValueError, match=r"X and y have the same row labels in a different order, .* y.loc"):
        FederatedLasso(0.1).fit(frame, shuffled)
    with pytest.raises(ValueError, match="X and clients have the same row labels in a different order"):
        FederatedLasso(0.1).fit(frame, target, clients=pd.Series(hospitals.SITES).sample(frac=1, random_state=0))
    by_position = FederatedLasso(0.1).fit(frame, target.set_axis(np.arange(100, 160)))  # labels of their own
    np.testing.assert_array_equal(by_position.coef_, FederatedLasso(0.1).fit(frame, shuffled.loc[frame.index]).coef_)


def test_rows_in_another_order_are_refused_by_scores_and_predictions_too():
    X, y = hospitals.linear()
    frame, site = pd.DataFrame(X), pd.Series(hospitals.SITES)
    labels, turned = pd.Series(y), site.iloc[::-1]
    counts = pd.Series(hospitals.counts()[1])
    for model, own in (
        (FederatedLasso(0.1), labels),
        (FederatedPoisson(0.1), counts),
        (FederatedGLM(cofed.Huber(), alpha=0.1), labels),
    ):
        with pytest.raises(ValueError, match="X and y have the same row labels in a different order"):
            model.fit(frame, own, clients=site).score(frame, own.iloc[::-1])
    for model in (FederatedLasso(0.1, site_effects="fixed"), FederatedMixedModel()):
        with pytest.raises(ValueError, match="X and clients have the same row labels in a different order"):
            model.fit(frame, labels, clients=site).predict(frame, clients=turned)
    with pytest.raises(ValueError, match=r"sites_of_frame: frame and client have .*such as client.loc\[frame.index\]"):
        sites_of_frame(frame, client=turned)


def test_labels_of_classes_that_are_objects_are_told_to_be_converted():
    X, y = hospitals.classes()
    with pytest.raises(ValueError, match=r"Unknown label type: .* y has objects \(int\); convert them, such as by y"):
        FederatedLogisticRegression().fit(X, (y == "a").astype(int).astype(object), clients=hospitals.SITES)
