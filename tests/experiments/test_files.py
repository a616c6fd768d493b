"""Experiment files: what they say runs, and what is wrong with them is said with its line."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cofed
from cofed.cli import app
from cofed.experiments import build, registry, schema

SMALL = """
title = "Two methods"
seeds = 1
metrics = ["f1"]

[data]
source = "yuan_lasso"
clients = 4
samples = 8
d = 6
nonzeros = 2
test_clients = 0

[problem]
regularizer = { name = "L1", strength = 0.1, on = "coef" }

[run]
rounds = 4
local_steps = 2

[[algorithms]]
name = "FedDualAvg"
client_lr = [0.001, 0.01]

[[algorithms]]
name = "FedMiD"
client_lr = 0.01
client_prox = false
"""


def invoke(*arguments):
    """A command, in this process."""
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})


def mistakes(tmp_path, old, new):
    """What is said of the small file with a change."""
    assert old in SMALL
    path = tmp_path / "bad.toml"
    path.write_text(SMALL.replace(old, new))
    with pytest.raises(schema.FileError) as error:
        schema.load(path)
    return str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "sentences"),
    [
        ("rounds = 4", "rounds = 0", ["line 18: run.rounds is 0", "greater than or equal to 1"]),
        (
            "rounds = 4",
            "round = 4",
            ["line 18: run.round is not a key here (did you mean 'rounds'?)", "run.rounds is missing"],
        ),
        ('"FedMiD"', '"FedMid"', ["line 26: algorithms[2].name is 'FedMid' (did you mean 'FedMiD'?)", "FedDualAvg"]),
        (
            "client_prox = false",
            "prox = false",
            ["line 28: algorithms[2].prox is not a key here", "client_prox, label"],
        ),
        ("client_lr = [0.001, 0.01]", 'client_lr = "fast"', ["line 23: algorithms[1].client_lr is 'fast'"]),
        ("client_lr = [0.001, 0.01]", "client_lr = []", ["line 23: algorithms[1].client_lr", "at least 1 item"]),
        (
            "client_lr = [0.001, 0.01]",
            'client_lr = "a"',
            ["client_lr is 'a'; it should be a number, or a list of at least 1 item of that kind"],
        ),
        (
            "client_lr = [0.001, 0.01]",
            'client_lr = [0.1, "a"]',
            ["client_lr[2] is 'a'; it should be a number"],
        ),
        ("rounds = 4", 'rounds = "4"', ["run.rounds is '4'; it should be a whole number"]),
        ("client_prox = false", 'client_prox = "no"', ["line 28: algorithms[2].client_prox is 'no'"]),
        ('name = "L1"', 'name = "L7"', ["line 15: problem.regularizer.name is 'L7'", "L1Ball"]),
        ("strength = 0.1", "strenght = 0.1", ["line 15: problem.regularizer.strenght", "did you mean 'strength'?"]),
        ('"yuan_lasso"', '"yuan_lazzo"', ["line 7: data.source is 'yuan_lazzo'", "did you mean 'yuan_lasso'?", "csv"]),
        ("d = 6", "dimension = 6", ["line 10: data.dimension is not a key here", "nonzeros"]),
        ('["f1"]', '["f2"]', ["line 4: metrics[1] is 'f2'", "'precision'"]),
        ("seeds = 1", "seeds = ", ["line 3"]),
        ("[run]", "[runs]", ["runs is not a key here (did you mean 'run'?)", "run is missing"]),
    ],
)
def test_a_mistake_names_its_line_its_key_and_what_is_allowed(tmp_path, old, new, sentences):
    said = mistakes(tmp_path, old, new)
    for sentence in sentences:
        assert sentence in said
    assert "should be a valid" not in said  # pydantic's own words
    assert len(said.splitlines()) <= len(sentences)


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ('columns = ["objectve"]', "columns: 'objectve' is not a column of the history; it has"),
        ('columns = ["consensus"]', "columns: 'consensus' is not a column"),
        ('[tune]\nscore = "seconds"', "tune.score: 'seconds' is not a column"),
    ],
)
def test_columns_that_are_not_there_are_refused_before_anything_runs(tmp_path, monkeypatch, key, sentence):
    path = tmp_path / "file.toml"
    path.write_text(SMALL + "\n" + key if key.startswith("[") else key + "\n" + SMALL)
    monkeypatch.setattr(cofed, "run", None)
    result = invoke("run", str(path), "--out", str(tmp_path / "out"))
    assert result.exit_code != 0
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_every_algorithm_regularizer_and_generator_has_a_table():
    assert {"FedDualAvg", "DFedDA", "MCFedDA", "Scaffold"} <= set(registry.ALGORITHMS)
    assert {"L1", "Nuclear", "Box", "Zero"} <= set(registry.REGULARIZERS)
    assert {"yuan_lasso", "zhang_logistic"} <= set(registry.GENERATORS)
    table = schema.table_of("FedDualAvg", registry.ALGORITHMS["FedDualAvg"], schema.ALGORITHM)
    own = {"name", *(key.name for key in registry.keys_of(registry.ALGORITHMS["FedDualAvg"]))}
    assert own == {"name", "client_lr", "server_lr", "client_prox"}
    assert set(table.model_fields) == {*own, "mirror", "label"}
    assert table.model_validate({"name": "FedDualAvg", "client_lr": [0.1, 0.2]}).model_dump()["client_lr"] == [0.1, 0.2]


def test_a_file_runs_is_kept_and_tuned(tmp_path):
    path, out = tmp_path / "small.toml", tmp_path / "out"
    path.write_text(SMALL)
    result = invoke("run", str(path), "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "Two methods" in result.output
    folder = out / "small"
    config = json.loads((folder / "config.json").read_text())
    assert config["size"] == "user"
    assert json.loads((folder / "claims.json").read_text()) == []
    labels = [entry["label"] for entry in config["algorithms"]]
    assert labels == ["FedDualAvg", "FedMiD"]
    assert config["algorithms"][1]["hyperparameters"]["client_prox"] is False
    written = (folder / "numbers.parquet").stat().st_mtime_ns
    assert invoke("run", str(path), "--out", str(out)).exit_code == 0
    assert (folder / "numbers.parquet").stat().st_mtime_ns == written
    tuned = invoke("tune", str(path), "--out", str(tmp_path / "grid.csv"))
    assert tuned.exit_code == 0, tuned.output
    grid = pd.read_csv(tmp_path / "grid.csv")
    assert len(grid) == 3
    assert grid.groupby("algorithm")["best"].sum().tolist() == [1, 1]


def test_a_table_of_the_users_own(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 3)), columns=["age", "dose", "cost"]).assign(site=["a", "b"] * 20)
    frame.to_csv(tmp_path / "visits.csv", index=False)
    text = SMALL.partition("[data]")[0].replace('metrics = ["f1"]', "") + (
        '[data]\nsource = "csv"\npath = "visits.csv"\ntarget = "cost"\nclient = "site"\ntest_fraction = 0.25\n'
        + "[problem]"
        + SMALL.partition("[problem]")[2]
    )
    file = tmp_path / "own.toml"
    file.write_text(text)
    loaded = schema.load(file)
    setup = build.set_up(loaded, 0, tmp_path, loaded.run.model_dump(exclude_none=True))
    assert setup.federation.names == ("a", "b")
    assert setup.federation.n_samples + setup.evaluation.n_samples == 40
    with pytest.raises(schema.FileError, match="compare with the truth"):
        build.metrics(["f1"], None, "csv")


def test_the_example_is_valid_and_not_overwritten(tmp_path):
    path = tmp_path / "experiment.toml"
    assert invoke("init", str(path)).exit_code == 0
    assert len(schema.load(path).algorithms) == 3
    again = invoke("init", str(path))
    assert again.exit_code == 2
    assert "exists already" in again.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "no.toml"), "there is no file no.toml"),
        (("reproduce", "yuan2021-fig33"), "did you mean yuan2021-fig3"),
        (("reproduce",), "name at least one experiment"),
        (("reproduce", "--all", "yuan2021-fig3"), "--all or names of experiments, not both"),
        (("reproduce", "yuan2021-fig3", "--data", "no/such"), "there is no folder no/such"),
        (("reproduce", "yuan2021-fig3", "--judge", "--out", "no/such"), "there is no folder no/such with results"),
    ],
)
def test_the_command_line_refuses_in_a_sentence(arguments, sentence):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_a_data_folder_of_the_environment_must_be_there(monkeypatch):
    monkeypatch.setenv("COFED_DATA", "no/such")
    result = invoke("reproduce", "yuan2021-fig12")
    assert result.exit_code == 2
    assert "COFED_DATA: there is no folder no/such" in result.output


def test_all_experiments_are_listed():
    result = invoke("reproduce", "--list")
    assert result.exit_code == 0
    assert "zhang2025-fig4" in result.output
    assert "data folder" in result.output


def test_a_file_is_planned_before_it_runs(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    result = invoke("plan", str(path), "--seconds", "0.01", "--seeds", "3", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    dual, mid = found["algorithms"]
    assert (dual["label"], dual["configurations"], mid["configurations"]) == ("FedDualAvg", 2, 1)
    assert mid["tuning"] is None
    assert found["seeds"] == 3
    assert found["setups"] == 6
    numbers = pd.read_parquet(run_once(path, tmp_path) / "numbers.parquet")
    ends = numbers[numbers["round"] == 4].set_index("algorithm")
    for line in (dual, mid):
        sent = ends.loc[line["label"], ["bytes_down", "bytes_up"]].sum()
        assert line["run"]["bytes_on_wire"] == sent
        assert line["run"]["evaluations"] == (numbers["algorithm"] == line["label"]).sum() - 1
        assert line["seconds"] > 3 * line["run"]["running_seconds"] > 0
    assert found["bytes_on_wire"] == 3 * sum(line["run"]["bytes_on_wire"] for line in (dual, mid))
    assert found["seconds"] >= sum(line["seconds"] for line in (dual, mid))
    assert found["peak_bytes"] >= max(line["run"]["peak_bytes"] for line in (dual, mid))
    assert dual["tuning"]["bytes_on_wire"] == 2 * dual["run"]["bytes_on_wire"]


def run_once(path, tmp_path):
    """The folder of a run of the file."""
    assert invoke("run", str(path), "--out", str(tmp_path / "out")).exit_code == 0
    return tmp_path / "out" / path.stem


def test_a_plan_is_words_for_people_and_sentences_for_mistakes(tmp_path):
    path = tmp_path / "small.toml"
    head, _, _ = SMALL.partition("[[algorithms]]")
    path.write_text(head + '[[algorithms]]\nname = "FedAvg"\nclient_lr = 0.01\n')
    result = invoke("plan", str(path), "--seconds", "0.01")
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    for words in ("In all about", "1 run of 4 rounds, evaluated 4 times", "Memory:", "this runs out of memory at"):
        assert words in said
    assert "tuned" not in said
    path.write_text(SMALL.replace("rounds = 4", "rounds = 0"))
    wrong = invoke("plan", str(path))
    assert wrong.exit_code == 2
    assert "run.rounds is 0" in wrong.output
    path.write_text(head + '[[algorithms]]\nname = "Scaffold"\nclient_lr = 0.01\n')
    unfit = invoke("plan", str(path), "--seconds", "0.01")
    assert unfit.exit_code == 2
    assert "Scaffold does not fit" in unfit.output
    assert "must be > 0" in invoke("plan", str(path), "--seconds", "0").output
