"""Transformers whose steps sites apply themselves: the numbers of rows at hand, in one call of a pipeline."""

import warnings

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from tests.sites.policy import worlds
from tests.sites.test_network import DirectLink

from cofed.estimators import FederatedLasso, FederatedLogisticRegression, FederatedStandardScaler
from cofed.sites import ChosenColumns, Design, SiteTable, sites_of_frame
from cofed.sites.network import NetworkSites
from cofed.sites.policy import PolicyGuard
from cofed.sites.queries import ColumnsMessage, Message, columns, sums
from cofed.sites.steps import Bins, Project, Scale, Splines
from cofed.transformers import (
    FederatedKBinsDiscretizer,
    FederatedOneHotEncoder,
    FederatedPCA,
    FederatedPolynomialFeatures,
    FederatedQuantileTransformer,
    FederatedSimpleImputer,
    FederatedSplineTransformer,
)

RNG = np.random.default_rng(0)
N = 90
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(50, 9, N).round(),
        "bmi": RNG.normal(25, 4, N),
        "ward": RNG.choice(["a", "b", "c"], N),
        "site": np.repeat(["Bern", "Oslo", "Rome"], [40, 30, 20]),
    }
)
FRAME["cost"] = FRAME.age / 9 + FRAME.bmi + 2.0 * (FRAME.ward == "b") + RNG.normal(size=N)
FEATURES = ["age", "bmi", "ward"]
TRANSFORMERS = [
    FederatedStandardScaler(),
    FederatedStandardScaler(with_mean=False),
    FederatedPCA(2, whiten=True),
    FederatedPolynomialFeatures(2),
    FederatedKBinsDiscretizer(2),
    FederatedKBinsDiscretizer(3, encode="ordinal"),
    FederatedQuantileTransformer(n_quantiles=7, output_distribution="normal", tol=1e-3),
    FederatedSplineTransformer(2, 2, knots="uniform", extrapolation="linear", include_bias=False, tol=1e-3),
]


@pytest.mark.filterwarnings("ignore:.*has 1 of")
@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=lambda one: type(one).__name__)
def test_sites_have_the_numbers_of_rows_at_hand(transformer):
    sites = sites_of_frame(FRAME, "cost", "site")
    made = transformer.fit(sites).transform(sites)
    wanted = transformer.transform(FRAME[FEATURES])
    np.testing.assert_allclose(made.rows.X, wanted, rtol=1e-12, atol=1e-12)
    assert made.feature_names == made.design.feature_names == tuple(transformer.get_feature_names_out())
    assert len(made.design.groups) == made.n_features
    # What travels is JSON, and the same after it.
    again = Design.model_validate_json(made.design.model_dump_json())
    assert again == made.design
    # Rows in this process without tables are transformed, too.
    bare = sites_of_frame(FRAME[["age", "bmi", "cost", "site"]], "cost", "site").of_numbers()
    bare.design = None
    own = transformer.fit(bare).transform(bare)
    rows = pd.DataFrame(bare.rows.X, columns=["age", "bmi"])
    np.testing.assert_allclose(own.rows.X, transformer.transform(rows), rtol=1e-12, atol=1e-12)


def test_a_pipeline_fits_sites_elsewhere_in_one_call_as_scikit_learns_does_on_pooled_rows():
    gappy = FRAME.drop(columns="ward")
    gappy.loc[gappy.index % 7 == 0, "bmi"] = np.nan
    steps = FederatedSimpleImputer(), FederatedPolynomialFeatures(2), FederatedStandardScaler()
    pipeline = make_pipeline(*steps, FederatedLasso(0.3, standardize=False))
    tables = {name: own.drop(columns="site") for name, own in gappy.groupby("site")}
    far = NetworkSites.open(DirectLink(tables), list(tables), ChosenColumns("cost", missing="keep"))
    pipeline.fit(far)
    X, y = gappy[["age", "bmi"]], gappy["cost"]
    oracle = make_pipeline(
        SimpleImputer(),
        PolynomialFeatures(2, include_bias=False),
        StandardScaler(),
        Lasso(0.3, tol=1e-14, max_iter=10**6),
    )
    oracle.fit(X.to_numpy(), y)
    np.testing.assert_allclose(pipeline[-1].coef_, oracle[-1].coef_, atol=1e-8 * np.abs(oracle[-1].coef_).max())
    assert pipeline[-1].feature_names_in_.tolist() == ["age", "bmi", "age^2", "age bmi", "bmi^2"]
    assert [step.kind for step in pipeline[-1].design_.steps] == ["powers", "scale"]
    assert pipeline[-1].design_.groups == ("age", "bmi", "age", "age bmi", "bmi")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = pipeline.predict(X)
    np.testing.assert_allclose(found, oracle.predict(X.to_numpy()), rtol=1e-8)
    assert pipeline.score(far) == pytest.approx(oracle.score(X.to_numpy(), y), rel=1e-8)
    # In this process, with the same numbers.
    here = sites_of_frame(gappy, "cost", "site", missing="keep")
    np.testing.assert_allclose(pipeline.fit(here)[-1].coef_, oracle[-1].coef_, atol=1e-8)


