"""Analyses with steps: sites that have approved them answer for these, and for no others."""

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from typer.testing import CliRunner

from cofed.cli import app
from cofed.estimators import FederatedLasso, FederatedStandardScaler, load
from cofed.sites import QuestionRefused, SiteTable
from cofed.sites.chosen_columns import ChosenColumns
from cofed.sites.local import LocalSite
from cofed.sites.network import NetworkSites
from cofed.sites.queries import Message, sums
from cofed.sites.steps import Scale
from cofed.studies import StudyConsent, StudyError, approve, to_toml
from cofed.studies.schema import parse
from cofed.transformers import (
    FederatedFormula,
    FederatedKBinsDiscretizer,
    FederatedOneHotEncoder,
    FederatedPCA,
    FederatedPolynomialFeatures,
    FederatedQuantileTransformer,
    FederatedSimpleImputer,
    FederatedSplineTransformer,
)
from tests.sites.test_network import DirectLink

RNG = np.random.default_rng(5)
N = 150
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(50, 9, N).round(),
        "bmi": RNG.normal(25, 4, N),
        "sex": RNG.choice(["f", "m"], N),
        "site": np.repeat(["bern", "oslo", "rome"], [60, 50, 40]),
    }
)
FRAME["cost"] = FRAME.age / 9 + np.sin(FRAME.bmi) + 2.0 * (FRAME.sex == "m") + RNG.normal(size=N)
GAPPY = FRAME.assign(bmi=FRAME.bmi.mask(FRAME.index % 7 == 0))
NUMBERS = ["age", "bmi"]
TABLES = {str(name): own.drop(columns="site") for name, own in FRAME.groupby("site")}

STUDY = """
[study]
name = "costs"
[variables.age]
kind = "number"
[variables.bmi]
kind = "number"
[variables.sex]
kind = "factor"
levels = ["f", "m"]
[variables.cost]
kind = "number"
[[sites]]
name = "bern"
[[sites]]
name = "oslo"
[[sites]]
name = "rome"
[[analyses]]
name = "main"
family = "gaussian"
target = "cost"
alpha = 0.3
"""


def study_of(steps, features=NUMBERS, missing="refuse"):
    named = "" if features is None else f"features = {to_text(features)}\n"
    return parse(f'{STUDY}missing = "{missing}"\n{named}steps = [{", ".join(steps)}]\n')


def to_text(names):
    return str(list(names)).replace("'", '"')


def sites_of(study, keep, tables=TABLES):
    """The sites of a study, who have all approved it, reached by bytes alone."""
    link = DirectLink(tables)
    for name in tables:
        approve(keep / name, study)
    link.sites = {
        name: LocalSite(name, lambda name=name: SiteTable(tables[name], name), StudyConsent(keep / name))
        for name in tables
    }
    return NetworkSites.open(link, list(tables), ChosenColumns(design=study.design("main")))


EACH = {
    '{ kind = "scale" }': [FederatedStandardScaler()],
    '{ kind = "pca", components = 2 }': [FederatedPCA(2)],
    '{ kind = "polynomial", interaction_only = true }': [FederatedPolynomialFeatures(interaction_only=True)],
    '{ kind = "bins", bins = 3, ordinal = true }': [FederatedKBinsDiscretizer(3, encode="ordinal")],
    '{ kind = "bins", bins = 3, uniform = true }': [FederatedKBinsDiscretizer(3, strategy="uniform")],
    '{ kind = "ranks", quantiles = 9, distribution = "normal" }': [
        FederatedQuantileTransformer(n_quantiles=9, output_distribution="normal")
    ],
    '{ kind = "splines", knots = 3, degree = 2, extrapolation = "linear" }': [
        FederatedSplineTransformer(3, 2, extrapolation="linear", include_bias=False)
    ],
    '{ kind = "scale" }, { kind = "polynomial" }, { kind = "pca", components = 3 }': [
        FederatedStandardScaler(),
        FederatedPolynomialFeatures(),
        FederatedPCA(3),
    ],
}


