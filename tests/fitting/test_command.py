"""`cofed fit` by real runs: what it writes, what it says, how it refuses, how it is stopped."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cofed
from cofed.cli import app
from cofed.cli.options import FAMILIES_HELP
from cofed.estimators import (
    FederatedGLM,
    FederatedGroupLasso,
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedMultiTaskLasso,
    FederatedPoisson,
    load,
)
from cofed.fitting import page, plan
from cofed.studies import writing
from tests.fitting import hospitals
from tests.test_cli import flat

FEATURES = "age,weight,glucose,distance,sex"
FILES = {
    *("model.safetensors", "coefficients.csv", "summary.txt", "summary.csv", "exchanges.csv", "report.html"),
    "progress.jsonl",
    "study.toml",
}
FIGURES = {"path.png", "path.svg", "cv.png", "cv.svg"}


@pytest.fixture(scope="module")
def table():
    return hospitals.pooled()


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    return hospitals.write(tmp_path_factory.mktemp("sites") / "hospitals", table)


def fit(*arguments: object, columns: int = 120):
    """The command, in this process."""
    given = ["fit", *map(str, arguments), "--in-process"]
    return CliRunner().invoke(app, given, env={"COLUMNS": str(columns), "TERM": "dumb", "NO_COLOR": "1"})


@pytest.fixture(scope="module")
def chosen(folder, tmp_path_factory):
    """A linear model with a chosen strength and intervals."""
    out = tmp_path_factory.mktemp("out") / "new"
    given = ("--target", "cost", "--features", FEATURES, "--select", "1se", "--cv", 4, "--infer", "--level", 0.9)
    return fit(folder, *given, "--out", out), out


def encoded(table: pd.DataFrame) -> pd.DataFrame:
    """The features as the command makes them of these tables."""
    return table[FEATURES.split(",")].assign(sex=(table["sex"] == "male").astype(float))


def test_everything_is_written_and_private(chosen):
    result, out = chosen
    assert result.exit_code == 0, result.output
    assert {path.name for path in out.iterdir()} == FILES | FIGURES
    assert out.stat().st_mode & 0o777 == 0o700
    assert all((out / name).stat().st_mode & 0o777 == 0o600 for name in FILES - {"study.toml"})  # which is to be shown
    assert (out / "path.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "cv.svg").read_text()


def said_to_be_written(result) -> set[str]:
    """The files that the command's last line names."""
    [line] = [line for line in result.output.splitlines() if line.startswith("Written to ")]
    return set(line.partition(": ")[2].split(", "))


def test_the_command_names_what_it_has_written_with_the_study_that_it_drafted(chosen):
    result, _ = chosen
    assert said_to_be_written(result) == (FILES | FIGURES) - {"progress.jsonl"}


def test_the_model_is_that_of_the_pooled_rows(chosen, table):
    _, out = chosen
    found = pd.read_csv(out / "coefficients.csv")
    model = load(out / "model.safetensors")
    pooled = FederatedLasso(model.alpha_).fit(encoded(table), table["cost"])
    assert list(found["feature"]) == ["(intercept)", "age", "weight", "glucose", "distance", "sex[male]"]
    assert found["coef"][1:].to_numpy() == pytest.approx(pooled.coef_, rel=1e-9, abs=1e-12)
    assert found["coef"][0] == pytest.approx(pooled.intercept_, rel=1e-9)
    assert model.coef_.tolist() == found["coef"][1:].tolist()  # the table has every bit
    assert model.alpha_ == model.alpha_1se_
    assert model.cv == 4


def test_intervals_are_in_the_table_of_coefficients(chosen):
    _, out = chosen
    found = pd.read_csv(out / "coefficients.csv").set_index("feature")
    inferred = load(out / "model.safetensors").inference_
    for column in ("se", "low", "high", "p_value"):
        assert found[column].iloc[1:].tolist() == inferred[column].tolist()
        assert np.isnan(found.loc["(intercept)", column]) or column in inferred.index
    from scipy.stats import norm

    width = (found["high"] - found["low"]).iloc[1:] / found["se"].iloc[1:]
    assert width.to_numpy() == pytest.approx(2 * norm.ppf(0.95), rel=0.05)  # of 90 %


