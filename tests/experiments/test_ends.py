"""Results belong to a file and its data, bad ends are said, and nothing is thrown away without a word."""

import json
import os
import signal

import numpy as np
import pandas as pd
import pytest
from tests.experiments.test_files import SMALL, invoke

import cofed
from cofed._util.files import NotWritten
from cofed.engine import folders
from cofed.experiments import experiment_file, measure, results
from cofed.experiments.parts import Parts, Piece

HEAD, _, _ = SMALL.partition("[[algorithms]]")
ONE = '[[algorithms]]\nname = "FedDualAvg"\nclient_lr = 0.01\n'


def of_csv(tmp_path, methods=ONE, seed=0):
    """An experiment file on a table, and the command that runs it."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(40, 3)), columns=["age", "dose", "cost"]).assign(site=["a", "b"] * 20)
    frame.to_csv(tmp_path / "visits.csv", index=False)
    before, _, after = HEAD.partition("[data]")
    data = '[data]\nsource = "csv"\npath = "visits.csv"\ntarget = "cost"\nclient = "site"\n[problem]'
    text = before.replace('metrics = ["f1"]', "") + data + after.partition("[problem]")[2] + methods
    (tmp_path / "own.toml").write_text(text)
    return "run", str(tmp_path / "own.toml"), "--out", str(tmp_path / "out")


def objective(folder):
    """Where a run ended."""
    return pd.read_parquet(folder / "numbers.parquet")["objective"].iloc[-1]


def test_a_changed_table_is_run_again_and_the_old_results_stay(tmp_path):
    command, folder = of_csv(tmp_path), tmp_path / "out" / "own"
    assert invoke(*command).exit_code == 0
    before = objective(folder)
    of_csv(tmp_path, seed=1)  # the same file, and other numbers in the table
    again = invoke(*command)
    assert again.exit_code == 0, again.output
    assert "The results that were in" in again.output
    assert "data was" in again.output
    assert objective(folder) != before
    assert objective(tmp_path / "out" / "own.old-1") == before
    kept = (folder / "numbers.parquet").stat().st_mtime_ns
    assert "The results that were in" not in invoke(*command).output
    assert (folder / "numbers.parquet").stat().st_mtime_ns == kept


def test_a_changed_file_says_what_has_changed(tmp_path):
    command, path = of_csv(tmp_path), tmp_path / "own.toml"
    invoke(*command)
    path.write_text(path.read_text().replace("rounds = 4", "rounds = 5"))
    assert "rounds was 4 and is now 5" in invoke(*command).output
    assert (tmp_path / "out" / "own.old-1" / "config.json").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [("config.json", b""), ("config.json", b"[]"), ("numbers.parquet", b"half"), ("claims.json", b"{")],
)
def test_damaged_results_are_set_aside_and_made_again(tmp_path, name, content):
    command, folder = of_csv(tmp_path), tmp_path / "out" / "own"
    invoke(*command)
    before = objective(folder)
    (folder / name).write_bytes(content)
    again = invoke(*command)
    assert again.exit_code == 0, again.output
    assert "The results that were in" in again.output
    assert objective(folder) == before


def test_results_without_a_key_or_with_another_value_are_made_again(tmp_path):
    """Every key of config.json taken away and replaced: none is shown as if nothing had been."""
    command, folder = of_csv(tmp_path), tmp_path / "out" / "own"
    invoke(*command)
    text = results.definition(experiment_file.opened(tmp_path / "own.toml")[1], "user", [0])
    assert results.finished(folder, text)
    config = json.loads((folder / "config.json").read_text())
    for key in config:
        without = {name: value for name, value in config.items() if name != key}
        for other in (without, config | {key: None}, config | {key: [1]}, config | {key: {"a": "b"}}):
            if "content_hash" not in other:
                continue  # as an older version has written it
            (folder / "config.json").write_text(json.dumps(other))
            with pytest.raises(ValueError, match=r"config.json (is damaged|was changed)"):
                results.read_config(folder)
            assert not results.finished(folder, text)
    (folder / "config.json").write_text(json.dumps(config))
    assert results.finished(folder, text)


@pytest.mark.parametrize("rate", [1.0, 1e30])
def test_divergence_is_in_the_table_the_report_and_the_exit_code(tmp_path, rate):
    """At the first rate all numbers stay finite."""
    path, out, page = tmp_path / "bad.toml", tmp_path / "out", tmp_path / "page.html"
    path.write_text(HEAD.replace("rounds = 4", "rounds = 20") + ONE + ONE.replace("0.01", str(rate)))
    result = invoke("run", str(path), "--out", str(out))
    assert result.exit_code == 1, result.output
    rows = [line for line in result.output.splitlines() if "FedDualAvg" in line]
    assert "completed" in rows[0]
    assert "diverged" in rows[1]
    assert "FedDualAvg (2) diverged. Smaller steps" in result.output
    assert invoke("run", str(path), "--out", str(out)).exit_code == 1  # of results that are kept too
    assert invoke("report", str(out), "--out", str(page)).exit_code == 0
    assert "1 of 1 diverged" in page.read_text()


def test_a_grid_that_diverges_as_a_whole_leaves_the_others_their_results(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(HEAD.replace("rounds = 4", "rounds = 20") + ONE.replace("0.01", "[1e20, 1e30]") + ONE)
    result = invoke("run", str(path), "--out", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "FedDualAvg diverged" in result.output
    config = json.loads((tmp_path / "out" / "bad" / "config.json").read_text())
    assert [entry["outcomes"]["0"] for entry in config["algorithms"]] == ["diverged", "completed"]
    tuned = invoke("tune", str(path))
    assert tuned.exit_code == 1
    assert "every configuration of FedDualAvg diverged" in tuned.output


@pytest.mark.parametrize("command", ["run", "tune"])
def test_every_method_is_checked_before_the_first_one_runs(tmp_path, monkeypatch, command):
    path = tmp_path / "file.toml"
    path.write_text(HEAD + ONE + '[[algorithms]]\nname = "Scaffold"\nclient_lr = 0.01\n')
    monkeypatch.setattr(cofed, "run", None)
    monkeypatch.setattr(cofed, "tune", None)
    out = ("--out", str(tmp_path / "out")) if command == "run" else ()
    result = invoke(command, str(path), *out)
    assert result.exit_code == 2, result.output
    assert "algorithm 'Scaffold': Scaffold does not fit" in result.output


def test_a_score_is_maximised_where_more_of_it_is_better(tmp_path):
    path = tmp_path / "file.toml"
    grid = ONE.replace("0.01", "[1e-6, 0.02]")
    path.write_text(HEAD.replace("rounds = 4", "rounds = 40") + '[tune]\nscore = "f1"\n' + grid)
    result = invoke("tune", str(path), "--out", str(tmp_path / "grid.csv"))
    assert result.exit_code == 0, result.output
    table = pd.read_csv(tmp_path / "grid.csv")
    assert table.loc[table["best"], "score"].item() == table["score"].max() > table["score"].min()


def test_ctrl_c_in_a_tuning_shows_the_grids_that_are_done(tmp_path, monkeypatch):
    path, real, calls = tmp_path / "file.toml", measure.tune, []

    def tune(*given):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given)

    path.write_text(SMALL)
    monkeypatch.setattr(measure, "tune", tune)
    result = invoke("tune", str(path), "--out", str(tmp_path / "grid.csv"))
    assert result.exit_code == 130, result.output
    assert "those that were are shown" in result.output
    assert pd.read_csv(tmp_path / "grid.csv")["algorithm"].unique().tolist() == ["FedDualAvg"]


def test_a_folder_is_one_experiments_at_a_time(tmp_path):
    command, folder = of_csv(tmp_path), tmp_path / "out" / "own"
    folder.mkdir(parents=True)
    with folders.held(folder):
        busy = invoke(*command)
    assert busy.exit_code == 2
    assert "another run writes into" in busy.output


def test_parts_of_another_definition_are_kept(tmp_path):
    parts = Parts(tmp_path / "parts", '{"rounds": 1}')
    parts.put("a", pd.DataFrame({"x": [1.0]}), {"best": 1})
    said = results.make_room(tmp_path, '{"rounds": 2}')
    assert said is not None
    assert "rounds was 1 and is now 2" in said
    assert "a" in Parts(tmp_path / "parts.old-1", '{"rounds": 1}')


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_a_damaged_part_is_done_again(tmp_path, ending):
    parts = Parts(tmp_path / "parts", "{}")
    parts.put("a", pd.DataFrame({"x": [1.0]}), {"best": 1})
    parts.path("a", ending).write_bytes(b"half")
    assert "a" not in parts
    piece = Piece("a", 1.0, lambda: (pd.DataFrame({"x": [2.0]}), {"best": 2}))
    assert parts.done(piece)[1] == {"best": 2}


def test_a_disk_that_is_full_at_the_end_is_said_and_the_parts_are_kept(tmp_path, monkeypatch):
    def full(*given):
        raise NotWritten(28, "No space left on device", str(tmp_path / "numbers.parquet"))

    command = of_csv(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(results, "write", full)
        failed = invoke(*command)
    assert failed.exit_code == 1
    assert "No space left on device; what is done is kept" in failed.output
    with monkeypatch.context() as patch:
        patch.setattr(cofed, "run", None)  # the runs are done
        assert invoke(*command).exit_code == 0


def test_ctrl_c_exits_with_130_and_goes_on(tmp_path, monkeypatch):
    command, real = of_csv(tmp_path), measure.run

    def stopped(*given):
        os.kill(os.getpid(), signal.SIGINT)
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(measure, "run", stopped)
        assert invoke(*command).exit_code == 130
    assert invoke(*command).exit_code == 0
