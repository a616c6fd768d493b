"""`cofed federate` refuses what cannot work, in a sentence and before anything is started."""

import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cofed
from cofed.cli import app
from cofed.flower.federate import follow, pooled, site_files
from cofed.flower.lock import exclusive
from cofed.flower.privacy import noised
from cofed.flower.processes import Processes, TerminationSignal, ending_in_order, free_ports, marked, toml, undisturbed
from cofed.flower.run_folder import RunFolder
from cofed.flower.settings import NetworkSpec, ServeOptions


@pytest.fixture
def sites(tmp_path):
    """Two sites, one as a file and one as a folder."""
    table = pd.DataFrame({"age": [1.0, 2.0], "cost": [3.0, 4.0]})
    table.to_csv(tmp_path / "rome.csv", index=False)
    (tmp_path / "oslo").mkdir()
    table.to_parquet(tmp_path / "oslo" / "patients.parquet")
    return tmp_path


def said(sites, out, *options):
    """What the command says, in one line."""
    arguments = ["federate", str(sites), "--out", str(out), *options]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "price"], "has no column 'price'; it has ['age', 'cost']"),
        (["--target", "cost", "--algorithm", "FedMagic(1)"], "'FedMagic(1)' is not an algorithm of cofed"),
        (
            ["--target", "cost", "--algorithm", "FedAvgg(0.1)"],
            "an algorithm of cofed (did you mean 'FedAvg'?), such as",
        ),
        (["--target", "cost", "--algorithm", "mine.Own(0.1)"], "; code of your own takes an app of your own (cofed."),
        (["--target", "cost", "--regularizer", "L1("], "'L1(' is not a regularizer of cofed"),
        (["--target", "cost", "--regularizer", "L1(-1)"], "strength"),
        (["--target", "cost", "--loss", "open('x')"], "is not a loss of cofed"),
        (["--target", "cost", "--rounds", "0"], "it must be at least 1, got 0"),
        (["--target", "cost", "--quorum", "3"], "quorum is 3, but only 2 clients are asked in a round"),
        (["--target", "cost", "--deadline", "-5"], "it must be at least 1, got -5"),
        (["--target", "cost", "--weights", "size"], "weights must be 'uniform', 'samples'"),
        (["--target", "cost", "--algorithm", "DFedDA(0.1)"], "DFedDA has no server"),
        (["--target", "cost", "--algorithm", "Scaffold(0.1)"], "Scaffold"),  # has no place for L1
        (["--target", "cost", "--loss", "Logistic()"], "labels"),
    ],
)
def test_bad_input_gets_a_sentence(sites, tmp_path_factory, options, words):
    out = tmp_path_factory.mktemp("out")
    assert words in said(sites, out, *options)
    assert {path.name for path in out.iterdir()} <= {".in-use"}


def test_a_folder_without_sites_and_one_with_gaps_are_refused(tmp_path, sites):
    (tmp_path / "empty").mkdir()
    assert "holds no site" in said(tmp_path / "empty", tmp_path / "out", "--target", "cost")
    pd.DataFrame({"age": [1.0, None], "cost": [3.0, 4.0]}).to_csv(sites / "bern.csv", index=False)
    assert "has 1 missing values" in said(sites, tmp_path / "out", "--target", "cost")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"weight": [1.0], "cost": [2.0]}, "client 'zug': its columns differ from those of client"),
        ({"age": ["old"], "cost": [2.0]}, "column 'age' holds"),
        ({"cost": [2.0]}, "has no column beside 'cost'"),
        ({}, "zug.csv cannot be read as a table"),
    ],
)
def test_a_site_that_does_not_fit_is_named(tmp_path, sites, table, words):
    pd.DataFrame(table).to_csv(sites / "zug.csv", index=False)
    words_said = said(sites, tmp_path / "out", "--target", "cost")
    assert words in words_said
    assert "Starting" not in words_said
    assert not (tmp_path / "out" / "logs").exists()


