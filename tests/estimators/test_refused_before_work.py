"""What is refused in a sentence, before models are sought: shapes, measures without folds, paths that there are not."""

import numpy as np
import pandas as pd
import pytest

import cofed
from cofed.estimators import (
    FederatedGroupLasso,
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
    concave_path,
    relaxed_path,
)
from cofed.sites import sites_of_frame

RNG = np.random.default_rng(0)
X, SITE = RNG.normal(size=(30, 3)), np.arange(30) % 3
Y = X[:, 0] + RNG.normal(size=30)


def table_sites(target):
    return sites_of_frame(pd.DataFrame(X, columns=["a", "b", "c"]).assign(site=SITE, y=target), "y", "site")


@pytest.mark.parametrize(
    ("rows", "labels", "sentence"),
    [
        (X[:, 0], Y, r"X must have a row for each sample and a column for each feature, got the shape \(30,\)"),
        (X, Y[:-1], "X has 30 rows and y 29, and each row needs its y"),
        (X, Y + 1j, "Complex data not supported: y must be real numbers"),
        (X + 1j, Y, "Complex data not supported: X must be real numbers"),
        (X, np.stack([Y, Y]).T, r"y should be a 1d array, got an array of shape \(30, 2\)"),
    ],
)
def test_shapes_and_kinds_of_numbers_are_told_without_a_dump_of_them(rows, labels, sentence):
    with pytest.raises(ValueError, match=rf"^FederatedLasso: .*{sentence}") as said:
        FederatedLasso(0.1).fit(rows, labels, clients=SITE)
    assert len(str(said.value)) < 250


def test_a_measure_needs_rows_that_are_held_out():
    model = FederatedLogisticRegressionCV(criterion="bic", measure="auc")
    with pytest.raises(ValueError, match="measure='auc' is of held-out rows, and criterion='bic' holds none out"):
        model.fit(X, Y > 0, clients=SITE)


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        (FederatedLasso(low=0.0), "relaxed fits have no limits of coefficients"),
        (FederatedLogisticRegression(), "relaxed fits are of models with one vector of coefficients"),
    ],
)
def test_relaxed_paths_are_refused_before_any_model_is_sought(estimator, sentence):
    sites = table_sites(np.arange(30) % 4 if isinstance(estimator, FederatedLogisticRegression) else Y)
    with pytest.raises(ValueError, match=sentence):
        relaxed_path(estimator, sites)
    assert {one.what for one in sites.exchanges} <= {"columns", "sums", "gram"}


@pytest.mark.parametrize("estimator", [FederatedLasso(high=1.0), FederatedGroupLasso(groups=[0, 0, 1])])
def test_concave_paths_are_refused_before_any_model_is_sought(estimator):
    sites = table_sites(Y)
    with pytest.raises(ValueError, match="take the place of an l1 norm alone, without ridge, groups and limits"):
        concave_path(estimator, sites, penalty=cofed.MCP(1.0))
    assert {one.what for one in sites.exchanges} <= {"columns", "sums", "gram"}


def test_a_family_that_meta_analyses_do_not_name_is_an_estimator():
    with pytest.raises(ValueError, match=r"an estimator, such as FederatedGLM\(cofed.Gamma\(\)\)"):
        cofed.meta_analysis("gamma", X, np.exp(Y), SITE)
