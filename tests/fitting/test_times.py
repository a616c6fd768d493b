"""`cofed fit --family cox` and its study file: the same as the estimator, and sentences for what does not fit."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cofed.cli import app
from cofed.estimators import FederatedCox
from tests.test_cli import flat

GIVEN = ("--target", "days", "--family", "cox", "--event", "dead")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    age, dose, site = rng.normal(60, 9, 120), rng.normal(size=120), rng.choice(["bern", "oslo", "rome"], 120)
    death, end = rng.exponential(np.exp(-dose)), rng.exponential(2.0, 120)
    days = np.round(100 * np.minimum(death, end)) + 1
    return pd.DataFrame({"site": site, "age": age, "dose": dose, "days": days, "dead": (death <= end).astype(int)})


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    place = tmp_path_factory.mktemp("times") / "hospitals"
    place.mkdir()
    for site, rows in table.groupby("site"):
        rows.drop(columns="site").to_csv(place / f"{site}.csv", index=False)
    return place


def fit(*arguments):
    given = ["fit", *map(str, arguments), "--in-process"]
    return CliRunner().invoke(app, given, env={"COLUMNS": "120", "TERM": "dumb", "NO_COLOR": "1"})


def test_the_command_and_its_study_fit_what_the_estimator_fits(folder, table, tmp_path):
    out = tmp_path / "out"
    result = fit(folder, *GIVEN, "--alpha", 0.02, "--infer", "--out", out)
    assert result.exit_code == 0, result.output
    found = pd.read_csv(out / "coefficients.csv").set_index("feature")
    pooled = FederatedCox(0.02).fit(table[["age", "dose"]], table[["days", "dead"]], clients=table["site"])
    assert found.index.tolist() == ["age", "dose"]
    np.testing.assert_allclose(found["coef"], pooled.coef_, rtol=1e-8, atol=1e-11)
    assert (found["low"] < found["debiased"]).all()
    assert "Cox model of days" in (out / "report.html").read_text()
    again = fit(out / "study.toml", "--data", folder, "--out", tmp_path / "again")
    assert again.exit_code == 0, again.output
    both = [pd.read_csv(place / "coefficients.csv")["coef"] for place in (out, tmp_path / "again")]
    np.testing.assert_allclose(*both, rtol=1e-10)


def test_the_command_and_its_study_take_weights_offsets_and_robust_errors(folder, table, tmp_path):
    out = tmp_path / "out"
    given = ["--features", "age", "--weight", "dose", "--offset", "age2", "--alpha", 0.02, "--infer"]
    for place in folder.iterdir():
        held = pd.read_csv(place)
        held.assign(age2=held["age"] / 100, dose=held["dose"].abs() + 0.5).to_csv(place, index=False)
    result = fit(folder, *GIVEN, *given, "--errors", "hc1", "--out", out)
    assert result.exit_code == 0, result.output
    found = pd.read_csv(out / "coefficients.csv").set_index("feature")
    rows = table[["age"]], table[["days", "dead"]]
    beside = {"sample_weight": table["dose"].abs() + 0.5, "offset": table["age"] / 100, "clients": table["site"]}
    pooled = FederatedCox(0.02).fit(*rows, **beside)
    np.testing.assert_allclose(found["coef"], pooled.coef_, rtol=1e-7, atol=1e-11)
    np.testing.assert_allclose(found["se"], pooled.infer(*rows, **beside, errors="hc1")["se"], rtol=1e-7)
    again = fit(out / "study.toml", "--data", folder, "--out", tmp_path / "again")
    assert again.exit_code == 0, again.output
    both = [pd.read_csv(place / "coefficients.csv")["se"] for place in (out, tmp_path / "again")]
    np.testing.assert_allclose(*both, rtol=1e-10)


WRONG = {
    "no event": (["--target", "days", "--family", "cox"], "--family cox needs --event"),
    "other family": (
        [*GIVEN[:2], "--family", "poisson", "--event", "dead"],
        "--event and --entry are for --family cox",
    ),
    "group": ([*GIVEN, "--penalty", "group"], "not for cox"),
    "errors": ([*GIVEN, "--infer", "--errors", "hc3"], "--errors hc3 is not for cox"),
    "no column": ([*GIVEN[:-1], "died"], "no site has a column 'died'"),
    "not an event": ([*GIVEN[:-1], "age"], "events must be 1, or 0 for rows without one"),
    "late entry": ([*GIVEN, "--entry", "age"], "entries must be before times"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_gets_a_sentence(folder, tmp_path, name):
    given, words = WRONG[name]
    result = fit(folder, *given, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert words in flat(result.output)
    assert not (tmp_path / "out" / "model.safetensors").exists()