def test_the_folder_of_another_run_is_refused_before_anything_starts(sites, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    problem = cofed.Problem(regularizer=cofed.On(cofed.L1(0.01), "coef"))
    spec = NetworkSpec.checked(problem, cofed.FedAvg(0.1), ServeOptions(rounds=10, clients=2, weights="samples"))
    RunFolder(out / "run").write_definition(spec.description() | {"run": "0" * 32, "cards": []})
    assert "is of FedAvg, and this one is of FedDualAvg; give the same" in said(sites, out, "--target", "cost")
    assert not (out / "logs").exists()


def test_a_folder_that_another_run_uses_is_refused(sites, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    with exclusive(out):
        assert "is in use by another run" in said(sites, out, "--target", "cost")


def test_tables_of_other_kinds_and_orders_are_brought_together(tmp_path):
    pd.DataFrame({"a": [1, 2], "b": [3.5, 4.5], "cost": [1, 2]}).to_csv(tmp_path / "oslo.csv", index=False)
    pd.DataFrame({"b": [5, 6], "cost": [0.5, 2.5], "a": [7.5, 8.5]}).to_csv(tmp_path / "rome.csv", index=False)
    found = pooled(site_files(tmp_path), "cost")
    assert found.feature_names == ("a", "b")
    np.testing.assert_array_equal(found.client("rome")[0], [[7.5, 5], [8.5, 6]])
    assert found.client("oslo")[1].dtype == np.float64


def test_what_is_started_is_stopped_also_what_it_has_detached(tmp_path):
    script = "import subprocess, sys, time; subprocess.Popen(['sleep', '900'], start_new_session=True); time.sleep(900)"
    with Processes(tmp_path) as processes:
        processes.start("one", sys.executable, "-c", script)
        while len(processes.ours()) < 3:  # the guardian is one
            time.sleep(0.05)
        found = processes.ours()
        assert processes.environment()["FLWR_TELEMETRY_ENABLED"] == "0"
    assert processes.ours() == []
    assert not any(process.is_running() and process.status() != "zombie" for process in found)


def test_what_is_started_ends_also_where_the_one_who_started_it_is_killed(tmp_path):
    script = """
import sys, time
from pathlib import Path
from cofed.flower.processes import Processes, marked
processes = Processes(Path(sys.argv[1]))
processes.start("one", sys.executable, "-c", "import time; time.sleep(900)")
print(processes.mark, flush=True)
time.sleep(900)
"""
    with subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True) as owner:
        mark = owner.stdout.readline().strip()
        assert len(marked(mark)) == 2
        owner.kill()
    began = time.monotonic()
    while marked(mark):
        assert time.monotonic() - began < 60
        time.sleep(0.05)


def test_a_signal_to_end_ends_in_order_and_does_not_break_off_the_stopping():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(TerminationSignal, match="SIGTERM"), ending_in_order():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    with undisturbed():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)


class Fake(Processes):
    """Programs that end at once instead of Flower's."""

    def add(self, name, code):
        self.start(name, sys.executable, "-c", f"print('words of {name}'); raise SystemExit({code})").wait()


@pytest.mark.parametrize(
    ("ended", "needed", "blamed"), [(["run"], 1, "run"), (["superlink"], 1, "superlink"), (["oslo", "rome"], 1, "oslo")]
)
def test_a_program_that_ends_too_early_is_named(tmp_path, ended, needed, blamed):
    with Fake(tmp_path) as processes:
        for name in ("superlink", "oslo", "rome", "run"):
            if name in ended:
                processes.add(name, 0)
            else:
                processes.start(name, "sleep", "900")
        with pytest.raises(RuntimeError, match=rf"the {blamed} ended before the run did(.|\n)*words of {blamed}"):
            list(follow(processes, tmp_path, needed))


def test_one_dead_site_does_not_end_a_run_with_a_quorum(tmp_path):
    (tmp_path / "run").mkdir()
    with Fake(tmp_path) as processes:
        for name in ("superlink", "rome", "run"):
            processes.start(name, "sleep", "900")
        processes.add("oslo", 1)
        lines = follow(processes, tmp_path, 1)
        (tmp_path / "run" / "progress.jsonl").write_text('{"kind": "round"}\n{"kind": "end"}\n')
        assert [event["kind"] for event in lines] == ["round", "end"]


def test_ports_are_free_and_settings_are_toml():
    assert len(set(free_ports(3))) == 3
    assert [toml(value) for value in (True, 3, 0.5, "a b")] == ["true", "3", "0.5", "'a b'"]
    with pytest.raises(ValueError, match="quote"):
        toml("it's")


def test_an_update_is_clipped_and_noised_as_promised():
    centre, up = {"t": np.zeros(()), "w": np.ones(20_000)}, {"t": np.ones(()), "w": np.full(20_000, 3.0)}
    moves = {"t": False, "w": True}
    sent = noised(centre, moves, up, 0.5, 1e-9, np.random.default_rng(0))
    assert sent["t"] == 0  # what no gradient moves is sent as everybody has it
    assert np.linalg.norm(sent["w"] - 1) == pytest.approx(0.5)
    noisy = noised(centre, moves, up, 0.5, 4.0, np.random.default_rng(0))
    assert (noisy["w"] - sent["w"]).std() == pytest.approx(2.0, rel=0.02)
    near = {"t": np.zeros(()), "w": np.ones(20_000) + 1e-6}
    np.testing.assert_allclose(noised(centre, moves, near, 0.5, 1e-12, np.random.default_rng(0))["w"], near["w"])
