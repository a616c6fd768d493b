"""`cofed fit` with columns of persons: whole persons in folds, standard errors by person, and other measures."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cofed.cli import app
from cofed.cli.options import folds
from cofed.estimators import FederatedLassoCV, FederatedLogisticRegressionCV, load
from tests.fitting import hospitals

GIVEN = ("--features", "age,glucose", "--in-process")


@pytest.fixture(scope="module")
def table():
    whole = hospitals.pooled()
    return whole.assign(person=[f"p{i // 3}" for i in range(len(whole))])


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    return hospitals.write(tmp_path_factory.mktemp("sites") / "hospitals", table)


def fit(*arguments):
    given = ["fit", *map(str, arguments)]
    result = CliRunner().invoke(app, given, env={"COLUMNS": "120", "TERM": "dumb", "NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    return result


def by_study(folder, out):
    """What the study that was drafted gives."""
    fit(out / "study.toml", "--data", folder, "--in-process", "--out", out.parent / "again")
    return out.parent / "again"


def test_persons_in_folds_and_errors_by_person(folder, table, tmp_path):
    out = tmp_path / "out"
    by_person = ("--cv", "person:4", "--errors", "person", "--infer")
    fit(folder, "--target", "ill", *GIVEN, *by_person, "--measure", "auc", "--out", out)
    here = FederatedLogisticRegressionCV(cv=("person", 4), measure="auc")
    X = table[["age", "glucose", "person"]]
    here.fit(X, table["ill"], clients=table["hospital"])
    model = load(out / "model.safetensors")
    np.testing.assert_allclose(model.cv_mean_, here.cv_mean_, rtol=1e-10)
    np.testing.assert_allclose(model.coef_, here.coef_, rtol=1e-8)
    wanted = here.infer(X, table["ill"], table["hospital"], errors=table["person"].to_numpy())
    found = pd.read_csv(out / "coefficients.csv").set_index("feature").loc[["age", "glucose"]]
    np.testing.assert_allclose(found["se"], wanted["se"], rtol=1e-9)
    page = (out / "report.html").read_text()
    assert "by the largest cross-validated area under the ROC curve" in page
    assert "standard errors by 100 clusters" in page
    again = by_study(folder, out)
    assert (again / "coefficients.csv").read_bytes() == (out / "coefficients.csv").read_bytes()


def test_a_fold_for_each_site_and_absolute_errors(folder, table, tmp_path):
    out = tmp_path / "out"
    chosen = ("--cv", "leave-one-site-out", "--measure", "mae", "--select", "1se")
    fit(folder, "--target", "cost", *GIVEN, *chosen, "--out", out)
    here = FederatedLassoCV(cv="leave-one-site-out", measure="mae", criterion="1se")
    here.fit(table[["age", "glucose"]], table["cost"], clients=table["hospital"])
    np.testing.assert_allclose(load(out / "model.safetensors").cv_mean_, here.cv_mean_, rtol=1e-10)
    words = "by the strongest penalty within one standard error of the least cross-validated mean absolute error"
    assert words in (out / "report.html").read_text()
    again = by_study(folder, out)
    assert (again / "coefficients.csv").read_bytes() == (out / "coefficients.csv").read_bytes()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, (None, None)),
        ("5", (None, 5)),
        ("patient", ("patient", None)),
        ("patient:7", ("patient", 7)),
        ("ward:b", ("ward:b", None)),
        ("leave-one-site-out", (None, "leave-one-site-out")),
    ],
)
def test_what_folds_can_be(text, found):
    assert folds(text) == found