def test_factors_are_filled_and_become_zeros_and_ones():
    gappy = FRAME[["ward", "site", "cost"]].copy()
    gappy.loc[gappy.index % 5 == 0, "ward"] = None
    sites = sites_of_frame(gappy, "cost", "site", missing="keep")
    pipeline = make_pipeline(FederatedSimpleImputer(strategy="most_frequent"), FederatedStandardScaler())
    made = pipeline.fit(sites).transform(sites)
    filled = gappy.ward.fillna(gappy.ward.mode()[0])
    wanted = np.column_stack([filled == "b", filled == "c"]).astype(float)
    np.testing.assert_allclose(made.rows.X, (wanted - wanted.mean(axis=0)) / wanted.std(axis=0), atol=1e-12)
    np.testing.assert_allclose(pipeline.transform(gappy[["ward"]]), made.rows.X, atol=1e-12)


@pytest.mark.parametrize("how", [{}, {"drop": "first"}, {"min_frequency": 30}, {"drop": "first", "min_frequency": 30}])
@pytest.mark.parametrize("levels", [("a", "b", "c"), ("c", "a", "b")])
def test_levels_at_sites_are_scikit_learns(how, levels):
    frame = FRAME[["ward", "site", "cost"]].assign(sex=np.where(FRAME.bmi > 25, "m", "f"))
    sites = sites_of_frame(frame, "cost", "site")
    features = [
        one.model_copy(update={"levels": levels}) if one.name == "ward" else one for one in sites.design.features
    ]
    sites = sites.with_design(sites.design.model_copy(update={"features": tuple(features)}))
    encoder = FederatedOneHotEncoder(**how).fit(sites)
    oracle = OneHotEncoder(sparse_output=False, **how).fit(frame[["ward", "sex"]])
    made = encoder.transform(sites)
    rows = pd.concat([own for _, own in frame.groupby("site")])[["ward", "sex"]]
    np.testing.assert_array_equal(made.rows.X, oracle.transform(rows))
    np.testing.assert_array_equal(encoder.transform(rows), oracle.transform(rows))
    assert made.feature_names == tuple(oracle.get_feature_names_out())
    assert Design.model_validate_json(made.design.model_dump_json()) == made.design
    few = sites.with_design(sites.design.model_copy(update={"features": (*sites.design.features[:1], features[0])}))
    with pytest.raises(ValueError, match="FederatedOneHotEncoder was fitted to the columns 'ward', 'sex', and"):
        encoder.transform(few)