def test_summary_and_exchanges_agree_with_the_model(chosen):
    result, out = chosen
    model = load(out / "model.safetensors")
    figures = pd.read_csv(out / "summary.csv").set_index("name")["value"]
    assert figures["outcome"] == model.certificate_.outcome == "converged"
    assert float(figures["gap"]) == model.certificate_.gap
    assert int(figures["rows"]) == sum(hospitals.SIZES.values())
    assert (out / "summary.txt").read_text().strip() == model.summary()
    assert model.summary().splitlines()[0] in result.output
    exchanges = pd.read_csv(out / "exchanges.csv")
    assert list(exchanges.columns) == ["exchange", "what", "rounds", "bytes_down", "bytes_up", "seconds"]
    assert exchanges["rounds"].sum() == int(figures["exchanges"])
    assert (exchanges["bytes_down"].sum(), exchanges["bytes_up"].sum()) == tuple(
        figures[["bytes_down", "bytes_up"]].astype(int)
    )
    assert set(exchanges["what"]) > {"columns"}


def test_progress_tells_sites_exchanges_and_the_end(chosen):
    _, out = chosen
    events = [json.loads(line) for line in (out / "progress.jsonl").read_text().splitlines()]
    assert [events[0]["kind"], events[-1]["kind"]] == ["begin", "end"]
    assert {site["name"]: site["rows"] for site in events[0]["sites"]} == hospitals.SIZES
    told = [event for event in events if event["kind"] == "exchange"]
    assert len(told) == len(pd.read_csv(out / "exchanges.csv"))
    assert events[-1] | {"time": 0, "words": ""} == {
        "time": 0, "kind": "end", "ok": True, "outcome": "converged", "words": ""
    }  # fmt: skip


def test_every_family_is_named_wherever_families_are():
    assert set(page.FAMILIES) == set(plan.FAMILIES), "FAMILIES of src/cofed/fitting/page.py says what a model is called"
    lists = {"src/cofed/cli/options.py": FAMILIES_HELP, "src/cofed/studies/writing.py": writing.ANALYSES}
    for path, text in lists.items():
        assert [family for family in plan.FAMILIES if family not in text] == [], f"{path} does not name these families"


def test_groups_of_a_linear_model_have_a_chosen_strength():
    found = plan.FitPlan("gaussian", penalty="group", select="1se").estimator(["ward", "ward", "age"])
    assert repr(found) == "FederatedGroupLassoCV(criterion='1se', groups=['ward', 'ward', 'age'])"


