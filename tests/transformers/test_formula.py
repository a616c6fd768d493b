"""Formulas: the fits of formulaic's own columns of the pooled rows."""

import numpy as np
import pandas as pd
import pytest
from formulaic import model_matrix
from sklearn.pipeline import make_pipeline
from tests.sites.test_network import DirectLink

from cofed.estimators import FederatedLasso
from cofed.sites import ChosenColumns, sites_of_frame
from cofed.sites.network import NetworkSites
from cofed.transformers import FederatedFormula

RNG = np.random.default_rng(0)
N = 120
FRAME = pd.DataFrame(
    {
        "bmi": RNG.normal(25, 4, N).round(2),
        "age": RNG.normal(50, 9, N),
        "sex": RNG.choice(["f", "m"], N),
        "ward": RNG.choice(["a", "b", "c"], N),
        "site": np.repeat(["Bern", "Oslo", "Rome"], 40),
    }
)
FRAME["cost"] = FRAME.age / 9 + np.sin(FRAME.bmi / 4) + (FRAME.sex == "m") * FRAME.age / 20 + RNG.normal(size=N)


@pytest.mark.parametrize("formula", ["age * sex + bs(bmi, df=5) + ward", "ward * sex * age", "bs(age) + sex"])
def test_the_fit_is_that_of_the_pooled_columns(formula):
    pooled = np.asarray(model_matrix(formula, FRAME), float)
    wanted = pooled @ np.linalg.lstsq(pooled, FRAME.cost, rcond=None)[0]
    sites = sites_of_frame(FRAME, "cost", "site")
    pipeline = make_pipeline(FederatedFormula(formula, tol=1e-9), FederatedLasso(0.0)).fit(sites)
    assert pipeline[0].transform(FRAME).shape == (N, pooled.shape[1] - 1)
    np.testing.assert_allclose(pipeline.predict(FRAME), wanted, rtol=1e-6)


def test_rows_at_hand_sites_and_the_wire_have_the_same_columns():
    formula = "cost ~ age * sex + bs(bmi, df=4, degree=2)"
    here = FederatedFormula(formula).fit(FRAME, clients="site")
    assert here.get_feature_names_out().tolist()[:2] == ["age", "sex[m]"]
    assert here.get_feature_names_out().tolist()[-1] == "age:sex[m]"
    sites = sites_of_frame(FRAME, "cost", "site")
    there = FederatedFormula(formula).fit(sites)
    np.testing.assert_allclose(there.transform(sites).rows.X, here.transform(FRAME), rtol=1e-12, atol=1e-12)
    assert there.design_.groups == ("age", "sex", *["bmi"] * 4, "age:sex[m]")
    tables = {name: own.drop(columns="site") for name, own in FRAME.groupby("site")}
    far = NetworkSites.open(DirectLink(tables), list(tables), ChosenColumns("cost"))
    model = make_pipeline(FederatedFormula(formula), FederatedLasso(0.05)).fit(far)
    same = FederatedLasso(0.05).fit(there.transform(sites))
    np.testing.assert_allclose(model[-1].coef_, same.coef_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("", "formula must be a text such as"),
        ("age +", "cannot be read"),
        ("age + nope", "there is no column 'nope'; the columns are"),
        ("np.log(age)", r"'np.log\(age\)' is not known; a formula has names of columns"),
        ("bs(bmi, df=2)", "whole numbers 1 <= degree <= df"),
        ("bs(sex)", r"bs\(sex\) takes a number, and the column 'sex' has levels"),
        ("0 + age", "the intercept is the estimator's"),
        ("age:sex", "has age:sex without age: name that, too"),
        ("1", "names no column"),
        ("bill ~ age", "the formula predicts 'bill', which is not the target of the sites"),
    ],
)
def test_what_is_no_formula_of_the_columns_is_said(formula, said):
    with pytest.raises(ValueError, match=f"FederatedFormula: .*{said}"):
        FederatedFormula(formula).fit(sites_of_frame(FRAME, "cost", "site"))


def test_rows_must_have_names():
    with pytest.raises(ValueError, match="X must be a pandas table with the columns that the formula names"):
        FederatedFormula("age").fit(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="clients='where' must name a column of X"):
        FederatedFormula("age").fit(FRAME, clients="where")