@pytest.mark.parametrize("steps", EACH)
def test_sites_answer_for_the_steps_that_they_have_approved(steps, tmp_path):
    study, transformers = study_of([steps]), EACH[steps]
    assert parse(to_toml(study)) == study
    far = sites_of(study, tmp_path)
    pipeline = make_pipeline(*transformers, FederatedLasso(0.3)).fit(far)
    rows = make_pipeline(*transformers).transform(FRAME[NUMBERS])
    pooled = make_pipeline(StandardScaler(), Lasso(0.3, tol=1e-14, max_iter=10**6)).fit(rows, FRAME.cost)
    np.testing.assert_allclose(pipeline.predict(FRAME[NUMBERS]), pooled.predict(rows), rtol=1e-6)
    # One step more than was agreed on, or another in its place.
    with pytest.raises(ValueError, match="the question is not part of a study that this site has approved"):
        make_pipeline(*transformers, FederatedStandardScaler(), FederatedLasso(0.3)).fit(far)
    other = FederatedPCA(1) if "components = 2" in steps else FederatedPCA(2)
    with pytest.raises(ValueError, match="the question is not part of a study"):
        make_pipeline(other, FederatedLasso(0.3)).fit(far)


def test_a_pipeline_over_approved_sites_is_scikit_learns_on_pooled_rows(tmp_path):
    study = study_of(['{ kind = "polynomial" }', '{ kind = "scale" }'], missing="impute")
    tables = {str(name): own.drop(columns="site") for name, own in GAPPY.groupby("site")}
    for strategy in ("mean", "median"):
        far = sites_of(study, tmp_path, tables)
        steps = FederatedSimpleImputer(strategy=strategy), FederatedPolynomialFeatures(), FederatedStandardScaler()
        pipeline = make_pipeline(*steps, FederatedLasso(0.3, standardize=False)).fit(far)
        oracle = make_pipeline(
            SimpleImputer(strategy=strategy),
            PolynomialFeatures(include_bias=False),
            StandardScaler(),
            Lasso(0.3, tol=1e-14, max_iter=10**6),
        )
        oracle.fit(GAPPY[NUMBERS].to_numpy(), GAPPY.cost)
        found = pipeline.predict(GAPPY[NUMBERS])
        np.testing.assert_allclose(found, oracle.predict(GAPPY[NUMBERS].to_numpy()), rtol=1e-5)


def test_a_study_s_formula_names_the_features_and_sites_hold_questions_against_it(tmp_path):
    formula = "cost ~ age * sex + bs(bmi, df=4)"
    study = study_of([f'{{ kind = "formula", formula = "{formula}" }}', '{ kind = "scale" }'], None)
    assert [feature.name for feature in study.design("main").features] == ["age", "sex", "bmi"]
    far = sites_of(study, tmp_path)
    pipeline = make_pipeline(FederatedFormula(formula), FederatedStandardScaler(), FederatedLasso(0.1)).fit(far)
    rows = FederatedFormula(formula.split("~")[1]).fit(FRAME.drop(columns="cost"), clients="site").transform(FRAME)
    pooled = make_pipeline(StandardScaler(), Lasso(0.1, tol=1e-14, max_iter=10**6)).fit(rows, FRAME.cost)
    np.testing.assert_allclose(pipeline.predict(FRAME), pooled.predict(rows), rtol=1e-5)
    for other in ("age + sex + bs(bmi, df=4)", "age * sex + bs(bmi, df=5)", "age * sex + bs(bmi, df=4, degree=2)"):
        with pytest.raises(ValueError, match="the question is not part of a study"):
            make_pipeline(FederatedFormula(other), FederatedLasso(0.1)).fit(far)
    made = FederatedFormula(formula).fit(far).design_
    (first, *others) = made.steps
    swapped = first.model_copy(update={"parts": (first.parts[1], first.parts[0], *first.parts[2:])})
    assert study.contains(made)
    assert not study.contains(made.model_copy(update={"steps": (swapped, *others)}))
    assert not study.contains(made.model_copy(update={"steps": tuple(others)}))


def test_levels_of_approved_sites_are_those_of_the_study(tmp_path):
    study = study_of(['{ kind = "one_hot" }'], ["sex"], missing="impute")
    far = sites_of(study, tmp_path)
    pipeline = make_pipeline(FederatedSimpleImputer(strategy="most_frequent"), FederatedOneHotEncoder())
    encoder = pipeline.fit(far)[-1]
    assert encoder.categories_[0].tolist() == ["f", "m"]
    assert encoder.counts_[0].tolist() == FRAME.sex.value_counts().sort_index().tolist()
    model = FederatedLasso(0.3, standardize=False).fit(pipeline.transform(far))
    rows = OneHotEncoder(sparse_output=False).fit_transform(FRAME[["sex"]])
    np.testing.assert_array_equal(pipeline.transform(FRAME[["sex"]]), rows)
    pooled = Lasso(0.3, tol=1e-14, max_iter=10**6).fit(rows, FRAME.cost)
    np.testing.assert_allclose(model.predict(rows), pooled.predict(rows), rtol=1e-6)


