"""`cofed federate` refuses what cannot work, in a sentence and before anything is started."""

import sys
import time

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")
pytest.importorskip("psutil")

from typer.testing import CliRunner

from cofed.cli import app
from cofed.flower.privacy import noised
from cofed.flower.processes import Processes, free_ports, toml


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
        (["--target", "cost", "--regularizer", "L1("], "'L1(' is not a regularizer of cofed"),
        (["--target", "cost", "--regularizer", "L1(-1)"], "strength"),
        (["--target", "cost", "--loss", "open('x')"], "is not a loss of cofed"),
        (["--target", "cost", "--rounds", "0"], "it must be at least 1, got 0"),
    ],
)
def test_bad_input_gets_a_sentence(sites, tmp_path_factory, options, words):
    out = tmp_path_factory.mktemp("out")
    assert words in said(sites, out, *options)
    assert list(out.iterdir()) == []


def test_a_folder_without_sites_and_one_with_gaps_are_refused(tmp_path, sites):
    (tmp_path / "empty").mkdir()
    assert "holds no site" in said(tmp_path / "empty", tmp_path / "out", "--target", "cost")
    pd.DataFrame({"age": [1.0, None], "cost": [3.0, 4.0]}).to_csv(sites / "bern.csv", index=False)
    assert "has 1 missing values" in said(sites, tmp_path / "out", "--target", "cost")


def test_what_is_started_is_stopped_also_what_it_has_detached(tmp_path):
    script = "import subprocess, sys, time; subprocess.Popen(['sleep', '60'], start_new_session=True); time.sleep(60)"
    with Processes(tmp_path) as processes:
        processes.start("one", sys.executable, "-c", script)
        began = time.monotonic()
        while len(processes.ours()) < 2:
            assert time.monotonic() - began < 30
            time.sleep(0.05)
        found = processes.ours()
        assert processes.environment()["FLWR_TELEMETRY_ENABLED"] == "0"
    assert processes.ours() == []
    assert not any(process.is_running() and process.status() != "zombie" for process in found)


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