@pytest.mark.parametrize(
    ("target", "given", "pooled"),
    [
        ("ill", ["--alpha", 0.05], FederatedLogisticRegression(0.05)),
        ("ill", ["--alpha", 0.05, "--penalty", "elasticnet"], FederatedLogisticRegression(0.05, penalty="elasticnet")),
        ("ill", ["--alpha", 0.05, "--penalty", "group"], FederatedLogisticRegression(0.05, penalty="group")),
        ("visits", ["--alpha", 0.05, "--family", "poisson"], FederatedPoisson(0.05)),
    ],
    ids=["binomial", "elasticnet", "group", "poisson"],
)
def test_families_and_penalties_are_those_of_the_estimators(folder, table, tmp_path, target, given, pooled):
    result = fit(folder, "--target", target, "--features", FEATURES, *given, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    pooled.fit(encoded(table), table[target])
    found = pd.read_csv(tmp_path / "out" / "coefficients.csv")["coef"].to_numpy()
    assert found[1:] == pytest.approx(pooled.coef_.ravel(), rel=1e-7, abs=1e-9)
    assert not FIGURES & {path.name for path in (tmp_path / "out").iterdir()}  # there is no path to draw


@pytest.mark.parametrize(("given", "family"), [([], "binomial"), (["--family", "gaussian"], "gaussian")])
def test_zeros_and_ones_are_two_classes_unless_they_are_said_to_be_numbers(table, tmp_path, given, family):
    sites = hospitals.write(tmp_path / "sites", table.assign(ill=(table["ill"] == "yes").astype(int)))
    words = ("--target", "ill", "--features", "age,sex", "--alpha", 0.05, *given, "--out", tmp_path / "out")
    result = fit(sites, *words)
    assert result.exit_code == 0, result.output
    figures = pd.read_csv(tmp_path / "out" / "summary.csv").set_index("name")["value"]
    assert figures["family"] == family


def test_several_classes_have_a_long_table(folder, table, tmp_path):
    given = ("--target", "stage", "--features", FEATURES, "--alpha", 0.02)
    result = fit(folder, *given, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "Family: multinomial, as stage suggests" in flat(result.output)
    found = pd.read_csv(tmp_path / "out" / "coefficients.csv")
    assert list(found.columns) == ["class", "feature", "coef"]
    pooled = FederatedLogisticRegression(0.02).fit(encoded(table), table["stage"])
    wide = found.pivot(index="class", columns="feature", values="coef").loc[pooled.classes_]
    assert wide["(intercept)"].to_numpy() == pytest.approx(pooled.intercept_, abs=1e-7)
    assert wide[["age", "sex[male]"]].to_numpy() == pytest.approx(pooled.coef_[:, [0, 4]], abs=1e-7)


def test_intervals_of_several_classes_are_of_log_odds(folder, tmp_path):
    given = ("--target", "stage", "--features", "age,glucose,sex", "--alpha", 0.02, "--infer", "--errors", "hc1")
    result = fit(folder, *given, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "out" / "coefficients.csv").set_index(["class", "feature"])
    inferred = load(tmp_path / "out" / "model.safetensors").inference_
    assert found.loc[("late", "glucose"), "se"] == inferred.loc["late: glucose", "se"]
    assert np.isnan(found.loc["early", "low"]).all()  # the class that the others are compared with
    odds = found["coef"]["late"] - found["coef"]["early"]
    assert found["log_odds"]["late"]["age"] == pytest.approx(odds["age"], rel=1e-9)
    assert "HC1" in (tmp_path / "out" / "summary.txt").read_text()


def test_a_model_without_the_intervals_that_were_asked_for_is_kept(folder, tmp_path):
    given = ("--target", "stage", "--features", FEATURES, "--alpha", 0.02, "--infer")
    result = fit(folder, *given, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "There are no intervals" in flat(result.output)
    assert "There are no intervals" in (tmp_path / "out" / "report.html").read_text()
    assert load(tmp_path / "out" / "model.safetensors").certificate_.converged


def test_one_table_with_a_column_of_sites_gives_the_same(folder, table, tmp_path):
    table.to_csv(tmp_path / "all.csv", index=False)
    given = ("--target", "cost", "--features", FEATURES, "--alpha", 0.1)
    assert fit(folder, *given, "--out", tmp_path / "a").exit_code == 0
    done = fit(tmp_path / "all.csv", "--client", "hospital", *given, "--out", tmp_path / "b")
    assert done.exit_code == 0, done.output
    assert "bergen (90), leiden (150), padua (60)" in done.output
    a, b = (pd.read_csv(tmp_path / name / "coefficients.csv")["coef"] for name in "ab")
    assert a.to_numpy() == pytest.approx(b.to_numpy(), rel=1e-12)


def test_the_study_that_was_drafted_gives_the_same(folder, tmp_path):
    backwards = ",".join(reversed(FEATURES.split(",")))  # another order than that of the tables is kept
    given = ("--target", "ill", "--features", backwards, "--select", "bic", "--missing-values", "impute")
    assert fit(folder, *given, "--out", tmp_path / "a").exit_code == 0
    study = tmp_path / "a" / "study.toml"
    done = fit(study, "--data", folder, "--out", tmp_path / "b")
    assert done.exit_code == 0, done.output
    assert "study.toml" not in said_to_be_written(done)
    assert (tmp_path / "a" / "coefficients.csv").read_bytes() == (tmp_path / "b" / "coefficients.csv").read_bytes()
    strict = tmp_path / "strict.toml"
    strict.write_text(
        study.read_text().replace(
            '[variables.age]\nkind = "number"', '[variables.age]\nrange = [0, 9]\nkind = "number"'
        )
    )
    refused = fit(strict, "--data", folder, "--out", tmp_path / "c", columns=200)
    assert refused.exit_code == 2
    assert all(f"site '{site}', column 'age'" in refused.output for site in hospitals.SIZES)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "give --data, the folder with the tables"),
        (["--data", "sites", "--target", "ill"], "and no --target"),
        (["--data", "sites", "--analysis", "other"], "there is no analysis 'other'"),
    ],
)
def test_a_study_says_itself_what_to_fit(folder, tmp_path, given, sentence):
    assert (
        fit(folder, "--target", "cost", "--features", "age,sex", "--alpha", 1, "--out", tmp_path / "a").exit_code == 0
    )
    given = [folder if word == "sites" else word for word in given]
    result = fit(tmp_path / "a" / "study.toml", *given, "--out", tmp_path / "b", columns=200)
    assert result.exit_code == 2
    assert sentence in flat(result.output)