def test_the_hash_of_a_study_covers_its_steps_and_is_as_before_without_any():
    plain = parse(STUDY)
    assert (
        plain.digest == "ed4e50bc839d5486eaa637301c46c3e2107cedc3767e5f0e0d470b291794a2c2"
    )  # that of earlier versions
    some = [study_of([one], None).digest for one in ('{ kind = "scale" }', '{ kind = "ranks" }')]
    assert len({plain.digest, *some}) == 3
    assert (
        study_of(['{ kind = "pca", components = 2 }']).digest != study_of(['{ kind = "pca", components = 3 }']).digest
    )


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ('{ kind = "scal" }', "steps.1..kind is 'scal'; allowed are 'formula', 'one_hot', 'scale'"),
        ('{ kind = "scale", whitn = true }', "whitn is not a key here .did you mean 'whiten'"),
        ('{ kind = "scale", whiten = true }', "scale has no whiten"),
        ('{ kind = "pca" }', "pca needs components"),
        ('{ kind = "scale" }, { kind = "formula", formula = "age" }', "so the first step"),
        ('{ kind = "one_hot" }', "one_hot is of factors, and 'age' has no levels: name the features"),
        ('{ kind = "formula", formula = "age**" }', "'age[*][*]' cannot be read: a part is missing"),
        ('{ kind = "formula", formula = "age + agee" }', "has 'agee', which is no feature .did you mean 'age'"),
        ('{ kind = "formula", formula = "bs(sex)" }', "bs.sex. takes a number, and 'sex' has levels"),
        ('{ kind = "formula", formula = "age ~ bmi" }', "the formula predicts 'age', and the target is 'cost'"),
    ],
)
def test_what_no_step_can_be_is_said_with_its_line(steps, said):
    with pytest.raises(StudyError, match=f"line [0-9]+: .*{said}"):
        study_of([steps], None)


def test_a_step_that_no_study_names_is_refused(tmp_path):
    far = sites_of(study_of([]), tmp_path)
    step = Scale(outputs=("age", "bmi"), centre=(0.0, 0.0), width=(1.0, 1.0))
    with pytest.raises(QuestionRefused, match="the question is not part of a study"):
        far.with_step(step).ask(sums, Message())


def test_the_command_fits_a_study_with_steps_and_its_model_predicts_from_tables(tmp_path):
    folder, file, out = tmp_path / "tables", tmp_path / "study.toml", tmp_path / "out"
    folder.mkdir()
    for name, own in GAPPY.groupby("site"):
        own.drop(columns="site").to_csv(folder / f"{name}.csv", index=False)
    file.write_text(to_toml(study_of(['{ kind = "polynomial" }', '{ kind = "scale" }'], missing="impute")))
    done = CliRunner().invoke(app, ["fit", str(file), "--data", str(folder), "--in-process", "--out", str(out)])
    assert done.exit_code == 0, done.output
    oracle = make_pipeline(
        SimpleImputer(), PolynomialFeatures(include_bias=False), StandardScaler(), Lasso(0.3, tol=1e-14, max_iter=10**6)
    )
    oracle.fit(GAPPY[NUMBERS].to_numpy(), GAPPY.cost)
    model = load(out / "model.safetensors")
    assert model.feature_names_in_.tolist() == ["age", "bmi", "age^2", "age bmi", "bmi^2"]
    np.testing.assert_allclose(model.predict(GAPPY), oracle.predict(GAPPY[NUMBERS].to_numpy()), rtol=1e-6)
    refused = ["fit", str(file), "--data", str(folder), "--in-process", "--out", str(out), "--epsilon", "1"]
    done = CliRunner().invoke(app, [*refused, "--delta", "1e-5"])
    assert done.exit_code == 2
    assert "--epsilon goes without steps" in " ".join(done.output.split())