def test_a_policy_looks_at_what_steps_make():
    X = np.column_stack([np.arange(60.0), RNG.normal(size=60)])
    table = SiteTable(worlds.frame_of(X, np.arange(60) % 2), "oslo")
    base = worlds.design_of(2)

    def judged(guard, *steps):
        design = base
        for step in steps:
            design = design.with_step(step)
        return guard.refuses(worlds.asked(table, design, sums, Message()))

    def bins(*edges):
        outputs = (*(f"bin {k}" for k in range(len(edges) - 1)), "rest")
        return Bins(outputs=outputs, edges=(edges, (-9.0, 9.0)), ordinal=False)

    guard = PolicyGuard(worlds.alone(), None, "oslo")
    assert judged(guard, Scale(outputs=("x0", "x1"), centre=(3.0, 0.0), width=(2.0, 1.0))) is None
    assert judged(guard, bins(0.0, 20.0, 40.0, 60.0)) is None
    cut = judged(guard, bins(0.0, 29.5, 30.5, 60.0))
    assert cut is not None
    assert (cut.rule, cut.is_silent) == ("steps", True)
    # Columns count by what made them: 3 and 1 were told; 19 may be, of 60 rows.
    for first in (1.0, 2.0, 3.0):
        assert judged(guard, bins(0.0, 15 + first, 35 + first, 60.0)) is None
    more = judged(guard, bins(0.0, 14.0, 33.0, 60.0))
    assert more is not None
    assert more.rule == "parameters"


def test_projections_count_as_the_columns_that_they_are_made_from():
    X = RNG.normal(size=(60, 9))
    table, base = SiteTable(worlds.frame_of(X, np.arange(60) % 2), "oslo"), worlds.design_of(9)
    guard = PolicyGuard(worlds.alone(), None, "oslo")

    def judged(width, direction):
        few = base.model_copy(update={"features": base.features[:width]})
        step = Project(outputs=("pca0",), centre=(0.0,) * width, directions=(direction,), width=(1.0,))
        asked = worlds.asked(table, few.with_step(step), columns, ColumnsMessage(np.zeros(1, np.int32)))
        return guard.refuses(asked)

    for place in range(9):
        assert judged(9, tuple(np.eye(9)[place])) is None
    record = guard.ledger.analysis(base.target.name)
    assert record.columns == frozenset(base.table_names)


def test_what_cannot_be_done_at_sites_is_said():
    sites = sites_of_frame(FRAME, "cost", "site")
    kept = sites_of_frame(FRAME, "cost", "site", missing="keep")
    with pytest.raises(ValueError, match=r"FederatedLasso: the sites keep missing values; fill them first"):
        FederatedLasso().fit(kept)
    scaled = FederatedStandardScaler().fit(sites).transform(sites)
    with pytest.raises(ValueError, match="missing values are filled in the sites' tables, before any other step"):
        FederatedSimpleImputer(strategy="constant").fit(sites).transform(scaled)
    with pytest.raises(ValueError, match="'missing_value' is no level of the column 'ward', which has"):
        FederatedSimpleImputer(strategy="constant").fit(sites).transform(sites)
    with pytest.raises(ValueError, match="extrapolation='error' is for rows at hand"):
        FederatedSplineTransformer(2, extrapolation="error", knots="uniform", tol=0.1).fit(sites).transform(sites)
    with pytest.raises(ValueError, match="named before any transformer"):
        scaled.with_columns(weight="age")
    # Predictions take features as the fit had them.
    model = FederatedLogisticRegression(0.1)
    ill = sites_of_frame(FRAME.assign(cost=FRAME.cost > FRAME.cost.mean()), "cost", "site")
    pca = FederatedPCA(2).fit(ill)
    with pytest.raises(ValueError, match="feature names should match"):
        model.fit(pca.transform(ill)).predict(FRAME[FEATURES])


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "scale", "outputs": ["a"], "centre": [0.0], "width": [0.0]},
        {"kind": "scale", "outputs": ["a", "a"], "centre": [0.0, 1.0], "width": [1.0, 1.0]},
        {"kind": "scale", "version": 2, "outputs": ["a"], "centre": [0.0], "width": [1.0]},
        {"kind": "scale", "outputs": ["a", "b"], "centre": [0.0], "width": [1.0]},
        {"kind": "powers", "outputs": ["a"], "exponents": [[99]]},
        {"kind": "code", "outputs": ["a"]},
    ],
)
def test_steps_that_are_none_are_refused(wrong):
    with pytest.raises(ValidationError):
        Design.model_validate({"features": [{"name": "age"}], "steps": [wrong]})


def test_a_step_must_take_what_there_is():
    two = Splines(outputs=("a", "b"), knots=((0.0, 1.0),), degree=1, extrapolation="constant", include_bias=True)
    with pytest.raises(ValidationError, match="a step takes 1 columns, and there are 2"):
        worlds.design_of(2).with_step(two)