def test_missing_values_are_refused_dropped_or_filled_in(table, tmp_path):
    holey = table.copy()
    holey.loc[holey.index[:7], "age"] = np.nan
    sites = hospitals.write(tmp_path / "sites", holey)
    given = (sites, "--target", "cost", "--features", FEATURES, "--alpha", 0.1, "--out", tmp_path / "out")
    refused = fit(*given)
    assert refused.exit_code == 2
    assert "bergen" in refused.output
    assert "'age'" in refused.output
    assert "--missing-values" in refused.output
    assert not (tmp_path / "out").exists()
    dropped = fit(*given, "--missing-values", "drop")
    assert dropped.exit_code == 0
    said = "293 of 300 rows are used; 7 have missing values and are left out: 7 of 90 at bergen"
    assert said in flat(dropped.output)
    assert said in (tmp_path / "out" / "summary.txt").read_text()
    assert "bergen (83)" in (tmp_path / "out" / "summary.txt").read_text()
    page = (tmp_path / "out" / "report.html").read_text()
    assert '["bergen",83,90,7]' in page
    assert fit(*given, "--missing-values", "impute").exit_code == 0
    assert "bergen (90)" in (tmp_path / "out" / "summary.txt").read_text()


REFUSALS = {
    "family": (
        ["--family", "normal"],
        "--family must be gaussian, mgaussian, binomial, multinomial, poisson, gamma, tweedie, huber,",
    ),
    "penalty": (["--penalty", "l3"], "--penalty must be l1, elasticnet or group, got 'l3'"),
    "select": (["--select", "best"], "--select must be min, 1se, aic or bic, got 'best'"),
    "l1_ratio": (["--l1-ratio", 0.5], "--l1-ratio is for --penalty elasticnet, which is l1 here"),
    "ratio": (["--penalty", "elasticnet", "--l1-ratio", 2], "--l1-ratio must be from 0 to 1, got 2"),
    "alpha": (["--alpha", -1], "--alpha must be a finite number, at least 0, got -1"),
    "nan": (["--alpha", "nan"], "--alpha must be a finite number"),
    "both": (["--alpha", 1, "--cv", 5], "--alpha sets the strength, --cv and --select choose it"),
    "folds": (["--select", "bic", "--cv", 5], "--select bic needs no folds"),
    "errors": (["--infer", "--errors", "hc9"], "site or the name of a column: there is no column 'hc9'"),
    "errors by features": (["--infer", "--errors", "cost"], "the target 'cost' can be neither a weight nor an offset"),
    "one fold": (["--cv", 1], "--cv must be from 2 to 100 folds, got 1"),
    "one fold of groups": (["--cv", "sex:-1"], "--cv must be from 2 to 100 folds, got -1"),
    "no groups": (["--cv", "patient:5"], "--cv: there is no column 'patient'; the columns are"),
    "groups and bic": (["--select", "bic", "--cv", "sex"], "--select bic needs no folds"),
    "measure": (["--measure", "r2"], "--measure must be deviance, mse, mae, misclassification, auc or c_index, got"),
    "measure of classes": (["--measure", "auc", "--family", "gaussian"], "is for models of two classes"),
    "measure of a path": (["--measure", "mae", "--select", "bic"], "--measure mae is of held-out rows"),
    "alone": (["--errors", "hc3"], "--errors hc3 is for intervals: give --infer too"),
    "level": (["--infer", "--level", 1.0], "--level must be between 0 and 1, got 1"),
    "poisson": (["--penalty", "group", "--family", "poisson"], "not for poisson"),
    "weight": (["--weight", "wait"], "--weight: there is no column 'wait'; the columns are"),
    "offset": (["--offset", "cost"], "the target 'cost' can be neither a weight nor an offset"),
    "balance": (["--class-weight", "even"], "--class-weight must be balanced, got 'even'"),
    "balance of numbers": (["--class-weight", "balanced"], "--class-weight is for classes, and the family is gaussian"),
    "client": (["--client", "hospital"], "--client is for one table of all sites"),
    "data": (["--data", "."], "--data and --analysis are for a study file"),
    "silent": (["--missing", "wait"], "--missing must be end or drop, got 'wait'"),
    "secure": (["--secure"], "--secure is for sites in processes of their own"),
    "dropped": (["--missing", "drop"], "--missing drop is for sites in processes of their own"),
    "missing": (["--missing-values", "guess"], "--missing-values must be refuse, drop or impute, got 'guess'"),
    "target": (["--target", "price"], "no site has a column 'price'; the first has"),
    "mistyped target": (["--target", "csot"], "no site has a column 'csot' (did you mean 'cost'?)"),
    "features": (["--features", "age,hight"], "no site has a column 'hight'"),
    "binomial": (
        ["--target", "stage", "--family", "binomial"],
        "--family binomial is for two classes, but stage has 3",
    ),
    "text": (["--target", "ill", "--family", "gaussian"], "'ill' must hold numbers"),
    "counts": (["--family", "poisson"], "FederatedPoissonCV"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_input_is_refused_in_a_sentence(folder, tmp_path, name):
    given, sentence = REFUSALS[name]
    result = fit(folder, "--target", "cost", "--features", FEATURES, *given, "--out", tmp_path / "out", columns=200)
    assert result.exit_code == 2, result.output
    assert sentence in flat(result.output)
    assert not (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("nowhere", "there is no file or folder"),
        ("empty", "holds no site"),
        ("table.csv", "is one table: give --client"),
    ],
)
def test_a_place_without_sites_is_refused(tmp_path, place, sentence):
    (tmp_path / "empty").mkdir()
    (tmp_path / "table.csv").write_text("age,cost\n1,2\n")
    result = fit(tmp_path / place, "--target", "cost", "--out", tmp_path / "out", columns=200)
    assert result.exit_code == 2
    assert sentence in flat(result.output)


def test_results_among_the_tables_are_neither_written_over_them_nor_read_as_a_site(table, tmp_path):
    sites = hospitals.write(tmp_path / "sites", table)
    (sites / "bergen.csv").rename(sites / "summary.csv")
    before = (sites / "summary.csv").read_bytes()
    given = (sites, "--target", "cost", "--features", FEATURES)
    refused = fit(*given, "--out", sites, columns=200)
    assert refused.exit_code == 2
    assert "holds tables of the sites; give another folder" in flat(refused.output)
    assert (sites / "summary.csv").read_bytes() == before
    out = sites / "cofed-fit"
    assert fit(*given, "--select", "bic", "--out", out).exit_code == 0
    assert (out / "path.png").exists()
    again = fit(*given, "--alpha", 0.1, "--out", out)
    assert again.exit_code == 0, again.output
    figures = pd.read_csv(out / "summary.csv").set_index("name")["value"]
    assert figures["sites"] == "3"
    assert {path.name for path in out.iterdir()} == FILES  # no picture of the fit before


def test_ctrl_c_keeps_what_was_exchanged(folder, tmp_path):
    """The signal comes when the first exchange has been told, so the fit has begun and is not over."""
    out = tmp_path / "out"
    words = ["fit", folder, "--target", "ill", "--features", FEATURES, "--cv", "50", "--in-process", "--out", out]
    with subprocess.Popen(
        [sys.executable, "-m", "cofed", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = ""
        while "exchange 1:" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        os.kill(process.pid, signal.SIGINT)
        _, rest = process.communicate()
    assert process.returncode == 130, said + rest
    assert "Stopped. What was exchanged until then is in" in flat(rest)
    assert len(pd.read_csv(out / "exchanges.csv")) >= 1
    last = json.loads((out / "progress.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["ok"], last["outcome"]) == ("end", False, "stopped")
    assert not (out / "model.safetensors").exists()


def test_help_teaches():
    result = fit("--help", columns=100)
    assert result.exit_code == 0
    for words in ("--family", "cofed fit hospitals --target ill", "model.safetensors", "coefficients.csv"):
        assert words in flat(result.output)


def test_weights_and_offsets_are_columns_of_the_tables(table, tmp_path):
    rng = np.random.default_rng(5)
    whole = table.assign(n=rng.integers(0, 4, len(table)), log_time=np.log(rng.uniform(1, 9, len(table))))
    folder, out = hospitals.write(tmp_path / "hospitals", whole), tmp_path / "out"
    given = ("--target", "visits", "--family", "poisson", "--features", "age,glucose", "--alpha", 0.05)
    result = fit(folder, *given, "--weight", "n", "--offset", "log_time", "--out", out)
    assert result.exit_code == 0, result.output
    used = int(np.count_nonzero(whole.n))
    assert f"{used} of 300 rows are used; {300 - used} have missing values or a weight of 0" in flat(result.output)
    model = load(out / "model.safetensors")
    rows = (whole[["age", "glucose"]], whole.visits, whole.hospital, whole.n, whole.log_time)
    np.testing.assert_allclose(model.coef_, FederatedPoisson(0.05).fit(*rows).coef_, atol=1e-10)
    again = fit(out / "study.toml", "--data", folder, "--out", tmp_path / "again")
    assert again.exit_code == 0, again.output
    np.testing.assert_array_equal(load(tmp_path / "again" / "model.safetensors").coef_, model.coef_)


def test_families_with_numbers_are_fitted_to_tables_and_kept_in_a_study(table, folder, tmp_path):
    given = ("--target", "visits", "--features", "age,glucose", "--family", "tweedie(1.5)", "--alpha", 0.02, "--infer")
    result = fit(folder, *given, "--out", tmp_path / "one")
    assert result.exit_code == 0, result.output
    model = load(tmp_path / "one" / "model.safetensors")
    again = FederatedGLM(cofed.Tweedie(1.5), alpha=0.02)
    again.fit(table[["age", "glucose"]], table["visits"], clients=table["hospital"])
    np.testing.assert_allclose(model.coef_, again.coef_, rtol=1e-7)
    assert "Tweedie model of visits" in (tmp_path / "one" / "report.html").read_text()
    assert "p_value" in (tmp_path / "one" / "coefficients.csv").read_text()
    # The study that was drafted says the same.
    said = (tmp_path / "one" / "study.toml").read_text()
    assert 'family = "tweedie(1.5)"' in said
    result = fit(tmp_path / "one" / "study.toml", "--data", folder, "--out", tmp_path / "two")
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(load(tmp_path / "two" / "model.safetensors").coef_, model.coef_, rtol=1e-9)


def test_several_responses_are_named_with_commas_and_kept_in_a_study(table, folder, tmp_path):
    given = ("--target", "cost,distance", "--features", "age,glucose", "--family", "mgaussian", "--alpha", 0.1)
    result = fit(folder, *given, "--infer", "--out", tmp_path / "one")
    assert result.exit_code == 0, result.output
    model = load(tmp_path / "one" / "model.safetensors")
    pooled = FederatedMultiTaskLasso(0.1).fit(table[["age", "glucose"]], table[["cost", "distance"]], table["hospital"])
    np.testing.assert_allclose(model.coef_, pooled.coef_, rtol=1e-9)
    assert "Linear model of several responses of cost, distance" in (tmp_path / "one" / "report.html").read_text()
    found = pd.read_csv(tmp_path / "one" / "coefficients.csv")
    assert found["response"].unique().tolist() == ["cost", "distance"]
    np.testing.assert_allclose(found["coef"][found["feature"] == "age"], model.coef_[:, 0])
    assert found["p_value"].notna().sum() == 4
    assert 'responses = ["distance"]' in (tmp_path / "one" / "study.toml").read_text()
    again = fit(tmp_path / "one" / "study.toml", "--data", folder, "--out", tmp_path / "two")
    assert again.exit_code == 0, again.output
    np.testing.assert_array_equal(load(tmp_path / "two" / "model.safetensors").coef_, model.coef_)


@pytest.mark.parametrize(
    ("family", "more", "said"),
    [
        ("mgaussian", (), "--family mgaussian needs several targets: --target systolic,diastolic"),
        ("mgaussian", ("--penalty", "group"), "--penalty group is for gaussian, binomial and multinomial, not for mga"),
        ("mgaussian", ("--site-effects", "fixed"), "--site-effects is not for mgaussian"),
        ("gamma", (), "y must be > 0, but"),
        ("gamma(2)", (), "--family: the family gamma takes no number, got 2"),
        ("tweedie(3)", (), "--family: Tweedie: power must be in [1, 2], got 3"),
        ("tweedie(a)", (), "--family: the numbers of a family are given like tweedie(1.5), got 'tweedie(a)'"),
        ("gaussian(1)", (), "--family: gaussian takes no numbers, got 'gaussian(1)'"),
        ("huber(1,2,3)", (), "--family: the family huber takes 1 at most (delta), got 1, 2, 3"),
        ("huber", ("--infer",), "--family huber has no intervals by the model: give --errors hc1, hc3 or site"),
        ("gamma", ("--penalty", "group"), "--penalty group is for gaussian, binomial and multinomial, not for gamma"),
    ],
)
def test_families_that_do_not_fit_are_refused(folder, tmp_path, family, more, said):
    given = ("--target", "visits", "--features", "age", "--alpha", 0.1, "--family", family, *more)
    result = fit(folder, *given, "--out", tmp_path / "new", columns=300)
    assert result.exit_code == 2
    assert said in flat(result.output)


def test_factors_and_limits_of_columns_are_those_of_the_estimator_and_kept_in_a_study(table, folder, tmp_path):
    single = ("--penalty-factor", "age=0", "--low", "glucose=0", "--high", "distance=0.001")
    given = ("--target", "cost", "--family", "gaussian", "--features", "age,glucose,distance", "--alpha", 0.1)
    result = fit(folder, *given, *single, "--out", tmp_path / "one")
    assert result.exit_code == 0, result.output
    model = load(tmp_path / "one" / "model.safetensors")
    limits = {"penalty_factor": {"age": 0.0}, "low": {"glucose": 0.0}, "high": {"distance": 0.001}}
    again = FederatedLasso(0.1, **limits)
    again.fit(table[["age", "glucose", "distance"]], table["cost"], clients=table["hospital"])
    np.testing.assert_allclose(model.coef_, again.coef_, rtol=1e-9, atol=1e-12)
    assert "penalty_factor = { age = 0.0 }" in (tmp_path / "one" / "study.toml").read_text()
    other = fit(tmp_path / "one" / "study.toml", "--data", folder, "--out", tmp_path / "two")
    assert other.exit_code == 0, other.output
    np.testing.assert_array_equal(load(tmp_path / "two" / "model.safetensors").coef_, model.coef_)


def test_factors_of_groups_are_those_of_the_estimator_and_kept_in_a_study(table, folder, tmp_path):
    given = ("--target", "cost", "--family", "gaussian", "--features", "age,glucose", "--alpha", 50)
    result = fit(folder, *given, "--penalty", "group", "--penalty-factor", "age=0", "--out", tmp_path / "one")
    assert result.exit_code == 0, result.output
    model = load(tmp_path / "one" / "model.safetensors")
    again = FederatedGroupLasso(50, penalty_factor={"age": 0.0})
    again.fit(table[["age", "glucose"]], table["cost"], clients=table["hospital"])
    np.testing.assert_allclose(model.coef_, again.coef_, rtol=1e-9, atol=1e-12)
    assert model.support_[0]
    other = fit(tmp_path / "one" / "study.toml", "--data", folder, "--out", tmp_path / "two")
    assert other.exit_code == 0, other.output
    np.testing.assert_array_equal(load(tmp_path / "two" / "model.safetensors").coef_, model.coef_)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--penalty-factor", "agee=0"), "--penalty-factor: 'agee' is no feature; they are 'age', 'glucose'."),
        (("--penalty-factor", "age"), "--penalty-factor must be columns with a number each, such as age=0,bmi=2"),
        (("--penalty-factor", "age=1,age=2"), "--penalty-factor has 'age' twice"),
        (("--low", "age=1"), "--low must be finite and at most 0, got age=1"),
        (("--high", "age=inf"), "--high must be finite and at least 0, got age=inf"),
        (("--low", "age=0", "--penalty", "group"), "--low is not for --penalty group: coefficients in one norm"),
        (("--site-effects", "fixed", "--cv", "leave-one-site-out"), "a site that is left out has no intercept"),
        (("--site-effects", "fixed", "--measure", "mae"), "judged by the deviance, not by --measure mae"),
    ],
)
def test_options_of_columns_and_sites_that_do_not_fit_are_refused(folder, tmp_path, options, sentence):
    given = ("--target", "cost", "--family", "gaussian", "--features", "age,glucose")
    result = fit(folder, *given, *options, "--out", tmp_path / "one", columns=200)
    assert result.exit_code == 2
    assert sentence in flat(result.output)


def test_options_that_a_study_would_leave_without_effect_are_refused(folder, tmp_path):
    study = tmp_path / "study.toml"
    study.write_text("")
    for options in (("--penalty", "elasticnet"), ("--infer",), ("--low", "age=0"), ("--seed", 3)):
        result = fit(study, "--data", folder, *options, "--out", tmp_path / "one", columns=200)
        assert result.exit_code == 2
        assert f"which says what to fit: leave out {options[0]}, or change the study" in flat(result.output)
